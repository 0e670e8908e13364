// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	hubv1beta1 "github.com/drover-project/drover/api/hub/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/reasons"
	"github.com/drover-project/drover/internal/shared/rollout"
)

// Facts are what is known of one ManagedClusterModule and its clusters.
type Facts struct {
	Module  *hubv1beta1.ManagedClusterModule
	Targets []Target
	Parcels map[string]Parcel
	// Images are the ModuleImages that exist, by name.
	Images map[string]*v1alpha1.ModuleImage
	Made   *Makings
	// Absent are the transports that are not installed on the hub.
	Absent []string
	// Limited are platforms of clusters that report too many new ones: their images wait.
	Limited map[string]map[Platform]bool
	// Seen dates since when clusters are Ready with what they were sent, for soak times.
	Seen *rollout.Sightings
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
	// Send are the Modules that clusters must have, by cluster.
	Send map[string]*v1beta1.Module
	// Recall are clusters that have a Module and are not selected. Mass are too many of them, which
	// keep it until somebody confirms.
	Recall, Mass []string
	// Confirmation is one that does not count for Mass, as it is not of the last hour; zero: none.
	Confirmation time.Time
	// States are how all selected clusters stand, ordered by name.
	States []State
	Order  *Order
	// Absent are the transports that are not installed on the hub.
	Absent []string
	// Kept are clusters that are not selected, and refuse to delete the Module or are not reached.
	Kept []State
}

// State is how one cluster stands.
type State struct {
	Name string
	// Sent: it was sent what is wanted. Applied: it has that. Refused: it refuses it. Ready: with it.
	Sent, Applied, Refused, Ready bool
	// Missing: an image is missing.
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
	// Many clusters run the same.
	wants := map[string]*v1beta1.Module{}
	views := make([]*view, 0, len(f.Targets))
	clusters := make([]Cluster, 0, len(f.Targets))
	for i := range f.Targets {
		v, err := f.look(&f.Targets[i], wants)
		if err != nil {
			return nil, err
		}
		selected[v.target.Name] = true
		views, clusters = append(views, v), append(clusters, v.cluster())
	}
	d.Order = OrderOf(f.Module, clusters, f.Seen, now)
	for i, v := range views {
		// Modules that somebody changed or deleted are sent again. New kernels do not wait for a wave.
		if v.want != nil && (clusters[i].Sent || d.Order.Send[v.target.Name]) {
			d.Send[v.target.Name] = v.want
		}
		d.States = append(d.States, v.state())
	}
	d.deselect(f, selected, now)
	return d, nil
}

// view is what is known of one cluster.
type view struct {
	target    *Target
	platforms []Platform
	// want is the Module that it must have; nil: not yet, for the reason of problem.
	want    *v1beta1.Module
	problem reasons.Problem
	// unmade: an image is missing.
	unmade bool
	parcel Parcel
	// begun: it was sent what is wanted, but for kernels that are new there.
	begun bool
}

// look sees how one cluster stands. known are Modules by the platforms that a cluster runs.
func (f *Facts) look(t *Target, known map[string]*v1beta1.Module) (*view, error) {
	v := &view{target: t, parcel: f.Parcels[t.Name]}
	v.platforms, _ = Platforms(t.Claims)
	there, pinned, problem := f.images(t.Name, v.platforms)
	if f.Made.Wrong != nil {
		there, problem = nil, f.Made.Wrong
	}
	key := fmt.Sprint(there)
	module, made := known[key]
	if nothing := problem != nil && len(there) == 0; !made && !nothing {
		var err error
		if module, err = ForCluster(f.Module, there, pinned, f.Made.Declaration); err != nil {
			return nil, err
		}
		known[key] = module
	}
	if module != nil {
		var err error
		if module, err = Keep(f.Module, v.parcel.Module, module, v.platforms); err != nil {
			return nil, err
		}
	}
	if have := v.parcel.Module; have != nil {
		v.begun = module != nil && Extends(have, module) || module == nil && have.Annotations[DeclarationAnnotation] == f.Made.Declaration
	}
	switch {
	case problem != nil:
		v.problem, v.unmade = *problem, problem.Reason != v1beta1.ReasonNoKernelMapping
	case module != nil:
		v.want = module
	case len(v.platforms) == 0:
		v.problem = reasons.Problem{Reason: v1beta1.ReasonAwaitingDelivery, Message: "the cluster has not reported its nodes' kernels: check " +
			"that Drover runs there in spoke mode"}
	default:
		v.problem = reasons.Problem{Reason: v1beta1.ReasonNoKernelMapping, Message: "no kernel of the cluster has a mapping: add one to " +
			"spec.moduleSpec"}
	}
	return v, nil
}

// revision of the Module that the cluster must have; empty: there is none.
func (v *view) revision() string {
	if v.want == nil {
		return ""
	}
	return v.want.Annotations[RevisionAnnotation]
}

// sent: the cluster was sent exactly what it must have.
func (v *view) sent() bool {
	return v.want != nil && v.parcel.Module != nil && v.parcel.Module.Annotations[RevisionAnnotation] == v.revision()
}

// ready: the cluster is Ready with that, as far as the hub reaches it.
func (v *view) ready() bool {
	return v.sent() && v.target.Unreachable == "" && v.parcel.Report.ReadyWith(v.revision())
}

