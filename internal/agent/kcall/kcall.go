// SPDX-License-Identifier: Apache-2.0

// Package kcall makes one system call that inserts or removes a kernel module, in a process of its
// own: an oops kills that process and not the agent, and a call that hangs can be left behind.
//
// The agent runs drover-kcall, or itself as `drover-agent kcall`, with a Request as JSON on
// standard input and the module's file as descriptor 3. The Answer is JSON on standard output.
package kcall

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// maxMessage bounds a request or an answer, in bytes.
const maxMessage = 1 << 20

// Request is one call.
type Request struct {
	Load   *Load  `json:"load,omitempty"`   // the module to insert
	Unload string `json:"unload,omitempty"` // the name of the module to remove; exactly one of the two is set
}

// Load is finit_module(2) on the inherited file.
type Load struct {
	Name   string   `json:"name"`             // for messages; the kernel takes it from the file
	Params []string `json:"params,omitempty"` // key=value, in order
	// KernelDecompresses is the content of /sys/module/compression ("gzip", "xz" or "zstd"); empty on
	// kernels that decompress nothing.
	KernelDecompresses string `json:"kernelDecompresses,omitempty"`
}

// Answer is what became of it.
type Answer struct {
	Errno   string `json:"errno,omitempty"`   // the error's symbolic name; empty: the call succeeded
	Message string `json:"message,omitempty"` // set when the call could not even be made
}

// Run is the child: it reads a request, makes the call and writes the answer.
func Run(in io.Reader, out io.Writer) error {
	var r Request
	if err := json.NewDecoder(io.LimitReader(in, maxMessage)).Decode(&r); err != nil {
		return fmt.Errorf("kcall: read the request: %w", err)
	}
	var answer Answer
	switch {
	case r.Load != nil && r.Unload == "":
		answer = load(*r.Load)
	case r.Load == nil && r.Unload != "":
		answer = unload(r.Unload)
	default:
		answer.Message = "exactly one of load and unload must be set"
	}
	if err := json.NewEncoder(out).Encode(answer); err != nil {
		return fmt.Errorf("kcall: write the answer: %w", err)
	}
	return nil
}

// commandLine joins parameters as the kernel parses them: values with blanks in double quotes.
func commandLine(params []string) string {
	quoted := make([]string, len(params))
	for i, p := range params {
		name, value, ok := strings.Cut(p, "=")
		if ok && strings.ContainsAny(value, " \t\n") && !strings.HasPrefix(value, `"`) {
			p = name + `="` + value + `"`
		}
		quoted[i] = p
	}
	return strings.Join(quoted, " ")
}
