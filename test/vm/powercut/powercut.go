// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package powercut cuts the power of a machine in the middle of loads and reloads, again and again,
// and asks it after each cut whether all of the agent's files are whole and which build it loads
// from them. The machine has a real kernel, a disk with a real file system that outlives the cuts,
// and one process: the agent's own code (guest). It has no Kubernetes, so that a cut takes seconds.
package powercut

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/drover-project/drover/test/vm/artifacts"
	"github.com/drover-project/drover/test/vm/internal/process"
	"github.com/drover-project/drover/test/vm/kmodbuild"
	"github.com/drover-project/drover/test/vm/powercut/say"
)

// FileSystems under the agent's state directory.
var FileSystems = []string{"ext4", "xfs"}

const (
	diskSize = 512 << 20
	memMB    = 256
	// bootLimit is how long a machine may take until its power is cut.
	bootLimit = 10 * time.Minute
	// A cut comes up to window after one of the first words that the machine says: of orders or, one
	// in earlyEvery times, when its disk is mounted.
	window     = 1500 * time.Millisecond
	orderWords = 5
	earlyEvery = 4

	kernelArgs = "console=ttyS0 quiet loglevel=4 panic=-1 mitigations=off tsc=reliable clocksource=tsc no_timer_check nokaslr audit=0 " +
		"random.trust_cpu=on"
)

// Options of Run.
type Options struct {
	// Cuts per file system.
	Cuts int
	// Seed of the moments.
	Seed uint64
	// NoSync takes fsync away from the agent's state files: the result must be red.
	NoSync bool
	// Say prints progress.
	Say func(format string, args ...any)
}

// Result is what became of all cuts.
type Result struct {
	Cuts        int      `json:"cuts"`
	FileSystems []string `json:"fileSystems"`
	// Damaged counts files that were not whole after a cut.
	Damaged int `json:"damaged"`
	// WrongLoads counts boots that loaded a build that neither worked last nor was ordered since.
	WrongLoads int `json:"wrongLoads"`
	// NotServed counts boots that loaded nothing although they had to.
	NotServed int `json:"notServed"`
	// Held counts boots in which the crash fuse held back all that could be loaded.
	Held           int  `json:"held"`
	PreviousServed bool `json:"previousServed"`
	// Previous counts boots that loaded an older build than the last that was ordered.
	Previous int `json:"previous"`
	// Orders were given in all.
	Orders int `json:"orders"`
}

// Err says what is wrong with a result.
func (r Result) Err() error {
	if r.Damaged == 0 && r.WrongLoads == 0 && r.PreviousServed && r.Previous > 0 {
		return nil
	}
	return fmt.Errorf("%d files are damaged, %d boots loaded a wrong build, %d nothing, %d the previous one", r.Damaged, r.WrongLoads,
		r.NotServed, r.Previous)
}

