// SPDX-License-Identifier: Apache-2.0

// Package result is what the steps of an image's Job report to the operator: JSON in a container's
// termination message, which drover-signer writes and the operator reads.
// docs/reference/signer.md lists the steps.
package result

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/drover-project/drover/internal/shared/words"
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

// clean makes what a step's container has written fit for people. JSON hides what steers a
// terminal.
func (r *Result) clean() {
	texts := []*string{&r.Step, (*string)(&r.State), &r.Digest, &r.Unfit, (*string)(&r.Reason), &r.Error}
	if r.Signer != nil {
		texts = append(texts, &r.Signer.Fingerprint, &r.Signer.Subject)
	}
	for _, list := range [][]string{r.Files, r.Unmatched} {
		for i := range list {
			texts = append(texts, &list[i])
		}
	}
	for _, text := range texts {
		*text = words.Clean(*text)
	}
}

// Parse reads a termination message, and cleans its words. Other text, such as the tail of a log,
// is an error.
func Parse(message string) (*Result, error) {
	message = strings.TrimSpace(message)
	if !strings.HasPrefix(message, "{") {
		return nil, fmt.Errorf("not a result: %.80q", message)
	}
	r := &Result{}
	if err := json.Unmarshal([]byte(message), r); err != nil {
		return nil, fmt.Errorf("decode a result: %w", err)
	}
	r.clean()
	if r.Step == "" {
		return nil, fmt.Errorf("not a result: %.80q names no step", message)
	}
	return r, nil
}

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
		case r.Error != "":
			r.Error = oneLine(r.Error, len(r.Error)/2)
		default:
			return "", fmt.Errorf("the result of step %.40q takes %d bytes, more than %d", r.Step, len(raw), MaxMessage)
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

// SourceDigest is the digest of a source's files by name.
func SourceDigest(files map[string][]byte) string {
	sum := sha256.New()
	part := func(text []byte) { _, _ = fmt.Fprintf(sum, "%d:%s", len(text), text) } // never fails
	for _, name := range slices.Sorted(maps.Keys(files)) {
		part([]byte(name))
		part(files[name])
	}
	return hex.EncodeToString(sum.Sum(nil))
}
