// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/drover-project/drover/internal/shared/kmod"
)

// MaxUsers is how many users Users names at most.
const MaxUsers = 20

// UserKind says what a User is.
type UserKind string

// Kinds of users.
const (
	UserModule  UserKind = "Module"  // uses symbols of the module
	UserProcess UserKind = "Process" // has a device of the module open
	UserMount   UserKind = "Mount"   // a file system on a device of the module, or of a type that it implements
	// UserDevice is a device that a driver of the module is bound to. What uses it may keep the module
	// from leaving, the device itself does not.
	UserDevice UserKind = "Device"
)

// User is something that uses a module, or that may be why the module is in use.
type User struct {
	Kind UserKind
	// Name of the module, of the process (its comm), of the driver, or the mount point.
	Name string
	PID  int // of a process, in the host's namespace
	// Pod is the namespace/name of the process's or mount's pod; empty: none, or not known.
	Pod string
	// PodUID tells the pod from others that have or had its name; empty: Pod is, too.
	PodUID string
	// Device is a process's open device node (one of them), a mount's source or type, or "bus device".
	Device string
	// Guess: the kernel does not say that the module is used. The names of devices, their majors,
	// classes and file systems suggest it, or the device is below one of the module's.
	Guess bool
}

// SortUsers orders users: modules, processes, mounts, devices; in each what is certain before what
// is guessed, then pods, then by name. It keeps one use of a device by a pod, and at most MaxUsers.
func SortUsers(users []User) []User {
	slices.SortFunc(users, func(a, b User) int {
		return cmp.Or(
			cmp.Compare(a.rank(), b.rank()),
			strings.Compare(a.Pod, b.Pod),
			strings.Compare(a.PodUID, b.PodUID),
			strings.Compare(a.Device, b.Device),
			strings.Compare(a.Name, b.Name),
			cmp.Compare(a.PID, b.PID),
		)
	})
	users = slices.CompactFunc(users, func(a, b User) bool {
		if a.Kind == b.Kind && a.Pod != "" {
			return a.Pod == b.Pod && a.PodUID == b.PodUID && a.Device == b.Device && a.Guess == b.Guess
		}
		return a == b
	})
	return users[:min(len(users), MaxUsers)]
}

// rank is by kind, in each by certainty, and then pods come first.
func (u User) rank() int {
	rank := 4 * slices.Index([]UserKind{UserModule, UserProcess, UserMount, UserDevice}, u.Kind)
	if u.Guess {
		rank += 2
	}
	if u.Pod == "" {
		rank++
	}
	return rank
}

const (
	usersBudget   = 2 * time.Second // after it, the search returns what it has found so far
	usersDeadline = 3 * time.Second // of a caller: a look at an open file may hang with its file system
)

// userFinder finds users of modules below a root, one search at a time.
type userFinder struct {
	root             string
	rdev             func(path string) (deviceNumber, bool) // the device number of the file that a path leads to
	budget, deadline time.Duration                          // usersBudget and usersDeadline, but for tests

	searching sync.Mutex
}

func newUserFinder(root string, rdev func(string) (deviceNumber, bool)) *userFinder {
	return &userFinder{root: root, rdev: rdev, budget: usersBudget, deadline: usersDeadline}
}

// users is Host's Users. A search that hangs is left behind, and no other begins before it ends.
func (l *userFinder) users(name string) ([]User, error) {
	name = kmod.NormalizeName(name)
	if !l.searching.TryLock() {
		return nil, fmt.Errorf("host: users of %s: an earlier search hangs: %w", name, ErrTimeout)
	}
	type answer struct {
		users []User
		err   error
	}
	done := make(chan answer, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), l.budget)
		defer cancel()
		users, err := l.search(ctx, name)
		l.searching.Unlock() // before the answer: whoever has it may ask again
		done <- answer{users, err}
	}()
	deadline := time.NewTimer(l.deadline)
	defer deadline.Stop()
	select {
	case a := <-done:
		if a.err != nil {
			a.err = fmt.Errorf("host: users of %s: %w", name, a.err)
		}
		return a.users, a.err
	case <-deadline.C:
		return nil, fmt.Errorf("host: users of %s: the search hangs: %w", name, ErrTimeout)
	}
}

// search looks at everything once. An error says which users may be missing.
func (l *userFinder) search(ctx context.Context, name string) ([]User, error) {
	var users []User
	for _, holder := range names(filepath.Join(l.root, "sys/module", name, "holders")) {
		users = append(users, User{Kind: UserModule, Name: clean(holder)})
	}
	users = append(users, boundDevices(filepath.Join(l.root, "sys/module", name, "drivers"))...)
	owners := newOwners(l.root, name)
	pods := &podNames{dir: filepath.Join(l.root, "var/log/pods")}
	users = append(users, mounts(filepath.Join(l.root, "proc/1/mountinfo"), owners, pods)...)
	opens := openers{proc: filepath.Join(l.root, "proc"), rdev: l.rdev, owners: owners, pods: pods}
	processes, err := opens.find(ctx)
	return SortUsers(append(users, processes...)), err
}

// clean makes a name from outside printable and short.
func clean(name string) string {
	return clip(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, name))
}