// Run cuts the power of one machine per file system.
func Run(ctx context.Context, cache *artifacts.Cache, o Options) (Result, error) {
	result := Result{FileSystems: FileSystems}
	dir, err := os.MkdirTemp("", "drover-powercut-")
	if err != nil {
		return result, fmt.Errorf("make a folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	kernel, err := cache.Kernel(ctx, artifacts.Linux61)
	if err != nil {
		return result, err
	}
	initrd := filepath.Join(dir, "initrd")
	if err := writeInitrd(ctx, cache, kernel, dir, initrd); err != nil {
		return result, err
	}
	for i, fileSystem := range FileSystems {
		m := &machine{
			Options: o, dir: dir, kernel: kernel.Image(), initrd: initrd, disk: filepath.Join(dir, fileSystem+".img"), random: rand.New(rand.NewPCG(o.Seed, uint64(i))), //nolint:gosec // moments, not secrets
			state: say.Options{FileSystem: fileSystem, NoSync: o.NoSync},
		}
		if err := m.makeDisk(ctx); err != nil {
			return result, err
		}
		for range o.Cuts {
			if err := m.cut(ctx, &result); err != nil {
				return result, fmt.Errorf("%s, after %d cuts: %w", fileSystem, result.Cuts, err)
			}
		}
		if err := m.look(ctx, &result); err != nil { // what the last cut has left
			return result, fmt.Errorf("%s, after %d cuts: %w", fileSystem, result.Cuts, err)
		}
		result.Orders += m.state.Issued
	}
	result.PreviousServed = result.NotServed == 0
	return result, nil
}

// writeInitrd packs the guest's program, its disk's drivers and the module that is loaded.
func writeInitrd(ctx context.Context, cache *artifacts.Cache, kernel artifacts.Kernel, dir, name string) error {
	program := filepath.Join(dir, "guest")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, "./test/vm/powercut/guest")
	build.Dir, build.Env = cache.Repository(), append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the guest: %w: %s", err, output)
	}
	modules, err := kmodbuild.Build(ctx, cache, kernel, filepath.Join(cache.Repository(), "samples", "kmods", "drover-sample"))
	if err != nil {
		return err
	}
	files, err := artifacts.BootModules(ctx, kernel, "virtio_pci", "virtio_blk", "ext4", "xfs")
	if err != nil {
		return err
	}
	all := map[string]artifacts.File{"proc/": {}, "sys/": {}, "dev/": {}}
	for file, content := range files {
		all["boot/"+file] = content
	}
	for target, source := range map[string]string{"init": program, "module.ko": modules["drover_sample"]} {
		content, err := os.ReadFile(source)
		if err != nil {
			return fmt.Errorf("read for the machine: %w", err)
		}
		all[target] = artifacts.File{Content: content, Mode: 0o755}
	}
	var out bytes.Buffer
	if err := artifacts.WriteCPIO(&out, all); err != nil {
		return err
	}
	if err := os.WriteFile(name, out.Bytes(), 0o600); err != nil {
		return fmt.Errorf("write the initial RAM disk: %w", err)
	}
	return nil
}

// machine is one that is cut off again and again.
type machine struct {
	Options
	dir, kernel, initrd, disk string
	random                    *rand.Rand
	state                     say.Options
}

func (m *machine) makeDisk(ctx context.Context) error {
	if err := os.WriteFile(m.disk, nil, 0o600); err != nil {
		return fmt.Errorf("make the disk: %w", err)
	}
	if err := os.Truncate(m.disk, diskSize); err != nil {
		return fmt.Errorf("make the disk: %w", err)
	}
	if output, err := exec.CommandContext(ctx, "mkfs."+m.state.FileSystem, "-q", m.disk).CombinedOutput(); err != nil {
		return fmt.Errorf("make the file system: %w: %s", err, output)
	}
	return nil
}

// cut boots the machine and cuts its power at a random moment.
func (m *machine) cut(ctx context.Context, result *Result) error {
	words := 1 // the disk is mounted
	if m.random.IntN(earlyEvery) != 0 {
		words = judgedWords + 1 + m.random.IntN(orderWords)
	}
	after := time.Duration(m.random.Int64N(int64(window)))
	if err := m.boot(ctx, result, words, after); err != nil {
		return err
	}
	result.Cuts++
	m.Say("%s: cut %d, %s after %d words; %d orders given, %d fulfilled", m.state.FileSystem, result.Cuts, after.Round(time.Millisecond),
		words, m.state.Issued, m.state.Worked)
	return nil
}

// judgedWords are said when the machine has said what the last cut has left: that the disk is
// mounted, and that.
const judgedWords = 2

// look boots the machine and only asks what is left.
func (m *machine) look(ctx context.Context, result *Result) error {
	return m.boot(ctx, result, judgedWords, 0)
}

