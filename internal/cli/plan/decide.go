// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/cli/cluster"
	"github.com/drover-project/drover/internal/shared/desired"
	"github.com/drover-project/drover/internal/shared/facts"
	"github.com/drover-project/drover/internal/shared/kernel"
	"github.com/drover-project/drover/internal/shared/modulepolicy"
	"github.com/drover-project/drover/internal/shared/placement"
	"github.com/drover-project/drover/internal/shared/reasons"
	"github.com/drover-project/drover/internal/shared/rollout"
	"github.com/drover-project/drover/internal/shared/status"
)

// Action is what would happen on a node.
type Action string

// Actions, those that need a look first.
const (
	NotCovered Action = "not covered"
	Blocked    Action = "blocked"
	Unload     Action = "unload"
	Reload     Action = "reload"
	Load       Action = "load"
	LeftAlone  Action = "left alone"
	Unchanged  Action = "unchanged"
)

var order = []Action{NotCovered, Blocked, Unload, Reload, Load, LeftAlone, Unchanged}

// Step is what would happen on some nodes, and why.
type Step struct {
	Action Action   `json:"action"`
	Why    string   `json:"why,omitempty"`
	Nodes  []string `json:"nodes"`
}

// Plan is what applying a Module would do.
type Plan struct {
	Module  string `json:"module"`
	Refused string `json:"refused,omitempty"` // why the API server would refuse it
	Unasked string `json:"unasked,omitempty"` // why admission could not be tried
	New     bool   `json:"new"`               // there is no such Module yet
	Steps   []Step `json:"steps,omitempty"`
	// Rollout is the order in which nodes lose what they have; nil: none does.
	Rollout *Rollout `json:"rollout,omitempty"`
	// Plugin is what happens to the device plugin or DRA driver.
	Plugin  string            `json:"plugin,omitempty"`
	Missing []cluster.Missing `json:"missing,omitempty"`
}

// decide compares what the Module would ask for with what is on the nodes, by the operator's
// functions. live is nil for a new Module.
func decide(live, next *v1beta1.Module, view *cluster.View) []Step {
	scene := view.Scene(next)
	var steps []Step
	for i := range view.Nodes {
		action, why := on(scene, live, &view.Nodes[i])
		if action == "" {
			continue
		}
		if p := denied(scene, view, &view.Nodes[i]); p != nil && (action == Load || action == Reload) {
			action, why = Blocked, p.Message
		}
		at := slices.IndexFunc(steps, func(s Step) bool { return s.Action == action && s.Why == why })
		if at < 0 {
			at, steps = len(steps), append(steps, Step{Action: action, Why: why})
		}
		steps[at].Nodes = append(steps[at].Nodes, view.Nodes[i].Name)
	}
	for i := range steps {
		slices.Sort(steps[i].Nodes)
	}
	slices.SortStableFunc(steps, func(a, b Step) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.Action), slices.Index(order, b.Action)), cmp.Compare(len(b.Nodes), len(a.Nodes)),
			cmp.Compare(a.Why, b.Why))
	})
	return steps
}

// on decides for one node; no action: the Module has nothing to do with it.
func on(scene *facts.Scene, live *v1beta1.Module, node *corev1.Node) (Action, string) {
	m, entry := scene.Module, scene.Entry(node.Name)
	a := scene.Wants(node)
	want := a.State
	version := kernel.Show(&node.Status.NodeInfo)
	wanted := scene.Taints.Wanted(m, node, entry.Pending())
	switch {
	case !wanted && !entry.Pending():
		if taint := placement.Untolerated(placement.Tolerations(m), node); taint != nil && placement.Eligible(m, node) {
			return LeftAlone, "the taint " + taint.ToString() + " is not tolerated"
		}
		return "", ""
	case placement.WishesFor(m, node).Paused:
		return LeftAlone, "paused by annotation"
	case !wanted && scene.Taints.Asks(m, node) != nil:
		return Unload, "the taint " + scene.Taints.Asks(m, node).ToString() + " asks for it, and is not tolerated"
	case !wanted:
		return Unload, "the selector no longer chooses the node; " + after(m)
	case m.Spec.ModuleLoader == nil && entry.Pending():
		return Unload, "spec.moduleLoader is gone; " + after(m)
	case m.Spec.ModuleLoader == nil:
		return "", ""
	case a.Err != nil:
		return NotCovered, a.Err.Error()
	case want == nil && entry.Pending():
		return Unload, "no mapping matches kernel " + version + " any longer; " + after(m)
	case want == nil:
		return NotCovered, "no mapping matches kernel " + version
	}
	if p := scene.Held.On(want, entry); p != nil {
		return Blocked, p.Message
	}
	if !entry.Pending() {
		return Load, want.Config.ContainerImage + byMapping(m, want) + delivered(entry, want)
	}
	return change(entry, want, live == nil)
}

