// SPDX-License-Identifier: Apache-2.0

//go:build migrate

package migrate

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta2"
	"github.com/drover-project/drover/internal/testkit/fleet"
)

// watcher sees every ready label that a node loses.
type watcher struct {
	mu   sync.Mutex
	gone []string
}

func watchReadyLabels(t *testing.T, f *fleet.Fleet) *watcher {
	t.Helper()
	w, seen := &watcher{}, map[string]map[string]string{}
	c, err := client.NewWithWatch(f.AdminConfig, client.Options{Scheme: f.Admin.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	t.Cleanup(func() { cancel(); <-ended })
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			events, err := c.Watch(ctx, &corev1.NodeList{})
			if err != nil {
				continue
			}
			for event := range events.ResultChan() {
				if node, ok := event.Object.(*corev1.Node); ok {
					w.see(seen[node.Name], node)
					seen[node.Name] = node.Labels
				}
			}
		}
	}()
	return w
}

func (w *watcher) see(before map[string]string, node *corev1.Node) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for label := range before {
		_, there := node.Labels[label]
		if !there && strings.HasPrefix(label, Prefix) && strings.HasSuffix(label, "ready") {
			w.gone = append(w.gone, node.Name+" "+label)
		}
	}
}

func (w *watcher) lost() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.gone)
}

// leftovers of KMM that somebody would trip over.
func (w *world) leftovers(ctx context.Context) ([]string, error) {
	var left []string
	var hooks admissionv1.ValidatingWebhookConfigurationList
	if err := w.List(ctx, &hooks); err != nil {
		return nil, err
	}
	for i := range hooks.Items {
		left = append(left, "webhook "+hooks.Items[i].Name)
	}
	var list corev1.NodeList
	if err := w.List(ctx, &list); err != nil {
		return nil, err
	}
	for i := range list.Items {
		for label := range list.Items[i].Labels {
			if strings.HasSuffix(label, ".device-plugin-target") {
				left = append(left, list.Items[i].Name+" "+label)
			}
		}
	}
	var sets appsv1.DaemonSetList
	if err := w.List(ctx, &sets, client.InNamespace(drivers)); err != nil {
		return nil, err
	}
	of := map[string]int{}
	for i := range sets.Items {
		of[sets.Items[i].Labels[v1beta1.ModuleNameLabel]]++
	}
	for module, n := range of {
		if n > 1 {
			left = append(left, fmt.Sprintf("%d DaemonSets of %s", n, module))
		}
	}
	text, err := w.conversions(ctx)
	if text != "" {
		left = append(left, text)
	}
	slices.Sort(left)
	return left, err
}

// conversions says which definition a webhook converts.
func (w *world) conversions(ctx context.Context) (string, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinitionList"})
	if err := w.List(ctx, list); err != nil {
		return "", err
	}
	for i := range list.Items {
		strategy, _, err := unstructured.NestedString(list.Items[i].Object, "spec", "conversion", "strategy")
		if err != nil || strategy == "Webhook" {
			return "a webhook converts " + list.Items[i].GetName(), err
		}
	}
	return "", nil
}

// readable reports whether both PreflightValidations can be read in both versions.
func (w *world) readable() bool {
	w.Helper()
	for _, name := range []string{"older", "newer"} {
		for _, object := range []client.Object{&v1beta1.PreflightValidation{}, &v1beta2.PreflightValidation{}} {
			if err := w.Get(w.Context(), client.ObjectKey{Name: name}, object); err != nil {
				w.Errorf("PreflightValidation %s as %T: %v", name, object, err)
				return false
			}
		}
	}
	return true
}

// pluginEnds deletes a plugin pod with KMM's finalizer: it must go, and another come.
func (w *world) pluginEnds() bool {
	w.Helper()
	var pods corev1.PodList
	w.must(w.List(w.Context(), &pods, client.InNamespace(drivers), client.HasLabels{v1beta1.RoleLabel}))
	at := slices.IndexFunc(pods.Items, func(p corev1.Pod) bool { return slices.Contains(p.Finalizers, Prefix+"node-labeler") })
	if at < 0 {
		w.Error("no plugin pod has KMM's finalizer: none is KMM's any more")
		return false
	}
	pod := &pods.Items[at]
	w.must(w.Delete(w.Context(), pod))
	return w.within(soon, "a plugin pod with KMM's finalizer ends", func(ctx context.Context) (string, error) {
		now := &corev1.Pod{}
		err := w.Get(ctx, client.ObjectKeyFromObject(pod), now)
		if apierrors.IsNotFound(err) {
			return "", nil
		}
		return fmt.Sprintf("it has the finalizers %v", now.Finalizers), err
	})
}

