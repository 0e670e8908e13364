// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/words"
)

// loadReport turns the error of a load into what is reported. Where one errno has several causes, the kernel's own
// lines decide. parameters are those that the refused module has and the order can set.
func loadReport(err error, parameters []string) report {
	r := report{State: v1beta1.AttemptFailed, Reason: v1beta1.ReasonLoadFailed}
	var call *host.CallError
	var died *host.DiedError
	switch {
	case errors.As(err, &died):
		r.Message = fmt.Sprintf("The kernel killed the load of %s, as it does after an oops: see the kernel log. What is left of it stays until the node's next boot.", died.Module)
		return r
	case errors.Is(err, host.ErrTimeout):
		r.Reason = v1beta1.ReasonTimeout
		r.Message = fmt.Sprintf("Loading did not return in time (%v); nothing else is loaded in its place before the node's next boot.", err)
		return r
	case !errors.As(err, &call):
		r.Message = fmt.Sprintf("Loading failed: %v.", err)
		return r
	}
	why := loadReason(*call, parameters)
	r.Reason = why.reason
	r.Message = fmt.Sprintf("The kernel refused %s (%s): %s.", call.Module, call.Errno, why.text)
	r.Message = withLog(r.Message, call.Log)
	return r
}

type why struct {
	reason, text string
}

// loadReason follows init_module(2) and the kernel's kernel/module/main.c.
func loadReason(e host.CallError, parameters []string) why {
	log := strings.ToLower(strings.Join(e.Log, "\n"))
	says := func(words ...string) bool {
		for _, w := range words {
			if strings.Contains(log, w) {
				return true
			}
		}
		return false
	}
	symbol := why{v1beta1.ReasonUnknownSymbol, "a symbol is missing or has another CRC; build it for this kernel, or load what exports the symbol"}
	parameter := why{v1beta1.ReasonInvalidParameter, "a parameter is unknown or has an invalid value"}
	if says("direct firmware load for") {
		return why{v1beta1.ReasonMissingFirmware, "it asked for a firmware file that the node does not have; put it into the image and set firmwarePath"}
	}
	signature := why{v1beta1.ReasonSignatureRejected, "its signature is missing, or its key is in no keyring of this kernel"}
	switch e.Errno {
	case "ENOEXEC":
		switch {
		case says("version magic"):
			return why{v1beta1.ReasonVermagicMismatch, "it was built for another kernel; build it for this one"}
		case says("unknown symbol", "disagrees about version"):
			return symbol
		}
		return why{v1beta1.ReasonVermagicMismatch, "it does not fit this kernel; build it for this one"}
	case "ENOENT":
		if says("unknown parameter") {
			return parameter
		}
		return symbol
	case "EKEYREJECTED", "ENOKEY", "EBADMSG", "ENOPKG":
		return signature
	case "EPERM":
		return forbidden(says)
	case "EINVAL":
		switch {
		case says("unknown symbol", "disagrees about version"):
			return symbol
		case says("invalid for parameter", "unknown parameter", "parameter"):
			return parameter
		}
		return why{v1beta1.ReasonLoadFailed, invalid(e.Log, parameters)}
	case "ERANGE":
		return parameter
	case "ENODEV", "ENXIO":
		if name := requested(e.Log); name != "" {
			return why{v1beta1.ReasonMissingDependency, fmt.Sprintf("it asked the kernel for the module %s, which the node does not have", name)}
		}
		return why{v1beta1.ReasonNoSuchDevice, "the module found no device to drive on this node"}
	case "ENOMEM":
		return why{v1beta1.ReasonLoadFailed, "the node has too little memory for it"}
	}
	return why{v1beta1.ReasonLoadFailed, "see the kernel log"}
}

// forbidden says what to make of an EPERM.
func forbidden(says func(words ...string) bool) why {
	switch {
	case says("modules_disabled", "modules are disabled"):
		return why{v1beta1.ReasonModulesDisabled, "kernel.modules_disabled is 1 until the next boot"}
	case says("loadpin: "):
		return why{v1beta1.ReasonLoadPin, "the kernel loads modules only from the file system that LoadPin has pinned; boot the node without LoadPin's enforcement"}
	case says("lockdown: "):
		return why{v1beta1.ReasonLockedDown, "the kernel is locked down and loads only what is signed by a key that it trusts"}
	}
	return why{v1beta1.ReasonSignatureRejected, "the kernel is locked down, or the agent lacks the privilege to load modules"}
}

// maxNamedParameters bounds a message: some modules have a hundred parameters.
const maxNamedParameters = 8

// invalid says what to make of an EINVAL that no kernel line explains: most often, the module refuses its parameters.
func invalid(log, parameters []string) string {
	text := "the module's own code, or the kernel, finds something invalid"
	switch {
	case len(parameters) > 0:
		return text + "; it has parameters, and may need one or refuse a value (" + words.List(parameters, maxNamedParameters) + "): see modprobe.parameters"
	case len(log) == 0:
		return text + "; the kernel printed nothing about it"
	}
	return text
}

// inVain matches what modules print when the kernel could not load another one for them. The name may be an alias, such as "hmac(sha256)".
var inVain = regexp.MustCompile(`(?i)request_module\s*\(\s*['"]([^'"]+)['"]|(?:could not|couldn't|cannot|can't|failed to|unable to) (?:load|request|find) (?:the )?(?:kernel )?module ['"]?([\w()-]+)`)

// requested is the module that a module asked the kernel for in vain, according to the kernel's lines; empty if there is none.
func requested(log []string) string {
	for _, line := range log {
		if m := inVain.FindStringSubmatch(line); m != nil {
			return m[1] + m[2]
		}
	}
	return ""
}

// unloadReport turns the error of an unload into what is reported. m are the facts of the moment; by matters when the
// module is in use.
func unloadReport(err error, m host.Module, by usage) report {
	if busy(err) {
		return inUse(m, by)
	}
	r := report{State: v1beta1.AttemptFailed, Reason: v1beta1.ReasonUnloadFailed, Message: fmt.Sprintf("Unloading failed: %v.", err)}
	var call *host.CallError
	switch {
	case errors.Is(err, host.ErrTimeout):
		r.Reason = v1beta1.ReasonTimeout
	case errors.As(err, &call):
		if call.Errno == "EPERM" {
			r.Message = "The kernel refuses to unload (EPERM): modules are disabled, or the agent lacks the privilege."
		}
		r.Message = withLog(r.Message, call.Log)
	}
	return r
}

// busy tells "in use" from other refusals to unload.
func busy(err error) bool {
	return errors.Is(err, host.Errno("EBUSY")) || errors.Is(err, host.Errno("EAGAIN"))
}

// withLog appends kernel lines after the headline, at most 1 KiB of them.
func withLog(message string, lines []string) string {
	const limit = 1024
	size := 0
	for _, l := range lines {
		if size += len(l) + 1; size > limit {
			break
		}
		message += "\n" + l
	}
	return message
}
