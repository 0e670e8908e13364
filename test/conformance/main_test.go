// SPDX-License-Identifier: Apache-2.0

// Package conformance holds the black-box tests of what Drover owes to users and clients of Kernel
// Module Management: each is named by its number in the list of conformance cases, and numbers.tsv
// says what becomes of every number. They run on one control plane with the operator as a process
// and real agents on hollow nodes. `make conformance` runs and counts them.
//
// Tests run at the same time. Each has nodes of its own, so that none sees what another does to a
// kernel.
package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/internal/testkit/fleet"
)

// What the hollow nodes run.
const (
	kernelDebian = "6.1.0-44-amd64"
	kernelFedora = "5.8.18-100.fc31.x86_64"
	kernelPlus   = "6.1.0+"
)

// kernels by turns: most tests need the first only.
var kernels = []string{kernelDebian, kernelDebian, kernelDebian, kernelDebian, kernelFedora, kernelPlus}

const (
	nodeCount = 72
	// startTimeout bounds the start of the fleet, compilation included.
	startTimeout = 15 * time.Minute
	// registry holds every image there is.
	registry = "registry.example.com"
	// noRegistry holds none.
	noRegistry = "missing.example.com"
)

// shared is what all tests use.
var shared struct {
	*fleet.Fleet
	// watch is the administrator's client, which can watch.
	watch client.WithWatch

	mu sync.Mutex
	// free are the names of the nodes that no test has yet, by kernel.
	free map[string][]string
}

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	shared.Fleet, err = fleet.Start(ctx, fleet.Options{
		Nodes: nodeCount, Kernels: kernels, ImagePattern: "^" + registry + "/",
		Say: func(format string, args ...any) { fmt.Printf(format+"\n", args...) },
	})
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, shared.Stop()) }()
	shared.watch, err = client.NewWithWatch(shared.AdminConfig, client.Options{Scheme: shared.Admin.Scheme()})
	if err != nil {
		return 1, fmt.Errorf("connect: %w", err)
	}
	truth, err := shared.Truth(ctx)
	if err != nil {
		return 1, err
	}
	shared.free = map[string][]string{}
	for i := range truth {
		shared.free[truth[i].Kernel] = append(shared.free[truth[i].Kernel], truth[i].Name)
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
		fmt.Fprintln(os.Stderr, "conformance:", err)
		return
	}
	lines := strings.Split(string(content), "\n")
	fmt.Printf("--- end of %s\n%s\n", name, strings.Join(lines[max(len(lines)-60, 0):], "\n"))
}
