// SPDX-License-Identifier: Apache-2.0

// Package place tells whether the directories that the agent was given are what they must be. A
// wrong one would look like carriers that never deliver, or like a node that forgets.
package place

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/internal/agent/boot"
	"github.com/drover-project/drover/internal/agent/host"
)

// Findings are sentences about what is wrong, with the next step; empty: nothing is.
type Findings struct {
	Idle       string // why nothing can be loaded or unloaded
	NoDelivery string // why no delivery can arrive
	Forgets    string // why the agent's state is lost at the next boot
}

// Options say what was given.
type Options struct {
	StateDir  string
	PodsDir   string
	PodUID    types.UID // the agent's own pod; empty: there is none, and PodsDir is not checked
	MountInfo string    // /proc/self/mountinfo
}

// Look finds out.
func Look(o Options) Findings {
	f := Findings{Idle: unwritable(o.StateDir), NoDelivery: wrongPods(o.PodsDir, o.PodUID)}
	if f.Idle == "" {
		f.Forgets = volatile(o.StateDir, o.MountInfo)
	}
	return f
}

func unwritable(dir string) string {
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		var probe *os.File
		if probe, err = os.CreateTemp(dir, ".probe-"); err == nil {
			_, err = probe.WriteString("written to see whether it can be")
			err = errors.Join(err, probe.Close(), os.Remove(probe.Name()))
		}
	}
	full := errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
	if err == nil || full && usedBefore(dir) {
		return ""
	}
	return fmt.Sprintf("the state directory cannot be written (%v). Set --state-dir, and the volume mounted there, to a directory on a "+
		"writable disk of the node.", err)
}

// usedBefore tells whether an agent has worked with a state directory. While it is full, what is in
// it still says what is loaded and held; what cannot be noted there is not carried out.
func usedBefore(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, boot.LockFile))
	return err == nil
}

// wrongPods looks for the directory that the kubelet made for the agent's own pod.
func wrongPods(dir string, pod types.UID) string {
	const next = "Set --kubelet-pods, and the volume mounted there, to the directory pods below the kubelet's --root-dir."
	if _, err := os.Stat(dir); err != nil {
		return fmt.Sprintf("the kubelet's pods directory cannot be read (%v). %s", err, next)
	}
	if pod == "" {
		return ""
	}
	if _, err := os.Stat(filepath.Join(dir, string(pod))); err != nil {
		return fmt.Sprintf("%s is not the pods directory of this node's kubelet: it lacks the agent's own pod %s. %s", dir, pod, next)
	}
	return ""
}

func volatile(dir, mountInfo string) string {
	m, err := mountOf(dir, mountInfo)
	if err != nil {
		return "" // not known
	}
	where := ""
	switch {
	case m.Kind == "tmpfs" || m.Kind == "ramfs":
		where = "in memory (" + m.Kind + ")"
	case strings.Contains(m.Root, "/volumes/kubernetes.io~empty-dir/"):
		where = "in an emptyDir of the agent's pod"
	case m.Kind == "overlay" && m.Point == "/":
		where = "in the agent's container"
	default:
		return ""
	}
	return fmt.Sprintf("the state directory %s is %s, which a boot empties. Mount a directory on a disk of the node there.", dir, where)
}

// mountOf finds the mount that a path is on: the longest that contains it, of several the last.
func mountOf(path, mountInfo string) (found host.Mount, err error) {
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return found, fmt.Errorf("resolve: %w", err)
	}
	mounts, err := host.Mounts(mountInfo)
	if err != nil {
		return found, err
	}
	for _, m := range mounts {
		if within(path, m.Point) && len(m.Point) >= len(found.Point) {
			found = m
		}
	}
	if found.Point == "" {
		return found, fmt.Errorf("no mount contains %s, as in a chroot", path)
	}
	return found, nil
}

func within(path, dir string) bool {
	return dir == "/" || path == dir || strings.HasPrefix(path, dir+"/")
}
