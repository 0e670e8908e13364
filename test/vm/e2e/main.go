// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command e2e proves Drover's main job on real kernels: nodes in QEMU with containerd and a kubelet join an embedded control plane,
// the operator and the agent are deployed from config/default as an administrator does it, kernel modules are compiled here, and only
// API objects ask for anything. Facts about kernels are read over the nodes' serial consoles, never from our own status.
//
// GROUP chooses what is proved: "main" (the default), "node", which is about drift, reboots and busy modules, "dra", "agent", which measures what the
// agent costs, or "privileges", which takes away all that the agent is allowed, one thing at a time. STEPS=rmmod,inUse runs only those of the group, for work on them: some stand on the ones before.
// It ends with one line RESULT: a boolean per step, and figures. BREAK=image asks for an image that does not exist, so that the result is red;
// in group agent, BREAK=busy lets modules come and go while it should be idle;
// in group privileges, BREAK=item takes nothing away.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// overall bounds a run, first builds included.
const overall = 30 * time.Minute

// maxSeconds bounds the steps, first builds not included.
const maxSeconds = 900

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(ctx, overall)
	err := run(ctx)
	cancel()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e-kernel:", err)
		os.Exit(1)
	}
}

// group is the part of the steps to run; "main" is the default.
func group() string { return cmp.Or(os.Getenv("GROUP"), "main") }

func (s *suite) groups() map[string][]step {
	start := step{"", "control plane, registry, operator and the first node", s.start}
	return map[string][]step{
		"main": {
			start,
			{"a", "a Module loads a module of ours with its parameters", s.loadModule},
			{"d", "the carrier ran under Pod Security restricted and is gone", s.carrierGone},
			{"d", "nobody with the role edit can make, change or enter a carrier", s.carrierSealed},
			{"d", "without the sealing policy nothing is delivered", s.withoutPolicy},
			{"d", "without image volumes the init container delivers", s.initContainer},
			{"b", "the device plugin registers and an unprivileged pod reads the device", s.devicePlugin},
			{"c", "a new device plugin image replaces only its pod", s.replacePlugin},
			{"e", "a deleted NodeModulesConfig unloads nothing and comes back whole", s.configDeleted},
			{"e", "a deleted Module leaves the kernel, the labels and the API", s.moduleDeleted},
			{"f", "third-party code loads with its in-tree dependency", s.thirdParty},
			{"f", "a second kernel, with compressed modules and a + in its name", s.secondKernel},
		},
		"node": {
			start,
			{"loaded", "a Module loads a module of ours with its parameters", s.loadModule},
			{"rmmod", "what somebody unloads by hand is loaded again", s.repair},
			{"cordon", "cordon, drain and uncordon unload nothing", s.drain},
			{"inUse", "a pod that holds the device is named, and waited for", s.inUse},
			{"networkCut", "a reload completes while the node's network is cut", s.reloadAlone},
			{"agentKilled", "an agent killed in the middle of a reload has it completed by the next", s.agentKilled},
			{"vermagic", "a module with another vermagic flag is refused and never tried", s.vermagic},
			{"symbolCRC", "a module with another symbol CRC is tried once", s.symbolCRC},
			{"rolledBack", "a new build that the kernel refuses brings the previous one back", s.rolledBack},
			{"firmware", "a module finds the firmware that came with it, and takes it along when it goes", s.firmware},
			{"inTree", "a module of the kernel's own makes room, with its user, and both come back", s.inTree},
			{"modprobe", "kmod's modprobe loads and unloads with args, and with rawArgs", s.modprobe},
			{"blacklist", "what a Module replaces is kept out of the host's own loads, while it is there", s.blacklist},
			{"crash", "a module that panics on load is held back, then quarantined, and the node serves", s.crash},
			{"reboot", "after a reboot it is loaded without registry, carrier and operator", s.rebootAlone},
			{"rebootWithoutAPI", "after a reboot without the API server it is loaded as soon as that is back", s.rebootWithoutAPI},
			{"staticPod", "with the static pod, after a reboot it is loaded before the API server is back", s.staticPod},
			{"signature", "where signatures are enforced, a key in UEFI db loads; another key and none are tried once", s.signature},
		},
		"dra": {
			start,
			{"published", "a Module with a DRA driver loads its module and publishes its devices", s.published},
			{"claimed", "an unprivileged pod reads the device that it claimed", s.claimed},
			{"keptForClaim", "with the Module deleted, driver and kernel module stay while a claim is prepared", s.keptForClaim},
			{"goneAfterClaim", "with the pod gone, the claim is unprepared, then driver, kernel module and Module go", s.goneAfterClaim},
		},
		"agent": {
			{"", "kmod and what compares it with the agent", s.benchTools},
			start,
			{"", "the agent and modprobe have loaded the same module in turn", s.loadRatio},
			{"loaded", "a Module loads a module of ours with its parameters", s.loadModule},
			{"", "an agent with nothing to do was watched", s.idle},
			{"", "the static pod's agent has loaded at a boot without the API server", s.bootTime},
		},
		"privileges": {
			start,
			{"", "modules that show what the agent does", s.prepareBehaviours},
			{"limits", "the agent's process has the capabilities of the DaemonSet and no other, seccomp, and cannot gain any", s.limits},
			{"whole", "with all that the DaemonSet allows, all works", s.whole},
			{"withoutEach", "without any one of it, something does not", s.withoutEach},
		},
	}
}

