// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	hubv1beta1 "github.com/drover-project/drover/api/hub/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// Facts are what is known of one ManagedClusterModule and its clusters.
type Facts struct {
	Module  *hubv1beta1.ManagedClusterModule
	Targets []Target
	Parcels map[string]Parcel
	// Images are the ModuleImages that exist, by name.
	Images map[string]*v1alpha1.ModuleImage
	Made   *Makings
	// Absent are the transports that have nothing to work with.
	Absent []string
	// ReadySince is when this process first saw a cluster Ready with what it was sent: the soak time counts from then.
	ReadySince func(cluster, revision string) time.Time
}

// Selected are the targets that a ManagedClusterModule chooses, by name.
func Selected(m *hubv1beta1.ManagedClusterModule, targets []Target) []Target {
	selector := labels.SelectorFromSet(m.Spec.Selector)
	var chosen []Target
	for _, t := range targets {
		if selector.Matches(labels.Set(t.Labels)) {
			chosen = append(chosen, t)
		}
	}
	slices.SortFunc(chosen, func(a, b Target) int { return strings.Compare(a.Name, b.Name) })
	return chosen
}

// Decision is what to do now.
type Decision struct {
	// Send are the Modules to bring to clusters, where they are not what the clusters have already, by cluster.
	Send map[string]*v1beta1.Module
	// Recall are clusters that have a Module and are not selected.
	Recall []string
	// States are how all selected clusters stand, by name in order.
	States []State
	Order  *Order
	// Absent are the transports that have nothing to work with.
	Absent []string
}

// State is how one cluster stands.
type State struct {
	Name string
	// Sent: it has been given what is wanted. Applied: and that is in the cluster. Refused: the cluster did not take it. Ready: with it.
	Sent, Applied, Refused, Ready bool
	// Missing: an image is.
	Missing bool
	// Reason and Message say why it is not Ready.
	Reason, Message string
	// Desired and Available count its nodes.
	Desired, Available int32
}

// Decide says what each cluster gets.
func Decide(f *Facts, now time.Time) (*Decision, error) {
	d := &Decision{Send: map[string]*v1beta1.Module{}, Absent: f.Absent}
	selected := map[string]bool{}
	views := make([]*view, 0, len(f.Targets))
	clusters := make([]Cluster, 0, len(f.Targets))
	for i := range f.Targets {
		v, err := f.look(&f.Targets[i])
		if err != nil {
			return nil, err
		}
		selected[v.target.Name] = true
		views, clusters = append(views, v), append(clusters, v.cluster(f))
	}
	d.Order = OrderOf(f.Module.Spec.Rollout, clusters, now)
	for i, v := range views {
		// What was sent is sent again where it was changed or deleted. New kernels do not wait for a wave.
		if v.want != nil && (clusters[i].Sent || d.Order.Send[v.target.Name]) {
			d.Send[v.target.Name] = v.want
		}
		d.States = append(d.States, v.state(f))
	}
	for name := range f.Parcels {
		if !selected[name] {
			d.Recall = append(d.Recall, name)
		}
	}
	slices.Sort(d.Recall)
	return d, nil
}

// view is what is known of one cluster.
type view struct {
	target    *Target
	platforms []Platform
	// want is the Module that it shall have; nil: not yet, for what missing says.
	want    *v1beta1.Module
	missing string
	reason  string
	parcel  Parcel
}

func (f *Facts) look(t *Target) (*view, error) {
	v := &view{target: t, parcel: f.Parcels[t.Name]}
	v.platforms, _ = Platforms(t.Claims)
	pinned, missing, reason := f.images(v.platforms)
	if missing != "" {
		v.missing, v.reason = missing, reason
		return v, nil
	}
	var err error
	if v.want, err = ForCluster(f.Module, v.platforms, pinned); err != nil || v.want != nil {
		return v, err
	}
	v.reason, v.missing = v1beta1.ReasonNoKernelMapping, "no kernel of the cluster has a mapping"
	if len(v.platforms) == 0 {
		v.missing = "the cluster has not told which kernels its nodes run: is Drover there, in spoke mode?"
	}
	return v, nil
}

