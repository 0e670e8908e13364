// SPDX-License-Identifier: Apache-2.0

// Package e2e tests promises about the whole: a control plane, the operator as a process, and real
// agents on hollow nodes, all shared by its tests. What a test believes about kernels it reads from
// the fake kernels' journals, never from a status.
package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/internal/testkit/fleet"
)

// The hollow nodes run these kernels by turns: even ones the first, odd ones the second.
const (
	kernelEven = "6.1.0-44-amd64"
	kernelOdd  = "6.12.57+deb12-amd64"
)

var (
	everyNode = []string{"hollow-0", "hollow-1", "hollow-2", "hollow-3", "hollow-4", "hollow-5"}
	evenNodes = []string{"hollow-0", "hollow-2", "hollow-4"}
	oddNodes  = []string{"hollow-1", "hollow-3", "hollow-5"}
)

// callDeadline is how long a call of a fake kernel may take until it is left behind.
const callDeadline = 3 * time.Second

// startTimeout bounds the start of the fleet, compilation included.
const startTimeout = 15 * time.Minute

// shared is what all tests use. They run one after another: some stop the API server or the
// operator.
var shared struct {
	*fleet.Fleet
	// watch is the administrator's client, which can watch.
	watch client.WithWatch
	// outage: a test has stopped the API server.
	outage bool
}

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	shared.Fleet, err = fleet.Start(ctx, fleet.Options{
		Nodes: len(everyNode), Kernels: []string{kernelEven, kernelOdd}, HollowArgs: []string{"--kernel-call-deadline=" + callDeadline.String()},
		OperatorArgs: []string{"--signer-image=" + signerImage},
		Say:          func(format string, args ...any) { fmt.Printf(format+"\n", args...) },
	})
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, shared.Stop()) }()
	shared.watch, err = client.NewWithWatch(shared.AdminConfig, client.Options{Scheme: shared.Admin.Scheme()})
	if err != nil {
		return 1, fmt.Errorf("connect: %w", err)
	}
	// What fails in parallel waits for the most part, and does not work.
	if err := flag.Set("test.parallel", "4"); err != nil {
		return 1, fmt.Errorf("run in parallel: %w", err)
	}
	code = m.Run()
	if code != 0 {
		tellLog("operator.log", shared.Dir())
	}
	return code, nil
}

// tellLog prints the end of a log, for who reads about a failure after the fleet is gone.
func tellLog(name, dir string) {
	content, err := os.ReadFile(dir + "/" + name)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return
	}
	lines := strings.Split(string(content), "\n")
	fmt.Printf("--- end of %s\n%s\n", name, strings.Join(lines[max(len(lines)-60, 0):], "\n"))
}
