// SPDX-License-Identifier: Apache-2.0

package result

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"unicode/utf8"
)

// Reason says why a step failed.
type Reason string

// Reasons. docs/reference/signer.md says what follows from each.
const (
	// ReasonUnauthorized means that the registry does not let these credentials in.
	ReasonUnauthorized Reason = "Unauthorized"
	// ReasonNotFound means that the registry has no such image.
	ReasonNotFound Reason = "NotFound"
	// ReasonUnavailable means that the registry was not reached, or said that it cannot for now.
	ReasonUnavailable Reason = "Unavailable"
	// ReasonTLS means that the registry's certificate was refused, or that it has none.
	ReasonTLS Reason = "TLSFailed"
	// ReasonImageRefused means that the image is malformed, hostile or too large.
	ReasonImageRefused Reason = "ImageRefused"
	// ReasonNotModule means that a file that shall be signed is no kernel module.
	ReasonNotModule Reason = "NotModule"
	// ReasonNothingToSign means that no file has a name that shall be signed.
	ReasonNothingToSign Reason = "NothingToSign"
	// ReasonKey means that key and certificate cannot be read, or do not belong together.
	ReasonKey Reason = "KeyUnusable"
	// ReasonPrebuilt means that an image that is none of ours is where ours was to be pushed.
	ReasonPrebuilt Reason = "Prebuilt"
	// ReasonInvalid means that the step was called wrongly.
	ReasonInvalid Reason = "InvalidInput"
	// ReasonUnfit means that a kernel module of the image does not fit the kernel.
	ReasonUnfit Reason = "Unfit"
	// ReasonFailed is any other.
	ReasonFailed Reason = "Failed"
)

// MaxMessage bounds a termination message. A kubelet keeps 4096 bytes of one, and 12 KiB of all containers of a pod together, divided equally: this
// leaves room for eight, which the longest Job has.
const MaxMessage = 1536

const maxError = 700

// Message is the termination message: one line of JSON. What does not fit is left out, names of files first.
func (r Result) Message() (string, error) {
	r.Error = oneLine(r.Error, maxError)
	for {
		raw, err := json.Marshal(r)
		if err != nil {
			return "", fmt.Errorf("encode the result: %w", err)
		}
		switch {
		case len(raw) <= MaxMessage:
			return string(raw), nil
		case len(r.Files) > 0:
			r.Files = r.Files[:len(r.Files)/2]
		case len(r.Unmatched) > 0:
			r.Unmatched = r.Unmatched[:len(r.Unmatched)/2]
		case r.Signer != nil && r.Signer.Subject != "":
			signer := *r.Signer
			signer.Subject = ""
			r.Signer = &signer
		default:
			r.Error = oneLine(r.Error, len(r.Error)/2)
		}
	}
}

// Write writes the termination message.
func (r Result) Write(file string) error {
	message, err := r.Message()
	if err != nil {
		return err
	}
	// Not created with others' permissions: in a pod the kubelet has made it.
	if err := os.WriteFile(file, []byte(message), 0o644); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}

func oneLine(text string, most int) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}
