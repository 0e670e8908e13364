// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/firmware"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/agent/kcall"
	"github.com/drover-project/drover/internal/agent/manifest"
	"github.com/drover-project/drover/internal/agent/orders"
	"github.com/drover-project/drover/internal/agent/plan"
	"github.com/drover-project/drover/internal/shared/words"
)

// LoadFailed words the error of a load. Where an errno has several causes, the kernel's lines
// decide. parameters are those of the refused module that the order can set.
func LoadFailed(err error, parameters []string) *orders.Attempt {
	var call *host.CallError
	var died *host.DiedError
	switch {
	case errors.As(err, &died):
		return orders.Failed(v1beta1.ReasonLoadFailed, "The kernel killed the load of %s, as it does after an oops: see the kernel log. "+
			"What is left of it stays until the node's next boot.", died.Module)
	case errors.Is(err, host.ErrTimeout):
		return orders.Failed(v1beta1.ReasonTimeout,
			"Loading did not return in time (%v); nothing else is loaded in its place before the node's next boot.", err)
	case !errors.As(err, &call):
		return orders.Failed(v1beta1.ReasonLoadFailed, "Loading failed: %v.", err)
	}
	why := loadReason(*call, parameters)
	return withLog(orders.Failed(why.reason, "The kernel refused %s (%s): %s.", call.Module, call.Errno, why.text), call.Log)
}

type why struct{ reason, text string }

var (
	symbol = why{v1beta1.ReasonUnknownSymbol, "a symbol is missing or has another CRC; build it for this kernel, or load what " +
		"exports the symbol"}
	parameter = why{v1beta1.ReasonInvalidParameter, "a parameter is unknown or has an invalid value"}
	signature = why{v1beta1.ReasonSignatureRejected, "its signature is missing, or its key is in no keyring of this kernel"}

	forbidden = why{v1beta1.ReasonSELinux, "SELinux denies it to every process while its boolean secure_mode_insmod is on " +
		"(setsebool -P secure_mode_insmod off)"}

	ofSymbols = []string{"unknown symbol", "disagrees about version"}
)

// causes are what an errno of init_module(2) means, after the kernel's kernel/module/main.c: the
// first that has no words, or one that the kernel printed.
var causes = map[string][]struct {
	words []string
	why   why
}{
	"ENOEXEC": {
		{[]string{"version magic"}, why{v1beta1.ReasonVermagicMismatch, "it was built for another kernel; build it for this one"}},
		{ofSymbols, symbol},
		{nil, why{v1beta1.ReasonVermagicMismatch, "it does not fit this kernel; build it for this one"}},
	},
	"ENOENT":       {{[]string{"unknown parameter"}, parameter}, {nil, symbol}},
	"EKEYREJECTED": {{nil, signature}},
	"ENOKEY":       {{nil, signature}},
	"EBADMSG":      {{nil, signature}},
	"ENOPKG":       {{nil, signature}},
	"EPERM": {
		{[]string{"modules_disabled", "modules are disabled"},
			why{v1beta1.ReasonModulesDisabled, "kernel.modules_disabled is 1 until the next boot"}},
		{[]string{strings.ToLower(host.SELinuxForbids)}, forbidden},
		{[]string{"loadpin: "}, why{v1beta1.ReasonLoadPin, "the kernel loads modules only from the file system that LoadPin has pinned; " +
			"boot the node without LoadPin's enforcement"}},
		{[]string{"lockdown: "},
			why{v1beta1.ReasonLockedDown, "the kernel is locked down and loads only what is signed by a key that it trusts"}},
		{nil, why{v1beta1.ReasonSignatureRejected, "the kernel is locked down, or the agent lacks the privilege to load modules"}},
	},
	"EACCES": {
		{[]string{strings.ToLower(host.SELinuxEnforces)}, why{v1beta1.ReasonSELinux, "SELinux denies it to the agent; its audit log on the " +
			"node (ausearch -m avc -c drover-kcall) names the rule that is missing"}},
		{nil, why{v1beta1.ReasonLoadFailed, "a security module of the kernel denies it, such as IMA's appraisal; see the node's audit log"}},
	},
	"EINVAL": {{ofSymbols, symbol}, {[]string{"parameter"}, parameter}},
	"ERANGE": {{nil, parameter}},
	"ENOMEM": {{nil, why{v1beta1.ReasonLoadFailed, "the node has too little memory for it"}}},
}

func loadReason(e host.CallError, parameters []string) why {
	log := strings.ToLower(strings.Join(e.Log, "\n"))
	if strings.Contains(log, "direct firmware load for") {
		return why{v1beta1.ReasonMissingFirmware, "it asked for a firmware file that the node does not have; put it into the image and set " +
			"firmwarePath"}
	}
	for _, c := range causes[e.Errno] {
		if c.words == nil || slices.ContainsFunc(c.words, func(w string) bool { return strings.Contains(log, w) }) {
			return c.why
		}
	}
	switch e.Errno {
	case "EINVAL":
		return why{v1beta1.ReasonLoadFailed, invalid(e.Log, parameters)}
	case "ENODEV", "ENXIO":
		if name := requested(e.Log); name != "" {
			return why{v1beta1.ReasonMissingDependency, fmt.Sprintf("it asked the kernel for the module %s, which the node does not have", name)}
		}
		return why{v1beta1.ReasonNoSuchDevice, "the module found no device to drive on this node"}
	}
	return why{v1beta1.ReasonLoadFailed, "see the kernel log"}
}

