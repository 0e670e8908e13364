// SPDX-License-Identifier: Apache-2.0

package migrate_test

import (
	"context"
	"os"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta2"
	"github.com/drover-project/drover/internal/cli/exit"
	"github.com/drover-project/drover/internal/cli/migrate"
	"github.com/drover-project/drover/internal/testkit/clitest"
	"github.com/drover-project/drover/internal/testkit/env"
)

func TestMain(m *testing.M) { os.Exit(env.Main(m)) }

const (
	preflights = "preflightvalidations.kmm.sigs.x-k8s.io"
	hooksName  = "kmm-operator-validating-webhook-configuration"
	// ca is no certificate that anybody needs; the API server wants the form.
	ca = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n"
)

// world is a cluster with KMM, as its Helm chart installs it, and nobody who runs its pods.
type world struct {
	*testing.T
	client.Client
	env       *env.Env
	namespace string
	operator  *appsv1.Deployment
}

func newWorld(t *testing.T) *world {
	t.Helper()
	e := env.Get(t)
	w := &world{T: t, Client: e.Admin(t), env: e, namespace: e.Namespace(t)}
	environment := []corev1.EnvVar{{Name: "RELATED_IMAGE_WORKER", Value: "w:1"}}
	w.operator = w.deployment("kmm-operator-controller", corev1.Container{Env: environment}, 2)
	w.deployment("kmm-operator-webhook", corev1.Container{Args: []string{"--config=x", "--enable-module"}}, 1)
	return w
}

func (w *world) make(object client.Object) {
	w.Helper()
	if err := w.Create(w.Context(), object); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		if err := client.IgnoreNotFound(w.Delete(context.Background(), object)); err != nil {
			w.Error(err)
		}
	})
}

func (w *world) deployment(name string, container corev1.Container, replicas int32) *appsv1.Deployment {
	w.Helper()
	labels := map[string]string{"app.kubernetes.io/name": "kmm", "control-plane": name}
	container.Name, container.Image = "c", "kmm:1"
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name, Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{container}},
			},
		},
	}
	w.make(d)
	return d
}

// leads has a pod of the operator hold the Lease.
func (w *world) leads() *corev1.Pod {
	w.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "kmm-operator-controller-7d", Labels: w.operator.Spec.Template.Labels},
		Spec:       corev1.PodSpec{Containers: w.operator.Spec.Template.Spec.Containers, TerminationGracePeriodSeconds: ptr.To[int64](0)},
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "default"}}
	w.make(account)
	w.make(pod)
	w.make(&coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "kmm.sigs.x-k8s.io"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To(pod.Name + "_0b5ec0de"), LeaseDurationSeconds: ptr.To[int32](15)},
	})
	return pod
}

// deadWebhook is a configuration whose server is not there.
func (w *world) deadWebhook() {
	w.Helper()
	w.make(&admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: hooksName, Labels: map[string]string{"app.kubernetes.io/name": "kmm"}},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "vmodule.kb.io", AdmissionReviewVersions: []string{"v1"}, SideEffects: ptr.To(admissionv1.SideEffectClassNone),
			ClientConfig: admissionv1.WebhookClientConfig{CABundle: []byte(ca), Service: &admissionv1.ServiceReference{
				Namespace: w.namespace, Name: "kmm-operator-webhook-service", Path: ptr.To("/validate-kmm-sigs-x-k8s-io-v1beta1-module"),
			}},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
				Rule: admissionv1.Rule{
					APIGroups: []string{"kmm.sigs.x-k8s.io"}, APIVersions: []string{"v1beta1"}, Resources: []string{"modules"},
				},
			}},
		}},
	})
}

// ours is Drover's definition of PreflightValidation, for an apply.
func (w *world) ours() *unstructured.Unstructured {
	w.Helper()
	content, err := os.ReadFile("../../../config/crd/bases/kmm.sigs.x-k8s.io_preflightvalidations.yaml")
	if err != nil {
		w.Fatal(err)
	}
	crd := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(content, &crd.Object); err != nil {
		w.Fatal(err)
	}
	return crd
}

