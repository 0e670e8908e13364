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
	"github.com/drover-project/drover/internal/reasons"
	"github.com/drover-project/drover/internal/rollout"
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
	// Limited are platforms of clusters that name too many new ones, for which no image is made yet.
	Limited map[string]map[Platform]bool
	// Seen dates since when clusters are Ready with what they were sent: the soak time counts from then.
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
	// Send are the Modules to bring to clusters, where they are not what the clusters have already, by cluster.
	Send map[string]*v1beta1.Module
	// Recall are clusters that have a Module and are not selected. Mass are such, too, and keep it: they are too many, and nobody has confirmed that.
	Recall, Mass []string
	// Confirmation is one that does not count for Mass, for it is not of the last hour; zero: there is none.
	Confirmation time.Time
	// States are how all selected clusters stand, by name in order.
	States []State
	Order  *Order
	// Absent are the transports that have nothing to work with.
	Absent []string
	// Kept are clusters that are not selected, and do not let the Module be deleted.
	Kept []State
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
		// What was sent is sent again where it was changed or deleted. New kernels do not wait for a wave.
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
	// want is the Module that it shall have; nil: not yet, for what problem says. Unmade: an image is missing.
	want    *v1beta1.Module
	problem reasons.Problem
	unmade  bool
	parcel  Parcel
	// begun: what it was sent is what is wanted, but for kernels that are new there.
	begun bool
}

// look sees how one cluster stands. known are the Modules of clusters, by the platforms that they run.
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
	if have := v.parcel.Module; have != nil {
		v.begun = module != nil && Extends(have, module) || module == nil && have.Annotations[DeclarationAnnotation] == f.Made.Declaration
	}
	switch {
	case problem != nil:
		v.problem, v.unmade = *problem, problem.Reason != v1beta1.ReasonNoKernelMapping
	case module != nil:
		v.want = module
	case len(v.platforms) == 0:
		v.problem = reasons.Problem{Reason: v1beta1.ReasonAwaitingDelivery, Message: "the cluster has not told which kernels its nodes run: is Drover there, in spoke mode?"}
	default:
		v.problem = reasons.Problem{Reason: v1beta1.ReasonNoKernelMapping, Message: "no kernel of the cluster has a mapping"}
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

// sent: the cluster was given just what it shall have.
func (v *view) sent() bool {
	return v.want != nil && v.parcel.Module != nil && v.parcel.Module.Annotations[RevisionAnnotation] == v.revision()
}

// ready: with that. Of one that is not reached, nobody knows.
func (v *view) ready() bool {
	return v.sent() && v.target.Unreachable == "" && v.parcel.Report.ReadyWith(v.revision())
}

// cluster is how far it is with what it was sent. Kernels that are new there make nothing of that undone.
func (v *view) cluster() Cluster {
	c := Cluster{Name: v.target.Name, Labels: v.target.Labels, Sent: v.begun, Held: v.want != nil, Away: v.target.Unreachable != ""}
	if c.Sent {
		revision := v.parcel.Module.Annotations[RevisionAnnotation]
		c.Failed, c.Ready = v.parcel.Report.FailedWith(revision), v.parcel.Report.ReadyWith(revision)
		c.Declaration = v.parcel.Module.Annotations[DeclarationAnnotation]
	}
	return c
}

// state is how the cluster stands: what keeps the hub from sending, then what keeps the cluster from taking, then what the cluster says.
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
		s.Reason, s.Message = v1beta1.ReasonDeliveryRefused, "the cluster does not take the Module: "+r.Refused
	case !r.Applied || r.Revision != v.revision() || !r.Current:
		s.Reason, s.Message = v1beta1.ReasonAwaitingDelivery, "sent; the cluster has not answered"
	default:
		s.Reason, s.Message = cmp.Or(r.Reason, v1beta1.ReasonLoading), r.Message
	}
	return s
}

// Fail says of a cluster that nothing could be sent to it: it was refused, or it could not be asked and is tried again.
func (d *Decision) Fail(cluster string, err error) {
	for i := range d.States {
		switch s := &d.States[i]; {
		case s.Name != cluster || s.Refused:
		case Refuses(err):
			s.Ready, s.Refused, s.Reason, s.Message = false, true, v1beta1.ReasonDeliveryRefused, cut(err.Error())
		default: // its text is another one at each try
			s.Ready, s.Reason, s.Message = false, v1beta1.ReasonAwaitingDelivery, "could not be sent; it is tried again within a minute"
		}
	}
}

// Refuses reports whether an API server has answered that it does not take something, in place of that it cannot do so now. It says InternalError where a
// webhook does not answer, and where its schema lacks a field.
func Refuses(err error) bool {
	var answer apierrors.APIStatus
	return errors.Is(err, ErrTaken) || errors.As(err, &answer) && !apierrors.IsTooManyRequests(err) && !apierrors.IsServerTimeout(err) &&
		!apierrors.IsTimeout(err) && !apierrors.IsServiceUnavailable(err) && !apierrors.IsConflict(err)
}

func unreached(t *Target) string { return "the cluster is not reached: " + cut(t.Unreachable) }

// images are those of platforms by digest, as far as the hub makes them. There are the platforms whose images there are, and problem is what keeps one of
// the others.
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
		return "", &reasons.Problem{Reason: v1beta1.ReasonBuilding, Message: fmt.Sprintf("the image for kernel %s (%s) is to be %s", p.Kernel, p.Architecture, text)}
	}
	if wrong, ok := f.Made.Problems[p]; ok {
		return "", &wrong
	}
	name := f.Made.For[p]
	if name == "" {
		return "", nil
	}
	if f.Limited[cluster][p] {
		return building(fmt.Sprintf("made later: the cluster has named more than %d new kernels within an hour", MaxPlatforms))
	}
	image := f.Images[name]
	if image == nil || !slices.Contains(image.Spec.WantedBy, WantedBy(f.Module.Name)) {
		return building("made")
	}
	c := meta.FindStatusCondition(image.Status.Conditions, v1alpha1.ConditionAvailable)
	if c == nil || c.ObservedGeneration != image.Generation {
		return building("looked for")
	}
	if c.Status != metav1.ConditionTrue {
		return "", &reasons.Problem{Reason: c.Reason, Message: fmt.Sprintf("the image for kernel %s (%s) is not there: %s", p.Kernel, p.Architecture, cut(c.Message))}
	}
	return image.Status.Image, nil
}
