// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host/fake"
	"github.com/drover-project/drover/internal/agent/journal"
	"github.com/drover-project/drover/internal/agent/place"
	"github.com/drover-project/drover/internal/agent/statefile"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
)

// writeRecord records orders as an agent of that node and cluster does.
func writeRecord(t *testing.T, dir, node, cluster string, orders ...v1beta1.NodeModuleSpec) {
	t.Helper()
	w := recorder{dir: dir}
	if err := w.write(record{NodeName: node, ClusterUID: "cluster-a", Spec: v1beta1.NodeModulesConfigSpec{Modules: orders}}); err != nil {
		t.Fatal(err)
	}
	if cluster == "cluster-a" {
		return
	}
	rewrite(t, filepath.Join(dir, recordFile),
		func(data []byte) []byte { return bytes.ReplaceAll(data, []byte("cluster-a"), []byte(cluster)) })
}

func rewrite(t *testing.T, name string, change func([]byte) []byte) {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, change(data), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestRecordBelongsHere: a record is worked from only if it is whole, and of this node and cluster.
func TestRecordBelongsHere(t *testing.T) {
	cases := map[string]struct {
		given func(t *testing.T, dir string)
		then  string // what is wrong with it
	}{
		"ours":    {given: func(*testing.T, string) {}},
		"missing": {given: func(t *testing.T, dir string) { t.Helper(); _ = os.Remove(filepath.Join(dir, recordFile)) }},
		"of another node": {given: func(t *testing.T, dir string) { t.Helper(); writeRecord(t, dir, "node-2", "cluster-a") },
			then: `of node "node-2"`},
		"of no cluster": {given: func(t *testing.T, dir string) {
			t.Helper()
			w := recorder{dir: dir}
			if err := w.write(record{NodeName: "node-1"}); err != nil {
				t.Fatal(err)
			}
		}, then: "no cluster"},
		"changed, and still JSON": {given: func(t *testing.T, dir string) {
			t.Helper()
			rewrite(t, filepath.Join(dir, recordFile), func(b []byte) []byte { return bytes.Replace(b, []byte("gadget:1"), []byte("gadget:2"), 1) })
		}, then: "digest"},
		"a link": {given: func(t *testing.T, dir string) {
			t.Helper()
			name := filepath.Join(dir, recordFile)
			if err := errors.Join(os.Rename(name, name+"-elsewhere"), os.Symlink(name+"-elsewhere", name)); err != nil {
				t.Fatal(err)
			}
		}, then: "symbolic link"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			writeRecord(t, dir, "node-1", "cluster-a", order("gadget", nil))
			c.given(t, dir)
			r, err := readRecord(dir, "node-1")
			var untrusted *statefile.UntrustedError
			if c.then == "" {
				if err != nil || (r == nil) != (name == "missing") {
					t.Errorf("%v, %v", r, err)
				}
				return
			}
			if r != nil || !errors.As(err, &untrusted) || !strings.Contains(err.Error(), c.then) {
				t.Errorf("%v, %v", r, err)
			}
			if r, err := readRecord(dir, "node-1"); r != nil || err != nil {
				t.Errorf("after it was moved aside: %v, %v", r, err)
			}
		})
	}
}

// TestRecordOfAnotherCluster: that shows only when this one's identity is known.
func TestRecordOfAnotherCluster(t *testing.T) {
	dir := t.TempDir()
	writeRecord(t, dir, "node-1", "cluster-a")
	r, err := readRecord(dir, "node-1")
	if err != nil || r == nil || r.belongsTo(dir, "cluster-a") != nil {
		t.Fatalf("own record: %v, %v", r, err)
	}
	if err := r.belongsTo(dir, "cluster-b"); err == nil || !strings.Contains(err.Error(), "cluster-b") {
		t.Errorf("another's: %v", err)
	}
	if r, err := readRecord(dir, "node-1"); r != nil || err != nil {
		t.Errorf("after it was moved aside: %v, %v", r, err)
	}
}

// TestARecordOfAnotherClusterLoadsNothing, although the API server has not listed the orders yet,
// as on a node that is slow to start: it may say by then which cluster it is.
func TestARecordOfAnotherClusterLoadsNothing(t *testing.T) {
	for cluster, want := range map[types.UID][]string{"a": {"gadget"}, "b": nil, "": {"gadget"}} {
		r := newRig(t, fake.Options{})
		r.agent.cluster = cluster // empty: the API server does not answer
		spec := v1beta1.NodeModulesConfigSpec{Modules: []v1beta1.NodeModuleSpec{order("gadget", r.deliver("d1", gadget))}}
		r.pass(spec.Modules...)
		r.host.Reboot("")
		r.restart(r.host)
		r.agent.cluster, r.agent.recorded = cluster, &record{ClusterUID: "a", NodeName: r.node, Spec: spec}
		r.agent.started = r.clock.Now().Add(-time.Minute)
		if _, err := r.agent.look(t.Context()); err != nil {
			t.Error(err)
		}
		same(t, "live in the cluster "+string(cluster), want, liveNow(r))
	}
}