// maxNamedParameters bounds a message: some modules have a hundred parameters.
const maxNamedParameters = 8

// invalid says what to make of an EINVAL that no kernel line explains.
func invalid(log, parameters []string) string {
	text := "the module's own code, or the kernel, finds something invalid"
	switch {
	case len(parameters) > 0:
		return text + "; it has parameters, and may need one or refuse a value (" + words.List(parameters, maxNamedParameters) +
			"): see modprobe.parameters"
	case len(log) == 0:
		return text + "; the kernel printed nothing about it"
	}
	return text
}

// inVain matches what modules print when the kernel cannot load another, by name or alias.
var inVain = regexp.MustCompile(`(?i)request_module\s*\(\s*['"]([^'"]+)['"]|(?:could not|couldn't|cannot|can't|failed to|unable to) (?:load|request|find) (?:the )?(?:kernel )?module ['"]?([\w()-]+)`)

func requested(log []string) string {
	for _, line := range log {
		if m := inVain.FindStringSubmatch(line); m != nil {
			return m[1] + m[2]
		}
	}
	return ""
}

// UnloadFailed words the error of an unload. m are the facts of now; by matters when it is in use.
func UnloadFailed(err error, m host.Module, by Usage) *orders.Attempt {
	if Busy(err) {
		return inUse(m, by)
	}
	a := orders.Failed(v1beta1.ReasonUnloadFailed, "Unloading failed: %v.", err)
	var call *host.CallError
	switch {
	case errors.Is(err, host.ErrTimeout):
		a.Reason = v1beta1.ReasonTimeout
	case errors.As(err, &call):
		switch {
		case call.Errno == "EPERM" && slices.Contains(call.Log, host.SELinuxForbids):
			a.Reason, a.Message = forbidden.reason, "The kernel refuses to unload (EPERM): "+forbidden.text+"."
		case call.Errno == "EPERM":
			a.Message = "The kernel refuses to unload (EPERM): modules are disabled, or the agent lacks the privilege."
		}
		return withLog(a, call.Log)
	}
	return a
}

// Busy tells "in use" from other refusals to unload.
func Busy(err error) bool {
	return errors.Is(err, host.Errno("EBUSY")) || errors.Is(err, host.Errno("EAGAIN"))
}

// DependencyConflict is said of a refused step of whose dependency another build is live.
func DependencyConflict(err error, refused, dependency plan.Step, live string) *orders.Attempt {
	answer := err.Error()
	var lines []string
	if call, ok := errors.AsType[*host.CallError](err); ok {
		answer, lines = call.Errno, call.Log
	}
	from := "the image"
	if dependency.FromHost {
		from = "the node's own tree"
	}
	return withLog(orders.Failed(v1beta1.ReasonDependencyConflict,
		"The kernel refused %s (%s): it needs %s, of which build %s is live, and %s has build %s. Unload the one that is live, or build %s "+
			"against it.",
		refused.Name, answer, dependency.Name, live, from, dependency.BuildID, refused.Name), lines)
}

// ImportFailed says why a carrier's output cannot be taken over.
func ImportFailed(err error) *orders.Attempt {
	var refused *manifest.Failure
	switch {
	case errors.As(err, &refused):
		return orders.Failed(refused.Reason, "%s", refused.Message)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return orders.Failed(v1beta1.ReasonAgentFailed, "The node has no room for the carrier's output: %v. "+
			"Free space on the file system of the agent's state directory, or take Modules off the node.", err)
	case kcall.Lacking(err):
		return orders.Failed(v1beta1.ReasonAgentFailed, "The agent on the node cannot take over the carrier's output: %v.", err)
	}
	return orders.Failed(v1beta1.ReasonImageUnreadable, "The carrier's output cannot be imported: %v.", err)
}

// FirmwareFailed says why firmware cannot be staged.
func FirmwareFailed(err error) *orders.Attempt {
	var conflict *firmware.Conflict
	var refused *manifest.Failure
	switch {
	case errors.As(err, &conflict):
		return orders.Failed(v1beta1.ReasonFirmwareConflict, "Firmware is not staged: %v.", conflict)
	case errors.As(err, &refused):
		return orders.Failed(refused.Reason, "%s", refused.Message)
	}
	return orders.Failed(v1beta1.ReasonAgentFailed, "Firmware cannot be staged: %v.", err)
}

// withLog appends kernel lines after the headline, at most 1 KiB of them.
func withLog(a *orders.Attempt, lines []string) *orders.Attempt {
	const limit = 1024
	size := 0
	for _, l := range lines {
		if size += len(l) + 1; size > limit {
			break
		}
		a.Message += "\n" + l
	}
	return a
}

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
func holders(users []host.User) []orders.Holder {
	var pods []orders.Holder
	for _, u := range users {
		pod := orders.Holder{Pod: u.Pod, UID: u.PodUID}
		if u.Pod != "" && !u.Guess && len(pods) < maxHolders && !slices.Contains(pods, pod) {
			pods = append(pods, pod)
		}
	}
	slices.SortFunc(pods, func(a, b orders.Holder) int {
		return cmp.Or(strings.Compare(a.Pod, b.Pod), strings.Compare(a.UID, b.UID))
	})
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
