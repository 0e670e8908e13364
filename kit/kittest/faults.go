// SPDX-License-Identifier: Apache-2.0

package kittest

import (
	"strings"
	"testing"
)

// FailLoad makes the module's init return an errno, such as "ENODEV": there is no such device.
func (n *Node) FailLoad(t testing.TB, module, errno string) {
	t.Helper()
	n.fault(t, module, "load-"+strings.ToLower(errno))
}

// FailUnload makes the kernel refuse to unload the module with an errno, such as "EBUSY".
func (n *Node) FailUnload(t testing.TB, module, errno string) {
	t.Helper()
	n.fault(t, module, "unload-"+strings.ToLower(errno))
}

// CrashLoad makes the module's init oops: whoever loads it dies, and the module can neither be used
// nor unloaded until a reboot.
func (n *Node) CrashLoad(t testing.TB, module string) {
	t.Helper()
	n.fault(t, module, "load-oops")
}

// HangLoad makes the module's init never return.
func (n *Node) HangLoad(t testing.TB, module string) {
	t.Helper()
	n.fault(t, module, "load-slow", "delay", "24h")
}

// HangUnload makes the module's exit never return.
func (n *Node) HangUnload(t testing.TB, module string) {
	t.Helper()
	n.fault(t, module, "unload-slow", "delay", "24h")
}

// fault arranges one for a module until the test ends.
func (n *Node) fault(t testing.TB, module, what string, args ...string) {
	t.Helper()
	n.does(t, "fault", append([]string{"fault", what, "module", module}, args...)...)
	t.Cleanup(func() { n.Mend(t, module) })
}

// Mend ends what FailLoad, FailUnload, CrashLoad, HangLoad and HangUnload arranged for the module.
// What they have done to the kernel already stays done.
func (n *Node) Mend(t testing.TB, module string) {
	t.Helper()
	n.does(t, "mend", "module", module)
}

// Remove is somebody who unloads the module by hand.
func (n *Node) Remove(t testing.TB, module string) {
	t.Helper()
	n.does(t, "rmmod", "module", module)
}

// Insert is somebody who loads a module of that name by hand, of another build than any image's.
func (n *Node) Insert(t testing.TB, module string) {
	t.Helper()
	n.does(t, "insmod", "module", module)
}

// Hold is somebody who uses the module, so that it cannot be unloaded before Release.
func (n *Node) Hold(t testing.TB, module string) {
	t.Helper()
	n.does(t, "hold", "module", module)
}

// Release ends Hold.
func (n *Node) Release(t testing.TB, module string) {
	t.Helper()
	n.does(t, "unhold", "module", module)
}

// Reboot empties the kernel and starts the node again.
func (n *Node) Reboot(t testing.TB) {
	t.Helper()
	n.does(t, "reboot")
}

// RebootInto reboots into another kernel version, as an upgrade of the node does.
func (n *Node) RebootInto(t testing.TB, kernel string) {
	t.Helper()
	n.does(t, "reboot", "kernel", kernel)
}

// PowerOff cuts the node's power: nothing on it answers any more.
func (n *Node) PowerOff(t testing.TB) {
	t.Helper()
	n.does(t, "vanish")
	t.Cleanup(func() { n.PowerOn(t) })
}

// PowerOn ends PowerOff, with an empty kernel. A node that has power stays as it is.
func (n *Node) PowerOn(t testing.TB) {
	t.Helper()
	n.does(t, "return")
}

// NotReady makes the node's kubelet call the node not ready, for a cause in its own words.
func (n *Node) NotReady(t testing.TB, cause string) {
	t.Helper()
	n.does(t, "unready", "cause", cause)
	t.Cleanup(func() { n.Ready(t) })
}

// Ready ends NotReady.
func (n *Node) Ready(t testing.TB) {
	t.Helper()
	n.does(t, "ready")
}

// ImageFault is what can be wrong with an image.
type ImageFault string

// Faults of images.
const (
	// ImageMissing: the registry does not have it.
	ImageMissing ImageFault = "missing"
	// ImageUnauthorized: the registry wants credentials.
	ImageUnauthorized ImageFault = "unauthorized"
	// ImageUnreachable: the registry does not answer.
	ImageUnreachable ImageFault = "unreachable"
	// ImageEmpty: it has no kernel modules.
	ImageEmpty ImageFault = "empty"
)

// BreakImages makes something be wrong with the images whose reference matches a regular
// expression, until the test ends. All other images exist and hold the kernel module that is asked
// for. What nodes have pulled they keep.
func (c *Cluster) BreakImages(t testing.TB, pattern string, fault ImageFault) {
	t.Helper()
	c.does(t, "recipe", "pattern", pattern, "recipe", string(fault))
	t.Cleanup(func() { c.MendImages(t, pattern) })
}

// MendImages ends BreakImages of the same pattern.
func (c *Cluster) MendImages(t testing.TB, pattern string) {
	t.Helper()
	c.does(t, "recipe", "pattern", pattern, "recipe", "")
}