// helmDefinition makes the definition KMM's: it lacks a field of ours, has a conversion webhook,
// and Helm owns it.
func (w *world) helmDefinition() {
	w.Helper()
	crd := w.ours()
	w.Cleanup(func() {
		ours := w.ours()
		if err := unstructured.SetNestedMap(ours.Object, map[string]any{"strategy": "None"}, "spec", "conversion"); err != nil {
			w.Fatal(err)
		}
		live := &unstructured.Unstructured{}
		live.SetGroupVersionKind(ours.GroupVersionKind())
		if err := w.Get(context.Background(), client.ObjectKeyFromObject(ours), live); err != nil {
			w.Fatal(err)
		}
		ours.SetResourceVersion(live.GetResourceVersion())
		if err := w.Update(context.Background(), ours); err != nil {
			w.Fatal(err)
		}
	})
	versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	if err != nil {
		w.Fatal(err)
	}
	for _, each := range versions {
		version, ok := each.(map[string]any)
		if !ok {
			w.Fatalf("a version is %v", each)
		}
		unstructured.RemoveNestedField(version, "schema", "openAPIV3Schema", "properties", "status", "properties", "conditions")
		delete(version, "additionalPrinterColumns")
	}
	if err := unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions"); err != nil {
		w.Fatal(err)
	}
	crd.SetAnnotations(map[string]string{"meta.helm.sh/release-name": "kmm", "meta.helm.sh/release-namespace": w.namespace})
	err = unstructured.SetNestedMap(crd.Object, map[string]any{
		"strategy": "Webhook", "webhook": map[string]any{
			"conversionReviewVersions": []any{"v1beta2", "v1beta1"},
			"clientConfig": map[string]any{"service": map[string]any{
				"namespace": w.namespace, "name": "kmm-operator-webhook-service", "path": "/convert",
			}},
		},
	}, "spec", "conversion")
	if err != nil {
		w.Fatal(err)
	}
	if err := w.Patch(w.Context(), crd, client.Apply, client.FieldOwner("helm"), client.ForceOwnership); err != nil { //nolint:staticcheck // of no type
		w.Fatal(err)
	}
}

// install applies Drover's definition as `make install` does.
func (w *world) install() error {
	return w.Patch(w.Context(), w.ours(), client.Apply, client.FieldOwner("kubectl")) //nolint:staticcheck // of no type
}

func (w *world) run(args ...string) (string, int) {
	w.Helper()
	return clitest.Run(w, w.env.AdminConfig(), "default", migrate.NewCommand, append([]string{"kmm", "--timeout=2s"}, args...)...)
}

// says runs the command and wants an exit code and each of some words.
func (w *world) says(code int, args []string, words ...string) {
	w.Helper()
	out, got := w.run(args...)
	if got != code {
		w.Errorf("%v: exit code %d:\n%s", args, got, out)
	}
	for _, word := range words {
		if !strings.Contains(out, word) {
			w.Errorf("%v does not say %q:\n%s", args, word, out)
		}
	}
}

func (w *world) replicas(name string) (int32, string) {
	w.Helper()
	d := &appsv1.Deployment{}
	if err := w.Get(w.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, d); err != nil {
		w.Fatal(err)
	}
	return *d.Spec.Replicas, d.Annotations["drover.dev/migrate-replicas"]
}

func TestThereAndBack(t *testing.T) {
	w := newWorld(t)
	w.helmDefinition()
	w.deadWebhook()
	pod := w.leads()
	w.make(&v1beta2.PreflightValidation{
		ObjectMeta: metav1.ObjectMeta{Name: "next"}, Spec: v1beta2.PreflightValidationSpec{KernelVersion: "6.1.0-44-amd64"},
	})

	w.says(exit.NotReady, nil, "In Drover's way", "kmm-operator-controller: wants 2 pods, of which there are 1",
		"every write of a Module fails", "KMM's webhook converts", "its fields belong to helm", "cannot be read: v1beta1",
		"Next step: drover migrate kmm --apply")
	module := &v1beta1.Module{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "m"}, Spec: v1beta1.ModuleSpec{Selector: map[string]string{}},
	}
	if err := w.Create(w.Context(), module.DeepCopy()); err == nil || !strings.Contains(err.Error(), "vmodule.kb.io") {
		t.Errorf("given a webhook that nobody serves, a Module is created: %v", err)
	}
	if err := w.install(); !apierrors.IsConflict(err) {
		t.Errorf("given Helm's definition, an apply of ours: %v", err)
	}

	// The operator's pod stays: nothing is taken away behind its back.
	w.says(exit.NotReady, []string{"--apply"}, "stopped    Deployment "+w.namespace+"/kmm-operator-controller, which had 2 replicas",
		"Refused: pods of Deployment "+w.namespace+"/kmm-operator-controller do not end")
	if n, noted := w.replicas("kmm-operator-controller"); n != 0 || noted != "2" {
		t.Errorf("the operator has %d replicas, and a note of %q", n, noted)
	}
	if err := w.Get(t.Context(), client.ObjectKey{Name: hooksName}, &admissionv1.ValidatingWebhookConfiguration{}); err != nil {
		t.Errorf("the webhooks of an operator that runs: %v", err)
	}
	if err := w.Delete(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	w.says(0, []string{"--apply"}, "removed    ValidatingWebhookConfiguration "+hooksName, "freed      definition "+preflights,
		"stopped    Deployment "+w.namespace+"/kmm-operator-webhook, which had 1 replica", "Nothing is in Drover's way.")
	w.says(0, []string{"--apply"}, "Nothing is in Drover's way.")
	w.says(0, []string{"--check", "-o", "json"}, `"clear": true`)
	w.make(module)
	if err := w.install(); err != nil {
		t.Errorf("an apply of our definition after --apply: %v", err)
	}
	w.says(0, nil, "Nothing is in Drover's way.")
	if err := w.Get(t.Context(), client.ObjectKey{Name: "next"}, &v1beta1.PreflightValidation{}); err != nil {
		t.Errorf("a PreflightValidation in its older version: %v", err)
	}
	w.back()
}

