// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/agent/orders"
)

func same(t *testing.T, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// inPod is a process of a pod that holds /dev/gadget0 open.
func inPod(pod string, pid int) host.User {
	return host.User{Kind: host.UserProcess, Name: "worker", PID: pid, Pod: pod, Device: "/dev/gadget0"}
}

func TestInUseMessage(t *testing.T) {
	guess := func(u host.User) host.User { u.Guess = true; return u }
	daemon := host.User{Kind: host.UserProcess, Name: "gadgetd", PID: 42, Device: "/dev/gadget0"}
	rider := host.User{Kind: host.UserModule, Name: "rider"}
	bound := host.User{Kind: host.UserDevice, Name: "gadget", Device: "pci 0000:00:04.0"}
	var many, full []host.User
	for i := range 7 {
		many = append(many, inPod(fmt.Sprintf("ns/p%d", i), i+1))
	}
	for i := range host.MaxUsers {
		full = append(full, inPod(fmt.Sprintf("ns/p%02d", i), i+1))
	}
	cases := map[string]struct {
		module host.Module
		users  []host.User
		err    error
		then   string
	}{
		"nobody is seen": {
			host.Module{RefCount: 1}, nil, nil,
			"Module gadget is in use, and no user was found: a process may have its device open or mapped, or another part of the kernel uses it; " +
				"stop the user.\nreference count: 1",
		},
		"modules that the facts name when the search failed": {
			host.Module{RefCount: 1, Holders: []string{"a", "b"}}, nil, errors.New("nothing can be seen"),
			"Module gadget is in use by module a and module b; unload those modules first; then it goes on by itself.\nreference count: 1\nnot " +
				"all users are known: nothing can be seen",
		},
		"a pod": {
			host.Module{}, []host.User{inPod("team/job", 7)}, nil,
			"Module gadget is in use by pod team/job (/dev/gadget0); delete or drain those pods first; then it goes on by itself.",
		},
		"a pod, by its device's name": {
			host.Module{}, []host.User{guess(inPod("team/job", 7))}, nil,
			"Module gadget is in use by probably pod team/job (/dev/gadget0); delete or drain those pods first; then it goes on by itself.",
		},
		"several processes of a pod": {
			host.Module{}, []host.User{inPod("team/job", 7), inPod("team/job", 8)}, nil,
			"Module gadget is in use by pod team/job (/dev/gadget0); delete or drain those pods first; then it goes on by itself.",
		},
		"of everything something": {
			host.Module{}, []host.User{rider, inPod("team/job", 7), daemon, {Kind: host.UserMount, Name: "/mnt", Device: "/dev/gadget0"}, bound},
			nil,
			"Module gadget is in use by module rider, pod team/job (/dev/gadget0), process gadgetd (PID 42, /dev/gadget0), mount /mnt " +
				"(/dev/gadget0) and device pci 0000:00:04.0; " +
				"unload those modules, delete or drain those pods, stop those processes, unmount those file systems first; then it goes on by itself.",
		},
		"a pod's volume": {
			host.Module{}, []host.User{{Kind: host.UserMount, Name: "/var/lib/kubelet/pods/x/volumes/y", Device: "/dev/gadget0", Pod: "team/db"}},
			nil,
			"Module gadget is in use by pod team/db (mount of /dev/gadget0); delete or drain those pods first; then it goes on by itself.",
		},
		"bound devices alone": {
			host.Module{}, []host.User{bound}, nil,
			"Module gadget is in use, and only devices bound to its driver were found: device pci 0000:00:04.0; stop what uses them, or " +
				"unbind them.",
		},
		"more than five": {
			host.Module{}, many, nil,
			"Module gadget is in use by pod ns/p0 (/dev/gadget0), pod ns/p1 (/dev/gadget0), pod ns/p2 (/dev/gadget0), pod ns/p3 (/dev/gadget0), " +
				"pod ns/p4 (/dev/gadget0) and 2 more; delete or drain those pods first; then it goes on by itself.",
		},
		"names as long as they may be": {
			host.Module{}, []host.User{inPod(strings.Repeat("n", 600), 1), inPod(strings.Repeat("o", 600), 2)}, nil,
			"Module gadget is in use by pod " + strings.Repeat("n", 600) + " (/dev/gadget0) and 1 more; delete or drain those pods first; then it " +
				"goes on by itself.",
		},
		"more than are counted": {
			host.Module{}, full, nil,
			"Module gadget is in use by pod ns/p00 (/dev/gadget0), pod ns/p01 (/dev/gadget0), pod ns/p02 (/dev/gadget0), pod ns/p03 " +
				"(/dev/gadget0), pod ns/p04 (/dev/gadget0) and at least 15 more; delete or drain those pods first; then it goes on by itself.",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.module.Name = "gadget"
			r := inUse(tc.module, Usage{Users: tc.users, Err: tc.err})
			same(t, "state", v1beta1.AttemptInUse, r.State)
			same(t, "reason", v1beta1.ReasonInUse, r.Reason)
			same(t, "message", tc.then, r.Message)
		})
	}
}

// TestHoldersArePodsThatCertainlyUseIt, each once, and not more than the API takes. A pod
// is another if its UID is.
func TestHoldersArePodsThatCertainlyUseIt(t *testing.T) {
	users := []host.User{
		{Kind: host.UserModule, Name: "other"},
		{Kind: host.UserProcess, Name: "p", Pod: "ns/b", PodUID: "b2", Device: "/dev/x"},
		{Kind: host.UserProcess, Name: "p", Pod: "ns/a", PodUID: "a1", Device: "/dev/x"},
		{Kind: host.UserMount, Name: "/m", Pod: "ns/b", PodUID: "b1", Device: "/dev/y"},
		{Kind: host.UserMount, Name: "/n", Pod: "ns/b", PodUID: "b1", Device: "/dev/y"},
		{Kind: host.UserProcess, Name: "p", Pod: "ns/guessed", Device: "/dev/x", Guess: true},
		{Kind: host.UserProcess, Name: "daemon", Device: "/dev/x"},
	}
	same(t, "holders", []orders.Holder{{Pod: "ns/a", UID: "a1"}, {Pod: "ns/b", UID: "b1"}, {Pod: "ns/b", UID: "b2"}},
		inUse(host.Module{Name: "gadget"}, Usage{Users: users}).Holders)
	var many []host.User
	for i := range 2 * maxHolders {
		many = append(many, host.User{Kind: host.UserProcess, Pod: fmt.Sprintf("ns/p%d", i), Device: "/dev/x"})
	}
	same(t, "at most", maxHolders, len(inUse(host.Module{Name: "gadget"}, Usage{Users: many}).Holders))
}
