// SPDX-License-Identifier: Apache-2.0

package doctor_test

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/drover-project/drover/config/agent"
	"github.com/drover-project/drover/internal/cli/cluster"
	"github.com/drover-project/drover/internal/cli/doctor"
	"github.com/drover-project/drover/internal/operator/devicetaint"
	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/testkit/clitest"
	"github.com/drover-project/drover/internal/testkit/env"
)

func TestMain(m *testing.M) { os.Exit(env.Main(m)) }

// states are those of each check, the worst of it.
func states(t *testing.T, config *rest.Config, want int) map[string]doctor.Finding {
	t.Helper()
	out, code := clitest.Run(t, config, "default", doctor.NewCommand, "-o", "json")
	if code != want {
		t.Errorf("it ends with %d, want %d", code, want)
	}
	var report doctor.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	found := map[string]doctor.Finding{}
	for _, f := range report.Checks {
		if known, there := found[f.Check]; !there || known.State == doctor.OK {
			found[f.Check] = f
		}
	}
	return found
}

func expect(t *testing.T, found map[string]doctor.Finding, check string, state doctor.State, words string) {
	t.Helper()
	if f := found[check]; f.State != state || !strings.Contains(f.Message, words) {
		t.Errorf("%s: %s %q, want %s %q", check, f.State, f.Message, state, words)
	}
}

// TestOnARealServer: before the installation, then with a namespace that refuses agents, then with
// one that takes them; and as a user who sees little.
func TestOnARealServer(t *testing.T) {
	e := env.Get(t)
	admin := e.Admin(t)
	before := states(t, e.AdminConfig(), 0)
	for _, check := range []string{"kubernetes", "admission", "definitions", "kmm", "webhooks", "install", "nodes"} {
		expect(t, before, check, doctor.OK, "")
	}
	expect(t, before, "clocks", doctor.Warn, "this machine's clock") // commands run in 2030

	set, operator := &appsv1.DaemonSet{}, &appsv1.Deployment{}
	for from, into := range map[string]client.Object{"": set, "../../../config/operator/deployment.yaml": operator} {
		content := agent.DaemonSet
		if from != "" {
			var err error
			if content, err = os.ReadFile(from); err != nil {
				t.Fatal(err)
			}
		}
		if err := yaml.UnmarshalStrict(content, into); err != nil {
			t.Fatal(err)
		}
		if err := admin.Create(t.Context(), into); err != nil {
			t.Fatal(err)
		}
	}
	label(t, admin, "baseline")
	service := &admissionv1.ServiceReference{Namespace: "none", Name: "none"}
	dead := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "dead"},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "dead.example.com", ClientConfig: admissionv1.WebhookClientConfig{Service: service}, AdmissionReviewVersions: []string{"v1"},
			SideEffects: ptr.To(admissionv1.SideEffectClassNone), FailurePolicy: ptr.To(admissionv1.Fail),
			Rules: []admissionv1.RuleWithOperations{{Operations: []admissionv1.OperationType{admissionv1.Create}, Rule: admissionv1.Rule{
				APIGroups: []string{"kmm.sigs.x-k8s.io"}, APIVersions: []string{"v1beta1"}, Resources: []string{"modules"},
			}}},
		}},
	}
	if err := admin.Create(t.Context(), dead); err != nil {
		t.Fatal(err)
	}
	refusing := states(t, e.AdminConfig(), 1)
	expect(t, refusing, "pod-security", doctor.Fail, `enforces "baseline"`)
	expect(t, refusing, "trial", doctor.Fail, "violates PodSecurity")
	expect(t, refusing, "webhooks", doctor.Fail, "service none/none has no ready endpoint")
	expect(t, refusing, "operator", doctor.Fail, "0 of 1")
	expect(t, refusing, "policies", doctor.OK, "")
	expect(t, refusing, "definitions", doctor.OK, "")
	expect(t, refusing, "versions", doctor.OK, "dev")

	if err := admin.Delete(t.Context(), dead); err != nil {
		t.Fatal(err)
	}
	label(t, admin, "privileged")
	taking := states(t, e.AdminConfig(), 1) // nobody runs the operator
	for _, check := range []string{"pod-security", "trial", "webhooks"} {
		expect(t, taking, check, doctor.OK, "")
	}
	blind := states(t, clitest.Viewer(t, e, cluster.ViewerRole, ""), 0)
	for _, check := range []string{"kmm", "webhooks", "pod-security", "install", "definitions"} {
		expect(t, blind, check, doctor.Unseen, "you lack")
	}
	expect(t, blind, "nodes", doctor.OK, "")

	out, code := clitest.Run(t, e.AdminConfig(), "default", doctor.NewCommand)
	if code != 1 || !strings.Contains(out, "1 check failed") || !strings.Contains(out, "Next step: ") {
		t.Errorf("it ends with %d and says:\n%s", code, out)
	}
}

func label(t *testing.T, admin client.Client, level string) {
	t.Helper()
	namespace := &corev1.Namespace{}
	if err := admin.Get(t.Context(), client.ObjectKey{Name: env.OperatorNamespace}, namespace); err != nil {
		t.Fatal(err)
	}
	namespace.Labels["pod-security.kubernetes.io/enforce"] = level
	if err := admin.Update(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
}

// TestTaintRulesAreSeen: those that the operator has made, and no others.
func TestTaintRulesAreSeen(t *testing.T) {
	e := env.Get(t)
	admin := e.Admin(t)
	kind, err := devicetaint.Kind(admin.RESTMapper())
	if err != nil {
		t.Fatal(err)
	}
	if kind == nil {
		t.Skip("this API server serves no DeviceTaintRules")
	}
	for name, owner := range map[string]client.FieldOwner{"drover-ours": kube.OwnerTaint, "theirs": "somebody"} {
		rule := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
			"deviceSelector": map[string]any{"driver": "nic.example.com"},
			"taint":          map[string]any{"key": devicetaint.Key, "effect": "NoSchedule"},
		}}}
		rule.SetGroupVersionKind(*kind)
		rule.SetName(name)
		if err := admin.Create(t.Context(), rule, owner); err != nil {
			t.Fatal(err)
		}
	}
	s, err := doctor.Gather(t.Context(), e.AdminConfig(), clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(s.TaintRules, []string{"drover-ours"}) {
		t.Errorf("it sees %v", s.TaintRules)
	}
}
