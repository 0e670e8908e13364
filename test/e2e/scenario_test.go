// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host/fake"
)

const (
	// patience bounds every wait. It is long because the machine may be busy; nothing waits longer
	// than it must.
	patience = 90 * time.Second
	pace     = 100 * time.Millisecond
)

// scenario is one test's own corner of the fleet: a namespace, a Module in it and a kernel module
// of its own.
type scenario struct {
	*testing.T
	key types.NamespacedName
	// kernelModule is what the kernels call it.
	kernelModule string
}

// given makes the corner. It is empty again at the end: that is checked.
func given(t *testing.T, name string) *scenario {
	t.Helper()
	s := &scenario{T: t, key: types.NamespacedName{Namespace: "e2e-" + name, Name: "mod"}, kernelModule: "e2e_" +
		strings.ReplaceAll(name, "-", "_")}
	s.must(shared.CreateNamespace(s.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.key.Namespace}}))
	s.leave(s.key, s.kernelModule)
	return s
}

// second is another Module in the same namespace.
func (s *scenario) second(name, kernelModule string) *scenario {
	other := &scenario{T: s.T, key: types.NamespacedName{Namespace: s.key.Namespace, Name: name}, kernelModule: kernelModule}
	s.leave(other.key, kernelModule)
	return other
}

// leave deletes the Module at the end of the test and checks that nothing of it stays anywhere. A
// test that failed leaves nothing either, or the next one would fail for it.
func (s *scenario) leave(key types.NamespacedName, kernelModule string) {
	s.Cleanup(func() {
		if s.Failed() {
			s.tell()
		}
		ctx := context.WithoutCancel(s.Context())
		m := &v1beta1.Module{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
		s.must(client.IgnoreNotFound(shared.Admin.Delete(ctx, m)))
		s.eventuallyIn(ctx, "nothing stays of the Module", func(ctx context.Context) error {
			return errors.Join(gone(ctx, key), outOfKernels(ctx, kernelModule))
		})
	})
}

// whenFailed puts something of the fleet in order for the tests that follow. It may have been in
// order already.
func (s *scenario) whenFailed(mend func(context.Context) error) {
	s.Cleanup(func() {
		if !s.Failed() {
			return
		}
		if err := mend(context.WithoutCancel(s.Context())); err != nil {
			s.Logf("put in order: %v", err)
		}
	})
}

// images are those that exist from now on, as a regular expression; empty: all. At the end of the
// test all exist again.
func (s *scenario) images(pattern string) {
	s.Helper()
	s.Cleanup(func() { s.must(shared.Debug(context.WithoutCancel(s.Context()), "/images?pattern=")) })
	s.must(shared.Debug(s.Context(), "/images?pattern="+url.QueryEscape(pattern)))
}

func (s *scenario) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// eventually waits until the condition has nothing to object any more.
func (s *scenario) eventually(what string, objection func(context.Context) error) {
	s.Helper()
	s.eventuallyIn(s.Context(), what, objection)
}

func (s *scenario) eventuallyIn(ctx context.Context, what string, objection func(context.Context) error) {
	s.Helper()
	var last error
	err := wait.PollUntilContextTimeout(ctx, pace, patience, true, func(ctx context.Context) (bool, error) {
		if err := objection(ctx); err != nil {
			if last == nil || ctx.Err() == nil {
				last = err
			}
			return false, nil
		}
		return true, nil
	})
	if err != nil {
		s.Fatalf("it was to be that %s; after %s: %v", what, patience, last)
	}
}

// module builds the scenario's Module: on every hollow node, an image per kernel.
func (s *scenario) module(changes ...func(*v1beta1.Module)) *v1beta1.Module {
	m := &v1beta1.Module{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.key.Namespace, Name: s.key.Name},
		Spec: v1beta1.ModuleSpec{
			Selector: map[string]string{"drover.dev/hollow": "true"},
			ModuleLoader: &v1beta1.ModuleLoaderSpec{Container: v1beta1.ModuleLoaderContainerSpec{
				Modprobe: v1beta1.ModprobeSpec{ModuleName: s.kernelModule},
				KernelMappings: []v1beta1.KernelMapping{{
					Regexp: ".+", ContainerImage: "registry.example.com/" + s.key.Namespace + "/" + s.key.Name + ":1-${KERNEL_FULL_VERSION}",
				}},
			}},
		},
	}
	for _, change := range changes {
		change(m)
	}
	return m
}

