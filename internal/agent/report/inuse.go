// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/agent/orders"
)

// Bounds of names in a message, so that what to do about them is not cut off.
const (
	maxNamedUsers = 5
	maxNamedBytes = 1024
)

// Usage is who uses a module; Err says why users may be missing.
type Usage struct {
	Users []host.User
	Err   error
}

// inUse says who uses a module and what to do about it. The headline stays the same while the users
// do: a status is not written again for it.
func inUse(m host.Module, by Usage) *orders.Attempt {
	a := &orders.Attempt{State: v1beta1.AttemptInUse, Reason: v1beta1.ReasonInUse}
	users := by.Users
	if len(users) == 0 {
		for _, h := range m.Holders {
			users = append(users, host.User{Kind: host.UserModule, Name: h})
		}
	}
	a.Holders = holders(users)
	named := userNames(users)
	// Devices alone do not keep a module: somebody uses them, or the module by other means.
	unseen := !slices.ContainsFunc(users, func(u host.User) bool { return u.Kind != host.UserDevice })
	who := listed(named, len(users) == host.MaxUsers)
	switch {
	case len(named) == 0:
		a.Message = fmt.Sprintf("Module %s is in use, and no user was found: a process may have its device open or mapped, or another part of "+
			"the kernel uses it; stop the user.", m.Name)
	case unseen:
		a.Message = fmt.Sprintf("Module %s is in use, and only devices bound to its driver were found: %s; stop what uses them, or unbind them.",
			m.Name, who)
	default:
		a.Message = fmt.Sprintf("Module %s is in use by %s; %s.", m.Name, who, nextStep(users))
	}
	var details []string
	if m.RefCount > 0 {
		details = append(details, fmt.Sprintf("reference count: %d", m.RefCount))
	}
	if by.Err != nil {
		details = append(details, fmt.Sprintf("not all users are known: %v", by.Err))
	}
	return withLog(a, details)
}

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
	var steps []string
	for _, s := range []struct {
		words string
		ends  func(host.User) bool
	}{
		{"unload those modules", func(u host.User) bool { return u.Kind == host.UserModule }},
		{"delete or drain those pods", func(u host.User) bool { return u.Pod != "" }},
		{"stop those processes", func(u host.User) bool { return u.Kind == host.UserProcess && u.Pod == "" }},
		{"unmount those file systems", func(u host.User) bool { return u.Kind == host.UserMount && u.Pod == "" }},
	} {
		if slices.ContainsFunc(users, s.ends) {
			steps = append(steps, s.words)
		}
	}
	return strings.Join(steps, ", ") + " first; then it goes on by itself"
}
