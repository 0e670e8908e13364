// SPDX-License-Identifier: Apache-2.0

//go:build linux

package boots

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/drover-project/drover/internal/bake"
	"github.com/drover-project/drover/test/vm/artifacts"
	"github.com/drover-project/drover/test/vm/e2e/suite"
)

// maxBaked is how soon after its start an agent shall have loaded what was baked.
const maxBaked = 2.0

// boot is one that was measured: the phases in seconds since power on. One that did not come is
// not there.
type boot struct {
	name string
	at   map[string]float64
}

// took is how long the agent took from its start to the load.
func (b *boot) took() float64 { return round(b.at[loaded] - b.at[agentStart]) }

func round(seconds float64) float64 { return math.Round(seconds*100) / 100 }

// cold powers a new node on, after all that it will be asked for is there.
func (s *steps) cold(ctx context.Context) error {
	b, err := s.measure(ctx, "cold", artifacts.Linux61, "", func(ctx context.Context) error { return s.StartNode(ctx, artifacts.Linux61, 0) })
	if err != nil {
		return err
	}
	if _, ok := b.at[imported]; !ok {
		return errors.New("the agent says nothing of a delivery")
	}
	return nil
}

// warm powers it on again.
func (s *steps) warm(ctx context.Context) error {
	n := s.Nodes[artifacts.Linux61]
	before := n.Console().BootID()
	if err := n.Shutdown(ctx); err != nil {
		return err
	}
	b, err := s.measure(ctx, "warm", artifacts.Linux61, before, func(context.Context) error { return n.PowerOn() })
	if err != nil {
		return err
	}
	return b.withoutDelivery()
}

// baked powers another new node on, with an image that `drover bake` has changed. The first is off.
func (s *steps) baked(ctx context.Context) error {
	if err := s.Nodes[artifacts.Linux61].Stop(); err != nil {
		return err
	}
	delete(s.Nodes, artifacts.Linux61)
	changed, err := s.Cache.ChangedRoot(ctx, s.Images, filepath.Join(s.Dir, "baked"), func(root string) error { return s.bake(ctx, root) })
	if err != nil {
		return err
	}
	s.Images = changed
	b, err := s.measure(ctx, "baked", suite.Needy, "",
		func(ctx context.Context) error { return s.StartSeries(ctx, suite.Needy, artifacts.Linux61, 1) })
	if err != nil {
		return err
	}
	if b.took() > maxBaked {
		s.TooHigh = append(s.TooHigh, fmt.Errorf("bakedSeconds %.2f is above %.1f", b.took(), maxBaked))
	}
	return b.withoutDelivery()
}

// withoutDelivery checks that neither agent nor operator fell back on a delivery.
func (b *boot) withoutDelivery() error {
	if _, ok := b.at[carrierMade]; ok {
		return errors.New("a carrier was made for what the node holds")
	}
	if _, ok := b.at[imported]; ok {
		return errors.New("the agent loaded what a carrier delivered, not what was there before")
	}
	return nil
}

// bake bakes the Module, and damages what is there where that is to be shown.
func (s *steps) bake(ctx context.Context, root string) error {
	found, err := s.Bake(ctx, root, s.module())
	if err == nil && s.Breaks == "bake" {
		err = os.WriteFile(filepath.Join(root, bake.StateDir, "store/sha256", found.Tree, "more"), nil, 0o600)
	}
	return err
}

// measure has a node powered on, and waits until the Module is usable there.
func (s *steps) measure(ctx context.Context, name string, series artifacts.Series, before string, power func(context.Context) error) (*boot,
	error) {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	w, err := s.watches(watching, suite.NodeName(series), before)
	if err != nil {
		return nil, err
	}
	on := time.Now()
	if err := power(ctx); err != nil {
		return nil, err
	}
	if err := s.Eventually(ctx, "the Module is usable on "+w.node, func(context.Context) error {
		select {
		case <-w.done:
			return nil
		default:
			return fmt.Errorf("it came to %v", w.sightings())
		}
	}); err != nil {
		return nil, err
	}
	b := &boot{name: name, at: map[string]float64{}}
	for phase, at := range w.sightings() {
		if since := at.Sub(on).Seconds(); at.After(on) { // an order of before stands
			b.at[phase] = round(since)
		}
	}
	if err := s.ask(ctx, series, on, b); err != nil {
		return nil, err
	}
	s.boots = append(s.boots, *b)
	return b, nil
}

