// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command loadtime runs on a virtual node and compares two ways to load the same module, in turn:
// the agent's own, which is package host with the kernel call in a child, and kmod's modprobe. Both
// start one process and make one finit_module call; ours reads the kernel's log before, modprobe
// looks the module up in its index. The unloads in between are not measured. It prints one line of
// JSON.
//
// With -compute it takes the time of some arithmetic instead, in milliseconds: on the node and on
// the host, this tells how slow the emulation is.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/drover-project/drover/internal/agent/host"
)

type options struct {
	kcall, modprobe, name, file string
	rounds                      int
	compute                     bool
}

// result holds medians, in milliseconds.
type result struct {
	Rounds   int     `json:"rounds"`
	Agent    float64 `json:"agent"`
	Modprobe float64 `json:"modprobe"`
	// Call is finit_module alone, made by this process.
	Call float64 `json:"call"`
}

func main() {
	var o options
	flag.StringVar(&o.kcall, "kcall", "", "the agent's program for kernel calls")
	flag.StringVar(&o.modprobe, "modprobe", "modprobe", "kmod's modprobe")
	flag.StringVar(&o.name, "name", "", "the module's name, as modprobe finds it")
	flag.StringVar(&o.file, "file", "", "the module's file")
	flag.IntVar(&o.rounds, "rounds", 20, "how often each way is taken")
	flag.BoolVar(&o.compute, "compute", false, "take the time of some arithmetic instead")
	flag.Parse()
	if o.compute {
		fmt.Println(compute())
		return
	}
	if err := o.run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "loadtime:", err)
		os.Exit(1)
	}
}

func (o options) run(ctx context.Context) error {
	h, err := host.New(host.Options{Root: "/", Command: []string{o.kcall}, Deadline: time.Minute})
	if err != nil {
		return err
	}
	ways := []func() error{
		func() error {
			return o.withFile(func(f *os.File) error { return h.Load(ctx, host.LoadRequest{Name: o.name, File: f}) })
		},
		func() error { return exec.CommandContext(ctx, o.modprobe, o.name).Run() },
		func() error {
			return o.withFile(func(f *os.File) error { return unix.FinitModule(int(f.Fd()), "", 0) })
		},
	}
	took := make([][]float64, len(ways))
	for round := range o.rounds + 1 {
		for i, way := range ways {
			begin := time.Now()
			err := way()
			if spent := time.Since(begin); round > 0 { // the first reads everything from the disk
				took[i] = append(took[i], float64(spent.Microseconds())/1000)
			}
			if err != nil {
				return fmt.Errorf("way %d: %w", i, err)
			}
			if _, live, err := h.Module(o.name); err != nil || !live {
				return fmt.Errorf("way %d did not load %s: %w", i, o.name, errors.Join(err, errors.New("it is not live")))
			}
			if err := unix.DeleteModule(o.name, unix.O_NONBLOCK); err != nil {
				return fmt.Errorf("unload %s: %w", o.name, err)
			}
		}
	}
	line, err := json.Marshal(result{Rounds: o.rounds, Agent: median(took[0]), Modprobe: median(took[1]), Call: median(took[2])})
	if err != nil {
		return fmt.Errorf("print the result: %w", err)
	}
	fmt.Println(string(line))
	return nil
}

// compute mixes a buffer that fits into no cache of the first level.
func compute() float64 {
	words := make([]uint64, 1<<16)
	begin := time.Now()
	sum := uint64(14695981039346656037)
	for range 100 {
		for i := range words {
			sum = (sum ^ words[i]) * 1099511628211
			words[i] = sum
		}
	}
	return float64(time.Since(begin).Microseconds()) / 1000
}

// withFile opens the module's file for one use: the agent has it open, modprobe opens it.
func (o options) withFile(do func(*os.File) error) (err error) {
	file, err := os.Open(o.file)
	if err != nil {
		return fmt.Errorf("open the module: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return do(file)
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}
