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

// Reasons. docs/reference/signer.md has the next step of each.
const (
	// ReasonUnauthorized: the registry refuses these credentials.
	ReasonUnauthorized Reason = "Unauthorized"
	// ReasonNotFound: the registry has no such image.
	ReasonNotFound Reason = "NotFound"
	// ReasonUnavailable: the registry cannot be reached, or is unavailable for now.
	ReasonUnavailable Reason = "Unavailable"
	// ReasonTLS: the registry's certificate is not trusted, or it has none.
	ReasonTLS Reason = "TLSFailed"
	// ReasonImageRefused: the image is malformed, hostile or too large.
	ReasonImageRefused Reason = "ImageRefused"
	// ReasonNotModule: a file to sign is not a kernel module.
	ReasonNotModule Reason = "NotModule"
	// ReasonNothingToSign: no pattern names a file.
	ReasonNothingToSign Reason = "NothingToSign"
	// ReasonKey: key and certificate cannot be read, or do not belong together.
	ReasonKey Reason = "KeyUnusable"
	// ReasonPrebuilt: a prebuilt image has the name that was to be pushed.
	ReasonPrebuilt Reason = "Prebuilt"
	// ReasonInvalid: the step was called wrongly.
	ReasonInvalid Reason = "InvalidInput"
	// ReasonUnfit: a kernel module of the image does not fit the kernel.
	ReasonUnfit Reason = "Unfit"
	// ReasonFailed is any other.
	ReasonFailed Reason = "Failed"
)

// MaxMessage bounds a termination message, in bytes. A kubelet keeps 4096 of one, and 12 KiB of a
// pod's containers together: enough for eight, as the longest Job has.
const MaxMessage = 1536

const maxError = 700

// Message is one line of JSON. It leaves out what does not fit, files first.
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
	// In a pod the kubelet has created the file.
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
