// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/build/pipeline/result"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
	"github.com/drover-project/drover/test/vm/registry"
)

// TestExamine: the operator's program looks at a registry's image, and tells the operator of it by
// the termination message of a Job's pod. It needs no cluster.
func TestExamine(t *testing.T) {
	const kernel, other = "6.1.0-1-amd64", "5.10.0-1-amd64"
	r, err := registry.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Down(); err != nil {
			t.Error(err)
		}
	})
	for tag, vermagic := range map[string]string{"fits": kernel, "other": other} {
		content := synth.Module{Name: "m", Vermagic: vermagic + " SMP mod_unload ", Machine: synth.MachineX86_64}.Bytes()
		image, err := registry.Image(registry.Spec{Files: map[string]registry.File{"/opt/lib/modules/" + kernel + "/m.ko": {Content: content}}})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := r.Push(t.Context(), "kmods/m:"+tag, image); err != nil {
			t.Fatal(err)
		}
	}
	for tag, reason := range map[string]string{"fits": "", "other": v1beta1.ReasonVermagicMismatch} {
		t.Run(tag, func(t *testing.T) {
			message := filepath.Join(t.TempDir(), "message")
			err := run(t.Context(), []string{"examine", "--image", fmt.Sprintf("127.0.0.1:%d/kmods/m:%s", r.Port(), tag), "--insecure",
				"--kernel", kernel, "--arch", "amd64", "--module", "m", "--termination-message", message})
			raw, readErr := os.ReadFile(message)
			if readErr != nil {
				t.Fatalf("%v; the command says %v", readErr, err)
			}
			var said result.Result
			if err := json.Unmarshal(raw, &said); err != nil {
				t.Fatal(err)
			}
			if said.Step != "examine" || said.Unfit != reason || (err != nil) != (reason != "") || (said.Digest != "") != (reason == "") {
				t.Errorf("result %+v, error %v", said, err)
			}
		})
	}
}

// TestTheOperatorCannotSign: its program contains no code that signs.
func TestTheOperatorCannotSign(t *testing.T) {
	said, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	const module = "github.com/drover-project/drover/"
	linked := map[string]bool{}
	for pkg := range strings.FieldsSeq(string(said)) {
		linked[pkg] = true
	}
	for pkg, want := range map[string]bool{
		"internal/build/examine": true, "internal/build/signer": false, "internal/shared/kmod/sign": false,
	} {
		if linked[module+pkg] != want {
			t.Errorf("%s is part of the program: %t", pkg, !want)
		}
	}
}
