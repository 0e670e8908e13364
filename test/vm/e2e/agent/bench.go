// SPDX-License-Identifier: Apache-2.0

//go:build linux

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/drover-project/drover/images"
	"github.com/drover-project/drover/test/vm/artifacts"
	"github.com/drover-project/drover/test/vm/e2e/loads"
	"github.com/drover-project/drover/test/vm/e2e/suite"
	"github.com/drover-project/drover/test/vm/kmodbuild"
)

// Bounds of group agent. Time is measured on an emulated processor, which is many times slower than
// a real one: an upper bound.
const (
	maxRSSMiB     = 25
	maxCPUPercent = 0.1
	maxLoadRatio  = 1.3
	maxBoot       = 2
)

// idleWindow is how long the agent is watched doing nothing: the kernel counts processor time in
// steps of 10 ms.
const idleWindow = 120 * time.Second

// kmodTools is the folder of kmod's programs in the guest, whose own ones are busybox's.
const kmodTools = "/opt/kmod"

// figure notes a number of the result. One that is above its bound, if it has one, fails the run at
// its end: the others are measured all the same.
func (s *steps) figure(name string, value, most float64) {
	value = math.Round(value*1000) / 1000
	s.Figures[name] = value
	if most > 0 && value > most {
		s.TooHigh = append(s.TooHigh, fmt.Errorf("%s %.3f is above %.1f", name, value, most))
	}
}

// benchTools puts Debian's kmod with its libraries, the program that compares loads and the module
// to load into the guest.
func (s *steps) benchTools(ctx context.Context) error {
	kernel := s.Images.Kernels[artifacts.Linux61]
	built, err := kmodbuild.Build(ctx, s.Cache, kernel, s.Source("drover-sample"))
	if err != nil {
		return err
	}
	builder := images.Builder{Repository: s.Cache.Repository(), Output: filepath.Join(s.Cache.Repository(), "bin", "images"), Version: "dev"}
	compare, err := builder.BuildBinary(ctx, "test/vm/loadtime", "linux", "amd64")
	if err != nil {
		return err
	}
	s.loadtime = compare
	kmod, err := exec.LookPath("modprobe")
	if err != nil {
		return fmt.Errorf("find kmod: %w", err)
	}
	paths := map[string]string{
		filepath.Join(kmodTools, "modprobe"): kmod, filepath.Join(kmodTools, "depmod"): kmod, filepath.Join(kmodTools, "loadtime"): compare,
		s.updatesFile(): built[loads.Sample],
	}
	libraries, err := libraries(ctx, kmod)
	if err != nil {
		return err
	}
	for _, path := range libraries {
		paths[path] = path
	}
	s.GuestFiles = map[string]artifacts.File{}
	for target, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		s.GuestFiles[target] = artifacts.File{Content: content, Mode: 0o755}
	}
	return nil
}

// updatesFile is where an administrator puts a module of the node's own.
func (s *steps) updatesFile() string {
	return filepath.Join("/lib/modules", s.Images.Kernels[artifacts.Linux61].Release, "updates", loads.Sample+".ko")
}

// libraries are the files that a program is linked with, as ldd lists them.
func libraries(ctx context.Context, program string) ([]string, error) {
	output, err := exec.CommandContext(ctx, "ldd", program).Output()
	if err != nil {
		return nil, fmt.Errorf("list the libraries of %s: %w", program, err)
	}
	var paths []string
	for _, field := range strings.Fields(string(output)) {
		if filepath.IsAbs(field) {
			paths = append(paths, field)
		}
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("%s has no libraries", program)
	}
	return paths, nil
}

// loadRatio compares the loads, before the agent has any order.
func (s *steps) loadRatio(ctx context.Context) error {
	if _, err := s.Console(ctx, kmodTools+"/depmod"); err != nil {
		return err
	}
	// The very file that the deployed agent starts.
	kcall := "/proc/" + suite.AgentPID + "/root/usr/local/bin/drover-kcall"
	output, err := s.Console(ctx, fmt.Sprintf("%s/loadtime -kcall %s -modprobe %s/modprobe -name %s -file %s", kmodTools, kcall, kmodTools,
		loads.Sample, s.updatesFile()))
	if err != nil {
		return err
	}
	var took struct{ Rounds, Agent, Modprobe, Call float64 }
	if err := json.Unmarshal([]byte(output), &took); err != nil {
		return fmt.Errorf("read the times: %w: %s", err, output)
	}
	if _, err := s.Console(ctx, "rm "+s.updatesFile()+"; "+kmodTools+"/depmod; dmesg -c >/dev/null"); err != nil {
		return err
	}
	s.figure("loads", took.Rounds, 0)
	s.figure("loadMilliseconds", took.Agent, 0)
	s.figure("modprobeMilliseconds", took.Modprobe, 0)
	s.figure("finitModuleMilliseconds", took.Call, 0)
	s.figure("loadRatioToModprobe", took.Agent/took.Modprobe, maxLoadRatio)
	return nil
}