// TestWhatWorkedInAnotherCluster, or on another node, is nothing to go back to: the disk may be of
// a machine that moved, or of an image that many nodes start from.
func TestWhatWorkedInAnotherCluster(t *testing.T) {
	for name, tc := range map[string]struct {
		node, cluster string
		want          string // the attempt of a second build that the kernel refuses
	}{
		"the same":        {node: "node-1", cluster: "a", want: "Failed RolledBack"},
		"another cluster": {node: "node-1", cluster: "b", want: "Failed NoSuchDevice"},
		"another node":    {node: "node-2", cluster: "a", want: "Failed NoSuchDevice"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, fake.Options{})
			first := order("gadget", r.deliver("d1", gadget))
			join := func(cluster types.UID, orders ...v1beta1.NodeModuleSpec) {
				r.agent.cluster = cluster
				r.must(r.agent.accept(t.Context(), v1beta1.NodeModulesConfigSpec{Modules: orders}))
				r.pass(orders...)
			}
			join("a", first)
			same(t, "live", []string{"gadget"}, liveNow(r))

			r.host.Reboot("")
			r.node, r.last = tc.node, &v1beta1.NodeModulesConfigStatus{}
			r.restart(r.host)
			r.host.Script("finit_module", "gadget", fake.Fault{Errno: "ENODEV", Times: 1})
			join(types.UID(tc.cluster), order("gadget", r.deliver("d2", gadgetV2)))

			same(t, "attempt", tc.want, attempt(r.last, "gadget"))
			same(t, "a build of the disk is live", tc.want == "Failed RolledBack", r.host.Live()["gadget"] != "")
		})
	}
}

// TestWhatIsLiveStaysInAnotherCluster: the kernel is the node's, whatever cluster it joins.
func TestWhatIsLiveStaysInAnotherCluster(t *testing.T) {
	r := newRig(t, fake.Options{})
	d := r.deliver("d1", gadget)
	for _, cluster := range []types.UID{"a", "b"} {
		r.agent.cluster = cluster
		r.must(r.agent.accept(t.Context(), v1beta1.NodeModulesConfigSpec{}))
		if cluster == "a" {
			r.pass(order("gadget", d))
		}
		r.restart(r.host)
	}
	same(t, "attempt", "Unclaimed Unclaimed", attempt(r.pass(), "gadget"))
}

// TestOrdersForABoot: only loads for the running kernel, and from what is held.
func TestOrdersForABoot(t *testing.T) {
	held := &v1beta1.Delivery{ID: "d1", CarrierUID: "a-carrier"}
	of := func(change ...func(*v1beta1.NodeModuleSpec)) v1beta1.NodeModuleSpec {
		return order("gadget", held, change...)
	}
	cases := map[string]struct {
		given v1beta1.NodeModuleSpec
		then  bool
	}{
		"a load":                     {given: of(), then: true},
		"a load, of a kernel with +": {given: of(func(s *v1beta1.NodeModuleSpec) { s.Config.KernelVersion += "+" }), then: true},
		"an unload":                  {given: of(absent)},
		"paused":                     {given: of(func(s *v1beta1.NodeModuleSpec) { s.Paused = true })},
		"for another kernel":         {given: of(func(s *v1beta1.NodeModuleSpec) { s.Config.KernelVersion = "6.1.0-2-test" })},
		"for no kernel":              {given: of(func(s *v1beta1.NodeModuleSpec) { s.Config.KernelVersion = "" })},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := &record{Spec: v1beta1.NodeModulesConfigSpec{Modules: []v1beta1.NodeModuleSpec{c.given}}}
			got := r.forBoot(release).Modules
			if (len(got) == 1) != c.then || len(got) == 1 && got[0].Delivery.CarrierUID != "" {
				t.Errorf("%+v", got)
			}
			if held.CarrierUID == "" {
				t.Error("the record itself was changed")
			}
		})
	}
}

// TestAnotherKernelsOrdersAreNotWorkedFrom, by the DaemonSet's agent either: after a boot into
// another kernel the operator renews the order.
func TestAnotherKernelsOrdersAreNotWorkedFrom(t *testing.T) {
	r := newRig(t, fake.Options{})
	o := order("gadget", r.deliver("d1", gadget))
	r.pass(o)
	r.host.Reboot("6.1.0-2-test")
	r.restart(r.host)
	same(t, "attempt", "Waiting WrongKernel", attempt(r.pass(o), "gadget"))
	same(t, "in the kernel", map[string]string{}, r.host.Live())
}

