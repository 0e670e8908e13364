// SPDX-License-Identifier: Apache-2.0

package reasons_test

import (
	"os"
	"regexp"
	"testing"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/reasons"
)

// TestEveryReasonIsKnown: what the page says of each reason of the set is found.
func TestEveryReasonIsKnown(t *testing.T) {
	code, err := os.ReadFile("../../api/kmm/v1beta1/conditions.go")
	if err != nil {
		t.Fatal(err)
	}
	declared := regexp.MustCompile(`(?m)^\tReason\w+ = "(\w+)"`).FindAllStringSubmatch(string(code), -1)
	if len(declared) < 20 {
		t.Fatalf("found %d reasons only", len(declared))
	}
	for _, m := range declared {
		if r := reasons.Of(m[1]); r.Name != m[1] || r.Meaning == "" {
			t.Errorf("%s: %+v", m[1], r)
		}
	}
	if next := reasons.Of(v1beta1.ReasonImageNotFound).Next; next != "push the image, or correct containerImage" {
		t.Errorf("next step: %q", next)
	}
	if r := reasons.Of(v1beta1.ReasonReady); r.Next != "" {
		t.Errorf("when all is well there is a next step: %q", r.Next)
	}
	for name, want := range map[string]bool{
		v1beta1.ReasonNoKernelMapping: true, v1beta1.ReasonQuarantined: true, v1beta1.ReasonUnsupportedNode: true,
		v1beta1.ReasonLoading: false, v1beta1.ReasonImageNotFound: false, v1beta1.ReasonNodeNotReady: false, "Invented": false,
	} {
		if reasons.Final(name) != want {
			t.Errorf("%s: final %t", name, !want)
		}
		if want && reasons.Patience(name) {
			t.Errorf("%s is final and asks for patience", name)
		}
	}
	if r := reasons.Of("Invented"); r != (reasons.Reason{}) {
		t.Errorf("a reason that does not exist: %+v", r)
	}
}
