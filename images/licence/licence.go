// SPDX-License-Identifier: Apache-2.0

// Package licence says under which licences the parts of our programs and images are: Go modules,
// by the texts that come with their sources, and Debian's packages, by a table. It reads local
// files only.
package licence

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// Stdlib is the licence of Go's standard library.
const Stdlib = "BSD-3-Clause"

// allowed are the licences under which a linked module may be, by their SPDX identifiers: they ask
// that their text comes along, and no more.
var allowed = []string{"0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "Unlicense", publicDomain}

// publicDomain is a reference of ours, as SPDX has no identifier for it.
const publicDomain = "LicenseRef-public-domain"

// enough is the share of a file, in percent, that must be licence text: what else is in it might
// restrict the licence.
const enough = 75

// judgement is what people read in a licence file that no classifier knows, or that is not about
// what is linked.
type judgement struct {
	// Licence is empty if the file says nothing about the sources.
	Licence string
	Why     string
}

// judged are such files by the SHA-256 of their text: a text that changes is judged anew.
var judged = map[string]judgement{
	"5c640056d513f276d56635af7a0bed81cb7eac02a31b6e56d40c416557a8d8ce": {publicDomain, "github.com/xi2/xz: in the public domain"},
	"a1d1adec3ba691ef6e377a78bbe9e9e2501f2f4a1723d08857da1ac6564e4fed": {"", "github.com/opencontainers/go-digest: of its documentation"},
}

// Errors of Of and Allowed.
var (
	ErrNone       = errors.New("no licence is recognised")
	ErrNotAllowed = errors.New("its licence is not allowed")
)

// Of recognises the licences of the sources in dir, as an SPDX expression: "Apache-2.0 AND MIT".
// All that its licence files say applies.
func Of(dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", fmt.Errorf("look for a licence: %w", err)
	}
	var found []string
	for _, entry := range entries {
		if !entry.Type().IsRegular() || !isLicenceFile(entry.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return "", fmt.Errorf("read a licence: %w", err)
		}
		if known, ok := judged[fmt.Sprintf("%x", sha256.Sum256(text))]; ok {
			if known.Licence != "" {
				found = append(found, known.Licence)
			}
			continue
		}
		ids := recognise(text)
		if len(ids) == 0 {
			return "", fmt.Errorf("%w in %s", ErrNone, entry.Name())
		}
		found = append(found, ids...)
	}
	if len(found) == 0 {
		return "", ErrNone
	}
	slices.Sort(found)
	return strings.Join(slices.Compact(found), " AND "), nil
}

func isLicenceFile(name string) bool {
	name = strings.ToLower(name)
	if strings.HasSuffix(name, ".go") {
		return false
	}
	return slices.ContainsFunc([]string{"license", "licence", "copying", "unlicense"}, func(prefix string) bool {
		return strings.HasPrefix(name, prefix)
	})
}

// recognise lists the licences of a text; none if much of it is something else.
func recognise(text []byte) []string {
	said := licensecheck.Scan(text)
	if said.Percent < enough {
		return nil
	}
	var ids []string
	for _, match := range said.Match {
		ids = append(ids, match.ID)
	}
	return ids
}

// Allowed says whether a module may be linked that is under a licence as Of returns it.
func Allowed(expression string) error {
	for id := range strings.SplitSeq(expression, " AND ") {
		if !slices.Contains(allowed, id) {
			return fmt.Errorf("%w: %q", ErrNotAllowed, id)
		}
	}
	return nil
}

// Text is what a licence says that SPDX has no identifier for.
func Text(reference string) string {
	if reference == publicDomain {
		return "The authors have put these files into the public domain: anybody may do with them whatever they like."
	}
	return ""
}
