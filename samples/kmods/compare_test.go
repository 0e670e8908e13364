// SPDX-License-Identifier: Apache-2.0

//go:build compare

package kmods_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// compile makes a program of a test in C and the module that it includes, with the sanitizers, and
// with every kernel header empty: what the module needs of the kernel is in kernel_stub.h.
func compile(t *testing.T, test string, modules ...string) string {
	t.Helper()
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, module := range modules {
		source, err := os.ReadFile(module)
		if err != nil {
			t.Fatal(err)
		}
		for _, header := range regexp.MustCompile(`#include <(linux/\S+)>`).FindAllStringSubmatch(string(source), -1) {
			path := filepath.Join(dir, header[1])
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	program := filepath.Join(dir, "program")
	command := exec.CommandContext(t.Context(), gcc, "-g", "-Wall", "-Werror", "-Wno-unused-function", "-fno-sanitize-recover=all",
		"-fsanitize=address,undefined", "-I", dir, "-include", "testdata/kernel_stub.h", "-o", program, test)
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("compile %s: %v\n%s", test, err, output)
	}
	return program
}

func TestPtemplateModuleKeepsItsBoundsAndGivesEverythingBack(t *testing.T) {
	program := compile(t, "testdata/ptemplate_test.c", "ptemplate-char-dev/ptemplate_char_dev.c")
	output, err := exec.CommandContext(t.Context(), program).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, output)
	}
	if !strings.Contains(string(output), "module: loaded, max_dev=5 buffersize=16") {
		t.Errorf("the module was never loaded:\n%s", output)
	}
}
