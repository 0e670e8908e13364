// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// kernelGroup is the multicast group on which the kernel itself sends uevents.
const kernelGroup = 1

// Changes implements Host: the kernel's uevents about modules, and kernel calls that ended late.
func (r *Real) Changes(ctx context.Context) (<-chan struct{}, error) {
	socket, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return nil, fmt.Errorf("host: uevents: %w", err)
	}
	if err := unix.Bind(socket, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: kernelGroup}); err != nil {
		return nil, errors.Join(fmt.Errorf("host: uevents: %w", err), unix.Close(socket))
	}
	// The receive timeout lets the reader see that ctx has ended.
	if err := unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1}); err != nil {
		return nil, errors.Join(fmt.Errorf("host: uevents: %w", err), unix.Close(socket))
	}
	out := r.hints.subscribe()
	go func() {
		defer r.hints.unsubscribe(out)
		defer unix.Close(socket) //nolint:errcheck // nothing was written to it
		readUevents(ctx, socket, out)
	}()
	return out, nil
}

func readUevents(ctx context.Context, socket int, out chan struct{}) {
	buffer := make([]byte, 64<<10)
	for ctx.Err() == nil {
		n, _, err := unix.Recvfrom(socket, buffer, 0)
		switch {
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ENOBUFS): // some were lost: look
			notify(out)
		case err != nil:
			return // the slow poll goes on
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

// hub passes hints on to all subscribers.
type hub struct {
	mu   sync.Mutex
	subs map[chan struct{}]bool
}

func (h *hub) subscribe() chan struct{} {
	c := make(chan struct{}, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.subs == nil {
		h.subs = map[chan struct{}]bool{}
	}
	h.subs[c] = true
	return c
}

func (h *hub) unsubscribe(c chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.subs, c)
	close(c)
}

func (h *hub) tell() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.subs {
		notify(c)
	}
}
