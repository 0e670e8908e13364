// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/testkit/audit"
)

// undoes are verbs that end what others began; they take the same arguments.
var undoes = map[string]string{"fault": "mend", "hold": "unhold", "unready": "ready", "vanish": "return"}

// does calls a verb of a hollow node. What a test has begun and not ended when it fails is ended
// for the next one.
func (s *scenario) does(node, verb string, args ...string) {
	s.Helper()
	if end := undoes[verb]; end != "" {
		s.whenFailed(func(ctx context.Context) error { return shared.Debug(ctx, debugPath(node, end, args...)) })
	}
	s.must(shared.Debug(s.Context(), debugPath(node, verb, args...)))
}

// debugPath calls a verb with arguments: names and values by turns.
func debugPath(node, verb string, args ...string) string {
	q := url.Values{"node": {node}}
	for i := 0; i < len(args); i += 2 {
		q.Set(args[i], args[i+1])
	}
	return "/" + verb + "?" + q.Encode()
}

// on makes the Module select nodes that have a label of its own, which these get.
func (s *scenario) on(nodes ...string) func(*v1beta1.Module) {
	s.Helper()
	s.Cleanup(func() {
		for _, node := range nodes {
			s.label(node, "null")
		}
	})
	for _, node := range nodes {
		s.label(node, `"yes"`)
	}
	return func(m *v1beta1.Module) { m.Spec.Selector = map[string]string{s.selector(): "yes"} }
}

func (s *scenario) selector() string { return "e2e.drover.dev/" + s.key.Namespace }

// label sets the scenario's own label of a node to a JSON value.
func (s *scenario) label(node, value string) {
	s.Helper()
	s.patchNode(node, fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, s.selector(), value))
}

func (s *scenario) patchNode(node, patch string) {
	s.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	s.must(shared.Admin.Patch(context.WithoutCancel(s.Context()), n, client.RawPatch(types.MergePatchType, []byte(patch))))
}

// ready labels of a node, as frames of a film.
func (s *scenario) readyLabel(o client.Object) string {
	if _, ok := o.GetLabels()[v1beta1.ReadyLabel(s.key.Namespace, s.key.Name)]; ok {
		return "ready"
	}
	return "not ready"
}

// liveOn is what a node's status says of the Module; nil when it is not live there.
func (s *scenario) liveOn(ctx context.Context, node string) (*v1beta1.NodeModuleStatus, error) {
	c, err := config(ctx, node)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(c.Status.Modules, func(e v1beta1.NodeModuleStatus) bool {
		return e.Namespace == s.key.Namespace && e.Name == s.key.Name
	})
	if i < 0 {
		return nil, fmt.Errorf("NodeModulesConfig %s does not say that %s is live", node, s.key)
	}
	return &c.Status.Modules[i], nil
}

func TestLifecycleNodeVanishesAndReturns(t *testing.T) {
	s := given(t, "vanish")
	s.does("hollow-5", "vanish")
	others := everyNode[:5]
	s.create()
	s.eventually("all other nodes are ready", func(ctx context.Context) error {
		return errors.Join(s.labelled(ctx, others), kernels(ctx, s.kernelModule, each(others, once)))
	})
	s.eventually("the Module names the node", func(ctx context.Context) error {
		return s.notYet(ctx, v1beta1.ReasonLoading, "Live on 5 of 6 nodes", "hollow-5")
	})

	s.does("hollow-5", "return")

	s.converged(each(everyNode, once))
}

// notYet objects unless the Module says that it is not loaded, for the reason, or because a node
// does not answer: the cluster calls a node that after a while.
func (s *scenario) notYet(ctx context.Context, reason string, words ...string) error {
	err := s.says(ctx, v1beta1.ConditionLoaded, metav1.ConditionFalse, reason, words...)
	if err != nil && s.says(ctx, v1beta1.ConditionLoaded, metav1.ConditionFalse, v1beta1.ReasonNodeNotReady, words...) == nil {
		return nil
	}
	return err
}

