// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"slices"
	"strings"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host"
)

// Bounds of what a message names: how many users of a module, and how many bytes of names, so that what to do about
// them is not cut off.
const (
	maxNamedUsers = 5
	maxNamedBytes = 1024
)

// usage is who uses a module; err says why users may be missing.
type usage struct {
	users []host.User
	err   error
}

// usersOf asks who uses a module that the kernel does not let go. Without an answer the kernel's refusal still stands.
func (p *pass) usersOf(refused error, name string) usage {
	if !busy(refused) {
		return usage{}
	}
	users, err := p.o.Host.Users(name)
	return usage{users: users, err: err}
}

// inUse says who uses a module and what to do about it. The headline holds nothing that changes while the users stay
// the same, so that a status is not written again for it.
func inUse(m host.Module, by usage) report {
	r := report{State: v1beta1.AttemptInUse, Reason: v1beta1.ReasonInUse}
	users := by.users
	if len(users) == 0 {
		for _, h := range m.Holders {
			users = append(users, host.User{Kind: host.UserModule, Name: h})
		}
	}
	r.Holders = holders(users)
	named := userNames(users)
	// Devices alone do not keep a module: somebody uses them, or the module by other means.
	unseen := !slices.ContainsFunc(users, func(u host.User) bool { return u.Kind != host.UserDevice })
	who := listed(named, len(users) == host.MaxUsers)
	switch {
	case len(named) == 0:
		r.Message = fmt.Sprintf("Module %s is in use, and no user was found: a process may have its device open or mapped, or another part of the kernel uses it; stop the user.", m.Name)
	case unseen:
		r.Message = fmt.Sprintf("Module %s is in use, and only devices bound to its driver were found: %s; stop what uses them, or unbind them.", m.Name, who)
	default:
		r.Message = fmt.Sprintf("Module %s is in use by %s; %s.", m.Name, who, nextStep(users))
	}
	var details []string
	if m.RefCount > 0 {
		details = append(details, fmt.Sprintf("reference count: %d", m.RefCount))
	}
	if by.err != nil {
		details = append(details, fmt.Sprintf("not all users are known: %v", by.err))
	}
	r.Message = withLog(r.Message, details)
	return r
}

// maxHolders is how many pods a status names: the API takes no more.
const maxHolders = 16

// holders are the pods that certainly use a module, each once.
func holders(users []host.User) []string {
	var pods []string
	for _, u := range users {
		if u.Pod != "" && !u.Guess && len(pods) < maxHolders && !slices.Contains(pods, u.Pod) {
			pods = append(pods, u.Pod)
		}
	}
	slices.Sort(pods)
	return pods
}

// userNames names each user once, in their order: several processes of a pod are one.
func userNames(users []host.User) []string {
	var named []string
	for _, u := range users {
		if n := userName(u); !slices.Contains(named, n) {
			named = append(named, n)
		}
	}
	return named
}

func userName(u host.User) string {
	var name string
	switch u.Kind {
	case host.UserModule:
		name = "module " + u.Name
	case host.UserProcess:
		name = fmt.Sprintf("process %s (PID %d, %s)", u.Name, u.PID, u.Device)
		if u.Pod != "" {
			name = fmt.Sprintf("pod %s (%s)", u.Pod, u.Device)
		}
	case host.UserMount:
		name = fmt.Sprintf("mount %s (%s)", u.Name, u.Device)
		if u.Pod != "" {
			name = fmt.Sprintf("pod %s (mount of %s)", u.Pod, u.Device)
		}
	case host.UserDevice:
		name = "device " + u.Device
	}
	if u.Guess {
		return "probably " + name
	}
	return name
}

// listed names some and counts the rest. full: there may be others who were not counted.
func listed(names []string, full bool) string {
	few, size := 0, 0
	for few < min(len(names), maxNamedUsers) && size+len(names[few]) <= maxNamedBytes {
		size += len(names[few])
		few++
	}
	text, more := strings.Join(names[:few], ", "), len(names)-few
	switch {
	case more > 0 && full:
		return fmt.Sprintf("%s and at least %d more", text, more)
	case more > 0:
		return fmt.Sprintf("%s and %d more", text, more)
	case few > 1:
		return strings.Join(names[:few-1], ", ") + " and " + names[few-1]
	}
	return text
}

// nextStep says how to end these uses. Devices need nothing: they go with the driver.
func nextStep(users []host.User) string {
	has := func(is func(host.User) bool) bool { return slices.ContainsFunc(users, is) }
	var steps []string
	if has(func(u host.User) bool { return u.Kind == host.UserModule }) {
		steps = append(steps, "unload those modules")
	}
	if has(func(u host.User) bool { return u.Pod != "" }) {
		steps = append(steps, "delete or drain those pods")
	}
	if has(func(u host.User) bool { return u.Kind == host.UserProcess && u.Pod == "" }) {
		steps = append(steps, "stop those processes")
	}
	if has(func(u host.User) bool { return u.Kind == host.UserMount && u.Pod == "" }) {
		steps = append(steps, "unmount those file systems")
	}
	return strings.Join(steps, ", ") + " first; then it goes on by itself"
}
