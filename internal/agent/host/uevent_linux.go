// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// kernelGroup is the multicast group on which the kernel itself sends uevents.
const kernelGroup = 1

// Changes implements Host: the kernel's uevents about modules, and kernel calls that ended late.
func (r *Real) Changes(ctx context.Context) (<-chan struct{}, error) {
	socket, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return nil, fmt.Errorf("host: uevents: %w", err)
	}
	if err := unix.Bind(socket, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: kernelGroup}); err != nil {
		return nil, errors.Join(fmt.Errorf("host: uevents: %w", err), unix.Close(socket))
	}
	// The runtime's poller waits for it without a thread. Closing it ends the wait.
	file := os.NewFile(uintptr(socket), "uevents")
	conn, err := file.SyscallConn()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("host: uevents: %w", err), file.Close())
	}
	out := r.hints.subscribe()
	stop := context.AfterFunc(ctx, func() { _ = file.Close() }) // nothing was written to it
	go func() {
		defer r.hints.unsubscribe(out)
		readUevents(conn, out)
		if stop() { // the socket failed: the slow poll goes on
			_ = file.Close()
		}
		<-ctx.Done()
	}()
	return out, nil
}

// readUevents passes on what the kernel says until the socket is closed or fails.
func readUevents(conn syscall.RawConn, out chan struct{}) {
	buffer := make([]byte, 64<<10)
	for {
		var n int
		var err error
		if conn.Read(func(socket uintptr) bool {
			n, _, err = unix.Recvfrom(int(socket), buffer, 0)
			return !errors.Is(err, unix.EAGAIN)
		}) != nil {
			return
		}
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ENOBUFS): // some were lost: look
			notify(out)
		case err != nil:
			return
		case aboutModule(buffer[:n]):
			notify(out)
		}
	}
}

// aboutModule: a uevent is NUL-separated key=value pairs after a header.
func aboutModule(event []byte) bool {
	return bytes.Contains(event, []byte("\x00SUBSYSTEM=module\x00"))
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// hints passes hints on to all subscribers.
type hints struct {
	mu   sync.Mutex
	subs map[chan struct{}]bool
}

func (h *hints) subscribe() chan struct{} {
	c := make(chan struct{}, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.subs[c] = true
	return c
}

func (h *hints) unsubscribe(c chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.subs, c)
	close(c)
}

func (h *hints) tell() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.subs {
		notify(c)
	}
}
