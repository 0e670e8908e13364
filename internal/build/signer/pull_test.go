// SPDX-License-Identifier: Apache-2.0

package signer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/drover-project/drover/internal/build/pipeline/result"
	"github.com/drover-project/drover/test/vm/registry"
)

// TestFetch: an image of a registry with a password comes into a folder, for the right processor
// and of the digest that is named.
func TestFetch(t *testing.T) {
	s := newServer(t)
	here := moduleImage(t, map[string]registry.File{
		"/usr/src/linux/Makefile": {Content: []byte("all:\n")}, "/lib/modules/x/build": {Link: "/usr/src/linux"},
		"/usr/src/linux/scripts/fixdep": registry.Program([]byte("#!")),
	})
	other := moduleImage(t, map[string]registry.File{"/other": {Content: []byte("1")}})
	s.put(t, "headers:1", here)
	index := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: other, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "arm64"}}},
		mutate.IndexAddendum{Add: here, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}}})
	if err := remote.WriteIndex(s.tag(t, "headers:all"), index, s.options()...); err != nil {
		t.Fatal(err)
	}
	digest, err := here.Digest()
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		image  string
		args   []string
		reason result.Reason
	}{
		"by tag":            {image: "headers:1"},
		"by digest":         {image: "headers@" + digest.String()},
		"of several":        {image: "headers:all", args: []string{"--arch", "amd64"}},
		"not for this one":  {image: "headers:all", args: []string{"--arch", "riscv64"}, reason: result.ReasonImageRefused},
		"another digest":    {image: "headers@sha256:" + strings.Repeat("0", 64), reason: result.ReasonNotFound},
		"not there":         {image: "never:1", reason: result.ReasonNotFound},
		"without a way in":  {image: "headers:1", args: []string{"--auth", "/nowhere"}, reason: result.ReasonInvalid},
		"nothing to do now": {image: "never:1", args: []string{"--state", done(t)}},
	} {
		t.Run(name, func(t *testing.T) {
			to := t.TempDir()
			args := append([]string{"fetch", "--image", s.image(tc.image), "--to", to}, s.flags(t)...)
			r, err := run(t, append(args, tc.args...)...)
			if r.Reason != tc.reason || (err != nil) != (tc.reason != "") {
				t.Fatalf("%+v, %v", r, err)
			}
			makefile, readErr := os.ReadFile(filepath.Join(to, "usr/src/linux/Makefile"))
			if fetched := err == nil && !r.Skipped; !fetched {
				if readErr == nil {
					t.Error("it was unpacked")
				}
				return
			}
			target, linkErr := os.Readlink(filepath.Join(to, "lib/modules/x/build"))
			info, statErr := os.Stat(filepath.Join(to, "usr/src/linux/scripts/fixdep"))
			if string(makefile) != "all:\n" || target != "/usr/src/linux" || linkErr != nil || statErr != nil || info.Mode() != 0o755 {
				t.Errorf("%q, %q, %v, %v, %v, %v", makefile, target, info, readErr, linkErr, statErr)
			}
		})
	}
}

// done is a folder in which check said that nothing is to be done.
func done(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, doneFile), nil)
	return dir
}