func (s *scenario) create(changes ...func(*v1beta1.Module)) {
	s.Helper()
	s.must(shared.Admin.Create(s.Context(), s.module(changes...)))
}

// change updates the Module.
func (s *scenario) change(change func(*v1beta1.Module)) {
	s.Helper()
	s.eventually("the Module is changed", func(ctx context.Context) error {
		m := &v1beta1.Module{}
		if err := shared.Admin.Get(ctx, s.key, m); err != nil {
			return err
		}
		change(m)
		return shared.Admin.Update(ctx, m)
	})
}

// tally is what one kernel says of one kernel module: whether it is live, and how many calls were
// granted.
type tally struct {
	Live           bool
	Loads, Unloads int
}

// once is how it shall be on every node after whatever went wrong: nothing is loaded twice or
// unloaded on the way.
var once = tally{Live: true, Loads: 1}

func journal(ctx context.Context, kernelModule string) (map[string][]fake.Call, error) {
	all, err := shared.Journal(ctx)
	if err != nil {
		return nil, err
	}
	for node, calls := range all {
		all[node] = slices.DeleteFunc(calls, func(c fake.Call) bool { return c.Module != kernelModule || c.Result != "" })
	}
	return all, nil
}

// kernels objects unless each kernel says this of the kernel module, and all others never heard of
// it.
func kernels(ctx context.Context, kernelModule string, want map[string]tally) error {
	truth, err := shared.Truth(ctx)
	if err != nil {
		return err
	}
	calls, err := journal(ctx, kernelModule)
	if err != nil {
		return err
	}
	got := map[string]tally{}
	for i := range truth {
		n := tally{Live: truth[i].Has(kernelModule)}
		for _, c := range calls[truth[i].Name] {
			switch c.Call {
			case "finit_module":
				n.Loads++
			case "delete_module":
				n.Unloads++
			}
		}
		if n != (tally{}) {
			got[truth[i].Name] = n
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		return fmt.Errorf("what kernels say of %s (-want +got):\n%s", kernelModule, diff)
	}
	return nil
}

// each node with the same tally.
func each(nodes []string, n tally) map[string]tally {
	all := map[string]tally{}
	for _, node := range nodes {
		all[node] = n
	}
	return all
}

func outOfKernels(ctx context.Context, kernelModule string) error {
	truth, err := shared.Truth(ctx)
	if err != nil {
		return err
	}
	for i := range truth {
		if truth[i].Has(kernelModule) {
			return fmt.Errorf("%s is in the kernel of %s", kernelModule, truth[i].Name)
		}
	}
	return nil
}

// converged waits until the Module is Ready, its label stands where it is to be live and nowhere
// else, no carrier is left, and the kernels were asked exactly so often.
func (s *scenario) converged(want map[string]tally) {
	s.Helper()
	var live []string
	for node, n := range want {
		if n.Live {
			live = append(live, node)
		}
	}
	s.eventually("everything has converged", func(ctx context.Context) error {
		return errors.Join(s.ready(ctx), s.labelled(ctx, live), noCarriers(ctx, s.key.Namespace), kernels(ctx, s.kernelModule, want))
	})
	s.journalIs(want)
}

// journalIs checks what the kernels were asked, now.
func (s *scenario) journalIs(want map[string]tally) {
	s.Helper()
	s.must(kernels(s.Context(), s.kernelModule, want))
}

// ready objects unless the Module says that it is, of its present generation.
func (s *scenario) ready(ctx context.Context) error {
	return s.says(ctx, v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonReady)
}

// says objects unless a condition of the present generation has the status, the reason and all
// words in its message.
func (s *scenario) says(ctx context.Context, kind string, status metav1.ConditionStatus, reason string, words ...string) error {
	m := &v1beta1.Module{}
	if err := shared.Admin.Get(ctx, s.key, m); err != nil {
		return err
	}
	return tells(m, kind, status, reason, words...)
}

// tells is says of a Module that was read.
func tells(m *v1beta1.Module, kind string, status metav1.ConditionStatus, reason string, words ...string) error {
	key := client.ObjectKeyFromObject(m)
	c := meta.FindStatusCondition(m.Status.Conditions, kind)
	switch {
	case c == nil:
		return fmt.Errorf("Module %s has no condition %s", key, kind)
	case c.ObservedGeneration != m.Generation:
		return fmt.Errorf("Module %s: condition %s is of generation %d, not %d", key, kind, c.ObservedGeneration, m.Generation)
	case c.Status != status || c.Reason != reason:
		return fmt.Errorf("Module %s: %s is %s, %s: %s", key, kind, c.Status, c.Reason, c.Message)
	}
	for _, word := range words {
		if !strings.Contains(c.Message, word) {
			return fmt.Errorf("Module %s: %s does not name %q: %s", key, kind, word, c.Message)
		}
	}
	return nil
}

// labelled objects unless the ready label stands on these nodes and no others.
func (s *scenario) labelled(ctx context.Context, want []string) error {
	var nodes corev1.NodeList
	if err := shared.Admin.List(ctx, &nodes, client.HasLabels{v1beta1.ReadyLabel(s.key.Namespace, s.key.Name)}); err != nil {
		return err
	}
	var got []string
	for i := range nodes.Items {
		got = append(got, nodes.Items[i].Name)
	}
	if diff := cmp.Diff(slices.Sorted(slices.Values(want)), slices.Sorted(slices.Values(got))); diff != "" {
		return fmt.Errorf("nodes with the ready label of %s (-want +got):\n%s", s.key, diff)
	}
	return nil
}

// config is a node's NodeModulesConfig.
func config(ctx context.Context, node string) (*v1beta1.NodeModulesConfig, error) {
	c := &v1beta1.NodeModulesConfig{}
	return c, shared.Admin.Get(ctx, client.ObjectKey{Name: node}, c)
}

func carriers(ctx context.Context, namespace string) ([]corev1.Pod, error) {
	var pods corev1.PodList
	err := shared.Admin.List(ctx, &pods, client.InNamespace(namespace), client.HasLabels{v1beta1.CarrierLabel})
	return pods.Items, err
}

func noCarriers(ctx context.Context, namespace string) error {
	pods, err := carriers(ctx, namespace)
	if err == nil && len(pods) > 0 {
		err = fmt.Errorf("%d carriers in %s, one is %s", len(pods), namespace, pods[0].Name)
	}
	return err
}

// gone objects as long as anything in the API speaks of the Module.
func gone(ctx context.Context, key types.NamespacedName) error {
	if err := shared.Admin.Get(ctx, key, &v1beta1.Module{}); !apierrors.IsNotFound(err) {
		return fmt.Errorf("Module %s is still there (%w)", key, err)
	}
	var configs v1beta1.NodeModulesConfigList
	if err := shared.Admin.List(ctx, &configs); err != nil {
		return err
	}
	for i := range configs.Items {
		c := &configs.Items[i]
		mine := func(item v1beta1.ModuleItem) bool { return item.Namespace == key.Namespace && item.Name == key.Name }
		if slices.ContainsFunc(c.Spec.Modules, func(e v1beta1.NodeModuleSpec) bool { return mine(e.ModuleItem) }) ||
			slices.ContainsFunc(c.Status.Modules, func(e v1beta1.NodeModuleStatus) bool { return mine(e.ModuleItem) }) {
			return fmt.Errorf("NodeModulesConfig %s still speaks of %s", c.Name, key)
		}
	}
	var nodes corev1.NodeList
	if err := shared.Admin.List(ctx, &nodes); err != nil {
		return err
	}
	for i := range nodes.Items {
		for label := range nodes.Items[i].Labels {
			if strings.Contains(label, "/"+key.Namespace+"."+key.Name+".") {
				return fmt.Errorf("node %s still has the label %s", nodes.Items[i].Name, label)
			}
		}
	}
	return noCarriers(ctx, key.Namespace)
}

// tell prints what the API says of the Module, for who reads about a failure.
func (s *scenario) tell() {
	ctx := context.WithoutCancel(s.Context())
	for _, args := range [][]string{
		{"get", "module,pods,daemonsets", "-n", s.key.Namespace, "-o", "wide"},
		{"get", "module", "-n", s.key.Namespace, s.key.Name, "-o", "jsonpath={.status}"},
		{"get", "nmc", "-o", "yaml"},
		{"get", "nodes"},
	} {
		out, err := shared.Kubectl(ctx, args...)
		s.Logf("kubectl %s (%v)\n%s", strings.Join(args, " "), err, out)
	}
}
