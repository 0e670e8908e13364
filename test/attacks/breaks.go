// SPDX-License-Identifier: Apache-2.0

package attacks

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// check is a check in Go. To take it away, Drover is compiled with other texts in its package: the
// sources, and so the product, have no way to switch it off.
type check struct {
	// Package below Drover's folder.
	Package string
	Edits   []edit
}

// edit changes one place of a file.
type edit struct {
	// File of the package. Old must be in it exactly once.
	File, Old, New string
}

// checks are all checks in Go that answer an attack, by their names for BREAK.
var checks = map[string]check{
	"module-policies": {Package: "internal/shared/modulepolicy", Edits: []edit{
		{File: "policy.go", Old: "return s.first(v1alpha1.PolicyEnforce, at, onNode, w.rule(at))", New: "return nil"},
	}},
	"kernel-versions": {Package: "internal/shared/kernel", Edits: []edit{
		{File: "platform.go", Old: "if !validVersion.MatchString(version) {", New: "if false {"},
	}},
	"signing-nodes": {Package: "internal/build/pipeline", Edits: []edit{
		{File: "nodes.go", Old: "maps.Copy(own, spec.Sign.Selector)", New: "maps.Copy(own, own)"},
		{File: "nodes.go", Old: "maps.Copy(all, spec.Selector)", New: "maps.Copy(all, all)"},
	}},
	"startup-taints": {Package: "internal/shared/modulepolicy", Edits: []edit{
		{File: "taints.go", Old: `if key == "" || t.Allow(m.Namespace, key) {`, New: "if key == key {"},
	}},
	"image-links": {Package: "internal/agent/export", Edits: []edit{
		{File: "image.go", Old: "i.fs.Resolve(name)", New: "name, error(nil)"},
		{File: "image.go", Old: "i.root.OpenFile(at, ", New: `os.OpenFile(i.root.Name()+"/"+at, `},
		{File: "image.go", Old: "case e.Type()&fs.ModeSymlink != 0:", New: "case false:"},
		{File: "image.go", Old: "case e.Type().IsRegular():", New: "case !e.IsDir():"},
	}},
	"reports": {Package: "internal/shared/reported", Edits: []edit{
		{File: "clean.go", Old: "s.Attempts = entries(c, s.Attempts, maxAttempts, c.attempt)", New: ""},
	}},
	"foreign-words": {Package: "internal/shared/words", Edits: []edit{
		{File: "clean.go", Old: "if clean(text) {", New: "if clean(text) || true {"},
	}},
	"foreign-lines": {Package: "internal/cli/explain", Edits: []edit{
		{File: "render.go", Old: `"\n"+strings.Repeat(" ", by))`, New: `"\n"+strings.Repeat(" ", 0*by))`},
	}},
	"spoke-words": {Package: "internal/hub", Edits: []edit{
		{File: "report.go", Old: "words.Cut(words.Line(text), maxMessage)", New: "words.Cut(text, maxMessage)"},
	}},
	"metrics-readers": {Package: "internal/operator", Edits: []edit{
		{File: "manager.go", Old: "served.FilterProvider = filters.WithAuthenticationAndAuthorization",
			New: "_ = filters.WithAuthenticationAndAuthorization"},
	}},
	"modprobe-paths": {Package: "internal/agent/modprobe", Edits: []edit{
		{File: "args.go", Old: "if !within(name) {", New: "if !within(name) && false {"},
		{File: "args.go", Old: `if version == ".." || strings.Contains(version, "/") {`, New: `if version == "" {`},
	}},
	"delivered-links": {Package: "internal/agent/nofollow", Edits: []edit{
		{File: "nofollow.go", Old: "!seen.Mode().IsRegular() {", New: "false {"},
		{File: "nofollow.go", Old: "parent.OpenFile(name, ", New: `os.OpenFile(parent.Name()+"/"+name, `},
		{File: "nofollow.go", Old: "opened, err := f.Stat()", New: "opened := seen"},
	}},
	"delivered-content": {Package: "internal/agent/store", Edits: []edit{
		{File: "import.go", Old: "if sum != e.SHA256 {", New: "if sum != sum {"},
	}},
	"delivered-names": {Package: "internal/agent/manifest", Edits: []edit{
		{File: "manifest.go", Old: "case name == \".\" || !fs.ValidPath(name) || path.Clean(name) != name:",
			New: "case false && fs.ValidPath(path.Clean(name)):"},
	}},
	"layer-names": {Package: "internal/build/repack", Edits: []edit{
		{File: "view.go", Old: `if part == ".." {`, New: `if part == part+"/" {`},
		{File: "view.go", Old: `return strings.TrimPrefix(path.Clean("/"+name), "/"), nil`, New: "return path.Clean(name), nil"},
		{File: "unpack.go", Old: "u.root.OpenFile(name, ", New: `os.OpenFile(u.root.Name()+"/"+name, `},
		{File: "unpack.go", Old: "info, err := u.root.Lstat(name)", New: "info, err := os.FileInfo(nil), error(fs.ErrNotExist)"},
		{File: "unpack.go", Old: "err = u.root.MkdirAll(path.Dir(name), 0o755)", New: "err = nil"},
		{File: "unpack.go", Old: "u.root.Chtimes(name, ", New: `os.Chtimes(u.root.Name()+"/"+name, `},
	}},
}

// overlay is the file that `go build -overlay` reads: other files for those of the sources.
type overlay struct{ Replace map[string]string }

// overlay writes, into dir, what `go build -overlay` needs to compile Drover without the check, and
// returns that file's path. root is Drover's folder.
func (c check) overlay(root, dir string) (string, error) {
	replaced, contents := map[string]string{}, map[string][]byte{}
	for _, e := range c.Edits {
		original := filepath.Join(root, filepath.FromSlash(c.Package), e.File)
		replaced[original] = filepath.Join(dir, e.File)
		content, ok := contents[e.File]
		if !ok {
			var err error
			if content, err = os.ReadFile(original); err != nil {
				return "", fmt.Errorf("read the check: %w", err)
			}
		}
		if n := bytes.Count(content, []byte(e.Old)); n != 1 {
			return "", fmt.Errorf("%s/%s has %d places with %s instead of one", c.Package, e.File, n, e.Old)
		}
		contents[e.File] = bytes.Replace(content, []byte(e.Old), []byte(e.New), 1)
	}
	list, err := json.Marshal(overlay{Replace: replaced})
	if err != nil {
		return "", fmt.Errorf("write the overlay: %w", err)
	}
	contents["overlay.json"] = list
	for name, content := range contents {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return "", fmt.Errorf("write the overlay: %w", err)
		}
	}
	return filepath.Join(dir, "overlay.json"), nil
}
