// SPDX-License-Identifier: Apache-2.0

package pipeline_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/drover-project/drover/internal/shared/kernel"
)

// makefile is the usual one of a kernel module: it names the folder of the kernel's headers.
const makefile = "KDIR = /lib/modules/$(KERNEL_FULL_VERSION)/build\nall:\n\t@echo $(KDIR) >said\n"

// TestNoKernelVersionRunsCommands: make expands what its environment holds, and a shell reads the
// result. A kubelet writes its node's kernel version as it likes.
func TestNoKernelVersionRunsCommands(t *testing.T) {
	for version, runs := range map[string]bool{
		"6.1.0-44-amd64":                         true,
		"6.1.0+":                                 true,
		"6.1.0-44$(shell touch pwned)-amd64":     false,
		"6.1.0-44`touch pwned`-amd64":            false,
		"6.1.0-44;touch pwned;-amd64":            false,
		"6.1.0-44\ntouch pwned\n-amd64":          false,
		"6.1.0-44$(eval $(shell touch pwned))-a": false,
	} {
		t.Run(version, func(t *testing.T) {
			m := module(compiling)
			mapper, err := kernel.NewMapper(m.Spec.ModuleLoader, m.Namespace, m.Name)
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err = mapper.For(version, "amd64"); (err == nil) != runs {
				t.Errorf("the mapping says: %v", err)
			}
			if err != nil {
				return
			}
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "Makefile"), []byte(makefile), 0o600); err != nil {
				t.Fatal(err)
			}
			command := exec.CommandContext(t.Context(), "make")
			command.Dir, command.Env = dir, os.Environ()
			for _, variable := range buildStep(t, version, compiling).Env {
				if variable.Name == "KERNEL_FULL_VERSION" {
					command.Env = append(command.Env, variable.Name+"="+variable.Value)
				}
			}
			if out, err := command.CombinedOutput(); err != nil {
				t.Errorf("make: %v\n%s", err, out)
			}
			if said, err := os.ReadFile(filepath.Join(dir, "said")); err != nil || string(said) != "/lib/modules/"+version+"/build\n" {
				t.Errorf("make compiles against %q (%v)", said, err)
			}
			if _, err := os.Stat(filepath.Join(dir, "pwned")); err == nil {
				t.Error("the kernel version ran a command")
			}
		})
	}
}
