// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"reflect"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/orderhash"
	"github.com/drover-project/drover/internal/shared/rollout"
)

// TestSameBuild: what means the same loads nothing again, whoever wrote it, and however.
func TestSameBuild(t *testing.T) {
	build := v1beta1.ModuleConfig{KernelVersion: "6.1.0", ContainerImage: "a:1", InTreeModulesToRemove: []string{"old"}}
	cases := map[string]struct {
		change func(*v1beta1.ModuleConfig)
		same   bool
	}{
		"another pull policy": {change: func(c *v1beta1.ModuleConfig) { c.ImagePullPolicy = "Always" }, same: true},
		"the deprecated field": {change: func(c *v1beta1.ModuleConfig) { c.InTreeModulesToRemove, c.InTreeModuleToRemove = nil, "old" },
			same: true},
		"another module goes": {change: func(c *v1beta1.ModuleConfig) { c.InTreeModulesToRemove = []string{"older"} }},
		"another image":       {change: func(c *v1beta1.ModuleConfig) { c.ContainerImage = "a:2" }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			other := *build.DeepCopy()
			tc.change(&other)
			if got := rollout.SameBuild(&build, &other); got != tc.same {
				t.Errorf("the same: %v", got)
			}
		})
	}
}

// TestEachFieldMakesAnotherBuild: whatever fields there will be, another value is another build,
// unless it says how to pull.
func TestEachFieldMakesAnotherBuild(t *testing.T) {
	pulls := []string{"ImagePullPolicy", "InsecurePull"}
	var set func(path string, of reflect.Value, whole *v1beta1.ModuleConfig)
	set = func(path string, of reflect.Value, whole *v1beta1.ModuleConfig) {
		for i := range of.NumField() {
			field, name := of.Field(i), of.Type().Field(i).Name
			switch field.Kind() {
			case reflect.Struct:
				set(path+name+".", field, whole)
				continue
			case reflect.Pointer:
				field.Set(reflect.New(field.Type().Elem()))
				set(path+name+".", field.Elem(), whole)
			case reflect.String:
				field.SetString("other")
			case reflect.Bool:
				field.SetBool(true)
			case reflect.Slice:
				field.Set(reflect.ValueOf([]string{"other"}))
			default:
				t.Fatalf("%s%s is a %s", path, name, field.Kind())
			}
			other := *whole.DeepCopy()
			if field.Kind() != reflect.Pointer || !field.IsNil() && path == "" {
				if got := rollout.SameBuild(&v1beta1.ModuleConfig{}, &other); got != slices.Contains(pulls, name) {
					t.Errorf("with another %s%s, the same build: %t", path, name, got)
				}
			}
			field.SetZero()
		}
	}
	build := &v1beta1.ModuleConfig{}
	set("", reflect.ValueOf(build).Elem(), build)
}

// TestSoakIsNoShorterThanAsked: a time in the API is cut to the second, so that a node may be live
// for up to a second less than it says.
func TestSoakIsNoShorterThanAsked(t *testing.T) {
	cases := map[string]struct {
		after time.Duration
		done  int
	}{
		"perhaps not for a second":   {after: 1500 * time.Millisecond, done: 0},
		"for a second in every case": {after: 2 * time.Second, done: 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := &cluster{T: t, target: "2"}
			m := &machine{name: "a", order: "2", live: "2", since: noon, held: map[string]bool{"2": true}}

			p := rollout.Make([]rollout.Node{c.seen(m)}, rollout.Policy{MaxUnavailable: intstr.FromInt32(1), Soak: time.Second}, noon.Add(tc.after))

			if p.Done != tc.done {
				t.Errorf("%d nodes are done, want %d", p.Done, tc.done)
			}
		})
	}
}

