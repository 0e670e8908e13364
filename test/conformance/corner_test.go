// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"errors"
	"fmt"
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
)

const (
	// patience bounds every wait. It is long because the machine may be busy; nothing waits longer
	// than it must.
	patience = 2 * time.Minute
	pace     = 100 * time.Millisecond
)

// corner is one test's own part of the fleet: a namespace, nodes, a Module and a kernel module.
type corner struct {
	*testing.T
	key types.NamespacedName
	// nodes are this test's alone.
	nodes []string
	// kernelModule is what the kernels call it.
	kernelModule string
}

// given makes a corner with one node for each of the kernels. What is still there at the end is
// left to the fleet's end.
func given(t *testing.T, kernels ...string) *corner {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "c-"}}
	if err := shared.CreateNamespace(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	c := &corner{T: t, key: types.NamespacedName{Namespace: namespace.Name, Name: "mod"}, kernelModule: "k_" +
		strings.ReplaceAll(namespace.Name, "-", "_")}
	for _, kernel := range kernels {
		node := take(t, kernel)
		c.nodes = append(c.nodes, node)
		c.patchNode(node, fmt.Sprintf(`{"metadata":{"labels":{%q:"yes"}}}`, c.selector()))
	}
	t.Cleanup(func() {
		if t.Failed() {
			c.tell()
		}
	})
	return c
}

func take(t *testing.T, kernel string) string {
	t.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	free := shared.free[kernel]
	if len(free) == 0 {
		t.Fatalf("no node with kernel %s is left; the fleet needs more", kernel)
	}
	shared.free[kernel] = free[1:]
	return free[0]
}

func (c *corner) selector() string { return "conformance.drover.dev/" + c.key.Namespace }

func (c *corner) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// eventually waits until the condition has nothing to object any more.
func (c *corner) eventually(what string, objection func(context.Context) error) {
	c.Helper()
	var last error
	err := wait.PollUntilContextTimeout(c.Context(), pace, patience, true, func(ctx context.Context) (bool, error) {
		if err := objection(ctx); err != nil {
			if last == nil || ctx.Err() == nil {
				last = err
			}
			return false, nil
		}
		return true, nil
	})
	if err != nil {
		c.Fatalf("it was to be that %s; after %s: %v", what, patience, last)
	}
}

// module builds the corner's Module.
func (c *corner) module(changes ...func(*v1beta1.Module)) *v1beta1.Module {
	m := &v1beta1.Module{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.key.Namespace, Name: c.key.Name},
		Spec: v1beta1.ModuleSpec{
			Selector: map[string]string{c.selector(): "yes"},
			ModuleLoader: &v1beta1.ModuleLoaderSpec{Container: v1beta1.ModuleLoaderContainerSpec{
				Modprobe:       v1beta1.ModprobeSpec{ModuleName: c.kernelModule},
				KernelMappings: []v1beta1.KernelMapping{{Regexp: ".+", ContainerImage: c.image("1-${KERNEL_FULL_VERSION}")}},
			}},
		},
	}
	for _, change := range changes {
		change(m)
	}
	return m
}

// image is one of the corner's images.
func (c *corner) image(tag string) string { return registry + "/" + c.key.Namespace + "/mod:" + tag }

func (c *corner) create(changes ...func(*v1beta1.Module)) {
	c.Helper()
	c.must(shared.Admin.Create(c.Context(), c.module(changes...)))
}

// change updates the Module.
func (c *corner) change(change func(*v1beta1.Module)) {
	c.Helper()
	c.eventually("the Module is changed", func(ctx context.Context) error {
		m, err := c.read(ctx)
		if err != nil {
			return err
		}
		change(m)
		return shared.Admin.Update(ctx, m)
	})
}

func (c *corner) read(ctx context.Context) (*v1beta1.Module, error) {
	m := &v1beta1.Module{}
	return m, shared.Admin.Get(ctx, c.key, m)
}

func (c *corner) patchNode(node, patch string) {
	c.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	c.must(shared.Admin.Patch(c.Context(), n, client.RawPatch(types.MergePatchType, []byte(patch))))
}

func (c *corner) node(ctx context.Context, name string) (*corev1.Node, error) {
	n := &corev1.Node{}
	return n, shared.Admin.Get(ctx, client.ObjectKey{Name: name}, n)
}

// tally is what one kernel says of one kernel module: whether it is live, and how many calls were
// granted.
type tally struct {
	Live           bool
	Loads, Unloads int
}

var once = tally{Live: true, Loads: 1}

// kernels objects unless the kernels of all the corner's nodes say this of the kernel module.
func (c *corner) kernels(ctx context.Context, want tally) error {
	all := map[string]tally{}
	for _, node := range c.nodes {
		all[node] = want
	}
	return c.kernelsSay(ctx, c.kernelModule, all)
}