// TestLifecycleNodeIsGoneForGood: a Module waits for a node that does not answer and is not known
// to be dead, until an administrator says that it is gone.
func TestLifecycleNodeIsGoneForGood(t *testing.T) {
	s := given(t, "gone")
	s.create(s.on("hollow-3", "hollow-4"))
	s.converged(each([]string{"hollow-3", "hollow-4"}, once))

	s.does("hollow-4", "vanish")
	s.must(shared.Admin.Delete(s.Context(), s.module()))
	s.eventually("the other node is done", func(ctx context.Context) error {
		return kernels(ctx, s.kernelModule, map[string]tally{"hollow-3": {Loads: 1, Unloads: 1}, "hollow-4": once})
	})
	s.eventually("the Module waits for the node by name", func(ctx context.Context) error {
		return s.notYet(ctx, v1beta1.ReasonUnloading, "1 node", "hollow-4")
	})

	s.must(shared.Admin.Delete(s.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "hollow-4"}}))

	s.eventually("the Module is gone", func(ctx context.Context) error { return gone(ctx, s.key) })
	s.does("hollow-4", "return") // a new boot, a new Node object
	s.eventually("the node is back without the module", func(ctx context.Context) error {
		return errors.Join(
			shared.Admin.Get(ctx, client.ObjectKey{Name: "hollow-4"}, &corev1.Node{}),
			kernels(ctx, s.kernelModule, map[string]tally{"hollow-3": {Loads: 1, Unloads: 1}, "hollow-4": {Loads: 1}}))
	})
}

// TestReboot: ready means live in this boot.
func TestReboot(t *testing.T) {
	s := given(t, "reboot")
	const node = "hollow-2"
	s.create(s.on(node))
	s.converged(each([]string{node}, once))
	before, err := s.liveOn(s.Context(), node)
	s.must(err)

	// The first load after the boot fails, so that the time without the module cannot be missed.
	film := s.film(&corev1.NodeList{}, node)
	requests := s.requests()
	s.does(node, "fault", "fault", "load-enodev")
	s.does(node, "reboot")
	film.until(s.readyLabel, "ready", "not ready")
	s.eventually("the Module says why it is not ready", func(ctx context.Context) error {
		return s.says(ctx, v1beta1.ConditionLoaded, metav1.ConditionFalse, v1beta1.ReasonNoSuchDevice, node)
	})
	s.does(node, "mend")
	film.until(s.readyLabel, "ready")

	s.converged(map[string]tally{node: {Live: true, Loads: 2}})
	after, err := s.liveOn(s.Context(), node)
	s.must(err)
	if before.BootID == after.BootID {
		t.Errorf("the status is of boot %s before and after", after.BootID)
	}
	calls, err := journal(s.Context(), s.kernelModule)
	s.must(err)
	if first, second := calls[node][0], calls[node][1]; second.BootID != after.BootID || first.BuildID != second.BuildID {
		t.Errorf("loaded %+v, then %+v; the status is of boot %s", first, second, after.BootID)
	}
	if made := creates(requests(), s.key.Namespace, "pods"); made != 0 {
		t.Errorf("%d carriers for content that the node had", made)
	}
}

func TestLifecycleRebootIntoAnotherKernel(t *testing.T) {
	s := given(t, "kernel")
	const node = "hollow-1"
	const image = "registry.example.com/e2e-kernel/mod:1-"
	s.create(s.on(node))
	s.converged(each([]string{node}, once))
	s.Cleanup(func() {
		s.must(shared.Debug(context.WithoutCancel(s.Context()), "/reboot?node="+node+"&kernel="+url.QueryEscape(kernelOdd)))
	})
	loadedFrom := func(want string) func(context.Context) error {
		return func(ctx context.Context) error {
			live, err := s.liveOn(ctx, node)
			if err == nil && live.Config.ContainerImage != want {
				err = fmt.Errorf("live from %s, not %s", live.Config.ContainerImage, want)
			}
			return err
		}
	}
	s.eventually("the image is that of the kernel", loadedFrom(image+"6.12.57_deb12-amd64"))
	film := s.film(&corev1.NodeList{}, node)

	s.does(node, "reboot", "kernel", kernelEven)

	film.until(s.readyLabel, "ready", "not ready", "ready")
	s.converged(map[string]tally{node: {Live: true, Loads: 2}})
	s.eventually("the image is that of the other kernel", loadedFrom(image+kernelEven))
	calls, err := journal(s.Context(), s.kernelModule)
	s.must(err)
	if first, second := calls[node][0], calls[node][1]; first.BuildID == second.BuildID {
		t.Errorf("the same build %s for two kernels", first.BuildID)
	}
}

// TestLifecycleConfigsDeletedByHand: a missing object is no order.
func TestLifecycleConfigsDeletedByHand(t *testing.T) {
	s := given(t, "configs")
	s.create()
	s.converged(each(everyNode, once))
	before := map[string]*v1beta1.NodeModulesConfig{}
	for _, node := range everyNode {
		c, err := config(s.Context(), node)
		s.must(err)
		before[node] = c
	}

	s.must(shared.Admin.DeleteAllOf(s.Context(), &v1beta1.NodeModulesConfig{}))

	s.eventually("all configs are back, whole", func(ctx context.Context) error {
		for _, node := range everyNode {
			after, err := config(ctx, node)
			if err != nil {
				return err
			}
			if after.UID == before[node].UID {
				return fmt.Errorf("NodeModulesConfig %s is still the old one", node)
			}
			if diff := cmp.Diff(whole(before[node]), whole(after)); diff != "" {
				return fmt.Errorf("NodeModulesConfig %s (-before +after):\n%s", node, diff)
			}
		}
		return nil
	})
	s.converged(each(everyNode, once))
}

