// SPDX-License-Identifier: Apache-2.0

// Command proofs runs what takes too long for every change, one after another: virtual nodes, large
// fleets, whole kernels. It goes on after a red one. ONLY and GROUP choose, by a list of names or
// of groups; `-list` prints both.
//
// Each proof ends with its RESULT line; all of them are printed again at the end, before a RESULT
// of their own.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	list := flag.Bool("list", false, "print the proofs, and run none")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, *list)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "proofs:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, list bool) error {
	chosen, err := choose(all, os.Getenv("ONLY"), os.Getenv("GROUP"))
	if err != nil {
		return err
	}
	if list {
		for _, p := range chosen {
			fmt.Fprintf(out, "%-10s %-12s %s\n", p.group, p.name, p.command)
		}
		return nil
	}
	return inTurn(ctx, out, chosen, runMake)
}

// inTurn runs all proofs. Its error names those that were red.
func inTurn(ctx context.Context, out io.Writer, chosen []proof, do func(context.Context, io.Writer, string) error) error {
	begin := time.Now()
	var summary strings.Builder
	red := []string{}
	for _, p := range chosen {
		if ctx.Err() != nil {
			red = append(red, p.name)
			continue
		}
		fmt.Fprintf(out, "\n=== [%4.0fs] %s: %s\n", time.Since(begin).Seconds(), p.name, p.command)
		began := time.Now()
		result, err := p.prove(ctx, out, do)
		verdict := "ok"
		if err != nil {
			verdict, red = "RED", append(red, p.name)
			fmt.Fprintf(out, "%s: %v\n", p.name, err)
		}
		fmt.Fprintf(&summary, "%-4s %-12s %5.0fs  %s\n", verdict, p.name, time.Since(began).Seconds(), result)
	}
	result, err := json.Marshal(map[string]any{"proofs": len(chosen), "failed": len(red), "red": red,
		"seconds": int(time.Since(begin).Seconds())})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "\n=== summary\n%sRESULT %s\n", &summary, result)
	if len(red) > 0 {
		return fmt.Errorf("red: %s", strings.Join(red, ", "))
	}
	return nil
}

// prove runs the command, then each of its counterproofs. The result is the command's last RESULT
// line.
func (p *proof) prove(ctx context.Context, out io.Writer, do func(context.Context, io.Writer, string) error) (result string, err error) {
	ctx, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	var said bytes.Buffer
	err = do(ctx, io.MultiWriter(out, &said), p.command)
	for line := range strings.Lines(said.String()) {
		if strings.HasPrefix(line, "RESULT ") {
			result = strings.TrimSpace(line)
		}
	}
	if err != nil {
		return result, err
	}
	if result == "" {
		return "", errors.New("it printed no RESULT")
	}
	for _, c := range p.counter {
		said.Reset()
		if err := do(ctx, &said, c.command); err == nil {
			return result, fmt.Errorf("expected to fail, but passed: %s", c.command)
		}
		if !strings.Contains(said.String(), c.says) {
			fmt.Fprint(out, said.String())
			return result, fmt.Errorf("failed without %q: %s", c.says, c.command)
		}
		fmt.Fprintf(out, "red, as it must be: %s: %s\n", c.command, c.says)
	}
	return result, nil
}

// runMake runs `make` with the words of the command. What chose the proofs must not reach it: GROUP
// means another thing there.
func runMake(ctx context.Context, out io.Writer, command string) error {
	cmd := exec.CommandContext(ctx, "make", strings.Fields(command)...)
	for _, v := range os.Environ() {
		switch name, _, _ := strings.Cut(v, "="); name {
		case "ONLY", "GROUP", "BREAK", "MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "MAKELEVEL":
		default:
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Stdout, cmd.Stderr = out, out
	// A process group of its own: what ends it ends all that it started, and that within the time to
	// clean up.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	return cmd.Run()
}