// TestAnEarlierOrderMayStillBeCarriedOut: while what is live is not what was ordered last, the node
// may lose it at any moment, whatever the Module asks for by now.
func TestAnEarlierOrderMayStillBeCarriedOut(t *testing.T) {
	config := func(image string) v1beta1.ModuleConfig {
		return v1beta1.ModuleConfig{KernelVersion: "6.1.0", ContainerImage: image}
	}
	for name, tc := range map[string]struct {
		ordered, live, by string
		attempt           *v1beta1.NodeModuleAttempt
		paused            bool
		want              bool
	}{
		"it is carried out":        {ordered: "r/nic:1", live: "r/nic:1", by: "d1"},
		"it is not":                {ordered: "r/nic:2", live: "r/nic:1", by: "d1", want: true},
		"of an image of that name": {ordered: "r/nic:1", live: "r/nic:1", by: "d0", want: true},
		"it waits for users": {ordered: "r/nic:2", live: "r/nic:1", by: "d1",
			attempt: &v1beta1.NodeModuleAttempt{State: v1beta1.AttemptInUse, Reason: v1beta1.ReasonInUse}, want: true},
		"it failed": {ordered: "r/nic:2", live: "r/nic:1", by: "d1",
			attempt: &v1beta1.NodeModuleAttempt{State: v1beta1.AttemptFailed, Reason: v1beta1.ReasonRolledBack}},
		"an order before it failed": {ordered: "r/nic:2", live: "r/nic:1", by: "d1",
			attempt: &v1beta1.NodeModuleAttempt{State: v1beta1.AttemptFailed, Reason: v1beta1.ReasonRolledBack, Order: "another"}, want: true},
		"it waits for a boot": {ordered: "r/nic:2", live: "r/nic:1", by: "d1",
			attempt: &v1beta1.NodeModuleAttempt{State: v1beta1.AttemptWaiting, Reason: v1beta1.ReasonRebootRequired}},
		"an order for a boot waited for it, and this one does not": {ordered: "r/nic:2", live: "r/nic:1", by: "d1",
			attempt: &v1beta1.NodeModuleAttempt{State: v1beta1.AttemptWaiting, Reason: v1beta1.ReasonRebootRequired,
				Order: orderhash.WithPolicy(&v1beta1.NodeModuleSpec{Config: config("r/nic:2"), Delivery: &v1beta1.Delivery{ID: "d1"},
					UnloadPolicy: v1beta1.UnloadOnReboot})}, want: true},
		"it is paused": {ordered: "r/nic:2", live: "r/nic:1", by: "d1", paused: true},
	} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
		node.Status.NodeInfo.BootID = "boot"
		now, was, wanted := config(tc.ordered), config(tc.live), config("r/nic:3")
		for _, asked := range []*v1beta1.ModuleConfig{&wanted, nil} { // nil: the node is no longer selected
			n := rollout.Observe(&rollout.Facts{Node: node, Config: asked, Delivery: "d3", Entry: rollout.Entry{
				Order:   &v1beta1.NodeModuleSpec{Config: now, Delivery: &v1beta1.Delivery{ID: "d1"}, Paused: tc.paused},
				Live:    &v1beta1.NodeModuleStatus{Config: &was, BootID: "boot", Observed: &v1beta1.ObservedModule{Delivery: tc.by}},
				Attempt: tc.attempt,
			}})
			if n.Changing != tc.want {
				t.Errorf("%s, asked for %v: changing %v", name, asked != nil, n.Changing)
			}
		}
	}
}

// TestARemarkHoldsNoRollout: what is told of a module that is live as it was ordered asks for
// nothing, and the next node may begin.
func TestARemarkHoldsNoRollout(t *testing.T) {
	for reason, done := range map[string]bool{
		v1beta1.ReasonParametersDiffer: true, v1beta1.ReasonDependencyKept: true,
		v1beta1.ReasonRebootRequired: false, v1beta1.ReasonDrifted: false,
	} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
		node.Status.NodeInfo.BootID = "boot"
		config := v1beta1.ModuleConfig{KernelVersion: "6.1.0", ContainerImage: "r/nic:1"}
		n := rollout.Observe(&rollout.Facts{Node: node, Config: &config, Delivery: "d1", Entry: rollout.Entry{
			Order:   &v1beta1.NodeModuleSpec{Config: config, Delivery: &v1beta1.Delivery{ID: "d1"}},
			Live:    &v1beta1.NodeModuleStatus{Config: &config, BootID: "boot", Observed: &v1beta1.ObservedModule{Delivery: "d1"}},
			Attempt: &v1beta1.NodeModuleAttempt{State: v1beta1.AttemptWaiting, Reason: reason},
		}})
		if n.Stage != rollout.Given || n.Since.IsZero() == done {
			t.Errorf("%s: stage %v, since %v", reason, n.Stage, n.Since)
		}
	}
}

