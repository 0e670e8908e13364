// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/drover-project/drover/test/docs/page"
)

// patience is how long a block may take: seconds, but for a machine that is busy with other builds.
const patience = 20 * time.Minute

// shell runs the blocks of one page. Exported variables and the folder pass from one block to the
// next.
type shell struct {
	scene *scene
	dir   string
	// printed is what the last sh block printed.
	printed  string
	services []*process
	blocks   int
}

func newShell(s *scene, name string) (*shell, error) {
	sh := &shell{scene: s, dir: filepath.Join(s.dir, name)}
	if err := os.MkdirAll(sh.dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the page's folder: %w", err)
	}
	kubeconfig := filepath.Join(sh.dir, "kubeconfig")
	if err := s.kubeconfig(kubeconfig, name); err != nil {
		return nil, err
	}
	state := fmt.Sprintf("cd %q\nexport KUBECONFIG=%q PATH=%q:%q:\"$PATH\" DROVER_DEVCLUSTER=%q\n", s.checkout, kubeconfig,
		filepath.Join(s.checkout, "bin"), filepath.Join(s.bin, "assets"), filepath.Join(s.bin, "devcluster"))
	if err := os.WriteFile(sh.state(), []byte(state), 0o600); err != nil {
		return nil, fmt.Errorf("write the shell's state: %w", err)
	}
	return sh, nil
}

func (sh *shell) state() string { return filepath.Join(sh.dir, "state") }

// close ends what runs in the background.
func (sh *shell) close() error {
	var err error
	for _, service := range sh.services {
		err = errors.Join(err, service.kill())
	}
	return err
}

// process is a block that runs in the background. ended is closed when it has ended.
type process struct {
	group int
	ended chan struct{}
}

// kill ends a process and its children.
func (p *process) kill() error {
	if err := syscall.Kill(-p.group, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("end a block's process: %w", err)
	}
	<-p.ended
	return nil
}

// block does what a block asks for.
func (sh *shell) block(ctx context.Context, k kind, b page.Block) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	sh.blocks++
	begin := time.Now()
	var err error
	switch k {
	case runs:
		err = sh.run(ctx, b)
	case service:
		err = sh.serve(ctx, b)
	case output:
		err = page.CheckOutput(b.Text, sh.printed)
	case manifest:
		err = sh.manifest(ctx, b)
	case compiles:
		err = sh.compile(ctx, b)
	default:
		return nil
	}
	fmt.Printf("%6.1fs  %-24s %s\n", time.Since(begin).Seconds(), b.Where()[strings.LastIndex(b.Where(), "/")+1:], firstLine(b.Text))
	return err
}

// command is a bash that runs the text where the page is now, in a process group of its own.
func (sh *shell) command(ctx context.Context, text string) (*exec.Cmd, error) {
	script := filepath.Join(sh.dir, fmt.Sprintf("block-%d.sh", sh.blocks))
	content := fmt.Sprintf("set -euo pipefail\nsource %[1]q\ntrap '{ declare -px; printf \"cd %%q\\n\" \"$PWD\"; } >%[1]q' EXIT\n%[2]s",
		sh.state(), text)
	if err := os.WriteFile(script, []byte(content), 0o600); err != nil {
		return nil, fmt.Errorf("write a block's script: %w", err)
	}
	cmd := exec.CommandContext(ctx, "bash", script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	return cmd, nil
}

func (sh *shell) run(ctx context.Context, b page.Block) error {
	cmd, err := sh.command(ctx, sh.scene.onlyHere(b.Text))
	if err != nil {
		return err
	}
	var printed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &printed, &printed
	err = cmd.Run()
	sh.printed = printed.String()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		return fmt.Errorf("%w (%w): %s", cmp.Or(err, errors.New("too late")), context.Cause(ctx), sh.printed)
	}
	want, err := strconv.Atoi(cmp.Or(b.Attributes["exit"], "0"))
	if err != nil {
		return fmt.Errorf("the tag's exit: %w", err)
	}
	if got := cmd.ProcessState.ExitCode(); got != want {
		return fmt.Errorf("ended with %d instead of %d: %s", got, want, sh.printed)
	}
	return nil
}

// serve starts what runs until the page's end, and waits until it says that it is up.
func (sh *shell) serve(ctx context.Context, b page.Block) error {
	cmd, err := sh.command(context.WithoutCancel(ctx), b.Text)
	if err != nil {
		return err
	}
	path := filepath.Join(sh.dir, fmt.Sprintf("block-%d.log", sh.blocks))
	log, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("make a log: %w", err)
	}
	defer func() { _ = log.Close() }() // the child has its own descriptor
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start a block: %w", err)
	}
	p := &process{group: cmd.Process.Pid, ended: make(chan struct{})}
	sh.services = append(sh.services, p)
	go func() {
		_ = cmd.Wait() // it was told to end, or what it printed says why it did
		close(p.ended)
	}()
	var content []byte
	err = wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(context.Context) (bool, error) {
		if content, err = os.ReadFile(path); err != nil {
			return false, fmt.Errorf("read a block's log: %w", err)
		}
		select {
		case <-p.ended:
			return false, errors.New("it ended")
		default:
			return bytes.Contains(content, []byte(b.Attributes["until"])), nil
		}
	})
	if err != nil {
		return fmt.Errorf("wait for %q: %w: %s", b.Attributes["until"], err, content)
	}
	return nil
}
