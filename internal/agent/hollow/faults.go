// SPDX-License-Identifier: Apache-2.0

package hollow

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/drover-project/drover/internal/agent/host/fake"
)

// apply arranges one fault: "<what>" on all nodes or "<what>@<node>".
func (f *fleet) apply(fault string) error {
	what, where, one := strings.Cut(fault, "@")
	nodes := f.nodes
	if one {
		n := f.byName[where]
		if n == nil {
			return fmt.Errorf("--fault %s: no node %s", fault, where)
		}
		nodes = []*node{n}
	}
	for _, n := range nodes {
		if err := n.fault(what, nil); err != nil {
			return fmt.Errorf("--fault %s: %w", fault, err)
		}
	}
	return nil
}

// fault arranges one fault of a node: "agent-off", "load-<errno>" or "unload-<errno>", where the
// errno may also be "oops", and "slow" for a call that takes the time in "delay". The form's
// "module" limits it to that kernel module, "times" to so many calls, and each "log" is a line that
// the kernel prints.
func (n *node) fault(what string, form url.Values) error {
	if what == "agent-off" {
		n.off = true
		return nil
	}
	call, errno, ok := strings.Cut(what, "-")
	calls := map[string]string{"load": "finit_module", "unload": "delete_module"}
	if !ok || calls[call] == "" || errno == "" {
		return fmt.Errorf("unknown fault %q", what)
	}
	f := fake.Fault{Log: form["log"]}
	if times := form.Get("times"); times != "" {
		var err error
		if f.Times, err = strconv.Atoi(times); err != nil {
			return fmt.Errorf("times of fault %q: %w", what, err)
		}
	}
	switch errno {
	case "oops":
		f.Oops = true
	case "slow":
		var err error
		if f.Delay, err = time.ParseDuration(form.Get("delay")); err != nil {
			return fmt.Errorf("delay of fault %q: %w", what, err)
		}
	default:
		f.Errno = strings.ToUpper(errno)
	}
	n.kernel.Script(calls[call], form.Get("module"), f)
	return nil
}

// mend ends the faults of one kernel module, or all of them.
func (n *node) mend(module string) {
	if module == "" {
		n.kernel.Mend()
		return
	}
	n.kernel.MendModule(module)
}

// secure is a change of the kernel's command line, and the reboot that it takes.
func (n *node) secure(ctx context.Context, form url.Values) error {
	n.kernel.Secure(fake.Security{Enforced: form.Has("enforced"), LockedDown: form.Has("lockdown")})
	return n.reboot(ctx, "")
}

// insmod is a person, or another operator, who loads a build past the agent: one of an image, or
// without one a build of their own.
func (f *fleet) insmod(n *node, module, image string) error {
	return n.kernel.Insmod(f.carriers.images.module(cmp.Or(image, "the host's own"), recipe{}, n.kernel.Release(), module, nil))
}

// switchOn ends the fault agent-off, as an installation of the agent does.
func (n *node) switchOn(ctx context.Context) error {
	n.life.Lock()
	defer n.life.Unlock()
	if !n.off || n.vanished() {
		return nil
	}
	n.off = false
	return n.startAgent(ctx)
}

// switchOff begins the fault agent-off. The kubelet goes on.
func (n *node) switchOff() {
	n.life.Lock()
	defer n.life.Unlock()
	n.off = true
	n.stop()
}

// breaks makes the kubelet call its node not ready for that cause, and an empty one ends it.
func (n *node) breaks(ctx context.Context, cause string) error {
	n.mu.Lock()
	n.broken = cause
	n.mu.Unlock()
	n.doubt()
	return n.writeStatus(ctx)
}

// put makes a device node, or a value in sysfs, be there until it is taken or the node reboots.
func (n *node) put(path, value string) error {
	if !strings.HasPrefix(path, "/dev/") && !strings.HasPrefix(path, "/sys/") {
		return fmt.Errorf("%q is neither below /dev nor below /sys", path)
	}
	n.kernel.Put(path, value)
	return nil
}

// step makes the agent's clock wrong by a duration while the agent begins again: times of one
// process have a monotonic part on a real node, and do not see a step there.
func (n *node) step(ctx context.Context, off string) error {
	d, err := time.ParseDuration(off)
	if err != nil {
		return fmt.Errorf("read by how much the clock is wrong: %w", err)
	}
	n.life.Lock()
	defer n.life.Unlock()
	n.stop()
	n.wall.Set(d)
	if n.vanished() {
		return nil
	}
	return n.startAgent(ctx)
}

// fill makes the disk with the agent's files full, or not any more.
func (n *node) fill(full bool) error {
	switch {
	case n.disk == nil:
		return fmt.Errorf("node %s has no disk of its own: start the hollow nodes with --disk-size", n.name)
	case full:
		return n.disk.Fill()
	}
	return n.disk.Empty()
}
