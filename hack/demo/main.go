// SPDX-License-Identifier: Apache-2.0

// Command demo builds what `make demo` runs, test/demo with the operator and the hollow nodes, says
// how far it is, and becomes that program. It is small: it has to be compiled before it can say
// anything. On a new machine the modules of the control plane arrive while the rest is compiled;
// test/demo compiles it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/drover-project/drover/internal/testkit/gobuild"
)

const (
	program = "bin/demo"
	control = "tools/devcluster"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := build(ctx)
	stop()
	if err == nil {
		err = syscall.Exec(program, []string{program}, os.Environ())
	}
	fmt.Fprintln(os.Stderr, "demo:", err)
	os.Exit(1)
}

func build(ctx context.Context) error {
	begin := time.Now()
	say := func(format string, args ...any) {
		fmt.Printf("[%5.1fs] "+format+"\n", append([]any{time.Since(begin).Seconds()}, args...)...)
	}
	ctx, cancel := context.WithCancel(ctx)
	fetched := make(chan struct{})
	go func() {
		defer close(fetched)
		if needsControlPlane() {
			// What fails here fails again when it is compiled, which says why.
			_ = gobuild.Build{
				Name: "the control plane", Dir: control, Env: []string{"GOWORK=off"}, Packages: []string{"."}, Say: say,
			}.Fetch(ctx)
		}
	}()
	err := gobuild.Build{
		Name: "demo, operator and hollow nodes", Dir: ".", Output: "bin/",
		Packages: []string{"./test/demo", "./cmd/drover-operator", "./cmd/drover-hollow"}, Say: say,
	}.Run(ctx)
	if err != nil {
		cancel()
	}
	<-fetched
	cancel()
	return err
}

// needsControlPlane tells whether its modules may be missing.
func needsControlPlane() bool {
	if os.Getenv("DROVER_DEVCLUSTER") != "" || os.Getenv("KUBERNETES") != "" {
		return false
	}
	_, err := os.Stat("bin/devcluster")
	return errors.Is(err, fs.ErrNotExist)
}
