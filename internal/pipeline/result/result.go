// SPDX-License-Identifier: Apache-2.0

// Package result is what the steps of an image's Job tell the operator: JSON in a container's termination message.
// drover-signer writes it, the operator reads it.
//
// The command lines of the steps are agreed on in internal/pipeline (job.go). All take the same names:
//
//	check  look whether the image is in the registry, and write <state>/done when nothing is to be built
//	pull   bring an image that is to be signed into an OCI layout
//	pack   write compiled files into an OCI layout
//	sign   sign the kernel modules of an OCI layout
//	push   push an OCI layout
//	examine  say whether the kernel modules of an image fit a kernel
package result

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// HashAnnotation on an image's manifest is the hash of its inputs. An image without it is none of ours.
const HashAnnotation = "dev.drover.hash"

// SignerAnnotation on an image's manifest is the SHA-256 fingerprint of the certificate that signed it.
const SignerAnnotation = "dev.drover.signer"

// State of an image in the registry, as check finds it.
type State string

const (
	// StateMissing means that there is none.
	StateMissing State = "Missing"
	// StateCurrent means that there is one with our hash, signed with the certificate that is mounted now.
	StateCurrent State = "Current"
	// StateOutdated means that there is one of ours with another hash, or signed with another certificate.
	StateOutdated State = "Outdated"
	// StatePrebuilt means that there is one that is none of ours; it is never overwritten.
	StatePrebuilt State = "Prebuilt"
)

// Signer is a certificate.
type Signer struct {
	// Fingerprint is the SHA-256 of the certificate, in hex.
	Fingerprint string `json:"fingerprint"`
	// Subject of the certificate.
	Subject string `json:"subject,omitempty"`
	// NotAfter is when it expires.
	NotAfter time.Time `json:"notAfter"`
}

// Result is one step's.
type Result struct {
	// Step is check, pull, pack, sign, push or examine.
	Step string `json:"step"`
	// State is what check found.
	State State `json:"state,omitempty"`
	// Digest of the image: of the one that check found, or that push pushed.
	Digest string `json:"digest,omitempty"`
	// Signer is who signed, or what check was given.
	Signer *Signer `json:"signer,omitempty"`
	// Signed counts files.
	Signed int `json:"signed,omitempty"`
	// Files are those that were signed or packed, as far as they fit into a message.
	Files []string `json:"files,omitempty"`
	// Unmatched are patterns of files to be signed that name none.
	Unmatched []string `json:"unmatched,omitempty"`
	// Skipped means that there was nothing to do, for check has found the image.
	Skipped bool `json:"skipped,omitempty"`
	// Unfit is why examine says that a kernel module does not fit the kernel: a reason as conditions have it.
	Unfit string `json:"unfit,omitempty"`
	// Reason of a failure, for programs.
	Reason Reason `json:"reason,omitempty"`
	// Error of one line, when the step failed. More is in the log.
	Error string `json:"error,omitempty"`
}

// Parse reads a termination message. A message that is none of ours, such as the tail of a log, is no result.
func Parse(message string) (*Result, error) {
	message = strings.TrimSpace(message)
	if !strings.HasPrefix(message, "{") {
		return nil, fmt.Errorf("no result: %.80q", message)
	}
	r := &Result{}
	if err := json.Unmarshal([]byte(message), r); err != nil {
		return nil, fmt.Errorf("decode a result: %w", err)
	}
	if r.Step == "" {
		return nil, fmt.Errorf("no result: %.80q names no step", message)
	}
	return r, nil
}