// whole is what a NodeModulesConfig shall have again: orders and live modules, but for how and when
// they got there.
func whole(c *v1beta1.NodeModulesConfig) any {
	c = c.DeepCopy()
	for i := range c.Spec.Modules {
		if d := c.Spec.Modules[i].Delivery; d != nil {
			d.CarrierUID = ""
		}
	}
	owners := []types.UID{}
	for _, o := range c.OwnerReferences {
		owners = append(owners, o.UID)
	}
	live := []any{}
	for i := range c.Status.Modules {
		m := &c.Status.Modules[i]
		live = append(live, []any{m.ModuleItem, m.Config, m.BootID})
	}
	return []any{owners, c.Spec.Modules, live}
}

// TestLifecycleDeselected: the entry leaves by an order, step by step.
func TestLifecycleDeselected(t *testing.T) {
	s := given(t, "deselect")
	const node = "hollow-0"
	s.create(s.on(node, "hollow-1"), func(m *v1beta1.Module) {
		m.Spec.Rollout = &v1beta1.RolloutSpec{DeselectGracePeriod: &metav1.Duration{Duration: 2 * time.Second}}
	})
	s.converged(each([]string{node, "hollow-1"}, once))
	film := s.film(&v1beta1.NodeModulesConfigList{}, node)

	s.label(node, "null")

	film.until(s.order, "wanted, live", "Absent Deselected, live", "Absent Deselected, not live", "no order, not live", "deleted")
	s.converged(map[string]tally{node: {Loads: 1, Unloads: 1}, "hollow-1": once})
}

// TestLifecycleLabelsFlapEverywhere: whoever puts the labels there restarts. No order changes, and
// the ready labels stay.
func TestLifecycleLabelsFlapEverywhere(t *testing.T) {
	s := given(t, "flap")
	s.create(s.on(everyNode...))
	s.converged(each(everyNode, once))
	s.quiet()
	requests := s.requests()

	for _, node := range everyNode {
		s.label(node, "null")
	}

	s.eventually("the Module says that they are too many", func(ctx context.Context) error {
		return s.says(ctx, v1beta1.ConditionLoaded, metav1.ConditionFalse, v1beta1.ReasonMassDeselection)
	})
	s.quiet()
	s.must(s.labelled(s.Context(), everyNode))
	for _, node := range everyNode {
		s.label(node, `"yes"`)
	}
	s.converged(each(everyNode, once))
	for _, r := range audit.OurWrites(requests()) {
		if resource := r.ObjectRef.Resource; resource == "nodes" || resource == "nodemodulesconfigs" || resource == "pods" {
			t.Errorf("%s of %s", r.Verb, r.Resource())
		}
	}
}

// order is how an order and its answer stand, as frames of a film.
func (s *scenario) order(o client.Object) string {
	c, ok := o.(*v1beta1.NodeModulesConfig)
	if !ok {
		return fmt.Sprintf("a %T", o)
	}
	order, live := "no order", "not live"
	for i := range c.Spec.Modules {
		if e := &c.Spec.Modules[i]; e.Namespace == s.key.Namespace && e.State == v1beta1.NodeModuleAbsent {
			order = string(e.State) + " " + e.Reason
		} else if e.Namespace == s.key.Namespace {
			order = "wanted"
		}
	}
	for i := range c.Status.Modules {
		if c.Status.Modules[i].Namespace == s.key.Namespace {
			live = "live"
		}
	}
	return order + ", " + live
}

// TestLifecycleTaintsAndCordonsDoNothing: they are about pods.
func TestLifecycleTaintsAndCordonsDoNothing(t *testing.T) {
	s := given(t, "taint")
	nodes := []string{"hollow-2", "hollow-3"}
	s.create(s.on(nodes...))
	s.converged(each(nodes, once))
	s.quiet()
	s.Cleanup(func() {
		for _, node := range nodes {
			s.patchNode(node, `{"spec":{"taints":null,"unschedulable":null}}`)
		}
	})

	s.stillQuiet("a cordon and a taint", func() {
		s.patchNode(nodes[0], `{"spec":{"unschedulable":true}}`)
		s.patchNode(nodes[1], `{"spec":{"taints":[{"key":"e2e.drover.dev/gone","effect":"NoExecute"}]}}`)
	})

	s.converged(each(nodes, once))
}
