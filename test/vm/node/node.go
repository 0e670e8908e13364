// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package node runs a Kubernetes node with a kernel of its own: a QEMU guest,
// without hardware acceleration, with containerd and kubelet, that joins an API
// server on the host's loopback. Its disk survives reboots. The guest reaches
// nothing but the host's 127.0.0.1.
package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/drover-project/drover/test/vm/artifacts"
)

// startAttempts bounds how often a port that was taken meanwhile is replaced.
const startAttempts = 3

// shutdownTimeout bounds an orderly way down before the power is cut.
const shutdownTimeout = 30 * time.Second

// Node is a virtual node. Its methods may be called from one goroutine at a
// time; Console's from several.
type Node struct {
	config  Config
	images  *artifacts.Images
	machine *machine
}

// Start powers a node on and returns at once; WaitUp and WaitReady wait. The
// machine ends with Stop, or with this process.
func Start(ctx context.Context, images *artifacts.Images, config Config) (*Node, error) {
	if err := config.complete(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(config.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the node's folder: %w", err)
	}
	n := &Node{config: config, images: images}
	if err := n.makeDisk(ctx); err != nil {
		return nil, err
	}
	chosen := config.KubeletPort
	var errs error
	for range startAttempts {
		if chosen == 0 {
			port, err := freePort()
			if err != nil {
				return nil, err
			}
			n.config.KubeletPort = port
		}
		err := n.PowerOn()
		if err == nil {
			return n, nil
		}
		errs = errors.Join(errs, err)
		// Somebody else may have taken the port since.
		if chosen != 0 || !strings.Contains(err.Error(), "host forwarding") {
			break
		}
	}
	return nil, errs
}

// PowerOn starts the machine after Kill, Shutdown, or an end of its own.
func (n *Node) PowerOn() error {
	if n.machine != nil {
		return errors.New("the machine is running")
	}
	kernel, known := n.images.Kernels[n.config.Kernel]
	if !known {
		return fmt.Errorf("no kernel of series %q", n.config.Kernel)
	}
	initrd, err := n.writeInitrd()
	if err != nil {
		return err
	}
	n.machine, err = power(n.config, kernel.Image(), initrd, n.disk())
	return err
}

// SetKernel chooses the kernel of the next PowerOn or Reboot, as a node's
// upgrade does.
func (n *Node) SetKernel(series artifacts.Series) { n.config.Kernel = series }

// SetKernelArgs replaces the additions to the kernel's command line from the
// next boot on.
func (n *Node) SetKernelArgs(args ...string) { n.config.KernelArgs = args }

// SetUEFI gives the machine UEFI firmware with these variables from the next
// boot on: Config.UEFI.
func (n *Node) SetUEFI(variables []byte) { n.config.UEFI = variables }

// Name is the node's name.
func (n *Node) Name() string { return n.config.Name }

// Kernel is the kernel of the current or, with the power off, the next boot.
func (n *Node) Kernel() artifacts.Kernel { return n.images.Kernels[n.config.Kernel] }

// Console runs commands in the guest. It belongs to one boot: after a reboot
// the node has another. Nil when the power is off.
func (n *Node) Console() *Console {
	if n.machine == nil {
		return nil
	}
	return n.machine.console
}

// Run runs a shell script in the guest: Console().Run.
func (n *Node) Run(ctx context.Context, script string) (output string, exitCode int, err error) {
	if n.machine == nil {
		return "", 0, errConsoleClosed
	}
	return n.machine.console.Run(ctx, script)
}

// Output runs a shell script that must succeed: Console().Output.
func (n *Node) Output(ctx context.Context, script string) (string, error) {
	if n.machine == nil {
		return "", errConsoleClosed
	}
	return n.machine.console.Output(ctx, script)
}

// WaitUp waits until the guest takes commands and returns its boot ID.
func (n *Node) WaitUp(ctx context.Context) (bootID string, err error) {
	if n.machine == nil {
		return "", errConsoleClosed
	}
	if err := n.machine.console.WaitUp(ctx); err != nil {
		return "", errors.Join(err, n.lastWords())
	}
	return n.machine.console.BootID(), nil
}

// Ended is closed when the machine has stopped, by itself (a panic, a reboot
// from within) or on command. Nil when the power is off.
func (n *Node) Ended() <-chan struct{} {
	if n.machine == nil {
		return nil
	}
	return n.machine.child.Done()
}

// Reboot goes down in order, processes first, then the disk, and powers on
// again. It returns when the new boot takes commands.
func (n *Node) Reboot(ctx context.Context) (bootID string, err error) {
	if err := n.Shutdown(ctx); err != nil {
		return "", err
	}
	if err := n.PowerOn(); err != nil {
		return "", err
	}
	return n.WaitUp(ctx)
}

// Shutdown stops the guest in order and leaves the power off.
func (n *Node) Shutdown(ctx context.Context) error {
	if n.machine == nil {
		return nil
	}
	if _, err := n.Output(ctx, "kill -USR1 1"); err != nil && !errors.Is(err, errConsoleClosed) {
		return fmt.Errorf("ask the guest to go down: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, shutdownTimeout)
	defer cancel()
	select {
	case <-n.machine.child.Done():
		return n.Kill()
	case <-ctx.Done():
		return fmt.Errorf("wait for the guest to go down: %w", ctx.Err())
	}
}

// Kill cuts the power, or picks up what is left of a machine that ended by
// itself. The disk keeps what the guest had written to it.
func (n *Node) Kill() error {
	if n.machine == nil {
		return nil
	}
	err := n.machine.stop()
	n.machine = nil
	return err
}

// Stop ends the machine for good. The folder stays, with the logs.
func (n *Node) Stop() error { return n.Kill() }

// CutNetwork pulls the network cable.
func (n *Node) CutNetwork(ctx context.Context) error { return n.setLink(ctx, false) }

// RestoreNetwork plugs it in again.
func (n *Node) RestoreNetwork(ctx context.Context) error { return n.setLink(ctx, true) }

func (n *Node) setLink(ctx context.Context, up bool) error {
	if n.machine == nil {
		return errConsoleClosed
	}
	return n.machine.monitor.execute(ctx, "set_link", map[string]any{"name": netID, "up": up})
}

func (n *Node) disk() string { return filepath.Join(n.config.Dir, "disk.qcow2") }

// makeDisk makes the overlay that takes the guest's writes, unless it is there.
func (n *Node) makeDisk(ctx context.Context) error {
	if _, err := os.Stat(n.disk()); err == nil {
		return nil
	}
	output, err := exec.CommandContext(ctx, "qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", n.images.Root,
		n.disk()).CombinedOutput()
	if err != nil {
		return fmt.Errorf("make the disk: %w: %s", err, bytes.TrimSpace(output))
	}
	return nil
}

// writeInitrd joins the kernel's initial RAM disk and the node's own files.
func (n *Node) writeInitrd() (string, error) {
	content, err := os.ReadFile(n.images.Initrds[n.config.Kernel])
	if err != nil {
		return "", fmt.Errorf("read the initial RAM disk: %w", err)
	}
	files, err := n.config.guestFiles()
	if err != nil {
		return "", err
	}
	out := bytes.NewBuffer(content)
	if err := artifacts.WriteCPIO(out, files); err != nil {
		return "", err
	}
	path := filepath.Join(n.config.Dir, "initrd")
	if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
		return "", fmt.Errorf("write the initial RAM disk: %w", err)
	}
	return path, nil
}

// lastWords is the end of what the kernel wrote to its console, as an error
// to put beside another.
func (n *Node) lastWords() error {
	said, err := os.ReadFile(filepath.Join(n.config.Dir, "console.log"))
	if err != nil {
		return fmt.Errorf("read the kernel's console: %w", err)
	}
	const most = 2000
	said = bytes.TrimSpace(said)
	return fmt.Errorf("the kernel's console ends with: %s", said[max(0, len(said)-most):])
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	port := 0
	if address, isTCP := listener.Addr().(*net.TCPAddr); isTCP {
		port = address.Port
	}
	if err := listener.Close(); err != nil {
		return 0, fmt.Errorf("free the port: %w", err)
	}
	return port, nil
}
