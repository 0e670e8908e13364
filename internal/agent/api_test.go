// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/execute"
	"github.com/drover-project/drover/internal/agent/host/fake"
	"github.com/drover-project/drover/internal/agent/place"
	"github.com/drover-project/drover/internal/agent/statefile"
	"github.com/drover-project/drover/internal/agent/store"
	"github.com/drover-project/drover/internal/testkit/env"
)

func TestMain(m *testing.M) { os.Exit(env.Main(m)) }

// cluster is a rig whose agent talks to a real API server under its own role, with its token bound
// to its node.
type cluster struct {
	*rig
	env   *env.Env
	admin client.WithWatch
	mark  env.Mark
	place place.Findings
	stop  func()
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	e := env.Get(t)
	c := &cluster{rig: newRig(t, fake.Options{}), env: e, admin: e.Admin(t)}
	c.node = strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-"))
	if err := c.admin.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: c.node}}); err != nil {
		t.Fatal(err)
	}
	c.api = e.AgentConfig(t, c.node)
	c.host = fake.New(fake.Options{Release: release})
	c.mark = e.Mark(t)
	return c
}

// start runs an agent on real time until stop or the test's end.
func (c *cluster) start() {
	c.t.Helper()
	_, ctx := ktesting.NewTestContext(c.t)
	st, err := store.New(ctx, filepath.Join(c.dir, "store"), store.Options{PodsDir: filepath.Join(c.dir, "pods"), Sync: statefile.NoSync})
	if err != nil {
		c.t.Fatal(err)
	}
	a, err := New(Options{
		NodeName: c.node, StateDir: filepath.Join(c.dir, "state"), Config: c.api,
		Parts: execute.Parts{Host: c.host, Store: st, Clock: clock.RealClock{}}, Place: c.place,
		Resync: 500 * time.Millisecond, DeliveryPoll: 20 * time.Millisecond,
	})
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	stopped := false
	c.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			c.t.Errorf("the agent ended with %v", err)
		}
	}
	c.t.Cleanup(c.stop)
}