// back gives back to KMM, once Drover has gone.
func (w *world) back() {
	w.Helper()
	w.make(&coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: env.OperatorNamespace, Name: "drover-operator"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("drover"), LeaseDurationSeconds: ptr.To[int32](15), RenewTime: &metav1.MicroTime{Time: clitest.Noon},
		},
	})
	w.says(exit.NotReady, []string{"--back"}, "Refused: Drover's operator is at work", "Next step: make undeploy")
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: env.OperatorNamespace, Name: "drover-operator"}}
	if err := w.Delete(w.Context(), lease); err != nil {
		w.Fatal(err)
	}
	w.says(0, []string{"--back"}, "started    Deployment "+w.namespace+"/kmm-operator-webhook with 1 replica",
		"restored   the conversion of definition "+preflights, "restored   ValidatingWebhookConfiguration "+hooksName,
		"started    Deployment "+w.namespace+"/kmm-operator-controller with 2 replicas", "KMM is back")
	if n, noted := w.replicas("kmm-operator-controller"); n != 2 || noted != "" {
		w.Errorf("back, the operator has %d replicas, and a note of %q", n, noted)
	}
	hooks := &admissionv1.ValidatingWebhookConfiguration{}
	if err := w.Get(w.Context(), client.ObjectKey{Name: hooksName}, hooks); err != nil || len(hooks.Webhooks) != 1 ||
		string(hooks.Webhooks[0].ClientConfig.CABundle) != ca || hooks.Labels["app.kubernetes.io/name"] != "kmm" {
		w.Errorf("back, the webhooks are %+v: %v", hooks, err)
	}
	if err := w.Delete(w.Context(), hooks); err != nil {
		w.Fatal(err)
	}
	w.says(0, []string{"--back"}, "Nothing to do")
}

func TestWhatIsRefused(t *testing.T) {
	w := newWorld(t)
	w.says(exit.Failed, []string{"--apply", "--back"}, "if any flags in the group")
	w.says(exit.Failed, []string{"--apply", "-o", "json"}, "-o is for --check alone")
	w.says(0, []string{"--back"}, "Nothing to do")
	// A pod that no Deployment of KMM runs holds the Lease.
	pod := w.leads()
	for _, name := range []string{"kmm-operator-controller", "kmm-operator-webhook"} {
		if err := w.Delete(t.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	w.says(exit.NotReady, []string{"--apply"}, "Refused: lease", "kubectl delete pod "+pod.Name+" -n "+w.namespace)
}

// TestWorkers: what has begun on a node ends first, and what has ended is collected.
func TestWorkers(t *testing.T) {
	w := newWorld(t)
	w.make(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "default"}})
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.namespace, Name: "kmm-worker-node-m", Labels: map[string]string{v1beta1.ModuleNameLabel: "m"},
			Finalizers: []string{"kmm.node.kubernetes.io/nodemodulesconfig-reconciler"},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "worker", Image: "w:1"}}, TerminationGracePeriodSeconds: ptr.To[int64](0)},
	}
	w.make(pod)
	w.says(exit.NotReady, []string{"--apply"}, "Refused: KMM still loads or unloads, in 1 pod: "+w.namespace+"/"+pod.Name)
	if n, _ := w.replicas("kmm-operator-controller"); n != 2 {
		t.Errorf("while a pod loads, the operator has %d replicas", n)
	}
	pod.Status.Phase = corev1.PodSucceeded
	if err := w.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	w.says(0, []string{"--apply"}, "removed    pod "+w.namespace+"/"+pod.Name, "Nothing is in Drover's way.")
	if err := w.Get(t.Context(), client.ObjectKeyFromObject(pod), &corev1.Pod{}); !apierrors.IsNotFound(err) {
		t.Errorf("the pod that has ended: %v", err)
	}
	w.says(0, []string{"--back"}, "KMM is back")
}
