// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	uidA  = "0aaa1111-2222-4333-8444-555566667777"
	uidB  = "0bbb1111-2222-4333-8444-555566667777"
	uidSt = "00112233445566778899aabbccddeeff" // a static pod's
)

// node is a host's files, and the device numbers that device nodes have: nobody but root could make
// them.
type node struct {
	t       *testing.T
	root    string
	numbers map[string]deviceNumber
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{t: t, root: t.TempDir(), numbers: map[string]deviceNumber{}}
	write(t, n.root, "proc/devices", "Character devices:\n  1 mem\n 81 video4linux\n195 nvidia\n195 nvidia-modeset\n235 nvidia-uvm\n245 "+
		"gadget\n\nBlock devices:\n  8 sd\n252 device-mapper\n")
	write(t, n.root, "proc/self/comm", "not a process ID\n")
	for uid, pod := range map[string]string{uidA: "team_job-a", uidB: "team_job-b", uidSt: "kube-system_etcd-node-1"} {
		n.dir("var/log/pods/" + pod + "_" + uid)
	}
	return n
}

func (n *node) dir(name string) {
	n.t.Helper()
	if err := os.MkdirAll(filepath.Join(n.root, name), 0o755); err != nil {
		n.t.Fatal(err)
	}
}

// link makes a link as sysfs has them: relative.
func (n *node) link(name, target string) {
	n.t.Helper()
	n.dir(filepath.Dir(name))
	relative, err := filepath.Rel(filepath.Dir(name), target)
	if err == nil {
		err = os.Symlink(relative, filepath.Join(n.root, name))
	}
	if err != nil {
		n.t.Fatal(err)
	}
}

// bind makes a device and binds a driver of a module to it.
func (n *node) bind(device, bus, driver, module string) {
	n.t.Helper()
	dir := "sys/bus/" + bus + "/drivers/" + driver
	n.dir(device)
	n.link(device+"/driver", dir)
	n.link(dir+"/"+filepath.Base(device), device)
	if _, err := os.Lstat(filepath.Join(n.root, dir, "module")); err != nil {
		n.link(dir+"/module", "sys/module/"+module)
		n.link("sys/module/"+module+"/drivers/"+bus+":"+driver, dir)
	}
}

// device makes a device with a node in /dev; its number is "c 81:0" or "b 8:1".
func (n *node) device(path, class, devname, number string) {
	n.t.Helper()
	kind, numbers, _ := strings.Cut(number, " ")
	write(n.t, n.root, path+"/uevent", "MAJOR=x\nDEVNAME="+devname+"\n")
	n.link(path+"/subsystem", "sys/class/"+class)
	n.link("sys/dev/"+map[string]string{"c": "char", "b": "block"}[kind]+"/"+numbers, path)
	n.number("/dev/"+devname, number)
}

// number says what a node stands for.
func (n *node) number(path, number string) {
	var d deviceNumber
	kind, numbers, _ := strings.Cut(number, " ")
	if _, err := fmt.Sscanf(numbers, "%d:%d", &d.major, &d.minor); err != nil {
		n.t.Fatal(err)
	}
	d.block = kind == "b"
	n.numbers[path] = d
}

// process makes a process with open files.
func (n *node) process(pid int, comm, cgroup string, open ...string) {
	n.t.Helper()
	dir := fmt.Sprintf("proc/%d/", pid)
	write(n.t, n.root, dir+"comm", comm+"\n")
	write(n.t, n.root, dir+"cgroup", cgroup)
	n.dir(dir + "fd")
	for i, target := range open {
		if err := os.Symlink(target, filepath.Join(n.root, dir, "fd", fmt.Sprint(i))); err != nil {
			n.t.Fatal(err)
		}
	}
}

func (n *node) rdev(path string) (deviceNumber, bool) {
	target, err := os.Readlink(path)
	if err != nil {
		return deviceNumber{}, false
	}
	d, ok := n.numbers[strings.TrimSuffix(target, " (deleted)")]
	return d, ok
}

func (n *node) users(module string) ([]User, error) {
	return newUserFinder(n.root, n.rdev).users(module)
}

// cgroupOf is the control group of a pod where systemd makes them, version 2.
func cgroupOf(uid string) string {
	return "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + strings.ReplaceAll(uid, "-", "_") +
		".slice/cri-containerd-0123.scope\n"
}

