// SPDX-License-Identifier: Apache-2.0

// Command alerts has a real Prometheus watch the real operator over a fleet of hollow nodes, with
// the rules of config/monitoring. First the fleet is well, for QUIET (5m), while Modules are
// upgraded and nodes reboot: nothing may fire. An hour made of what was recorded then is played to
// promtool: nothing may fire either. Then each class of faults is made: its alert must fire, and
// end when the fault is undone.
//
// BREAK=rule makes one rule look for what nobody says, so that the result must be red.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/drover-project/drover/hack/monitoring"
	"github.com/drover-project/drover/internal/testkit/fleet"
)

const (
	minClasses = 12
	maxSeconds = 60
	nodes      = 30
)

var kernels = []string{"6.1.0-44-amd64", "6.12.57+deb12-amd64"}

// result is the line that ends the run.
type result struct {
	// Classes of faults that were made, and Noticed those whose alert fired and ended.
	Classes int `json:"classes"`
	Noticed int `json:"noticed"`
	// SlowestSeconds from a fault to its alert.
	SlowestSeconds float64 `json:"slowestSeconds"`
	// FalseAlarms are alerts that fired while all was well, really or replayed.
	FalseAlarms int `json:"falseAlarms"`
	// QuietMinutes were really run, with QuietRollouts in them; ReplayedMinutes are made of them.
	QuietMinutes    float64 `json:"quietMinutes"`
	QuietRollouts   int     `json:"quietRollouts"`
	QuietReboots    int     `json:"quietReboots"`
	ReplayedMinutes int     `json:"replayedMinutes"`
	// Panels of the dashboard that had something to show while all the faults were there.
	Panels      int     `json:"panels"`
	PanelsEmpty int     `json:"panelsEmpty"`
	Unproved    int     `json:"unproved"`
	Seconds     float64 `json:"seconds"`
}

func (r *result) wrong() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(r.Classes >= minClasses, "%d classes, want %d or more", r.Classes, minClasses)
	check(r.Noticed == r.Classes, "%d of %d classes were noticed", r.Noticed, r.Classes)
	check(r.SlowestSeconds <= maxSeconds, "an alert took %.1f s, and may take %d", r.SlowestSeconds, maxSeconds)
	check(r.FalseAlarms == 0, "%d false alarms", r.FalseAlarms)
	check(r.QuietRollouts > 0, "no rollout while all was well")
	check(r.PanelsEmpty == 0, "%d panels show nothing", r.PanelsEmpty)
	return errors.Join(errs...)
}

// scene is the fleet, Prometheus, and what came of it.
type scene struct {
	fleet *fleet.Fleet
	prom  *prometheus
	dir   string
	say   func(string, ...any)
	only  []string
	result
}

func main() {
	only := flag.String("only", "", "alerts, separated by commas: make only these faults")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *only)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "alerts:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only string) (err error) {
	begin := time.Now()
	say := func(format string, args ...any) {
		fmt.Printf("[%5.1fs] "+format+"\n", append([]any{time.Since(begin).Seconds()}, args...)...)
	}
	quiet, err := time.ParseDuration(cmp.Or(os.Getenv("QUIET"), "5m"))
	if err != nil {
		return fmt.Errorf("QUIET: %w", err)
	}
	if _, err := fleet.Build(ctx, say); err != nil {
		return err
	}
	metrics, err := fleet.FreeAddress()
	if err != nil {
		return err
	}
	f, err := fleet.Start(ctx, fleet.Options{
		Nodes: nodes, Kernels: kernels, Say: say, HollowArgs: []string{"--kernel-call-deadline=3s"},
		OperatorArgs: []string{"--metrics-bind-address=" + metrics, "--metrics-secure=false",
			"--signer-image=registry.example.com/drover-signer:dev"},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Stop()) }()
	s := &scene{fleet: f, say: say, dir: filepath.Join(f.Dir(), "prometheus")}
	s.only = strings.FieldsFunc(only, func(r rune) bool { return r == ',' })
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return fmt.Errorf("make a folder for Prometheus: %w", err)
	}
	if err := f.WaitOperator(ctx); err != nil {
		return err
	}
	if s.prom, err = startPrometheus(ctx, s.dir, metrics); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.prom.Stop()) }()
	played := s.play(ctx, quiet)
	s.Seconds = round(time.Since(begin))
	line, err := json.Marshal(s.result)
	if err != nil {
		return fmt.Errorf("print the result: %w", err)
	}
	fmt.Printf("RESULT %s\n", line)
	return errors.Join(played, s.wrong())
}

func (s *scene) play(ctx context.Context, quiet time.Duration) error {
	if err := s.units(ctx); err != nil {
		return err
	}
	if err := s.quiet(ctx, quiet); err != nil {
		return err
	}
	return errors.Join(s.faults(ctx), s.ofDrover(ctx))
}

// chosen are the alerts that are to be proved.
func (s *scene) chosen() (alerts []monitoring.Alert) {
	for _, a := range monitoring.Rows() {
		switch {
		case a.Unproved != "":
			s.Unproved++
		case len(s.only) == 0 || slices.Contains(s.only, a.Name):
			alerts = append(alerts, a)
		}
	}
	return alerts
}

func round(d time.Duration) float64 { return d.Round(100 * time.Millisecond).Seconds() }