// facts is a script that prints what the node alone knows: its clock's time at the kernel's start,
// when the agent's process was made and when the kernel module was loaded, in seconds since then;
// and by its clock, when the agent's container had started and what the agent said.
const facts = "awk '/^ clock 1:/ {real = 1} real && /[.]offset:/ {print $2; exit}' /proc/timer_list; pid=" + suite.AgentPID + "; " +
	"awk '{print $22/100}' /proc/$pid/stat; " +
	"dmesg | sed -n 's/^\\[ *\\([0-9.]*\\)\\] drover_sample: loaded.*/\\1/p' | head -n 1; " +
	"id=$(sed -n 's,.*/,,p' /proc/$pid/cgroup | head -n 1); " +
	"sed -n \"s/^time=.\\([^ ]*\\)\\\" .*StartContainer for .*$id.* returns successfully.*/Started \\1/p\" " +
	"/var/log/containerd.log | tail -n 1; " +
	"cat $(ls -t /var/log/pods/" + suite.OperatorNamespace + "_drover-agent-*/agent/*.log | head -n 1) | " +
	"sed -n 's/^\\([^ ]*\\) .*\"\\(Starting\\|Imported\\)\".*/\\2 \\1/p'"

// stamped are the phases by the words that facts prints before their times.
var stamped = map[string]string{"Started": agentStart, "Starting": agentSpeaks, "Imported": imported}

// ask reads on the node what it alone knows.
func (s *steps) ask(ctx context.Context, series artifacts.Series, on time.Time, b *boot) error {
	start, err := s.kernelStart(ctx, series, on)
	if err != nil {
		return err
	}
	b.at[kernelStart] = round(start)
	output, err := s.Nodes[series].Output(ctx, facts)
	if err != nil {
		return err
	}
	lines := strings.Split(output, "\n")
	if len(lines) < 5 {
		return fmt.Errorf("the node says only %q", output)
	}
	var numbers [3]float64
	for i := range numbers {
		if numbers[i], err = strconv.ParseFloat(lines[i], 64); err != nil {
			return fmt.Errorf("read what the node says: %w: %q", err, output)
		}
	}
	clock := time.Unix(0, int64(numbers[0]))
	b.at[agentMade], b.at[loaded] = round(start+numbers[1]), round(start+numbers[2])
	for _, line := range lines[3:] {
		word, stamp, _ := strings.Cut(line, " ")
		at, err := time.Parse(time.RFC3339Nano, stamp)
		if err != nil {
			return fmt.Errorf("read the node's logs: %w", err)
		}
		b.at[stamped[word]] = round(start + at.Sub(clock).Seconds())
	}
	if _, ok := b.at[agentStart]; !ok {
		return fmt.Errorf("the container runtime says nothing of the agent's start: %q", output)
	}
	return nil
}

// kernelStart is when the kernel's clock began, in seconds since power on.
func (s *steps) kernelStart(ctx context.Context, series artifacts.Series, on time.Time) (float64, error) {
	begin := time.Now()
	output, err := s.Nodes[series].Output(ctx, "cut -d' ' -f1 /proc/uptime")
	if err != nil {
		return 0, err
	}
	read := begin.Add(time.Since(begin) / 2) // somewhere in between
	up, err := strconv.ParseFloat(output, 64)
	if err != nil {
		return 0, fmt.Errorf("read the node's clock: %w", err)
	}
	return read.Sub(on).Seconds() - up, nil
}

// tell prints the phases and puts them into the result.
func (s *steps) tell(context.Context) error {
	line := fmt.Sprintf("   %-14s", "seconds")
	for _, b := range s.boots {
		line += fmt.Sprintf("%8s", b.name)
	}
	s.Say("%s", line)
	for _, phase := range phases {
		line := fmt.Sprintf("   %-14s", phase)
		for _, b := range s.boots {
			if at, ok := b.at[phase]; ok {
				line += fmt.Sprintf("%8.2f", at)
			} else {
				line += fmt.Sprintf("%8s", "-")
			}
		}
		s.Say("%s", line)
	}
	all := map[string]map[string]float64{}
	for _, b := range s.boots {
		all[b.name] = b.at
		s.Figures[b.name+"Seconds"] = b.took()
	}
	s.Extra["phases"], s.Extra["imageMiB"] = all, ballast>>20
	return nil
}
