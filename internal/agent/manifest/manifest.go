// SPDX-License-Identifier: Apache-2.0

// Package manifest is the format in which a carrier hands an image's content to the agent: a
// directory with a tree of files, and either manifest.json (complete) or error.json (impossible).
// Package export writes it. Package store reads it and trusts nothing in it.
package manifest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/drover-project/drover/internal/shared/words"
)

// The layout of the output directory.
const (
	Schema      = 1               // the only version of the format so far
	TreeDir     = "tree"          // holds the files
	FirmwareDir = "firmware"      // the directory in TreeDir that holds firmware
	File        = "manifest.json" // renamed into place when the tree is complete
	ErrorFile   = "error.json"    // takes the manifest's place if the export cannot succeed
)

// Bounds of one delivery.
const (
	MaxFiles        = 20_000
	DefaultMaxBytes = int64(1) << 30  // of the files together, by the size of a carrier's output volume
	MaxEncodedBytes = int64(16) << 20 // of the manifest: MaxFiles entries of about 800 bytes
	MaxDepth        = 32              // of directories below TreeDir

	maxPathBytes    = 1024
	maxMessageBytes = 2048
)

// Reasons of the closed set that a delivery can end with.
const (
	ReasonImageUnreadable   = "ImageUnreadable"   // a needed directory or file is not in the image, or may not be read
	ReasonImageTooLarge     = "ImageTooLarge"     // more files or bytes than a delivery may have
	ReasonMissingDependency = "MissingDependency" // the image has no module of the wanted name
	ReasonDeliveryRefused   = "DeliveryRefused"   // the output is not as its manifest says; only the reader uses it
)

// Manifest lists every regular file below TreeDir.
type Manifest struct {
	Schema int     `json:"schema"`
	Kernel string  `json:"kernel"` // the version that the export was asked for
	Files  []Entry `json:"files"`  // sorted by path
}

// Entry is one file.
type Entry struct {
	Path   string `json:"path"` // relative to TreeDir, with forward slashes
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"` // of the content, in lower-case hex
}

// Failure is the content of ErrorFile: why there will be no manifest. It is also an error.
type Failure struct {
	Reason  string `json:"reason"` // of the closed set, in CamelCase
	Message string `json:"message"`
}

func (f *Failure) Error() string { return f.Reason + ": " + f.Message }

// Failed makes a Failure with a formatted message.
func Failed(reason, format string, args ...any) *Failure {
	return &Failure{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Parse decodes and validates a manifest that somebody else wrote.
func Parse(data []byte) (Manifest, error) {
	var m Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return Manifest{}, fmt.Errorf("decode manifest: %w", err)
	}
	return m, m.validate()
}

func (m Manifest) validate() error {
	if m.Schema != Schema {
		return fmt.Errorf("manifest has schema %d instead of %d", m.Schema, Schema)
	}
	if len(m.Files) > MaxFiles {
		return fmt.Errorf("manifest lists %d files, more than %d", len(m.Files), MaxFiles)
	}
	last := ""
	for _, e := range m.Files {
		if err := e.validate(); err != nil {
			return err
		}
		if e.Path <= last {
			return fmt.Errorf("manifest is not sorted at %q", e.Path)
		}
		last = e.Path
	}
	return nil
}

func (e Entry) validate() error {
	if err := ValidPath(e.Path); err != nil {
		return err
	}
	if e.Size < 0 {
		return fmt.Errorf("manifest: %q has a negative size", e.Path)
	}
	if !ValidSum(e.SHA256) {
		return fmt.Errorf("manifest: the sha256 of %q is not valid", e.Path)
	}
	return nil
}

// Sum reads to the end and returns what an Entry says of the content.
func Sum(r io.Reader) (sum string, size int64, err error) {
	h := sha256.New()
	if size, err = io.Copy(h, r); err != nil {
		return "", size, err //nolint:wrapcheck // the caller knows the name
	}
	return hex.EncodeToString(h.Sum(nil)), size, nil
}

// ValidSum accepts what Sum returns.
func ValidSum(sum string) bool { return len(sum) == 64 && strings.Trim(sum, "0123456789abcdef") == "" }

// ValidPath accepts a clean, relative path with printable characters and without "..".
func ValidPath(name string) error {
	switch {
	case name == "." || !fs.ValidPath(name) || path.Clean(name) != name:
		return fmt.Errorf("path %q is not a clean relative path", name)
	case len(name) > maxPathBytes:
		return fmt.Errorf("path %.60q… is longer than %d bytes", name, maxPathBytes)
	case strings.Count(name, "/") >= MaxDepth:
		return fmt.Errorf("path %q nests deeper than %d directories", name, MaxDepth)
	case strings.ContainsFunc(name, func(r rune) bool { return r == '\\' || !unicode.IsPrint(r) }):
		return fmt.Errorf("path %q has characters that are not printable", name)
	}
	return nil
}

// ParseFailure decodes an ErrorFile that somebody else wrote.
func ParseFailure(data []byte) (*Failure, error) {
	var f Failure
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("decode %s: %w", ErrorFile, err)
	}
	if !slices.Contains([]string{ReasonImageUnreadable, ReasonImageTooLarge, ReasonMissingDependency}, f.Reason) {
		return nil, fmt.Errorf("%s has the unknown reason %.40q", ErrorFile, f.Reason)
	}
	f.Message = printable(f.Message)
	return &f, nil
}

// printable makes a foreign message one bounded line.
func printable(s string) string { return words.Fit(words.Line(s), maxMessageBytes) }
