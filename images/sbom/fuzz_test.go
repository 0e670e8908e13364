// SPDX-License-Identifier: Apache-2.0

package sbom

import (
	"path"
	"strings"
	"testing"
)

// FuzzPackages: a package of Debian's that is read has the name of its file and a version, and its
// files have absolute, clean paths.
func FuzzPackages(f *testing.F) {
	f.Add("Package: kmod\nVersion: 30+20221128-1\nArchitecture: amd64\n", "d41d8cd98f00b204e9800998ecf8427e  usr/bin/kmod\n")
	f.Add("Package:kmod\nVersion:\n", "x  ../../etc/passwd\n  \n")
	f.Fuzz(func(t *testing.T, paragraph, list string) {
		found, err := packages(map[string][]byte{"kmod": []byte(paragraph), "kmod" + listEnding: []byte(list)})
		if err != nil {
			return
		}
		for _, p := range found {
			if p.Name != "kmod" || p.Version == "" || strings.Contains(p.URL(), "\n") {
				t.Errorf("package %+v", p)
			}
			for _, file := range p.Files {
				if !path.IsAbs(file) || path.Clean(file) != file {
					t.Errorf("file %q", file)
				}
			}
		}
	})
}