// cluster is how far the cluster is with what it was sent, whatever kernels are new there.
func (v *view) cluster() Cluster {
	c := Cluster{Name: v.target.Name, Labels: v.target.Labels, Sent: v.begun, Held: v.want != nil, Away: v.target.Unreachable != "",
		Unknown: v.target.Unknown && !v.target.New}
	if c.Sent {
		revision := v.parcel.Module.Annotations[RevisionAnnotation]
		c.Failed, c.Ready = v.parcel.Report.FailedWith(revision), v.parcel.Report.ReadyWith(revision)
		c.Declaration = v.parcel.Module.Annotations[DeclarationAnnotation]
	}
	return c
}

// state is how the cluster stands: first what keeps the hub from sending, then what keeps the
// cluster from applying, then what the cluster reports.
func (v *view) state() State {
	r := &v.parcel.Report
	s := State{Name: v.target.Name, Desired: r.Desired, Available: r.Available, Sent: v.sent(), Ready: v.ready(), Missing: v.unmade}
	s.Applied, s.Refused = s.Sent && r.Applied, s.Sent && r.Refused != ""
	switch {
	case v.target.Unreachable != "" && (v.target.Unknown || v.problem.Reason == ""):
		s.Reason, s.Message = v1beta1.ReasonAgentMissing, unreached(v.target)
	case v.problem.Reason != "":
		s.Reason, s.Message = v.problem.Reason, v.problem.Message
	case s.Ready:
		s.Reason = v1beta1.ReasonReady
	case !s.Sent:
		s.Reason, s.Message = v1beta1.ReasonRollingOut, "waits for its turn"
	case s.Refused:
		s.Reason, s.Message = v1beta1.ReasonDeliveryRefused, "the cluster refuses the Module: "+r.Refused
	case !r.Applied || r.Revision != v.revision() || !r.Current:
		s.Reason, s.Message = v1beta1.ReasonAwaitingDelivery, "sent; the cluster has not answered yet"
	default:
		s.Reason, s.Message = cmp.Or(r.Reason, v1beta1.ReasonLoading), r.Message
	}
	return s
}

// Fail says of a cluster that a Module could not be sent to it.
func (d *Decision) Fail(cluster string, err error) {
	for i := range d.States {
		switch s := &d.States[i]; {
		case s.Name != cluster || s.Refused:
		case Refuses(err):
			s.Ready, s.Refused, s.Reason, s.Message = false, true, v1beta1.ReasonDeliveryRefused, cut(err.Error())
		default: // its text differs at each try
			s.Ready, s.Reason, s.Message = false, v1beta1.ReasonAwaitingDelivery, "the Module could not be sent; the hub tries again within a minute"
		}
	}
}

// Refuses reports whether an API server refuses something, and is not only unable to take it now,
// or does not know the hub, whose token may have been renewed. Its answer is InternalError where a
// webhook does not answer, and where its schema lacks a field.
func Refuses(err error) bool {
	var answer apierrors.APIStatus
	return errors.Is(err, ErrTaken) || errors.As(err, &answer) && !apierrors.IsTooManyRequests(err) && !apierrors.IsServerTimeout(err) &&
		!apierrors.IsTimeout(err) && !apierrors.IsServiceUnavailable(err) && !apierrors.IsConflict(err) && !apierrors.IsUnauthorized(err)
}

func unreached(t *Target) string { return "the hub cannot reach the cluster: " + cut(t.Unreachable) }

// images pins the images that the hub makes by digest. there are the platforms that have their
// image, and problem is the first reason why another one has not.
func (f *Facts) images(cluster string, platforms []Platform) (there []Platform, pinned map[Platform]string, problem *reasons.Problem) {
	pinned = map[Platform]string{}
	for _, p := range platforms {
		image, wrong := f.image(cluster, p)
		if wrong != nil {
			if problem == nil {
				problem = wrong
			}
			continue
		}
		if there = append(there, p); image != "" {
			pinned[p] = image
		}
	}
	return there, pinned, problem
}

// image is that of a platform; empty: the hub does not make it.
func (f *Facts) image(cluster string, p Platform) (string, *reasons.Problem) {
	building := func(text string) (string, *reasons.Problem) {
		return "", &reasons.Problem{Reason: v1beta1.ReasonBuilding,
			Message: fmt.Sprintf("the image for kernel %s (%s) %s", p.Kernel, p.Architecture, text)}
	}
	if wrong, ok := f.Made.Problems[p]; ok {
		return "", &wrong
	}
	name := f.Made.For[p]
	if name == "" {
		return "", nil
	}
	if f.Limited[cluster][p] {
		return building(fmt.Sprintf("waits: the cluster has reported more than %d new kernels within an hour", MaxPlatforms))
	}
	image := f.Images[name]
	if image == nil || !slices.Contains(image.Spec.WantedBy, WantedBy(f.Module.Name)) {
		return building("has not been requested yet")
	}
	c := meta.FindStatusCondition(image.Status.Conditions, v1alpha1.ConditionAvailable)
	if c == nil || c.ObservedGeneration != image.Generation {
		return building("has not been checked yet")
	}
	if c.Status != metav1.ConditionTrue {
		return "", &reasons.Problem{Reason: c.Reason,
			Message: fmt.Sprintf("the image for kernel %s (%s) is missing: %s", p.Kernel, p.Architecture, cut(c.Message))}
	}
	return image.Status.Image, nil
}