const pciDevice = "sys/devices/pci0000:00/0000:00:04.0"

func TestUsers(t *testing.T) {
	cases := map[string]struct {
		module string
		given  func(n *node)
		then   []User
	}{
		"nobody": {"gadget", func(n *node) {
			n.dir("sys/module/gadget/holders")
			n.process(7, "idle", "0::/init.scope\n", "/dev/null", "socket:[1]", "pipe:[2]")
			n.number("/dev/null", "c 1:3")
		}, nil},
		"not loaded": {"gadget", func(*node) {}, nil},
		"other modules, sorted": {"gadget", func(n *node) {
			n.dir("sys/module/gadget/holders/rider_b")
			n.dir("sys/module/gadget/holders/rider_a")
		}, []User{{Kind: UserModule, Name: "rider_a"}, {Kind: UserModule, Name: "rider_b"}}},
		"bound devices; the driver's other entries are none": {"gadget", func(n *node) {
			n.bind(pciDevice, "pci", "gadget_pci", "gadget")
			n.bind("sys/devices/pci0000:00/0000:00:05.0", "pci", "gadget_pci", "gadget")
			write(t, n.root, "sys/bus/pci/drivers/gadget_pci/bind", "")
			write(t, n.root, "sys/bus/pci/drivers/gadget_pci/new_id", "")
		}, []User{{Kind: UserDevice, Name: "gadget_pci", Device: "pci 0000:00:04.0"},
			{Kind: UserDevice, Name: "gadget_pci", Device: "pci 0000:00:05.0"}}},
		"a pod has the device of a bound one open": {"gadget-mod", func(n *node) {
			n.bind(pciDevice, "pci", "gadget", "gadget_mod")
			n.device(pciDevice+"/accel/accel0", "accel", "accel/accel0", "c 261:0")
			n.process(42, "trainer", cgroupOf(uidA), "/dev/null", "/dev/accel/accel0", "/dev/accel/accel0")
		}, []User{
			{Kind: UserProcess, Name: "trainer", PID: 42, Pod: "team/job-a", PodUID: uidA, Device: "/dev/accel/accel0"},
			{Kind: UserDevice, Name: "gadget", Device: "pci 0000:00:04.0"},
		}},
		"the node has another name in the pod, and was removed there": {"gadget", func(n *node) {
			n.bind(pciDevice, "pci", "gadget", "gadget")
			n.device(pciDevice+"/accel/accel0", "accel", "accel/accel0", "c 261:0")
			n.number("/host/dev/x", "c 261:0")
			n.process(42, "trainer", cgroupOf(uidA), "/host/dev/x (deleted)")
		}, []User{
			{Kind: UserProcess, Name: "trainer", PID: 42, Pod: "team/job-a", PodUID: uidA, Device: "/dev/accel/accel0"},
			{Kind: UserDevice, Name: "gadget", Device: "pci 0000:00:04.0"},
		}},
		"a device below a device of another driver is a guess": {"hba", func(n *node) {
			n.bind(pciDevice, "pci", "hba", "hba")
			n.bind(pciDevice+"/host0/target0/0:0:0:0", "scsi", "sd", "sd_mod")
			n.device(pciDevice+"/host0/target0/0:0:0:0/block/sda", "block", "sda", "b 8:0")
			n.process(50, "dd", "0::/user.slice\n", "/dev/sda")
		}, []User{
			{Kind: UserProcess, Name: "dd", PID: 50, Device: "/dev/sda", Guess: true},
			{Kind: UserDevice, Name: "hba", Device: "pci 0000:00:04.0"},
		}},
		"a class device without a parent, by its name": {"drover_sample", func(n *node) {
			n.dir("sys/module/drover_sample_user")
			n.device("sys/devices/virtual/drover_sample/drover_sample0", "drover_sample", "drover_sample0", "c 240:0")
			n.process(9, "reader", "0::/system.slice/reader.service\n", "/dev/drover_sample0")
		}, []User{{Kind: UserProcess, Name: "reader", PID: 9, Device: "/dev/drover_sample0", Guess: true}}},
		"another module's name fits better": {"nvidia", func(n *node) {
			n.dir("sys/module/nvidia_uvm")
			n.device("sys/devices/virtual/misc/nvidia-uvm", "misc", "nvidia-uvm", "c 10:99")
			n.process(9, "cuda", cgroupOf(uidB), "/dev/nvidia-uvm")
		}, nil},
		"a device that is not in sysfs, by the name of its major number": {"nvidia", func(n *node) {
			n.dir("sys/module/nvidia_uvm")
			n.number("/dev/nvidia0", "c 195:0")
			n.number("/dev/nvidia-uvm", "c 235:0")
			n.process(8, "cuda", cgroupOf(uidB), "/dev/nvidia0")
			n.process(9, "other", cgroupOf(uidA), "/dev/nvidia-uvm")
		}, []User{{Kind: UserProcess, Name: "cuda", PID: 8, Pod: "team/job-b", PodUID: uidB, Device: "/dev/nvidia0", Guess: true}}},
		"a device that a framework made for the module": {"v4l2loopback", func(n *node) {
			n.dir("sys/module/videodev/holders/v4l2loopback")
			n.dir("sys/module/video") // the name would fit this one
			n.device("sys/devices/virtual/video4linux/video0", "video4linux", "video0", "c 81:0")
			n.process(9, "ffmpeg", cgroupOf(uidA), "/dev/video0")
		}, []User{{Kind: UserProcess, Name: "ffmpeg", PID: 9, Pod: "team/job-a", PodUID: uidA, Device: "/dev/video0", Guess: true}}},
		"processes of one pod count once, those of none each": {"gadget", func(n *node) {
			n.number("/dev/gadget0", "c 245:0")
			for pid, cgroup := range map[int]string{5: cgroupOf(uidA), 6: cgroupOf(uidA), 9: cgroupOf(uidB), 10: "0::/\n", 100: "0::/\n"} {
				n.process(pid, "worker", cgroup, "/dev/gadget0")
			}
		}, []User{
			{Kind: UserProcess, Name: "worker", PID: 5, Pod: "team/job-a", PodUID: uidA, Device: "/dev/gadget0", Guess: true},
			{Kind: UserProcess, Name: "worker", PID: 9, Pod: "team/job-b", PodUID: uidB, Device: "/dev/gadget0", Guess: true},
			{Kind: UserProcess, Name: "worker", PID: 10, Device: "/dev/gadget0", Guess: true},
			{Kind: UserProcess, Name: "worker", PID: 100, Device: "/dev/gadget0", Guess: true},
		}},
		"mounts": {"gadget", func(n *node) {
			n.bind(pciDevice, "pci", "gadget", "gadget")
			n.device(pciDevice+"/block/gad0", "block", "gad0", "b 251:0")
			write(t, n.root, "proc/1/mountinfo", "21 1 8:1 / / rw - ext4 /dev/sda1 rw\n"+
				"30 21 251:0 / /mnt/with\\040space rw shared:1 - ext4 /dev/gad0 rw\n"+
				"31 21 251:0 / /var/lib/kubelet/pods/"+uidA+"/volumes/x rw - ext4 /dev/gad0 rw\n"+
				"32 21 0:40 / /mnt/net rw - gadget server:/x rw\nshort\n")
		}, []User{
			{Kind: UserMount, Name: "/var/lib/kubelet/pods/" + uidA + "/volumes/x", Pod: "team/job-a", PodUID: uidA, Device: "/dev/gad0"},
			{Kind: UserMount, Name: "/mnt/with space", Device: "/dev/gad0"},
			{Kind: UserMount, Name: "/mnt/net", Device: "gadget", Guess: true},
			{Kind: UserDevice, Name: "gadget", Device: "pci 0000:00:04.0"},
		}},
		"a process's name is not trusted": {"gadget", func(n *node) {
			n.number("/dev/gadget0", "c 245:0")
			n.process(9, "a\nb\x1b[31m\xff", "0::/\n", "/dev/gadget0")
		}, []User{{Kind: UserProcess, Name: "a?b?[31m?", PID: 9, Device: "/dev/gadget0", Guess: true}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.t = t
			tc.given(n)
			got, err := n.users(tc.module)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.then, got); diff != "" {
				t.Errorf("users (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUsersAreBounded(t *testing.T) {
	n := newNode(t)
	n.number("/dev/gadget0", "c 245:0")
	for pid := range 30 {
		n.process(pid+2, "worker", "0::/\n", "/dev/gadget0")
	}
	got, err := n.users("gadget")
	if err != nil || len(got) != MaxUsers || got[0].PID != 2 || got[MaxUsers-1].PID != MaxUsers+1 {
		t.Errorf("%d users, first %+v, error %v", len(got), got[0], err)
	}
}

func TestUsersOfHiddenProcesses(t *testing.T) {
	o := openers{proc: t.TempDir()}
	for _, err := range []error{fs.ErrPermission, nil, nil, fs.ErrNotExist} {
		o.count(err)
	}
	if users, err := o.find(t.Context()); !errors.Is(err, fs.ErrPermission) || len(users) > 0 {
		t.Errorf("users %v, error %v", users, err)
	}
}

func TestUsersGiveUp(t *testing.T) {
	t.Run("budget", func(t *testing.T) {
		n := newNode(t)
		n.dir("sys/module/gadget/holders/rider")
		n.process(9, "worker", "0::/\n", "/dev/gadget0")
		l := newUserFinder(n.root, n.rdev)
		l.budget = -time.Second
		users, err := l.users("gadget")
		if diff := cmp.Diff([]User{{Kind: UserModule, Name: "rider"}}, users); diff != "" || !errors.Is(err, ErrTimeout) {
			t.Errorf("error %v, users (-want +got):\n%s", err, diff)
		}
	})
	t.Run("a file that hangs", func(t *testing.T) {
		n := newNode(t)
		n.process(9, "worker", "0::/\n", "/dev/gadget0")
		server := make(chan struct{})
		l := newUserFinder(n.root, func(string) (deviceNumber, bool) { <-server; return deviceNumber{major: 245}, true })
		l.deadline = 10 * time.Millisecond
		for range 2 {
			if _, err := l.users("gadget"); !errors.Is(err, ErrTimeout) {
				t.Errorf("error %v", err)
			}
		}
		close(server)
		l.deadline = time.Minute
		var users []User
		err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
			var err error
			users, err = l.users("gadget")
			return err == nil, nil // an error before the search that hung has ended
		})
		if err != nil || len(users) != 1 {
			t.Errorf("users %v, error %v", users, err)
		}
	})
}

func TestPodUID(t *testing.T) {
	for name, tc := range map[string]struct{ cgroup, then string }{
		"v2, systemd":    {cgroupOf(uidA), uidA},
		"v2, cgroupfs":   {"0::/kubepods/besteffort/pod" + uidA + "/0123abcd\n", uidA},
		"v2, guaranteed": {"0::/kubepods.slice/kubepods-pod" + strings.ReplaceAll(uidA, "-", "_") + ".slice/crio-0123.scope\n", uidA},
		"v2, seen from another": {"0::/../../kubepods-besteffort-pod" + strings.ReplaceAll(uidB, "-", "_") +
			".slice/cri-containerd-01.scope\n", uidB},
		"v2, seen from a sibling": {"0::/../../pod" + uidB + "/0123\n", uidB},
		"v1, systemd": {"12:pids:/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" +
			strings.ReplaceAll(uidA, "-", "_") + ".slice/docker-01.scope\n1:name=systemd:/x\n", uidA},
		"v1, cgroupfs": {"11:devices:/kubepods/burstable/pod" + uidA + "/01\n10:cpu:/kubepods/burstable/pod" + uidA + "/01\n", uidA},
		"v1, containerd as prefix": {"4:memory:/system.slice/containerd.service/kubepods-burstable-pod" + strings.ReplaceAll(uidA, "-", "_") +
			".slice:cri-containerd:01\n", uidA},
		"static pod":            {"0::/kubepods/burstable/pod" + uidSt + "/01\n", uidSt},
		"a node in a container": {"0::/kubepods/pod" + uidA + "/01/kubelet/kubepods/pod" + uidB + "/02\n", uidB},
		"the pod's own group":   {"0::/kubepods/pod" + uidA + "\n", uidA},
		"a service":             {"0::/system.slice/podman.service\n", ""},
		"podman's pod":          {"0::/machine.slice/libpod-0123456789abcdef.scope\n", ""},
		"none":                  {"0::/\n", ""},
		"empty":                 {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := podUID(tc.cgroup); got != tc.then {
				t.Errorf("got %q, want %q", got, tc.then)
			}
		})
	}
}