// step is one thing to prove. Its letter is the key in the result; several may share one.
type step struct {
	letter, says string
	do           func(context.Context) error
}

func run(ctx context.Context) (err error) {
	s := &suite{breaks: os.Getenv("BREAK"), proved: map[string]bool{}, figures: map[string]float64{}}
	defer func() { err = errors.Join(err, s.stop()) }()
	if err := s.prepare(ctx); err != nil {
		return err
	}
	s.begin = time.Now()
	steps, known := s.groups()[group()]
	if !known {
		return fmt.Errorf("no group %q: GROUP is main, node, dra, agent or privileges", group())
	}
	failed := s.all(ctx, chosen(steps))
	return errors.Join(failed, s.report(failed))
}

// chosen are the steps that STEPS names, with the start, or all.
func chosen(steps []step) []step {
	names := os.Getenv("STEPS")
	if names == "" {
		return steps
	}
	return slices.DeleteFunc(steps, func(s step) bool { return s.letter != "" && !slices.Contains(strings.Split(names, ","), s.letter) })
}

// all runs the steps in order and ends at the first that fails, for the later ones stand on it.
func (s *suite) all(ctx context.Context, steps []step) error {
	for _, step := range steps {
		if step.letter != "" {
			s.proved[step.letter] = false
		}
	}
	ok := map[string]bool{}
	for i, step := range steps {
		begin := time.Now()
		if err := step.do(ctx); err != nil {
			s.say("FAILED %s: %s", step.letter, step.says)
			return errors.Join(fmt.Errorf("step %s (%s): %w", step.letter, step.says, err), s.explain())
		}
		s.say("%-1s  %s (%.1f s)", step.letter, step.says, time.Since(begin).Seconds())
		ok[step.letter] = true
		if step.letter != "" && (i+1 == len(steps) || steps[i+1].letter != step.letter) {
			s.proved[step.letter] = ok[step.letter]
		}
	}
	return nil
}

func (s *suite) report(failed error) error {
	seconds := time.Since(s.begin).Round(100 * time.Millisecond).Seconds()
	result := map[string]any{"kernels": s.kernels, "bootIDs": s.boots, "seconds": seconds}
	if s.breaks != "" {
		result["break"] = s.breaks
	}
	for letter, proved := range s.proved {
		result[letter] = proved
	}
	if len(s.notTested) > 0 {
		result["notTested"] = s.notTested
	}
	for name, value := range s.figures {
		result[name] = value
	}
	line, err := json.Marshal(result)
	if err != nil {
		return fmt.Errorf("print the result: %w", err)
	}
	fmt.Printf("RESULT %s\n", line)
	if failed == nil && seconds > maxSeconds {
		return fmt.Errorf("%.0f s are more than %d", seconds, maxSeconds)
	}
	return errors.Join(s.tooHigh...)
}
