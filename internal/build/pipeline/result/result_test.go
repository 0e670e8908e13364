// SPDX-License-Identifier: Apache-2.0

package result

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMessagesAlwaysFit(t *testing.T) {
	many := make([]string, 5000)
	for i := range many {
		many[i] = fmt.Sprintf("/opt/lib/modules/6.1.0/extra/%d.ko", i)
	}
	long := strings.Repeat("änderung\n", 10_000)
	for name, given := range map[string]Result{
		"many files":    {Step: "sign", Files: many, Signed: len(many), Digest: "sha256:d"},
		"many patterns": {Step: "sign", Unmatched: many, Files: many},
		"a long error":  {Step: "push", Error: long, Reason: ReasonFailed},
		"a long name":   {Step: "sign", Signer: &Signer{Fingerprint: "f", Subject: long}},
		"quotes":        {Step: "push", Error: strings.Repeat("\x00\"\\", 2000)},
	} {
		file := filepath.Join(t.TempDir(), "message")
		if err := given.Write(file); err != nil {
			t.Fatal(err)
		}
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if len(raw) > MaxMessage {
			t.Errorf("%s: %d bytes", name, len(raw))
		}
		got, err := Parse(string(raw))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got.Step != given.Step || got.Signed != given.Signed || got.Digest != given.Digest || got.Reason != given.Reason ||
			(got.Error == "") != (given.Error == "") {
			t.Errorf("%s: %+v", name, got)
		}
		if strings.Contains(got.Error, "\n") {
			t.Errorf("%s: more than one line", name)
		}
	}
}
