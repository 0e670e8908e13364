// SPDX-License-Identifier: Apache-2.0

// Command vulncheck looks for known vulnerabilities in what the programs call, by govulncheck. It
// ends with
//
//	0   none is known
//	1   some are, or the sources cannot be read
//	75  nothing was checked: the database is out of reach
//
// govulncheck itself does not tell the last from the second. GOVULNDB names another database, also
// a file:// one.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

const (
	// Newest release; the update bot does not know this line.
	govulncheck = "golang.org/x/vuln/cmd/govulncheck@v1.9.0"
	database    = "https://vuln.go.dev"
	// unchecked is sysexits.h's "try again later".
	unchecked = 75
	patience  = 30 * time.Second
)

// errUnchecked says that nothing was checked.
var errUnchecked = errors.New("nothing was checked")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Stdout, os.Getenv("GOVULNDB"), os.Args[1:])
	switch {
	case errors.Is(err, errUnchecked):
		fmt.Fprintln(os.Stderr, "vulncheck: UNCHECKED:", err)
		os.Exit(unchecked)
	case err != nil:
		fmt.Fprintln(os.Stderr, "vulncheck:", err)
		os.Exit(1)
	}
}

// run checks packages, all of the main module if none is named.
func run(ctx context.Context, out io.Writer, db string, packages []string) error {
	if db == "" {
		db = database
	}
	if err := reach(ctx, db); err != nil {
		return err
	}
	if len(packages) == 0 {
		packages = []string{"./..."}
	}
	check := exec.CommandContext(ctx, "go", append([]string{"run", govulncheck, "-db", db}, packages...)...)
	check.Stdout, check.Stderr = out, out
	if err := check.Run(); err != nil {
		return fmt.Errorf("govulncheck (its words are above): %w", err)
	}
	return nil
}

// reach asks a database for its index's date.
func reach(ctx context.Context, db string) error {
	if !strings.HasPrefix(db, "http") {
		return nil
	}
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	url := strings.TrimSuffix(db, "/") + "/index/db.json"
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("GOVULNDB: %w", err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("%w: the database of vulnerabilities is out of reach: %w: allow it, or name a mirror in GOVULNDB",
			errUnchecked, err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%w: the database of vulnerabilities answers %s to %s: name another in GOVULNDB", errUnchecked,
			answer.Status, url)
	}
	return nil
}