// order makes these the node's orders, as the operator would.
func (c *cluster) order(orders ...v1beta1.NodeModuleSpec) {
	c.t.Helper()
	n := &v1beta1.NodeModulesConfig{ObjectMeta: metav1.ObjectMeta{Name: c.node}}
	err := c.admin.Get(c.t.Context(), client.ObjectKeyFromObject(n), n)
	n.Spec.Modules = orders
	switch {
	case apierrors.IsNotFound(err):
		err = c.admin.Create(c.t.Context(), n)
	case err == nil:
		err = c.admin.Update(c.t.Context(), n)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// until waits for a status.
func (c *cluster) until(what string, ok func(*v1beta1.NodeModulesConfigStatus) bool) {
	c.t.Helper()
	n := &v1beta1.NodeModulesConfig{}
	err := wait.PollUntilContextTimeout(c.t.Context(), 10*time.Millisecond, 20*time.Second, true, func(ctx context.Context) (bool, error) {
		err := c.admin.Get(ctx, client.ObjectKey{Name: c.node}, n)
		return err == nil && ok(&n.Status), client.IgnoreNotFound(err)
	})
	if err != nil {
		c.t.Fatalf("%s: %v; status is %+v, calls %v", what, err, n.Status, c.calls())
	}
}

// writes are what the agent wrote so far.
func (c *cluster) writes() int {
	c.t.Helper()
	n := 0
	for _, r := range c.env.Requests(c.t, c.mark) {
		if r.UserAgent == "drover-agent/test" && r.IsWrite() && r.ObjectRef.Name == c.node {
			n++
			if r.ResponseStatus.Code >= 400 && r.ResponseStatus.Code != 404 {
				c.t.Errorf("a write was answered with %d", r.ResponseStatus.Code)
			}
		}
	}
	return n
}

// wrote compares what the agent wrote so far. The audit log has a request after its effect can be
// read.
func (c *cluster) wrote(what string, want int) {
	c.t.Helper()
	err := wait.PollUntilContextTimeout(c.t.Context(), 10*time.Millisecond, 20*time.Second, true,
		func(context.Context) (bool, error) { return c.writes() >= want, nil })
	if err != nil && !wait.Interrupted(err) {
		c.t.Fatal(err)
	}
	same(c.t, what, want, c.writes())
}

func TestLoadAndUnloadThroughTheAPI(t *testing.T) {
	c := newCluster(t)
	c.start()
	o := order("gadget", c.deliver("d1", gadget))
	c.order(o)
	c.until("load", func(s *v1beta1.NodeModulesConfigStatus) bool {
		return loadedImage(s, "gadget") != "" && len(s.Artifacts) == 1
	})
	c.wrote("writes to load", 1)

	c.order(order("gadget", o.Delivery, absent))
	c.until("unload", func(s *v1beta1.NodeModulesConfigStatus) bool { return attempt(s, "gadget") == "Absent ModuleDeleted" })
	same(t, "in the kernel", map[string]string{}, c.host.Live())
	c.wrote("writes to unload", 2)

	// Ordered again before the entry left: the old acknowledgement goes first, then the module loads.
	c.order(o)
	c.until("load again", func(s *v1beta1.NodeModulesConfigStatus) bool {
		return loadedImage(s, "gadget") != "" && attempt(s, "gadget") == ""
	})
	c.wrote("writes to load again", 4)
	c.env.AssertNoMasters(t)
}

// TestTheFirstOrderWaitsForNothing: an agent asks which cluster it is in before its node has an
// order. Thousands of nodes may get their first one at the same time.
func TestTheFirstOrderWaitsForNothing(t *testing.T) {
	c := newCluster(t)
	asked := func() (n int) {
		for _, r := range c.env.Requests(t, c.mark) {
			if r.UserAgent == "drover-agent/test" && r.ObjectRef.Resource == "namespaces" {
				n++
			}
		}
		return n
	}
	c.start()
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 20*time.Second, true,
		func(context.Context) (bool, error) { return asked() > 0, nil })
	if err != nil {
		t.Fatalf("an agent without orders does not ask which cluster it is in: %v", err)
	}
	c.order(order("gadget", c.deliver("d1", gadget)))
	c.until("load", func(s *v1beta1.NodeModulesConfigStatus) bool { return loadedImage(s, "gadget") != "" })
	c.wrote("writes to load", 1)
	same(t, "times that the agent asked which cluster it is in", 1, asked())
}

func TestObjectDeletedByHand(t *testing.T) {
	c := newCluster(t)
	c.start()
	o := order("gadget", c.deliver("d1", gadget))
	c.order(o)
	c.until("load", func(s *v1beta1.NodeModulesConfigStatus) bool { return loadedImage(s, "gadget") != "" })
	if err := c.admin.Delete(t.Context(), &v1beta1.NodeModulesConfig{ObjectMeta: metav1.ObjectMeta{Name: c.node}}); err != nil {
		t.Fatal(err)
	}
	// It comes back with another Module's entry first, as it does when each Module applies its own.
	c.order(order("widget", nil))
	c.until("report", func(s *v1beta1.NodeModulesConfigStatus) bool {
		return attempt(s, "gadget") == "Unclaimed Unclaimed" && loadedImage(s, "gadget") != ""
	})
	c.order(order("widget", nil), o)
	c.until("whole again", func(s *v1beta1.NodeModulesConfigStatus) bool {
		return attempt(s, "gadget") == "" && loadedImage(s, "gadget") != "" && len(s.Artifacts) == 1
	})
	same(t, "calls", []string{"finit_module gadget"}, c.calls())
}

func TestAStatusThatAnotherWroteGoes(t *testing.T) {
	c := newCluster(t)
	c.order(order("gadget", c.deliver("d1", gadget)))
	// As an operator wrote it that ran here before: under another name, and nothing that an agent of
	// ours knows of.
	n := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1beta1.GroupVersion.String(), "kind": "NodeModulesConfig", "metadata": map[string]any{"name": c.node},
		"status": map[string]any{"modules": []any{map[string]any{
			"namespace": "ns", "name": "old", "serviceAccountName": "default", "config": map[string]any{
				"kernelVersion": release, "containerImage": "r/old:1", "insecurePull": false, "modprobe": map[string]any{"moduleName": "old"},
			},
		}}},
	}}
	before := c.env.Client(t, c.api)
	if err := before.Status().Apply(t.Context(), client.ApplyConfigurationFromUnstructured(n), client.FieldOwner("manager")); err != nil {
		t.Fatal(err)
	}
	first := c.writes()
	c.start()
	c.until("load", func(s *v1beta1.NodeModulesConfigStatus) bool {
		return loadedImage(s, "gadget") != "" && len(s.Modules) == 1
	})
	c.order()
	c.until("report", func(s *v1beta1.NodeModulesConfigStatus) bool { return attempt(s, "gadget") == "Unclaimed Unclaimed" })
	c.wrote("writes", first+2)
}