// TestWhereNothingIsLiveNothingIsLost: a node with nothing live, and an order that nothing comes
// of, gets what the Module says by now, and needs no place for it.
func TestWhereNothingIsLiveNothingIsLost(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: corev1.NodeStatus{
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
	says := func(state v1beta1.AttemptState, reason string) *v1beta1.NodeModuleAttempt {
		return &v1beta1.NodeModuleAttempt{State: state, Reason: reason}
	}
	for name, tc := range map[string]struct {
		attempt *v1beta1.NodeModuleAttempt
		paused  bool
		empty   bool // the node does not hold the image
		then    bool
	}{
		"it is on its way":               {},
		"paused":                         {paused: true, then: true},
		"its image is not there":         {empty: true, then: true},
		"an in-tree module is in use":    {attempt: says(v1beta1.AttemptInUse, v1beta1.ReasonInUse), then: true},
		"an init function never returns": {attempt: says(v1beta1.AttemptWaiting, v1beta1.ReasonTimeout), then: true},
		"it failed":                      {attempt: says(v1beta1.AttemptFailed, v1beta1.ReasonLoadFailed), then: true},
		"what was unloaded before":       {attempt: says(v1beta1.AttemptAbsent, "")},
	} {
		t.Run(name, func(t *testing.T) {
			config := v1beta1.ModuleConfig{KernelVersion: "6.1.0", ContainerImage: "r/nic:1"}
			asked := config
			asked.ContainerImage = "r/nic:2"
			f := rollout.Facts{Node: node, Config: &asked, Delivery: "d2", Entry: rollout.Entry{Attempt: tc.attempt,
				Order: &v1beta1.NodeModuleSpec{Config: config, Delivery: &v1beta1.Delivery{ID: "d1"}, Paused: tc.paused}}}
			if !tc.empty {
				f.Artifacts = []v1beta1.NodeArtifact{{ID: "d1"}}
			}
			n := rollout.Observe(&f)
			p := rollout.Make([]rollout.Node{n, {Name: "b", Stage: rollout.Given}}, rollout.Policy{MaxUnavailable: intstr.FromInt32(1)}, noon)
			if n.Stage != rollout.Behind || p.Start["a"] != tc.then {
				t.Errorf("begins: %t, as %+v", p.Start["a"], n)
			}
		})
	}
}

// TestWhatIsAskedForIsLive: a change that waits for a boot, or for users, is taken back before it
// is carried out. The order for what is live needs no turn; the other would be carried out yet.
func TestWhatIsAskedForIsLive(t *testing.T) {
	for name, tc := range map[string]struct {
		boot, by string
		state    v1beta1.NodeModuleState
		want     rollout.Stage
		first    bool // even while the rollout is paused
	}{
		"it is":                          {boot: "now", by: "d1", want: rollout.Fresh, first: true},
		"it is, and was to be unloaded":  {boot: "now", by: "d1", state: v1beta1.NodeModuleAbsent, want: rollout.Fresh, first: true},
		"another build was":              {boot: "now", by: "d0", state: v1beta1.NodeModuleAbsent, want: rollout.Behind},
		"it was, before a boot":          {boot: "before", by: "d1", want: rollout.Behind},
		"of another image of that name":  {boot: "now", by: "d0", want: rollout.Behind},
		"an older agent does not say so": {boot: "now", want: rollout.Behind},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
			node.Status.NodeInfo.BootID = "now"
			asked := v1beta1.ModuleConfig{KernelVersion: "6.1.0", ContainerImage: "r/nic:1"}
			waits := v1beta1.ModuleConfig{KernelVersion: "6.1.0", ContainerImage: "r/nic:2"}
			n := rollout.Observe(&rollout.Facts{Node: node, Config: &asked, Delivery: "d1", Entry: rollout.Entry{
				Order: &v1beta1.NodeModuleSpec{Config: waits, Delivery: &v1beta1.Delivery{ID: "d2"},
					UnloadPolicy: v1beta1.UnloadOnReboot, State: tc.state},
				Live: &v1beta1.NodeModuleStatus{Config: &asked, BootID: tc.boot, Observed: &v1beta1.ObservedModule{Delivery: tc.by}},
				Attempt: &v1beta1.NodeModuleAttempt{State: v1beta1.AttemptWaiting, Reason: v1beta1.ReasonRebootRequired,
					LastTransitionTime: metav1.Now()},
			}})
			if n.Stage != tc.want {
				t.Errorf("stage %v, want %v", n.Stage, tc.want)
			}
			if p := rollout.Make([]rollout.Node{n}, rollout.Policy{Paused: true}, noon); p.Start["n"] != tc.first {
				t.Errorf("the rollout is paused, begins: %t, as %+v", p.Start["n"], n)
			}
		})
	}
}