// TestDamagedMemoryIsNoCrashLoop: whatever lies in the state directory, the agent starts and works.
func TestDamagedMemoryIsNoCrashLoop(t *testing.T) {
	for _, file := range []string{journal.File, recordFile, journal.RetriedFile} {
		for name, put := range map[string]func(name string) error{
			"damaged":     func(name string) error { return os.WriteFile(name, []byte(`{"schema":2}`), 0o600) },
			"a link":      func(name string) error { return os.Symlink("/etc/passwd", name) },
			"a directory": func(name string) error { return os.MkdirAll(filepath.Join(name, "x"), 0o700) },
		} {
			t.Run(file+" is "+name, func(t *testing.T) {
				r := newRig(t, fake.Options{})
				path := filepath.Join(r.dir, "state", file)
				if err := errors.Join(os.RemoveAll(path), put(path)); err != nil {
					t.Fatal(err)
				}
				r.restart(r.host)
				o := order("gadget", r.deliver("d1", gadget))
				same(t, "image", o.Config.ContainerImage, loadedImage(r.pass(o), "gadget"))
				if _, err := os.Lstat(path + ".aside"); err != nil {
					t.Errorf("it was not moved aside: %v", err)
				}
			})
		}
	}
}

// TestForeignRecordIsReported before anything is done, and until nothing waits any more.
func TestForeignRecordIsReported(t *testing.T) {
	c := newCluster(t)
	if err := statefile.MakeDir(filepath.Join(c.dir, "state")); err != nil {
		t.Fatal(err)
	}
	writeRecord(t, filepath.Join(c.dir, "state"), c.node, "cluster-a", order("widget", c.deliver("d0", synth.Module{Name: "widget"})))
	o := order("gadget", &v1beta1.Delivery{ID: "d1", CarrierUID: uidOf("d1")})
	c.order(o)
	c.start()
	message := ""
	c.until("report", func(s *v1beta1.NodeModulesConfigStatus) bool {
		for _, a := range s.Attempts {
			message = a.Message
		}
		return attempt(s, "gadget") == "Waiting RecordForeign"
	})
	if !strings.Contains(message, "cluster-a") || !strings.Contains(message, recordFile+".aside") {
		t.Errorf("message: %s", message)
	}
	c.deliver("d1", gadget)
	c.until("load", func(s *v1beta1.NodeModulesConfigStatus) bool {
		return loadedImage(s, "gadget") != "" && attempt(s, "gadget") == ""
	})
	c.order(o, order("later", nil))
	c.until("the next order", func(s *v1beta1.NodeModulesConfigStatus) bool { return loadedImage(s, "gadget") != "" })
	c.stop()
	same(t, "calls", []string{"finit_module gadget"}, c.calls())
	r, err := readRecord(filepath.Join(c.dir, "state"), c.node)
	if err != nil || r == nil || len(r.Spec.Modules) == 0 || r.Spec.Modules[0].Name != "gadget" {
		t.Errorf("the next record: %+v, %v", r, err)
	}
}

// TestWrongPlaceIsAReason: what is wrong with the agent's directories is said of each order that it
// keeps waiting.
func TestWrongPlaceIsAReason(t *testing.T) {
	cases := map[string]struct {
		given               place.Findings
		held, waits, unload string // what the status says of an order whose content is held, that waits for it, to unload
		calls               []string
	}{
		"all is well": {held: "", waits: "", unload: "Absent ModuleDeleted",
			calls: []string{"finit_module held", "finit_module going", "delete_module going"}},
		"no deliveries": {given: place.Findings{NoDelivery: "why"}, held: "", waits: "Failed AgentFailed", unload: "Absent ModuleDeleted",
			calls: []string{"finit_module held", "finit_module going", "delete_module going"}},
		"forgetful": {given: place.Findings{Forgets: "why"}, held: "", waits: "Waiting AwaitingDelivery", unload: "Absent ModuleDeleted",
			calls: []string{"finit_module held", "finit_module going", "delete_module going"}},
		"idle": {given: place.Findings{Idle: "why"}, held: "", waits: "Failed AgentFailed", unload: "Failed AgentFailed",
			calls: []string{"finit_module held", "finit_module going"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, fake.Options{})
			held, going := order("held", r.deliver("d1", synth.Module{Name: "held"})), order("going", r.deliver("d2", synth.Module{Name: "going"}))
			r.pass(held)
			r.pass(held, going)
			absent(&going)
			r.agent.o.Place = c.given
			s := r.pass(held, order("waits", &v1beta1.Delivery{ID: "d3", CarrierUID: uidOf("d3")}), going)
			got := []string{attempt(s, "held"), attempt(s, "waits"), attempt(s, "going")}
			if diff := cmp.Diff([]string{c.held, c.waits, c.unload}, got); diff != "" {
				t.Errorf("attempts (-want +got):\n%s", diff)
			}
			for _, a := range s.Attempts {
				if a.State == v1beta1.AttemptFailed && !strings.HasSuffix(a.Message, "why") {
					t.Errorf("message: %s", a.Message)
				}
			}
			same(t, "calls", c.calls, r.calls())
		})
	}
}