// denied is why a ModulePolicy would keep a node from what it has to load, or nil. As for the
// operator, only what is new is denied, and not an order that stands.
func denied(scene *facts.Scene, view *cluster.View, node *corev1.Node) *reasons.Problem {
	a, order := scene.Wants(node), scene.Entry(node.Name).Order
	if a.State == nil || view.Policies.Empty() {
		return nil
	}
	if order != nil && rollout.SameBuild(&order.Config, &a.State.Config) && (order.Delivery == nil || order.Delivery.ID == a.State.Delivery) {
		return nil
	}
	wish := modulepolicy.Wish{Config: &a.State.Config}
	wish.Builds, wish.Unsigned = a.Made()
	if r := scene.Module.Spec.Rollout; r != nil {
		wish.Drain = r.Drain
	}
	return view.Policies.Denied(&wish, &modulepolicy.Place{
		Name: scene.Module.Namespace, Namespace: view.NamespaceLabels, Node: node.Labels,
	})
}

func change(entry status.Entry, want *desired.State, isNew bool) (Action, string) {
	have := v1beta1.ModuleConfig{}
	if entry.Order != nil {
		have = entry.Order.Config
	} else if entry.Live != nil {
		have = ptr.Deref(entry.Live.Config, v1beta1.ModuleConfig{})
	}
	switch differs := differences(&have, &want.Config); {
	case len(differs) > 0:
		return Reload, strings.Join(differs, "; ") + delivered(entry, want)
	case entry.Order != nil && entry.Order.Delivery != nil && entry.Order.Delivery.ID != want.Delivery:
		return Reload, "the image is delivered again and, if its content differs, loaded again"
	case entry.Order != nil && entry.Order.State == v1beta1.NodeModuleAbsent:
		return Load, "the order to unload is withdrawn"
	}
	if isNew {
		return Unchanged, "it is already there and is taken over"
	}
	return Unchanged, ""
}

// differences names the fields whose change loads the kernel module again.
func differences(have, want *v1beta1.ModuleConfig) []string {
	var all []string
	if have.ContainerImage != want.ContainerImage {
		all = append(all, "image "+have.ContainerImage+" becomes "+want.ContainerImage)
	}
	a, b := have.Modprobe, want.Modprobe
	for _, field := range []struct {
		name       string
		have, want any
	}{
		{"kernel", have.KernelVersion, want.KernelVersion},
		{"moduleName", a.ModuleName, b.ModuleName},
		{"parameters", a.Parameters, b.Parameters},
		{"dirName", a.DirName, b.DirName},
		{"args", a.Args, b.Args},
		{"rawArgs", a.RawArgs, b.RawArgs},
		{"firmwarePath", a.FirmwarePath, b.FirmwarePath},
		{"modulesLoadingOrder", a.ModulesLoadingOrder, b.ModulesLoadingOrder},
		{"inTreeModulesToRemove", kernel.InTreeModules(have), kernel.InTreeModules(want)},
	} {
		if !equality.Semantic.DeepEqual(field.have, field.want) {
			all = append(all, field.name+" changes")
		}
	}
	return all
}

func byMapping(m *v1beta1.Module, want *desired.State) string {
	mapping := &m.Spec.ModuleLoader.Container.KernelMappings[want.Mapping]
	return fmt.Sprintf(" by kernelMappings[%d] (%s)", want.Mapping, cmp.Or(mapping.Regexp, mapping.Literal))
}

func delivered(entry status.Entry, want *desired.State) string {
	if slices.ContainsFunc(entry.Artifacts, func(a v1beta1.NodeArtifact) bool { return a.ID == want.Delivery }) {
		return ", held by the node"
	}
	return ", delivered first"
}

func after(m *v1beta1.Module) string {
	if r := m.Spec.Rollout; r != nil && r.DeselectGracePeriod != nil {
		return "after " + rollout.Grace(m).String() + " (spec.rollout.deselectGracePeriod)"
	}
	return "after " + duration.HumanDuration(rollout.Grace(m)) + " (spec.rollout.deselectGracePeriod is not set)"
}

func plugin(live, next *v1beta1.Module) string {
	had := live != nil && (live.Spec.DevicePlugin != nil || live.Spec.DRA != nil)
	has := next.Spec.DevicePlugin != nil || next.Spec.DRA != nil
	switch {
	case !had && !has:
		return ""
	case !had:
		return "starts where the kernel module is ready"
	case !has:
		return "stops on all nodes"
	case !equality.Semantic.DeepEqual(live.Spec.DevicePlugin, next.Spec.DevicePlugin) ||
		!equality.Semantic.DeepEqual(live.Spec.DRA, next.Spec.DRA):
		return "its pods are replaced; kernel modules stay as they are"
	}
	return "stays; on nodes that reload, it stops before and starts again after"
}