// usage is what an agent has used.
type usage struct {
	uptime, cpu time.Duration
	threads     float64
}

func (s *steps) usage(ctx context.Context) (usage, error) {
	output, err := s.Console(ctx, "cut -d' ' -f1 /proc/uptime; cut -d' ' -f14,15,16,17,20 /proc/"+suite.AgentPID+"/stat")
	if err != nil {
		return usage{}, err
	}
	var up, user, system, childUser, childSystem, threads float64
	if _, err := fmt.Sscan(output, &up, &user, &system, &childUser, &childSystem, &threads); err != nil {
		return usage{}, fmt.Errorf("read the agent's times: %w: %s", err, output)
	}
	const tick = float64(10 * time.Millisecond)
	return usage{
		uptime: time.Duration(up * float64(time.Second)), threads: threads,
		cpu: time.Duration((user + system + childUser + childSystem) * tick),
	}, nil
}

// idle watches an agent whose orders are all fulfilled.
func (s *steps) idle(ctx context.Context) error {
	window := idleWindow
	if s.Breaks == "busy" { // somebody loads and unloads modules all the time
		window /= 4
		if _, err := s.Console(ctx, "(for i in $(seq 600); do modprobe dummy numdummies=0; rmmod dummy; usleep 50000; done) >/dev/null "+
			"2>&1 &"); err != nil {
			return err
		}
	}
	if err := s.CarrierFree(ctx); err != nil {
		return err
	}
	// What a delivery and a load have left to do, they do within a look or two.
	if err := s.Throughout(ctx, 20*time.Second,
		func(ctx context.Context) error { return s.InKernel(ctx, artifacts.Linux61, loads.Sample, true) }); err != nil {
		return err
	}
	before, err := s.usage(ctx)
	if err != nil {
		return err
	}
	wait := time.NewTimer(window)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
		return fmt.Errorf("wait while the agent is idle: %w", ctx.Err())
	}
	after, err := s.usage(ctx)
	if err != nil {
		return err
	}
	seconds := (after.uptime - before.uptime).Seconds()
	s.figure("idleSeconds", seconds, 0)
	s.figure("threads", after.threads, 0)
	s.figure("cpuPercent", 100*(after.cpu-before.cpu).Seconds()/seconds, maxCPUPercent)
	return errors.Join(s.memory(ctx), s.emulation(ctx))
}

// emulation measures how many times slower than the host the node computes: the agent's CPU time is
// longer by about as much.
func (s *steps) emulation(ctx context.Context) error {
	here, err := exec.CommandContext(ctx, s.loadtime, "-compute").Output()
	if err != nil {
		return fmt.Errorf("compute on the host: %w", err)
	}
	there, err := s.Console(ctx, kmodTools+"/loadtime -compute")
	if err != nil {
		return err
	}
	var host, guest float64
	if _, err := fmt.Sscan(string(here)+" "+there, &host, &guest); err != nil {
		return fmt.Errorf("read the times: %w", err)
	}
	s.figure("emulationFactor", guest/host, 0)
	return nil
}

// bootTime boots with the static pod and judges how long that took, from the agent's first words
// on.
func (s *steps) bootTime(ctx context.Context) error {
	if err := s.StaticPod(ctx); err != nil {
		return err
	}
	s.figure("bootToLoadedSeconds", s.Figures["bootToLoadedSeconds"], maxBoot)
	return nil
}

// memory is the agent's resident memory: anonymous pages, and those of its binary, which all
// processes of one image share.
func (s *steps) memory(ctx context.Context) error {
	for name, field := range map[string]string{"rssMiB": "VmRSS", "rssAnonMiB": "RssAnon", "rssFileMiB": "RssFile"} {
		output, err := s.Console(ctx, "awk '/^"+field+":/ {print $2}' /proc/"+suite.AgentPID+"/status")
		if err != nil {
			return err
		}
		kib, err := strconv.ParseFloat(output, 64)
		if err != nil {
			return fmt.Errorf("read %s: %w", field, err)
		}
		most := 0.0
		if name == "rssMiB" {
			most = maxRSSMiB
		}
		s.figure(name, kib/1024, most)
	}
	return nil
}
