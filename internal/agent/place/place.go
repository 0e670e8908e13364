// SPDX-License-Identifier: Apache-2.0

// Package place tells whether the directories that the agent was given are what they must be. A wrong one would otherwise look like carriers
// that never deliver, or like a node that forgets.
package place

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Findings are sentences about what is wrong, with the next step; empty ones say that nothing is.
type Findings struct {
	// Idle is why nothing can be loaded or unloaded.
	Idle string
	// NoDelivery is why no delivery can arrive.
	NoDelivery string
	// Forgets is why what the agent keeps is lost with the next boot.
	Forgets string
}

// Options say what was given.
type Options struct {
	// StateDir is the agent's state directory, as it sees it.
	StateDir string
	// PodsDir is the kubelet's pods directory, as the agent sees it.
	PodsDir string
	// PodUID is the agent's own pod; empty: it runs in none, and PodsDir cannot be told from another.
	PodUID types.UID
	// MountInfo is /proc/self/mountinfo.
	MountInfo string
}

// Look finds out.
func Look(o Options) Findings {
	f := Findings{Idle: unwritable(o.StateDir), NoDelivery: foreign(o.PodsDir, o.PodUID)}
	if f.Idle == "" {
		f.Forgets = forgets(o.StateDir, o.MountInfo)
	}
	return f
}

// unwritable tries.
func unwritable(dir string) string {
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		var probe *os.File
		if probe, err = os.CreateTemp(dir, ".probe-"); err == nil {
			_, err = probe.WriteString("written to see whether it can be")
			err = errors.Join(err, probe.Close(), os.Remove(probe.Name()))
		}
	}
	if err == nil {
		return ""
	}
	return fmt.Sprintf("the state directory cannot be written (%v). Give --state-dir, and the mount it is on, a directory on a writable disk of the node.", err)
}

// foreign looks for the agent's own pod, which the kubelet made a directory for before it started the agent.
func foreign(dir string, pod types.UID) string {
	const next = "Give --kubelet-pods, and the mount it is on, the directory pods below the kubelet's --root-dir."
	if _, err := os.Stat(dir); err != nil {
		return fmt.Sprintf("the kubelet's pods directory cannot be read (%v). %s", err, next)
	}
	if pod == "" {
		return ""
	}
	if _, err := os.Stat(filepath.Join(dir, string(pod))); err != nil {
		return fmt.Sprintf("%s is not where this node's kubelet keeps its pods: the agent's own pod %s is not in it. %s", dir, pod, next)
	}
	return ""
}

// forgets looks at the mount that the directory is on.
func forgets(dir, mountInfo string) string {
	m, err := mountOf(dir, mountInfo)
	if err != nil {
		return "" // nothing is known against it
	}
	where := ""
	switch {
	case m.kind == "tmpfs" || m.kind == "ramfs":
		where = "in memory (" + m.kind + ")"
	case strings.Contains(m.root, "/volumes/kubernetes.io~empty-dir/"):
		where = "in an emptyDir of the agent's pod"
	case m.kind == "overlay" && m.point == "/":
		where = "in the agent's container"
	default:
		return ""
	}
	return fmt.Sprintf("the state directory %s is %s and does not survive one. Mount a directory on a disk of the node there.", dir, where)
}

// mount is a line of mountinfo, see proc_pid_mountinfo(5).
type mount struct{ root, point, kind string }

// mountOf finds the mount that a path is on: of those that contain it the longest, and of these the last, which covers the others.
func mountOf(path, mountInfo string) (mount, error) {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return mount{}, fmt.Errorf("resolve: %w", err)
	}
	f, err := os.Open(mountInfo)
	if err != nil {
		return mount{}, fmt.Errorf("read mounts: %w", err)
	}
	defer func() { _ = f.Close() }() // only read from
	var found mount
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		left, right, _ := strings.Cut(lines.Text(), " - ")
		fields, kind := strings.Fields(left), strings.Fields(right)
		if len(fields) < 5 || len(kind) == 0 {
			continue
		}
		m := mount{root: unescape(fields[3]), point: unescape(fields[4]), kind: kind[0]}
		if within(path, m.point) && len(m.point) >= len(found.point) {
			found = m
		}
	}
	if err := lines.Err(); err != nil {
		return mount{}, fmt.Errorf("read mounts: %w", err)
	}
	if found.point == "" {
		return mount{}, fmt.Errorf("no mount contains %s, as in a chroot", path)
	}
	return found, nil
}

func within(path, dir string) bool {
	return dir == "/" || path == dir || strings.HasPrefix(path, dir+"/")
}

// unescape turns \040 into a space.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(c))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
