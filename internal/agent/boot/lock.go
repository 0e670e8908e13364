// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	// LockFile in the state directory is there as soon as an agent ran on the node.
	LockFile   = "agent.lock"
	wantedFile = "agent.lock.wanted"
	lockPoll   = 50 * time.Millisecond
	progress   = 5 * time.Second // how often an agent that waits logs that
)

// Lock is held by the one agent of a node that works. The kernel frees it when the agent ends.
type Lock struct {
	dir  string
	file *os.File
}

// Take waits for the lock and tells its holder so. role says in the file who has it.
func Take(ctx context.Context, dir, role string, clk clock.WithTicker) (*Lock, error) {
	wanted, err := waitFor(ctx, filepath.Join(dir, wantedFile), role, clk)
	if err != nil {
		return nil, err
	}
	defer func() { _ = wanted.Close() }() // lets the next one wait
	file, err := waitFor(ctx, filepath.Join(dir, LockFile), role, clk)
	if err != nil {
		return nil, err
	}
	return &Lock{dir: dir, file: file}, nil
}

// TryTake takes the lock, or returns nil if another agent has it or waits for it.
func TryTake(dir, role string) (*Lock, error) {
	l := &Lock{dir: dir}
	if wanted, err := l.Wanted(); wanted || err != nil {
		return nil, err
	}
	file, err := try(filepath.Join(dir, LockFile), syscall.LOCK_EX, role)
	if file == nil {
		return nil, err
	}
	l.file = file
	return l, nil
}

// Wanted tells whether another agent waits for the lock.
func (l *Lock) Wanted() (bool, error) {
	// Shared: two that ask must not take each other for one that waits.
	file, err := try(filepath.Join(l.dir, wantedFile), syscall.LOCK_SH, "")
	if err != nil || file == nil {
		return err == nil, err
	}
	return false, wrap(file.Close())
}

// Release frees the lock.
func (l *Lock) Release() error {
	return wrap(l.file.Close())
}

// waitFor waits for a lock, and logs now and then who has it.
func waitFor(ctx context.Context, name, role string, clk clock.WithTicker) (*os.File, error) {
	ticker := clk.NewTicker(lockPoll)
	defer ticker.Stop()
	begin := clk.Now()
	said := begin.Add(lockPoll - progress) // the first time after lockPoll
	for {
		file, err := try(name, syscall.LOCK_EX, role)
		if file != nil || err != nil {
			return file, err
		}
		if now := clk.Now(); now.Sub(said) >= progress {
			said = now
			klog.FromContext(ctx).Info("Waiting for another agent to end its work on this node", "lock", name, "holder", holder(name),
				"since", now.Sub(begin).Round(time.Second).String())
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the lock %s: %w", name, ctx.Err())
		case <-ticker.C():
		}
	}
}

// try takes a lock, or returns nil if it is taken. It removes what is there and not a file.
func try(name string, how int, role string) (*os.File, error) {
	file, err := open(name)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(file.Fd()), how|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, wrap(file.Close())
	}
	if err == nil && role != "" {
		// For people only: on a full disk, it may not say who has the lock.
		_ = file.Truncate(0)
		_, _ = file.WriteAt(fmt.Appendf(nil, "%s, process %d\n", role, os.Getpid()), 0)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", name, err), file.Close())
	}
	return file, nil
}

func open(name string) (*os.File, error) {
	const flags = os.O_RDWR | os.O_CREATE | syscall.O_NOFOLLOW | syscall.O_NONBLOCK
	info, err := os.Lstat(name)
	if err == nil && !info.Mode().IsRegular() {
		if err := os.RemoveAll(name); err != nil {
			return nil, fmt.Errorf("lock: %w", err)
		}
	}
	file, err := os.OpenFile(name, flags, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	return file, nil
}

func wrap(err error) error {
	if err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	return nil
}

func holder(name string) string {
	file, err := open(name)
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }()              // only read from
	text, _ := io.ReadAll(io.LimitReader(file, 100)) // only for the log
	return strings.TrimSpace(string(text))
}
