// SPDX-License-Identifier: Apache-2.0

//go:build linux

package node

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/drover-project/drover/test/vm/internal/process"
	"github.com/drover-project/drover/test/vm/uefi"
)

// kernelArgs of every node: messages to the first serial port and few of them,
// a panic restarts at once (which ends QEMU), nothing that only slows an
// emulated processor down, and no test of the timer's interrupt, which a busy
// host makes fail.
const kernelArgs = "console=ttyS0 quiet loglevel=4 panic=-1 mitigations=off tsc=reliable clocksource=tsc no_timer_check nokaslr " +
	"random.trust_cpu=on"

// withAudit is for a node whose audit log matters: the kernel takes audit=0 for good.
const withAudit, withoutAudit = "audit=1", "audit=0"

func kernelArguments(more []string) string {
	audit := withoutAudit
	if slices.Contains(more, withAudit) {
		audit = ""
	}
	return strings.Join(append([]string{kernelArgs, audit}, more...), " ")
}

// netID names the network device's back end for the monitor.
const netID = "n0"

// machine is one run of QEMU, from power on to power off.
type machine struct {
	child   *process.Child
	console *Console
	monitor *monitor
	log     string // QEMU's own messages
}

// power starts QEMU. It does not wait for the guest.
func power(config Config, kernel, initrd, disk string) (*machine, error) {
	ours, theirs, err := connections(2)
	if err != nil {
		return nil, err
	}
	defer closeAll(theirs)
	log := filepath.Join(config.Dir, "qemu.log")
	output, err := os.Create(log)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("create QEMU's log: %w", err), closeConns(ours))
	}
	defer closeAll([]*os.File{output})
	firmware, err := firmwareArguments(config)
	if err != nil {
		return nil, errors.Join(err, closeConns(ours))
	}
	cmd := exec.Command("qemu-system-x86_64", append(arguments(config, kernel, initrd, disk), firmware...)...)
	cmd.Stdout, cmd.Stderr = output, output
	cmd.ExtraFiles = theirs
	child, err := process.Start(cmd)
	if err != nil {
		return nil, errors.Join(err, closeConns(ours))
	}
	m := &machine{child: child, console: newConsole(ours[0]), log: log}
	if m.monitor, err = newMonitor(ours[1]); err != nil {
		m.monitor = &monitor{conn: ours[1]}
		said, _ := os.ReadFile(log)
		return nil, errors.Join(fmt.Errorf("QEMU did not start: %w: %s", err, strings.TrimSpace(string(said))), m.stop())
	}
	return m, nil
}

// stop cuts the power and waits for the end.
func (m *machine) stop() error {
	err := m.child.Kill()
	return errors.Join(err, closeConns([]net.Conn{m.console.conn, m.monitor.conn}))
}

// processor is the emulated one: what an emulator does slower than the instructions that programs
// use without it, it has not. Go's SHA-256 takes 1.6 times as long with AVX2, and a search in bytes
// three times.
const processor = "max,avx=off,avx2=off,la57=off,smap=off"

// arguments of QEMU. Descriptors 3 and 4 are the command console and the
// monitor.
func arguments(config Config, kernel, initrd, disk string) []string {
	port := strconv.Itoa(config.KubeletPort)
	return []string{
		"-name", config.Name,
		"-accel", "tcg,thread=multi", "-cpu", processor, "-smp", strconv.Itoa(config.SMP), "-m", strconv.Itoa(config.MemMB),
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-kernel", kernel, "-initrd", initrd,
		"-append", kernelArguments(config.KernelArgs),
		"-drive", "file=" + escape(disk) + ",format=qcow2,if=virtio,cache=unsafe,discard=unmap",
		"-netdev", "user,id=" + netID + ",ipv6=off,hostfwd=tcp:127.0.0.1:" + port + "-" + config.address() + ":" + port,
		"-device", "virtio-net-pci,netdev=" + netID + ",romfile=",
		"-chardev", "file,id=kernel,append=on,path=" + escape(filepath.Join(config.Dir, "console.log")), "-serial", "chardev:kernel",
		"-chardev", "socket,id=commands,fd=3", "-serial", "chardev:commands",
		"-chardev", "socket,id=monitor,fd=4", "-mon", "chardev=monitor,mode=control",
	}
}

// firmwareArguments are those of a machine with UEFI. Its code writes to the
// memory of its variables, so that is a copy.
func firmwareArguments(config Config) ([]string, error) {
	if config.UEFI == nil {
		return nil, nil
	}
	variables := filepath.Join(config.Dir, "uefi-variables")
	if err := os.WriteFile(variables, config.UEFI, 0o600); err != nil {
		return nil, fmt.Errorf("write the firmware's variables: %w", err)
	}
	return []string{
		"-machine", "q35",
		"-drive", "if=pflash,format=raw,unit=0,readonly=on,file=" + uefi.Code,
		"-drive", "if=pflash,format=raw,unit=1,file=" + escape(variables),
	}, nil
}

// escape protects commas in QEMU's option lists.
func escape(path string) string { return strings.ReplaceAll(path, ",", ",,") }

// connections makes n connected pairs; they are there before QEMU is, so that
// nothing the guest says is lost, and need no name in the file system.
func connections(n int) (ours []net.Conn, theirs []*os.File, err error) {
	for range n {
		pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		if err != nil {
			closeAll(theirs)
			return nil, nil, errors.Join(fmt.Errorf("make a socket pair: %w", err), closeConns(ours))
		}
		file := os.NewFile(uintptr(pair[0]), "guest")
		theirs = append(theirs, os.NewFile(uintptr(pair[1]), "host"))
		conn, err := net.FileConn(file)
		closeAll([]*os.File{file}) // FileConn took a duplicate
		if err != nil {
			closeAll(theirs)
			return nil, nil, errors.Join(fmt.Errorf("use a socket pair: %w", err), closeConns(ours))
		}
		ours = append(ours, conn)
	}
	return ours, theirs, nil
}

// closeAll closes descriptors that nothing was written to.
func closeAll(files []*os.File) {
	for _, file := range files {
		_ = file.Close()
	}
}

func closeConns(conns []net.Conn) error {
	var errs []error
	for _, conn := range conns {
		if err := conn.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, fmt.Errorf("close a connection to QEMU: %w", err))
		}
	}
	return errors.Join(errs...)
}
