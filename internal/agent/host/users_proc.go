// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Bounds of how many open files are looked at, in all processes and in one.
const (
	maxFiles        = 1 << 16
	maxFilesProcess = 1 << 12
)

// openers finds processes that have devices of a module open: as open files, not as mappings, and
// below some directory called "dev": any other file may be on a file system whose server is away.
type openers struct {
	proc   string
	rdev   func(path string) (deviceNumber, bool)
	owners *owners
	pods   *podNames

	files          int
	hidden, opened int
}

// find makes one pass over all processes.
func (o *openers) find(ctx context.Context) ([]User, error) {
	var pids []int
	for _, n := range names(o.proc) {
		if pid, err := strconv.Atoi(n); err == nil {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	var users []User
	for _, pid := range pids {
		if ctx.Err() != nil {
			return users, fmt.Errorf("some processes were not looked at: %w", ErrTimeout)
		}
		if o.files >= maxFiles {
			return users, fmt.Errorf("some processes were not looked at: more than %d open files", maxFiles)
		}
		if d, ok := o.process(ctx, pid); ok {
			users = append(users, o.user(pid, d))
		}
	}
	if o.hidden > 0 {
		return users, fmt.Errorf("open files of %d of %d processes: %w", o.hidden, o.hidden+o.opened, fs.ErrPermission)
	}
	return users, nil
}

// process is a device of the module that a process has open: the most certain, the first by name.
func (o *openers) process(ctx context.Context, pid int) (best device, ok bool) {
	dir := filepath.Join(o.proc, strconv.Itoa(pid), "fd")
	open, err := os.Open(dir)
	if err != nil {
		o.count(err)
		return best, false
	}
	defer func() { _ = open.Close() }() // only read from
	files, _ := open.Readdirnames(min(maxFilesProcess, maxFiles-o.files))
	seen := len(files) == 0
	for _, f := range files {
		if o.files++; ctx.Err() != nil {
			break
		}
		path := filepath.Join(dir, f)
		target, err := os.Readlink(path)
		if !seen {
			seen = true
			o.count(err)
		}
		if err != nil || !strings.HasPrefix(target, "/") || !strings.Contains(target, "/dev/") {
			continue
		}
		number, isDevice := o.rdev(path)
		if !isDevice {
			continue
		}
		d := o.owners.of(number)
		if d.is == notOurs {
			continue
		}
		if d.node == "" {
			d.node = clean(strings.TrimSuffix(target, " (deleted)"))
		}
		if d.is > best.is || d.is == best.is && d.node < best.node {
			best = d
		}
	}
	return best, best.is != notOurs
}

// count notes whether a process's open files can be seen. One that has ended does not count.
func (o *openers) count(err error) {
	switch {
	case errors.Is(err, fs.ErrPermission):
		o.hidden++
	case err == nil:
		o.opened++
	}
}

func (o *openers) user(pid int, d device) User {
	dir := filepath.Join(o.proc, strconv.Itoa(pid))
	u := User{Kind: UserProcess, PID: pid, Device: d.node, Guess: d.is != ours}
	if comm, err := os.ReadFile(filepath.Join(dir, "comm")); err == nil {
		u.Name = clean(strings.TrimSuffix(string(comm), "\n"))
	}
	if cgroup, err := os.ReadFile(filepath.Join(dir, "cgroup")); err == nil {
		o.pods.tell(&u, podUID(string(cgroup)))
	}
	return u
}

// podDir matches a pod's control group: "pod<uid>", or, by systemd,
// "kubepods-<class>-pod<uid>.slice" with "_" for "-". A static pod's UID is 32 digits.
var podDir = regexp.MustCompile(`(?:^|[/-])pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:$|[/.\n])`)

// podUID is the pod's UID in /proc/<pid>/cgroup, or empty. Control groups nest where nodes are
// containers themselves: the innermost counts.
func podUID(cgroup string) string {
	found := podDir.FindAllStringSubmatch(cgroup, -1)
	if len(found) == 0 {
		return ""
	}
	return strings.ReplaceAll(found[len(found)-1][1], "_", "-")
}

// podNames knows pods by the kubelet's log directories: <namespace>_<name>_<uid>.
type podNames struct {
	dir   string
	byUID map[string]string
}

// tell says of which pod a user is, if the pod of that UID is known.
func (p *podNames) tell(u *User, uid string) {
	if uid == "" {
		return
	}
	if p.byUID == nil {
		p.byUID = map[string]string{}
		for _, n := range names(p.dir) {
			if parts := strings.Split(n, "_"); len(parts) == 3 {
				p.byUID[parts[2]] = clean(parts[0] + "/" + parts[1])
			}
		}
	}
	if name := p.byUID[uid]; name != "" {
		u.Pod, u.PodUID = name, uid
	}
}

// volumeDir matches the kubelet's directory of a pod's volumes.
var volumeDir = regexp.MustCompile(`/pods/([0-9a-f-]{32,36})/volume`)

// mounts are the host's mounts of devices of the module, or of a file system with the module's
// name. Mounts of a container's own namespace are not seen.
func mounts(mountinfo string, owners *owners, pods *podNames) []User {
	all, err := Mounts(mountinfo)
	if err != nil {
		return nil
	}
	var users []User
	for _, m := range all {
		u := User{Kind: UserMount, Name: clean(m.Point)}
		n := deviceNumber{block: true}
		_, err := fmt.Sscanf(m.device, "%d:%d", &n.major, &n.minor)
		d := device{}
		if err == nil && n.major != 0 { // 0: no device
			d = owners.of(n)
		}
		switch {
		case d.is != notOurs:
			u.Device, u.Guess = d.node, d.is != ours
		case owners.namesake(m.Kind) == owners.module:
			u.Device, u.Guess = clean(m.Kind), true
		default:
			continue
		}
		if m := volumeDir.FindStringSubmatch(u.Name); m != nil {
			pods.tell(&u, m[1])
		}
		users = append(users, u)
	}
	return users
}

// Mount is a line of mountinfo, see proc_pid_mountinfo(5).
type Mount struct {
	Root, Point, Kind string
	device            string // major:minor
}

// Mounts reads a mountinfo file.
func Mounts(mountinfo string) ([]Mount, error) {
	data, err := os.ReadFile(mountinfo)
	if err != nil {
		return nil, fmt.Errorf("read mounts: %w", err)
	}
	var all []Mount
	for line := range strings.Lines(string(data)) {
		// ID, parent, major:minor, root, mount point, options, optional…, "-", type, source, options.
		left, right, _ := strings.Cut(line, " - ")
		// One blank is between two fields, and other blanks of Unicode are part of one.
		fields := strings.Split(left, " ")
		if kind, _, _ := strings.Cut(right, " "); len(fields) >= 5 && kind != "" {
			all = append(all, Mount{device: fields[2], Root: unescape.Replace(fields[3]), Point: unescape.Replace(fields[4]), Kind: kind})
		}
	}
	return all, nil
}

// unescape undoes what the kernel does to blanks and backslashes.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