func TestAStatusMakesNoObject(t *testing.T) {
	c := newCluster(t)
	a, err := newAPI(c.api, c.node)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.applyStatus(t.Context(), &v1beta1.NodeModulesConfigStatus{}); !apierrors.IsNotFound(err) {
		t.Errorf("error %v, want not found", err)
	}
	c.order(order("gadget", nil))
	n, err := a.applyStatus(t.Context(), &v1beta1.NodeModulesConfigStatus{Artifacts: []v1beta1.NodeArtifact{{ID: "d1", Digest: "d"}}})
	if err != nil || len(n.Status.Artifacts) != 1 || len(n.Spec.Modules) != 1 {
		t.Errorf("error %v, object %+v", err, n)
	}
	n, err = a.applyStatus(t.Context(), &v1beta1.NodeModulesConfigStatus{})
	if err != nil || len(n.Status.Artifacts) != 0 {
		t.Errorf("error %v, status %+v: an empty list is a list", err, n)
	}
	for _, f := range n.ManagedFields {
		if f.Subresource == "status" && f.Manager != fieldOwner {
			t.Errorf("the status was written as %s", f.Manager)
		}
	}
}

func TestRestartsWriteNothing(t *testing.T) {
	c := newCluster(t)
	c.start()
	c.order(order("gadget", c.deliver("d1", gadget)))
	c.until("load", func(s *v1beta1.NodeModulesConfigStatus) bool { return loadedImage(s, "gadget") != "" })
	c.wrote("writes to load", 1) // a stop would end one that is on its way, which the API server answers with 504
	c.stop()
	c.start()
	// The second agent is up as soon as it repairs something.
	if err := c.host.Rmmod("gadget"); err != nil {
		t.Fatal(err)
	}
	c.untilLive("gadget")
	c.until("report", func(s *v1beta1.NodeModulesConfigStatus) bool { return loadedImage(s, "gadget") != "" })
	if n := c.writes(); n > 2 {
		t.Errorf("%d writes for a load and a repair, want at most 2", n)
	}
}

func TestBootWithoutTheAPIServer(t *testing.T) {
	c := newCluster(t)
	c.start()
	c.order(order("gadget", c.deliver("d1", gadget)))
	c.until("load", func(s *v1beta1.NodeModulesConfigStatus) bool { return loadedImage(s, "gadget") != "" })
	c.stop()
	c.host.Reboot("")
	reachable := c.api
	c.api = &rest.Config{Host: "127.0.0.1:1"}
	c.start()
	c.untilLive("gadget")
	c.stop()

	// Another node's record is not used.
	c.host.Reboot("")
	c.node += "-renamed"
	c.start()
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) {
		_, err := os.Stat(filepath.Join(c.dir, "state", recordFile+".aside"))
		return err == nil, nil
	})
	if err != nil {
		t.Errorf("the record was not moved aside: %v", err)
	}
	c.stop()
	same(t, "in the kernel", map[string]string{}, c.host.Live())
	c.api = reachable
}

func (c *cluster) untilLive(name string) {
	c.t.Helper()
	err := wait.PollUntilContextTimeout(c.t.Context(), 5*time.Millisecond, 20*time.Second, true, func(context.Context) (bool, error) {
		return c.host.Live()[name] != "", nil
	})
	if err != nil {
		c.t.Fatalf("%s did not become live: %v; calls %v", name, err, c.calls())
	}
}