// laterChange gives the Module with the deprecated field another image: every node must get it.
func (w *world) laterChange() bool {
	w.Helper()
	m := &v1beta1.Module{}
	w.must(w.Get(w.Context(), client.ObjectKey{Namespace: drivers, Name: "disk"}, m))
	before := m.DeepCopy()
	m.Spec.ModuleLoader.Container.KernelMappings[0].ContainerImage = "registry.example.com/disk:2-${KERNEL_FULL_VERSION}"
	w.must(w.Patch(w.Context(), m, client.MergeFrom(before)))
	w.modules[1] = m
	return w.within(soon, "a later change of a Module with the deprecated field is on every node", func(ctx context.Context) (string, error) {
		if err := w.Get(ctx, client.ObjectKeyFromObject(m), m); err != nil {
			return "", err
		}
		c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionReady)
		if c == nil || c.Status != metav1.ConditionTrue || c.ObservedGeneration != m.Generation {
			return said(c), nil
		}
		truth, err := w.Truth(ctx)
		loads := 0
		for _, n := range truth {
			loads += n.Loads
		}
		if loads != nodes {
			return fmt.Sprintf("%d loads on %d nodes", loads, nodes), err
		}
		return "", err
	})
}

// deadWebhook deletes a Module while nobody serves a webhook: a Module must name it, and go
// once that has gone. A PreflightValidation must not speak of the Module any more.
func (w *world) deadWebhook() bool {
	w.Helper()
	const name = "kmm-once-more"
	extra := w.module("extra", func(*v1beta1.ModuleSpec) {})
	w.within(soon, "another Module is loaded", func(ctx context.Context) (string, error) {
		err := w.Get(ctx, client.ObjectKeyFromObject(extra), extra)
		c := meta.FindStatusCondition(extra.Status.Conditions, v1beta1.ConditionReady)
		if c == nil || c.Status != metav1.ConditionTrue {
			return said(c), err
		}
		return "", err
	})
	w.hooks(name)
	w.must(w.Delete(w.Context(), extra))
	named := w.within(soon, "a Module names the dead webhook", func(ctx context.Context) (string, error) {
		if err := w.Get(ctx, client.ObjectKeyFromObject(extra), extra); err != nil {
			return "", err
		}
		text := fmt.Sprint(extra.Status.Problems)
		for i := range extra.Status.Conditions {
			text += " " + said(&extra.Status.Conditions[i])
		}
		if !strings.Contains(text, "vmodule.kb.io") && !strings.Contains(text, name) {
			return text, nil
		}
		return "", nil
	})
	w.must(w.Delete(w.Context(), &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	gone := w.within(soon, "the Module goes once the webhook has gone", func(ctx context.Context) (string, error) {
		err := w.Get(ctx, client.ObjectKeyFromObject(extra), extra)
		if apierrors.IsNotFound(err) {
			return "", nil
		}
		return "it is there", err
	})
	thawed := w.within(soon, "a PreflightValidation of KMM follows", func(ctx context.Context) (string, error) {
		p := &v1beta2.PreflightValidation{}
		if err := w.Get(ctx, client.ObjectKey{Name: "newer"}, p); err != nil {
			return "", err
		}
		for i := range p.Status.Modules {
			if p.Status.Modules[i].Name == extra.Name {
				return "it still speaks of a Module that has gone", nil
			}
		}
		return "", nil
	})
	return named && gone && thawed
}

// exitAfter is how long an operator waited for a definition before it gave up.
const exitAfter = 2 * time.Minute

// definitionGoes starts the operator without the definition of PreflightValidations, and brings it
// back. The operator must live on, and look after Modules.
func (w *world) definitionGoes() bool {
	w.Helper()
	if _, err := w.Kubectl(w.Context(), "delete", "crd", preflights); err != nil {
		w.Error(err)
		return false
	}
	w.must(w.StopOperator())
	w.must(w.StartOperator(w.Context()))
	operator := w.Operator
	// Time is what this is about: it must outlive what one once waited.
	err := wait.PollUntilContextTimeout(w.Context(), time.Second, exitAfter+10*time.Second, true, func(context.Context) (bool, error) {
		return !operator.Running(), nil
	})
	if err == nil || !operator.Running() {
		w.Error("without the definition, the operator has ended")
		w.Operator = nil
		w.must(w.StartOperator(w.Context()))
		return false
	}
	if _, err := w.Kubectl(w.Context(), "apply", "--server-side", "-k", "config/crd"); err != nil {
		w.Error(err)
		return false
	}
	again := &v1beta2.PreflightValidation{ObjectMeta: metav1.ObjectMeta{Name: "again"}}
	again.Spec.KernelVersion = kernels[0]
	return w.within(soon, "the return of the definition is seen", func(ctx context.Context) (string, error) {
		if err := w.Create(ctx, again.DeepCopy()); err != nil && !apierrors.IsAlreadyExists(err) {
			return "", err
		}
		p := &v1beta2.PreflightValidation{}
		err := w.Get(ctx, client.ObjectKeyFromObject(again), p)
		if err == nil && len(p.Status.Conditions) == 0 {
			return "nobody has answered", nil
		}
		return "", err
	}) && operator.Running()
}

// undeploy removes Drover as `make undeploy` does. What would delete Modules stays.
func (w *world) undeploy() {
	w.Helper()
	cmd := exec.CommandContext(w.Context(), "make", "undeploy", "KUBECTL="+w.Binary("kubectl"))
	cmd.Dir, cmd.Env = root, append(os.Environ(), "KUBECONFIG="+w.Cluster.Kubeconfig)
	out, err := cmd.CombinedOutput()
	w.Logf("make undeploy\n%s", out)
	w.must(err)
}
