// SPDX-License-Identifier: Apache-2.0

//go:build compare

package imagefs_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/delivery"
)

// TestAlikeWhereNodesMountNoImages runs each case with the script that copies an image's content in
// a container of the image, under its own shell and cp: what all use is copied, and what all refuse
// is refused by the export, by the link's name.
func TestAlikeWhereNodesMountNoImages(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("only root may change its root")
	}
	for tools, install := range map[string]func(*testing.T, string){"busybox": busybox, "dash and coreutils": coreutils} {
		for _, c := range linkCases() {
			t.Run(tools+"/"+c.name, func(t *testing.T) {
				image := c.folder(t)
				install(t, image)
				err := copied(t, c, image)
				if err == nil {
					err = exports(t, c, filepath.Join(image, "image"))
				}
				_, target, _ := strings.Cut(c.refused, " is a link to ")
				target, _, _ = strings.Cut(target, ",")
				switch {
				case c.refused == "" && err != nil:
					t.Errorf("it is refused: %v", err)
				case c.refused != "" && (err == nil || !strings.Contains(err.Error(), " is a link to "+target) && c.name != "no dirName"):
					t.Errorf("it is not refused as a link to %s: %v", target, err)
				}
			})
		}
	}
}

// copied runs the carrier's init container, twice, as after a restart.
func copied(t *testing.T, c linkCase, image string) error {
	t.Helper()
	config := &v1beta1.ModuleConfig{KernelVersion: kernel, ContainerImage: "example.com/top"}
	config.Modprobe.DirName = "/opt"
	if c.wantsFirmware() {
		config.Modprobe.FirmwarePath = "/firmware"
	}
	carrier := delivery.Carrier(&delivery.Request{Module: &v1beta1.Module{}, Config: config, Mode: delivery.ModeInitContainer})
	container := carrier.Spec.InitContainers[0]
	for range 2 {
		cmd := exec.Command(container.Command[0], append(container.Command[1:], container.Args...)...)
		cmd.Env, cmd.Dir, cmd.SysProcAttr = []string{"PATH=/bin"}, "/", &syscall.SysProcAttr{Chroot: image}
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
	}
	return nil
}

func busybox(t *testing.T, image string) {
	t.Helper()
	for _, name := range []string{"sh", "mkdir", "cp"} {
		place(t, program(t, "busybox"), filepath.Join(image, "bin", name))
	}
	write(t, filepath.Join(image, "image", "mounted"), nil)
}

// coreutils are Debian's, with the libraries that they need.
func coreutils(t *testing.T, image string) {
	t.Helper()
	for name, from := range map[string]string{"sh": "dash", "mkdir": "mkdir", "cp": "cp"} {
		place(t, program(t, from), filepath.Join(image, "bin", name))
		out, err := exec.Command("ldd", program(t, from)).Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, field := range bytes.Fields(out) {
			if library := string(field); strings.HasPrefix(library, "/") {
				place(t, library, filepath.Join(image, library))
			}
		}
	}
	write(t, filepath.Join(image, "image", "mounted"), nil)
}

func program(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// place copies a file that can be executed.
func place(t *testing.T, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	write(t, to, content)
	if err := os.Chmod(to, 0o755); err != nil {
		t.Fatal(err)
	}
}