func (c *corner) kernelsSay(ctx context.Context, kernelModule string, want map[string]tally) error {
	truth, err := shared.Truth(ctx)
	if err != nil {
		return err
	}
	calls, err := shared.Journal(ctx)
	if err != nil {
		return err
	}
	got := map[string]tally{}
	for i := range truth {
		if _, asked := want[truth[i].Name]; !asked {
			continue
		}
		n := tally{Live: truth[i].Has(kernelModule)}
		for _, call := range calls[truth[i].Name] {
			switch {
			case call.Module != kernelModule || call.Result != "":
			case call.Call == "finit_module":
				n.Loads++
			case call.Call == "delete_module":
				n.Unloads++
			}
		}
		got[truth[i].Name] = n
	}
	if diff := cmp.Diff(want, got); diff != "" {
		return fmt.Errorf("what kernels say of %s (-want +got):\n%s", kernelModule, diff)
	}
	return nil
}

// loaded waits until the Module is Ready and every kernel was asked exactly once.
func (c *corner) loaded() {
	c.Helper()
	c.eventually("the Module is ready", c.ready)
	c.must(c.kernels(c.Context(), once))
}

// ready objects unless the Module says that it is, of its present generation.
func (c *corner) ready(ctx context.Context) error {
	return c.says(ctx, v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonReady)
}

// says objects unless a condition of the present generation has the status and the reason.
func (c *corner) says(ctx context.Context, kind string, status metav1.ConditionStatus, reason string) error {
	m, err := c.read(ctx)
	if err != nil {
		return err
	}
	got := meta.FindStatusCondition(m.Status.Conditions, kind)
	switch {
	case got == nil:
		return fmt.Errorf("Module %s has no condition %s", c.key, kind)
	case got.ObservedGeneration != m.Generation:
		return fmt.Errorf("Module %s: condition %s is of generation %d, not %d", c.key, kind, got.ObservedGeneration, m.Generation)
	case got.Status != status || got.Reason != reason:
		return fmt.Errorf("Module %s: %s is %s, %s: %s", c.key, kind, got.Status, got.Reason, got.Message)
	}
	return nil
}

func (c *corner) config(ctx context.Context, node string) (*v1beta1.NodeModulesConfig, error) {
	config := &v1beta1.NodeModulesConfig{}
	return config, shared.Admin.Get(ctx, client.ObjectKey{Name: node}, config)
}

// order is the Module's entry in the spec of a node's NodeModulesConfig.
func (c *corner) order(ctx context.Context, node string) (*v1beta1.NodeModuleSpec, error) {
	config, err := c.config(ctx, node)
	if err != nil {
		return nil, err
	}
	for i := range config.Spec.Modules {
		if m := &config.Spec.Modules[i]; m.Namespace == c.key.Namespace && m.Name == c.key.Name {
			return m, nil
		}
	}
	return nil, fmt.Errorf("NodeModulesConfig %s has no order for %s", node, c.key)
}

// live is the Module's entry in the status of a node's NodeModulesConfig.
func (c *corner) live(ctx context.Context, node string) (*v1beta1.NodeModuleStatus, error) {
	config, err := c.config(ctx, node)
	if err != nil {
		return nil, err
	}
	for i := range config.Status.Modules {
		if m := &config.Status.Modules[i]; m.Namespace == c.key.Namespace && m.Name == c.key.Name {
			return m, nil
		}
	}
	return nil, fmt.Errorf("NodeModulesConfig %s shows no live %s", node, c.key)
}

func (c *corner) carriers(ctx context.Context) ([]corev1.Pod, error) {
	var pods corev1.PodList
	err := shared.Admin.List(ctx, &pods, client.InNamespace(c.key.Namespace), client.HasLabels{v1beta1.CarrierLabel})
	return pods.Items, err
}

// gone objects as long as the Module is there, its kernel module is in a kernel, or a
// NodeModulesConfig or label speaks of it.
func (c *corner) gone(ctx context.Context) error {
	if _, err := c.read(ctx); !apierrors.IsNotFound(err) {
		return fmt.Errorf("Module %s is still there (%w)", c.key, err)
	}
	truth, err := shared.Truth(ctx)
	if err != nil {
		return err
	}
	for i := range truth {
		if truth[i].Has(c.kernelModule) {
			err = errors.Join(err, fmt.Errorf("%s is in the kernel of %s", c.kernelModule, truth[i].Name))
		}
	}
	for _, node := range c.nodes {
		if config, readErr := c.config(ctx, node); !apierrors.IsNotFound(readErr) {
			err = errors.Join(err, fmt.Errorf("NodeModulesConfig %s is still there: %+v (%w)", node, config.Spec, readErr))
		}
		n, readErr := c.node(ctx, node)
		if readErr != nil {
			return readErr
		}
		for label := range n.Labels {
			if strings.Contains(label, "/"+c.key.Namespace+"."+c.key.Name+".") {
				err = errors.Join(err, fmt.Errorf("node %s has the label %s", node, label))
			}
		}
	}
	return err
}

// tell prints what the API says of the corner, for who reads about a failure.
func (c *corner) tell() {
	ctx := context.WithoutCancel(c.Context())
	commands := [][]string{{"get", "module,pods,daemonsets", "-n", c.key.Namespace, "-o", "yaml"}}
	if len(c.nodes) > 0 {
		commands = append(commands, append([]string{"get", "nmc", "-o", "yaml"}, c.nodes...))
	}
	for _, args := range commands {
		out, err := shared.Kubectl(ctx, args...)
		c.Logf("kubectl %s (%v)\n%s", strings.Join(args, " "), err, out)
	}
}
