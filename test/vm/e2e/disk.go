// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/drover-project/drover/test/vm/artifacts"
	"github.com/drover-project/drover/test/vm/powercut"
)

// diskCuts is how often the power is cut on each file system.
const diskCuts = 20

// disk cuts the power in the middle of loads. It needs machines of its own, and no cluster.
func disk(ctx context.Context) error {
	if err := artifacts.EnsurePackages(ctx); err != nil {
		return err
	}
	cache, err := artifacts.Open("")
	if err != nil {
		return err
	}
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv("SEED"), "1"), 10, 64)
	if err != nil {
		return fmt.Errorf("SEED: %w", err)
	}
	cuts, err := strconv.Atoi(cmp.Or(os.Getenv("CUTS"), strconv.Itoa(diskCuts)))
	if err != nil {
		return fmt.Errorf("CUTS: %w", err)
	}
	begin := time.Now()
	result, err := powercut.Run(ctx, cache, powercut.Options{
		Cuts: cuts, Seed: seed, NoSync: os.Getenv("BREAK") == "fsync",
		Say: func(format string, args ...any) { fmt.Printf(format+"\n", args...) },
	})
	if err != nil {
		return err
	}
	line, err := json.Marshal(struct {
		powercut.Result

		Break   string  `json:"break,omitempty"`
		Seed    uint64  `json:"seed"`
		Seconds float64 `json:"seconds"`
	}{result, os.Getenv("BREAK"), seed, time.Since(begin).Round(100 * time.Millisecond).Seconds()})
	if err != nil {
		return fmt.Errorf("print the result: %w", err)
	}
	fmt.Printf("RESULT %s\n", line)
	return result.Err()
}
