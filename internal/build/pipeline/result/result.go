// SPDX-License-Identifier: Apache-2.0

// Package result is what the steps of an image's Job report to the operator: JSON in a container's
// termination message, which drover-signer writes and the operator reads.
// docs/reference/signer.md lists the steps.
package result

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// HashAnnotation on an image's manifest is the hash of its inputs. An image without it is prebuilt.
const HashAnnotation = "dev.drover.hash"

// SignerAnnotation on a manifest is the SHA-256 fingerprint of the certificate that signed.
const SignerAnnotation = "dev.drover.signer"

// State of an image in the registry, as check finds it.
type State string

// States. docs/reference/signer.md says more.
const (
	// StateMissing: the registry does not have it.
	StateMissing State = "Missing"
	// StateCurrent: it has our hash and the mounted certificate signed it.
	StateCurrent State = "Current"
	// StateOutdated: it is ours with another hash, or signed with another certificate.
	StateOutdated State = "Outdated"
	// StatePrebuilt: Drover did not make it and never overwrites it.
	StatePrebuilt State = "Prebuilt"
)

// Present reports whether the registry has an image that can be used.
func (s State) Present() bool { return s == StateCurrent || s == StatePrebuilt }

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
	// Signer is who signed, or the certificate that check was given.
	Signer *Signer `json:"signer,omitempty"`
	// Signed counts files.
	Signed int `json:"signed,omitempty"`
	// Files that were signed or packed, as far as they fit into a message.
	Files []string `json:"files,omitempty"`
	// Unmatched are patterns of files to sign that name none.
	Unmatched []string `json:"unmatched,omitempty"`
	// Skipped: there was nothing to do, because check has found the image.
	Skipped bool `json:"skipped,omitempty"`
	// Unfit is why a kernel module does not fit the kernel, by the reasons of conditions.
	Unfit string `json:"unfit,omitempty"`
	// Reason of a failure, for programs.
	Reason Reason `json:"reason,omitempty"`
	// Error of one line, when the step failed. More is in the log.
	Error string `json:"error,omitempty"`
}

// Parse reads a termination message. Other text, such as the tail of a log, is an error.
func Parse(message string) (*Result, error) {
	message = strings.TrimSpace(message)
	if !strings.HasPrefix(message, "{") {
		return nil, fmt.Errorf("not a result: %.80q", message)
	}
	r := &Result{}
	if err := json.Unmarshal([]byte(message), r); err != nil {
		return nil, fmt.Errorf("decode a result: %w", err)
	}
	if r.Step == "" {
		return nil, fmt.Errorf("not a result: %.80q names no step", message)
	}
	return r, nil
}
