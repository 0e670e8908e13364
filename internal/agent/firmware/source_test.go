// SPDX-License-Identifier: Apache-2.0

package firmware_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-project/drover/internal/agent/firmware"
	"github.com/drover-project/drover/internal/agent/manifest"
)

func digestOf(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

func TestRefusedDeliveries(t *testing.T) {
	for name, c := range map[string]struct {
		files  files
		reason string
	}{
		"link to a file":         {files{"a": "a", "x": "->a"}, manifest.ReasonDeliveryRefused},
		"link to a directory":    {files{"a/a": "a", "x": "->a"}, manifest.ReasonDeliveryRefused},
		"link that leads out":    {files{"x": "->/etc/passwd"}, manifest.ReasonDeliveryRefused},
		"our own name":           {files{".drover/x": "x"}, manifest.ReasonDeliveryRefused},
		"not printable":          {files{"a\nb": "x"}, manifest.ReasonDeliveryRefused},
		"deeper than may be":     {files{strings.Repeat("d/", 40) + "x": "x"}, manifest.ReasonDeliveryRefused},
		"too many":               {files{"1": "", "2": "", "3": "", "4": "", "5": ""}, manifest.ReasonImageTooLarge},
		"too large":              {files{"x": strings.Repeat("x", 101)}, manifest.ReasonImageTooLarge},
		"too large all together": {files{"x": strings.Repeat("x", 60), "y": strings.Repeat("y", 60)}, manifest.ReasonImageTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.opt.MaxFiles, n.opt.MaxBytes = 4, 100
			err := n.start().add("ns/a", c.files)
			var failure *manifest.Failure
			if !errors.As(err, &failure) || failure.Reason != c.reason {
				t.Errorf("%v, want %s", err, c.reason)
			}
			if diff := cmp.Diff(files{}, n.see("/")); diff != "" {
				t.Errorf("staged (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRefusedRoots(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, files{"file": "", "link": "->real", "real/x": "x"})
	if err := syscall.Mkfifo(dir+"/real/pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"file", "link", "real", "absent"} {
		sub, err := fs.Sub(os.DirFS(dir), name)
		if err != nil {
			t.Fatal(err)
		}
		n := newNode(t).start()
		if err := n.Add("ns/a", sub); err == nil {
			t.Errorf("%s is taken", name)
		}
		if diff := cmp.Diff(files{}, n.see("/")); diff != "" {
			t.Errorf("staged (-want +got):\n%s", diff)
		}
	}
}

func TestTracesOfAnotherKind(t *testing.T) {
	for name, planted := range map[string]files{
		"a link":         {".drover": "->/tmp"},
		"a file":         {".drover": "mine"},
		"a link further": {".drover/x": "->/tmp"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t).put(ours, planted).start()
			if err := n.add("ns/a", files{"x": "x"}); err == nil {
				t.Error("no error")
			}
			if got := n.seen(ours); len(got) > 0 {
				t.Errorf("staged %v", got)
			}
		})
	}
}

func TestSettings(t *testing.T) {
	for name, change := range map[string]func(*firmware.Options){
		"relative":           func(o *firmware.Options) { o.Dir = "var/lib/firmware" },
		"the root":           func(o *firmware.Options) { o.Dir = "/" },
		"longer than may be": func(o *firmware.Options) { o.Dir = "/" + strings.Repeat("d", 255) },
		"no state directory": func(o *firmware.Options) { o.StateDir += "/absent" },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			change(&n.opt)
			if _, err := firmware.Open(n.opt); err == nil {
				t.Error("taken")
			}
		})
	}
}