// revision of the Module that the cluster shall have; empty: there is none.
func (v *view) revision() string {
	if v.want == nil {
		return ""
	}
	return v.want.Annotations[RevisionAnnotation]
}

// sent: the cluster was given just what it shall have. begun: or that but for kernels.
func (v *view) sent() bool {
	return v.want != nil && v.parcel.Module != nil && v.parcel.Module.Annotations[RevisionAnnotation] == v.revision()
}

func (v *view) begun() bool {
	return v.want != nil && v.parcel.Module != nil && Extends(v.parcel.Module, v.want)
}

func (v *view) ready() bool { return v.sent() && v.parcel.Report.ReadyWith(v.revision()) }

func (v *view) cluster(f *Facts) Cluster {
	c := Cluster{Name: v.target.Name, Labels: v.target.Labels, Sent: v.begun(), Held: v.want != nil}
	if c.Sent {
		c.Failed = v.parcel.Report.FailedWith(v.revision())
	}
	if v.ready() {
		c.Since = f.ReadySince(v.target.Name, v.revision())
	}
	return c
}

// state is how the cluster stands: what keeps the hub from sending, then what keeps the cluster from taking, then what the cluster says.
func (v *view) state(f *Facts) State {
	r := &v.parcel.Report
	s := State{Name: v.target.Name, Desired: r.Desired, Available: r.Available, Sent: v.sent(), Ready: v.ready()}
	s.Applied, s.Refused = s.Sent && r.Applied, s.Sent && r.Refused != ""
	switch {
	case s.Ready:
		s.Reason = v1beta1.ReasonReady
	case v.missing != "":
		s.Reason, s.Message, s.Missing = v.reason, v.missing, v.reason != v1beta1.ReasonNoKernelMapping
	case v.target.Unreachable != "":
		s.Reason, s.Message = v1beta1.ReasonAgentMissing, "the cluster is not reached: "+cut(v.target.Unreachable)
	case !s.Sent:
		s.Reason, s.Message = v1beta1.ReasonRollingOut, "waits for its turn"
	case s.Refused:
		s.Reason, s.Message = v1beta1.ReasonDeliveryRefused, "the cluster does not take the Module: "+r.Refused
	case !r.Applied || r.Revision != v.revision() || !r.Current:
		s.Reason, s.Message = v1beta1.ReasonAwaitingDelivery, "sent; the cluster has not answered"
	default:
		s.Reason, s.Message = cmp.Or(r.Reason, v1beta1.ReasonLoading), r.Message
	}
	return s
}

// images are those of platforms by digest, as far as the hub makes them, or what is missing of them, and why.
func (f *Facts) images(platforms []Platform) (pinned map[Platform]string, missing, reason string) {
	pinned = map[Platform]string{}
	for _, p := range platforms {
		if text := f.Made.Problems[p]; text != "" {
			return nil, text, v1beta1.ReasonBuildInputMissing
		}
		name := f.Made.For[p]
		if name == "" {
			continue
		}
		image := f.Images[name]
		if image == nil || !slices.Contains(image.Spec.WantedBy, WantedBy(f.Module.Name)) {
			return nil, fmt.Sprintf("the image for kernel %s (%s) is to be made", p.Kernel, p.Architecture), v1beta1.ReasonBuilding
		}
		c := meta.FindStatusCondition(image.Status.Conditions, v1alpha1.ConditionAvailable)
		if c == nil || c.ObservedGeneration != image.Generation {
			return nil, fmt.Sprintf("the image for kernel %s (%s) is to be looked for", p.Kernel, p.Architecture), v1beta1.ReasonBuilding
		}
		if c.Status != metav1.ConditionTrue {
			return nil, fmt.Sprintf("the image for kernel %s (%s) is not there: %s", p.Kernel, p.Architecture, cut(c.Message)), c.Reason
		}
		pinned[p] = image.Status.Image
	}
	return pinned, "", ""
}