// boot runs the machine until so long after it has said so many words.
func (m *machine) boot(ctx context.Context, result *Result, words int, after time.Duration) (err error) {
	ours, theirs, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make a pipe: %w", err)
	}
	defer func() { _ = ours.Close() }() // only read from
	cmd := exec.Command("qemu-system-x86_64", m.arguments()...)
	log := &bytes.Buffer{}
	cmd.ExtraFiles, cmd.Stderr = []*os.File{theirs}, log
	child, err := process.Start(cmd)
	if err := errors.Join(err, theirs.Close()); err != nil {
		return fmt.Errorf("start QEMU: %w", err)
	}
	lines := make(chan string, 1024)
	go read(ours, lines)
	defer func() {
		err = errors.Join(err, child.Kill())
		for line := range lines { // what was said up to the cut
			err = errors.Join(err, m.hear(line, result))
		}
	}()
	limit := time.NewTimer(bootLimit)
	defer limit.Stop()
	var moment <-chan time.Time
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				return fmt.Errorf("the machine has ended: %s%s", log, m.lastWords())
			}
			if err := m.hear(line, result); err != nil {
				return err
			}
			if words--; words == 0 {
				moment = time.After(after)
			}
		case <-moment:
			return nil
		case <-limit.C:
			return fmt.Errorf("the machine said %d words too few within %s: %s", words, bootLimit, m.lastWords())
		case <-ctx.Done():
			return fmt.Errorf("wait for the machine: %w", ctx.Err())
		}
	}
}

// read passes on whole lines: one that the cut ended is not one.
func read(from io.Reader, lines chan<- string) {
	defer close(lines)
	reader := bufio.NewReader(from)
	for {
		line, err := reader.ReadString('\n')
		if err != nil {
			return
		}
		lines <- strings.TrimSpace(line)
	}
}

// hear takes note of what the machine says.
func (m *machine) hear(line string, result *Result) (err error) {
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case say.Issued:
		m.state.Issued, err = strconv.Atoi(rest)
	case say.Worked:
		m.state.Worked, err = strconv.Atoi(rest)
	case say.Failed:
		return fmt.Errorf("the machine cannot go on: %s", rest)
	case say.Judged:
		var j say.Judgement
		if err := json.Unmarshal([]byte(rest), &j); err != nil {
			return fmt.Errorf("understand %q: %w", line, err)
		}
		m.judged(j, result)
	}
	if err != nil {
		return fmt.Errorf("understand %q: %w", line, err)
	}
	return nil
}

// judged counts what a cut has left.
func (m *machine) judged(j say.Judgement, result *Result) {
	result.Damaged += len(j.Damaged)
	for _, what := range j.Damaged {
		m.Say("%s: DAMAGED %s", m.state.FileSystem, what)
	}
	switch {
	case j.Live < 0:
		result.WrongLoads++
		m.Say("%s: WRONG build live; %d worked, %d ordered", m.state.FileSystem, m.state.Worked, m.state.Issued)
	case j.Live == 0 && j.Held == "":
		result.NotServed++
		m.Say("%s: NOTHING live; %d worked, %d ordered", m.state.FileSystem, m.state.Worked, m.state.Issued)
	case j.Live == 0 && m.state.Worked > 0:
		result.Held++
		m.Say("%s: %s", m.state.FileSystem, j.Held)
	case j.Live > 0 && j.Live < m.state.Issued:
		result.Previous++
	}
}

// arguments of QEMU. Descriptor 3 is what the machine says. Its disk has no cache that outruns the
// host's: each flush of the guest, and each write, is on the host's disk before it is answered.
func (m *machine) arguments() []string {
	appended := []string{
		kernelArgs, "powercut.fs=" + m.state.FileSystem, "powercut.nosync=" + strconv.FormatBool(m.state.NoSync),
		"powercut.worked=" + strconv.Itoa(m.state.Worked), "powercut.issued=" + strconv.Itoa(m.state.Issued),
	}
	return []string{
		"-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "1", "-m", strconv.Itoa(memMB),
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-kernel", m.kernel, "-initrd", m.initrd, "-append", strings.Join(appended, " "),
		"-drive", "file=" + m.disk + ",format=raw,if=virtio,cache=writethrough",
		"-chardev", "file,id=kernel,path=" + m.console(), "-serial", "chardev:kernel",
		"-add-fd", "fd=3,set=1", "-chardev", "file,id=words,append=on,path=/dev/fdset/1", "-serial", "chardev:words",
	}
}

func (m *machine) console() string { return filepath.Join(m.dir, "console.log") }

// lastWords is the end of what the kernel wrote to its console.
func (m *machine) lastWords() string {
	const most = 2000
	said, err := os.ReadFile(m.console())
	if err != nil {
		return err.Error()
	}
	return string(said[max(0, len(said)-most):])
}
