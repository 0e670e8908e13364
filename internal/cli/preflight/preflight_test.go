// SPDX-License-Identifier: Apache-2.0

package preflight_test

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta2"
	"github.com/drover-project/drover/internal/cli/exit"
	"github.com/drover-project/drover/internal/cli/preflight"
	"github.com/drover-project/drover/internal/testkit/clitest"
	"github.com/drover-project/drover/internal/testkit/env"
)

func TestMain(m *testing.M) { os.Exit(env.Main(m)) }

// module is what the operator says of one.
func module(name string, status v1beta2.VerificationStatus, reason string) v1beta2.PreflightValidationModuleStatus {
	return v1beta2.PreflightValidationModuleStatus{
		CRStatus: v1beta2.CRStatus{VerificationStatus: status, VerificationStage: v1beta2.StageDone, StatusReason: "of " + name,
			LastTransitionTime: metav1.Now()},
		Namespace: "team", Name: name, Reason: reason,
	}
}

// answer plays the operator: it waits for a PreflightValidation of the kernel, and says first that
// it looks, then the rest.
func answer(t *testing.T, admin client.Client, kernel string, modules ...v1beta2.PreflightValidationModuleStatus) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	say := func(ctx context.Context, p *v1beta2.PreflightValidation, ready bool, reason string,
		modules ...v1beta2.PreflightValidationModuleStatus) error {
		c := metav1.Condition{
			Type: "Ready", Status: metav1.ConditionFalse, Reason: reason, Message: "in short: " + reason, ObservedGeneration: p.Generation,
			LastTransitionTime: metav1.Now(),
		}
		if ready {
			c.Status = metav1.ConditionTrue
		}
		p.Status.Conditions, p.Status.Modules = []metav1.Condition{c}, modules
		return admin.Status().Update(ctx, p)
	}
	go func() {
		done <- wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			var all v1beta2.PreflightValidationList
			if err := admin.List(ctx, &all); err != nil {
				return false, err
			}
			for i := range all.Items {
				p := &all.Items[i]
				if p.Spec.KernelVersion != kernel {
					continue
				}
				if err := say(ctx, p, false, v1beta1.ReasonPreflightRunning,
					module("slow", v1beta2.VerificationInProgress, v1beta1.ReasonBuilding)); err != nil {
					return false, err
				}
				if len(modules) == 0 {
					return true, nil
				}
				for _, m := range modules {
					if m.VerificationStatus == v1beta2.VerificationFailure {
						return true, say(ctx, p, false, v1beta1.ReasonPreflightFailed, modules...)
					}
				}
				return true, say(ctx, p, true, v1beta1.ReasonKernelReady, modules...)
			}
			return false, nil
		})
	}()
	return func() {
		cancel()
		if err := <-done; err != nil && !strings.Contains(err.Error(), "context") {
			t.Errorf("the operator's part: %v", err)
		}
	}
}

func TestPreflightCommand(t *testing.T) {
	e := env.Get(t)
	admin := e.Admin(t)
	user := clitest.Viewer(t, e, "drover-preflight-editor", "")
	good, bad := module("good", v1beta2.VerificationSuccess, ""), module("bad", v1beta2.VerificationFailure, v1beta1.ReasonVermagicMismatch)
	cases := map[string]struct {
		kernel  string
		args    []string
		modules []v1beta2.PreflightValidationModuleStatus
		code    int
		says    []string
		left    bool
	}{
		"all are ready": {kernel: "6.1.0-1-a", modules: []v1beta2.PreflightValidationModuleStatus{good},
			says: []string{"in short: KernelReady", "ready", "team/good"}},
		"one is not": {kernel: "6.1.0-2-a", modules: []v1beta2.PreflightValidationModuleStatus{bad, good}, code: exit.NotReady,
			says: []string{"PreflightFailed", "FAILED", "team/bad", "VermagicMismatch: of bad", "Next step: ", "team/good"}},
		"for programs": {kernel: "6.1.0-3-a", args: []string{"-o", "json"}, modules: []v1beta2.PreflightValidationModuleStatus{bad},
			code: exit.NotReady},
		"no end in time": {kernel: "6.1.0-4-a", args: []string{"--timeout", "2s"}, code: exit.NotReady,
			says: []string{"PreflightRunning", "team/slow"}},
		"kept under a name": {kernel: "6.1.0-5-a", args: []string{"--name", "kept", "--push", "-l", "a=b"},
			modules: []v1beta2.PreflightValidationModuleStatus{good}, left: true},
		"a kernel that is none": {kernel: "nonsense", code: exit.Failed, says: []string{"spec.kernelVersion"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			stop := answer(t, admin, tc.kernel, tc.modules...)
			out, code := clitest.Run(t, user, "default", preflight.NewCommand, append([]string{tc.kernel}, tc.args...)...)
			stop()
			if code != tc.code {
				t.Errorf("exit code %d, want %d; it says:\n%s", code, tc.code, out)
			}
			for _, text := range tc.says {
				if !strings.Contains(out, text) {
					t.Errorf("it does not say %q:\n%s", text, out)
				}
			}
			var all v1beta2.PreflightValidationList
			if err := admin.List(t.Context(), &all); err != nil {
				t.Fatal(err)
			}
			left := 0
			for _, p := range all.Items {
				if p.Spec.KernelVersion == tc.kernel {
					left++
				}
			}
			if (left > 0) != tc.left {
				t.Errorf("%d PreflightValidations are left", left)
			}
			if name == "for programs" {
				var r preflight.Report
				if err := json.Unmarshal([]byte(out[strings.Index(out, "{"):strings.LastIndex(out, "}")+1]), &r); err != nil {
					t.Fatalf("%v in:\n%s", err, out)
				}
				if r.Ready || r.Reason != v1beta1.ReasonPreflightFailed || len(r.Modules) != 1 ||
					r.Modules[0].Reason != v1beta1.ReasonVermagicMismatch || r.Modules[0].Next == "" {
					t.Errorf("the report is %+v", r)
				}
			}
		})
	}
	// One of that name is waited for, if it is about that kernel.
	kept := &v1beta2.PreflightValidation{}
	if err := admin.Get(t.Context(), client.ObjectKey{Name: "kept"}, kept); err != nil || !kept.Spec.PushBuiltImage ||
		kept.Spec.Labels["a"] != "b" {
		t.Fatalf("%+v, %v", kept.Spec, err)
	}
	if out, code := clitest.Run(t, user, "default", preflight.NewCommand, "6.1.0-5-a", "--name", "kept"); code != 0 {
		t.Errorf("exit code %d: %s", code, out)
	}
	if out, code := clitest.Run(t, user, "default", preflight.NewCommand, "6.1.0-6-a", "--name", "kept"); code != exit.Failed ||
		!strings.Contains(out, "6.1.0-5-a") {
		t.Errorf("exit code %d: %s", code, out)
	}
}
