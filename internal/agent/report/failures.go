// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/firmware"
	"github.com/drover-project/drover/internal/agent/host"
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
		{[]string{"loadpin: "}, why{v1beta1.ReasonLoadPin, "the kernel loads modules only from the file system that LoadPin has pinned; " +
			"boot the node without LoadPin's enforcement"}},
		{[]string{"lockdown: "},
			why{v1beta1.ReasonLockedDown, "the kernel is locked down and loads only what is signed by a key that it trusts"}},
		{nil, why{v1beta1.ReasonSignatureRejected, "the kernel is locked down, or the agent lacks the privilege to load modules"}},
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
		if call.Errno == "EPERM" {
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
	case errors.Is(err, syscall.ENOSPC):
		return orders.Failed(v1beta1.ReasonAgentFailed, "The node has no room for the carrier's output: %v. "+
			"Free space on the file system of the agent's state directory, or take Modules off the node.", err)
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
