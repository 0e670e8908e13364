// SPDX-License-Identifier: Apache-2.0

package nodeplan

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/delivery"
	"github.com/drover-project/drover/internal/shared/strikes"
)

func TestPlanForANode(t *testing.T) {
	order := aimed(t)
	id := order.Delivery.ID
	deleting := other(func(m *v1beta1.Module) { m.DeletionTimestamp = &metav1.Time{Time: noon} })
	entry := func(carrier types.UID, change ...func(*v1beta1.NodeModuleSpec)) func(*scene) {
		return func(s *scene) {
			e := order.DeepCopy()
			e.Delivery.CarrierUID = carrier
			for _, c := range change {
				c(e)
			}
			s.node.Config.Spec.Modules = append(s.node.Config.Spec.Modules, *e)
			if e.State == v1beta1.NodeModuleAbsent {
				s.node.Config.Finalizers = []string{OrdersFinalizer}
			}
		}
	}
	absentEntry := func(e *v1beta1.NodeModuleSpec) { e.State, e.Reason = v1beta1.NodeModuleAbsent, "Deleted" }
	live := func(s *scene) {
		s.node.Config.Status.Modules = []v1beta1.NodeModuleStatus{{
			ModuleItem: order.ModuleItem, Config: &order.Config, BootID: thisBoot, Observed: &v1beta1.ObservedModule{BuildID: "b1"},
		}}
	}
	foreign := func(s *scene) { live(s); s.node.Config.Status.Modules[0].Observed = nil }
	holding := func(s *scene) { s.node.Config.Status.Artifacts = []v1beta1.NodeArtifact{{ID: id}} }
	carrier := func(uid types.UID, change ...func(*corev1.Pod)) func(*scene) {
		return func(s *scene) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: delivery.CarrierName("team", "nic", "n", id), UID: uid}}
			for _, c := range change {
				c(pod)
			}
			s.node.Carriers = append(s.node.Carriers, pod)
		}
	}
	runs := func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{
			{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(noon)}}}}
	}
	since := func(d time.Duration) func(*scene) { return func(s *scene) { s.waited = d } }
	pausedModule, pausedEntry := annotated(v1beta1.PausedAnnotation, ""), func(e *v1beta1.NodeModuleSpec) { e.Paused = true }
	askedModule := annotated(v1beta1.RetryAnnotation, noon.Format(time.RFC3339))
	askedEntry := func(e *v1beta1.NodeModuleSpec) { e.Retry = &metav1.Time{Time: noon.Local()} }
	deselected := func(s *scene) { s.node.Node.Labels = nil }
	loaderless := other(func(m *v1beta1.Module) { m.Spec.ModuleLoader = nil })
	unmapped := func(s *scene) { s.node.Node.Status.NodeInfo.KernelVersion = "5.4" }
	unwanted := func(d time.Duration) func(*scene) { return func(s *scene) { s.unwanted = noon.Add(-d) } }
	struck := func(s *scene) { s.verdict.Held = map[string]strikes.Strike{id: {Node: "other"}} }
	outside := func(s *scene) { s.verdict.Excuse = map[string]time.Time{"n": noon} }
	old := entry("old", func(e *v1beta1.NodeModuleSpec) { e.Delivery.ID = "old" })
	excusedEntry := func(e *v1beta1.NodeModuleSpec) { e.Excused = &metav1.Time{Time: noon} }
	trusted := func(s *scene) { s.trusted = true }
	noConfig := func(s *scene) { s.node.Config = nil }
	cases := map[string]struct {
		given []func(*scene)
		then  outcome
	}{
		"a new node gets a carrier and an order": {
			given: []func(*scene){noConfig}, then: outcome{Creates: true, Writes: true, Remaining: 1},
		},
		"nothing is delivered to a node that is not Ready": {
			given: []func(*scene){noConfig, func(s *scene) { s.node.Node.Status.Conditions = nil }},
		},
		"nor while the last failure rests": {given: []func(*scene){noConfig, func(s *scene) { s.resting = true }}},
		"nor unsealed":                     {given: []func(*scene){noConfig, func(s *scene) { s.unsealed = true }}, then: outcome{Blocked: true}},
		"nor to a node that nobody selects": {
			given: []func(*scene){noConfig, other(func(m *v1beta1.Module) { m.Spec.Selector = map[string]string{"nic": "no"} })},
		},
		"nor to a node whose taint is not tolerated": {
			given: []func(*scene){noConfig, func(s *scene) {
				s.node.Node.Spec.Taints = []corev1.Taint{{Key: "x", Effect: corev1.TaintEffectNoSchedule}}
			}},
		},
		"nor to a node whose kernel has no mapping": {
			given: []func(*scene){noConfig, func(s *scene) { s.node.Node.Status.NodeInfo.KernelVersion = "5.4" }},
		},
		"nor without a moduleLoader": {given: []func(*scene){noConfig, loaderless}},
		"nor to a paused node": {
			given: []func(*scene){noConfig, func(s *scene) { s.node.Node.Annotations = map[string]string{v1beta1.PausedAnnotation: "no"} }},
		},
		"a node that holds the image needs no carrier": {given: []func(*scene){holding}, then: outcome{Writes: true, Remaining: 1}},
		"a carrier of ours at work is waited for": {
			given: []func(*scene){entry(ours), carrier(ours)}, then: outcome{Working: true, Remaining: 1, Patience: StartTime},
		},
		"and is quiet while it pulls": {given: []func(*scene){entry(ours), carrier(ours), since(QuietTime)},
			then: outcome{Working: true, Quiet: true, Remaining: 1, Patience: StartTime - QuietTime}},
		"a carrier of ours that no entry names yet is named": {
			given: []func(*scene){noConfig, carrier(ours), trusted},
			then:  outcome{Writes: true, Carrier: ours, Working: true, Remaining: 1, Patience: StartTime},
		},
		"a carrier that nobody remembers is not named": {
			given: []func(*scene){noConfig, carrier("stranger")}, then: outcome{Discards: true},
		},
		"a carrier in the place of the one that an entry names is not trusted": {
			given: []func(*scene){entry(ours), carrier("stranger")}, then: outcome{Discards: true, Remaining: 1},
		},
		"a carrier of another mode is made again": {
			given: []func(*scene){entry(ours), carrier(ours, func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{{Name: "copy"}} })},
			then:  outcome{Discards: true, Remaining: 1},
		},
		"a carrier that waits for an image is made again with other Secrets": {
			given: []func(*scene){entry(ours), carrier(ours, func(p *corev1.Pod) {
				p.Annotations = map[string]string{v1beta1.PullsAsAnnotation: "as before"}
			})},
			then: outcome{Discards: true, Remaining: 1},
		},
		"a carrier that has its image needs no other Secrets": {
			given: []func(*scene){entry(ours), carrier(ours, func(p *corev1.Pod) {
				p.Annotations = map[string]string{v1beta1.PullsAsAnnotation: "as before"}
				runs(p)
			})},
			then: outcome{Working: true, Remaining: 1, Patience: CollectTime},
		},
		"one that does not start gives its slot back in time": {
			given: []func(*scene){entry(ours), carrier(ours), since(StartTime)}, then: outcome{Remaining: 1, Told: v1beta1.ReasonAwaitingDelivery},
		},
		"a carrier that is going is waited for": {
			given: []func(*scene){entry(ours), carrier(ours, func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: noon} })},
			then:  outcome{Remaining: 1},
		},
		"a carrier that failed is taken away, and rests": {
			given: []func(*scene){entry(ours), carrier(ours, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })},
			then:  outcome{Discards: true, Failed: true, Remaining: 1},
		},
		"a carrier that cannot pull holds no slot": {
			given: []func(*scene){entry(ours), carrier(ours, func(p *corev1.Pod) {
				p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{
					Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"},
				}}}
			})},
			then: outcome{Remaining: 1},
		},
		"nor does one whose content the agent refused": {
			given: []func(*scene){entry(ours), carrier(ours), attempt(v1beta1.AttemptFailed)}, then: outcome{Remaining: 1},
		},
		"a carrier that runs is waited for": {
			given: []func(*scene){entry(ours), carrier(ours, runs), since(59 * time.Second)},
			then:  outcome{Working: true, Quiet: true, Remaining: 1, Patience: time.Second},
		},
		"one that nobody collects holds no slot, and says so": {
			given: []func(*scene){entry(ours), carrier(ours, runs), since(time.Minute)},
			then:  outcome{Remaining: 1, Told: v1beta1.ReasonAgentMissing},
		},
		"nor does one on a node that is not Ready": {
			given: []func(*scene){entry(ours), carrier(ours), func(s *scene) { s.node.Node.Status.Conditions = nil }}, then: outcome{Remaining: 1},
		},
		"the carrier of another delivery goes, a new one comes": {
			given: []func(*scene){entry("old", func(e *v1beta1.NodeModuleSpec) { e.Delivery.ID = "old" }), carrier("old", func(p *corev1.Pod) {
				p.Name = delivery.CarrierName("team", "nic", "n", "old")
			})},
			then: outcome{Discards: true, Creates: true, Writes: true, Remaining: 1},
		},
		"a carrier is what its name says": {
			given: []func(*scene){noConfig, trusted, carrier(ours, func(p *corev1.Pod) {
				p.Name = delivery.CarrierName("team", "nic", "other", id)
				p.Annotations = map[string]string{v1beta1.DeliveryAnnotation: id}
			})},
			then: outcome{Discards: true, Creates: true, Writes: true, Remaining: 1},
		},
		"delivered: the carrier goes, the entry stays as it is": {
			given: []func(*scene){entry(ours), holding, live, carrier(ours)}, then: outcome{Discards: true, Remaining: 1},
		},
		"at rest nothing happens": {given: []func(*scene){entry(ours), holding, live}, then: outcome{Remaining: 1}},
		"a taint on a node that has it": {given: []func(*scene){entry(ours), holding, live, func(s *scene) {
			s.node.Node.Spec.Taints = []corev1.Taint{{Key: "x", Effect: corev1.TaintEffectNoExecute}}
		}}, then: outcome{Remaining: 1}},
		"a node that is not Ready any more": {given: []func(*scene){entry(ours), holding, live,
			func(s *scene) { s.node.Node.Status.Conditions = nil }}, then: outcome{Remaining: 1}},
		"changed parameters need no delivery": {given: []func(*scene){entry(ours), holding, live,
			other(func(m *v1beta1.Module) { m.Spec.ModuleLoader.Container.Modprobe.Parameters = []string{"a=1"} })},
			then: outcome{Writes: true, Carrier: ours, Remaining: 1}},
		"a changed image is delivered ahead of the order": {
			given: []func(*scene){entry(ours), holding, live,
				other(func(m *v1beta1.Module) { m.Spec.ModuleLoader.Container.KernelMappings[0].ContainerImage = "r/nic:2" })},
			then: outcome{Creates: true, Writes: true, Carrier: ours, Remaining: 1},
		},
		"a changed image while the node is away changes nothing yet": {
			given: []func(*scene){entry(ours), holding, live, func(s *scene) { s.node.Node.Status.Conditions = nil }, other(func(m *v1beta1.Module) {
				m.Spec.ModuleLoader.Container.KernelMappings[0].ContainerImage = "r/nic:2"
			})},
			then: outcome{Remaining: 1},
		},
		"a Module that cannot be resolved keeps what there is": {
			given: []func(*scene){entry(ours), holding, live, other(func(m *v1beta1.Module) {
				m.Spec.ModuleLoader.Container.KernelMappings[0].ContainerImage = "r/nic:${NOPE}"
			})},
			then: outcome{Remaining: 1},
		},
		"an owner reference to the node before it was made anew is renewed": {
			given: []func(*scene){entry(ours), holding, live, func(s *scene) { s.node.Config.OwnerReferences[0].UID = "before" }},
			then:  outcome{Writes: true, Carrier: ours, Remaining: 1},
		},
		"labels that an older operator did not know are added": {
			given: []func(*scene){entry(ours), holding, live, func(s *scene) { s.node.Config.Labels = nil }},
			then:  outcome{Writes: true, Carrier: ours, Remaining: 1},
		},
		"an entry that somebody changed is put right": {
			given: []func(*scene){entry(ours, func(e *v1beta1.NodeModuleSpec) { e.Config.ContainerImage = "r/evil:1" }), holding, live},
			then:  outcome{Writes: true, Carrier: ours, Remaining: 1},
		},
		"wanted again before it left": {
			given: []func(*scene){entry(ours, absentEntry), holding, live},
			then:  outcome{Writes: true, State: v1beta1.NodeModulePresent, Carrier: ours, Remaining: 1},
		},
		"and so it stays": {
			given: []func(*scene){entry(ours, func(e *v1beta1.NodeModuleSpec) { e.State = v1beta1.NodeModulePresent }), holding, live},
			then:  outcome{Remaining: 1},
		},

		"deleted: ordered to leave": {
			given: []func(*scene){entry(ours), holding, live, deleting},
			then:  outcome{Writes: true, State: v1beta1.NodeModuleAbsent, Reason: ReasonDeleted, Carrier: ours, Remaining: 1},
		},
		"deleted while it was delivered": {
			given: []func(*scene){entry(ours), carrier(ours), deleting},
			then:  outcome{Discards: true, Writes: true, State: v1beta1.NodeModuleAbsent, Reason: ReasonDeleted, Carrier: ours, Remaining: 1},
		},
		"gone without a word": {
			given: []func(*scene){entry(ours), live, func(s *scene) { s.module = nil }},
			then:  outcome{Writes: true, State: v1beta1.NodeModuleAbsent, Reason: ReasonDeleted, Carrier: ours},
		},
		"deselected: waits for the labels to come back": {
			given: []func(*scene){entry(ours), holding, live, deselected},
			then:  outcome{Remaining: 1, Patience: 5 * time.Minute},
		},
		"deselected, and not for long enough": {
			given: []func(*scene){entry(ours), holding, live, deselected, unwanted(5*time.Minute - time.Second)},
			then:  outcome{Remaining: 1, Patience: time.Second},
		},
		"deselected for long enough": {
			given: []func(*scene){entry(ours), holding, live, deselected, unwanted(5 * time.Minute)},
			then:  outcome{Writes: true, State: v1beta1.NodeModuleAbsent, Reason: ReasonDeselected, Carrier: ours, Remaining: 1},
		},
		"deselected, with a grace of its own": {
			given: []func(*scene){entry(ours), holding, live, deselected, grace(time.Hour), unwanted(time.Minute)},
			then:  outcome{Remaining: 1, Patience: 59 * time.Minute},
		},
		"deselected, without grace": {
			given: []func(*scene){entry(ours), holding, live, deselected, grace(0)},
			then:  outcome{Writes: true, State: v1beta1.NodeModuleAbsent, Reason: ReasonDeselected, Carrier: ours, Remaining: 1},
		},
		"deselected and deleted: the deletion does not wait": {
			given: []func(*scene){entry(ours), holding, live, deselected, deleting},
			then:  outcome{Writes: true, State: v1beta1.NodeModuleAbsent, Reason: ReasonDeleted, Carrier: ours, Remaining: 1},
		},
		"deselected: an order that a process before this one gave stands": {
			given: []func(*scene){entry(ours, absentEntry), live, deselected}, then: outcome{Remaining: 1, Patience: AnswerTime},
		},
		"deselected before it was loaded: nothing is given up for a moment without labels": {
			given: []func(*scene){entry(ours), carrier(ours), deselected}, then: outcome{Remaining: 1, Patience: 5 * time.Minute},
		},
		"deselected before anything was ordered": {
			given: []func(*scene){noConfig, carrier(ours), deselected}, then: outcome{Discards: true},
		},
		"mapping lost: waits for it to come back": {
			given: []func(*scene){entry(ours), holding, live, unmapped},
			then:  outcome{Remaining: 1, Patience: 5 * time.Minute},
		},
		"mapping lost for long enough": {
			given: []func(*scene){entry(ours), holding, live, unmapped, unwanted(time.Hour)},
			then:  outcome{Writes: true, State: v1beta1.NodeModuleAbsent, Reason: ReasonMappingLost, Carrier: ours, Remaining: 1},
		},
		"loader removed": {given: []func(*scene){entry(ours), holding, live, loaderless}, then: outcome{Remaining: 1, Patience: 5 * time.Minute}},
		"loader removed for long enough": {
			given: []func(*scene){entry(ours), holding, live, unwanted(time.Hour), loaderless},
			then:  outcome{Writes: true, State: v1beta1.NodeModuleAbsent, Reason: ReasonLoaderRemoved, Carrier: ours, Remaining: 1},
		},
		"paused while being deleted waits, and the agent is told": {
			given: []func(*scene){entry(ours), live, deleting, pausedModule},
			then:  outcome{Writes: true, Paused: true, Carrier: ours, Remaining: 1},
		},
		"paused: an order to unload is told of it too": {
			given: []func(*scene){entry(ours, absentEntry), live, deleting, pausedModule},
			then:  outcome{Writes: true, Paused: true, State: v1beta1.NodeModuleAbsent, Reason: ReasonDeleted, Carrier: ours, Remaining: 1},
		},
		"paused: told once, whatever else changes": {
			given: []func(*scene){entry(ours, pausedEntry), holding, live, pausedModule, askedModule, other(func(m *v1beta1.Module) {
				m.Spec.ModuleLoader.Container.Modprobe.Parameters = []string{"a=1"}
			})},
			then: outcome{Remaining: 1},
		},
		"paused: an order of somebody else is left alone": {
			given: []func(*scene){entry(ours, func(e *v1beta1.NodeModuleSpec) { e.Delivery = nil }), pausedModule}, then: outcome{Remaining: 1},
		},
		"the pause ends": {
			given: []func(*scene){entry(ours, pausedEntry), holding, live},
			then:  outcome{Writes: true, Carrier: ours, Remaining: 1},
		},
		"the pause of an order to unload ends": {
			given: []func(*scene){entry(ours, absentEntry, pausedEntry), live, deleting},
			then:  outcome{Writes: true, State: v1beta1.NodeModuleAbsent, Reason: ReasonDeleted, Carrier: ours, Remaining: 1},
		},
		"the pause ends while the node is not wanted": {
			given: []func(*scene){entry(ours, pausedEntry), live, deselected},
			then:  outcome{Writes: true, Carrier: ours, Remaining: 1, Patience: 5 * time.Minute},
		},
		"a retry is passed on": {
			given: []func(*scene){entry(ours), holding, live, askedModule}, then: outcome{Writes: true, Asked: true, Carrier: ours, Remaining: 1},
		},
		"a retry is passed on once": {
			given: []func(*scene){entry(ours, askedEntry), holding, live, askedModule}, then: outcome{Remaining: 1},
		},
		"a retry of an order to unload": {
			given: []func(*scene){entry(ours, absentEntry), live, deleting, askedModule},
			then:  outcome{Writes: true, Asked: true, State: v1beta1.NodeModuleAbsent, Reason: ReasonDeleted, Carrier: ours, Remaining: 1},
		},
		"a retry does not wait for a delivery that rests": {
			given: []func(*scene){noConfig, func(s *scene) { s.resting = true }, askedModule},
			then:  outcome{Creates: true, Writes: true, Asked: true, Remaining: 1},
		},
		"a build that took a node down is delivered nowhere": {given: []func(*scene){noConfig, struck}},
		"nor ordered where it is held":                       {given: []func(*scene){holding, struck}},
		"nor where another build runs, which stays":          {given: []func(*scene){old, live, holding, struck}, then: outcome{Remaining: 1}},
		"nor where it shall leave": {
			given: []func(*scene){entry(ours, absentEntry), holding, struck}, then: outcome{Remaining: 1},
		},
		"what is live and shall leave may stay": {
			given: []func(*scene){entry(ours, absentEntry), holding, live, struck},
			then:  outcome{Writes: true, State: v1beta1.NodeModulePresent, Carrier: ours, Remaining: 1},
		},
		"nodes that have the order go on": {given: []func(*scene){entry(ours), carrier(ours), struck},
			then: outcome{Working: true, Remaining: 1, Patience: StartTime}},
		"what is live and lost its order is claimed": {given: []func(*scene){holding, live, struck}, then: outcome{Writes: true, Remaining: 1}},
		"a pause still reaches a node that waits": {
			given: []func(*scene){old, live, struck, pausedModule}, then: outcome{Writes: true, Paused: true, Carrier: "old", Remaining: 1},
		},
		"another build than the one that took a node down is delivered": {
			given: []func(*scene){noConfig, struck,
				other(func(m *v1beta1.Module) { m.Spec.ModuleLoader.Container.KernelMappings[0].ContainerImage = "r/nic:2" })},
			then: outcome{Creates: true, Writes: true, Remaining: 1},
		},
		"a cause from outside is excused": {given: []func(*scene){entry(ours), holding, outside},
			then: outcome{Writes: true, Excused: true, Carrier: ours, Remaining: 1}},
		"once": {given: []func(*scene){entry(ours, excusedEntry), holding, outside},
			then: outcome{Remaining: 1, Patience: AnswerTime}},
		"and it stays said": {given: []func(*scene){entry(ours, excusedEntry), holding, live}, then: outcome{Remaining: 1}},
		"until another delivery is ordered": {
			given: []func(*scene){entry("old", excusedEntry, func(e *v1beta1.NodeModuleSpec) { e.Delivery.ID = "old" }), holding, live},
			then:  outcome{Writes: true, Remaining: 1},
		},
		"leaving: no answer yet": {given: []func(*scene){entry(ours, absentEntry), live, deleting},
			then: outcome{Remaining: 1, Patience: v1beta1.DefaultDeletionTimeout}},
		"leaving: in use": {given: []func(*scene){entry(ours, absentEntry), live, deleting, attempt(v1beta1.AttemptInUse)},
			then: outcome{Remaining: 1, Patience: v1beta1.DefaultDeletionTimeout}},
		"leaving: an answer of before": {given: []func(*scene){entry(ours, absentEntry), live, deleting, attempt(v1beta1.AttemptAbsent)},
			then: outcome{Remaining: 1, Patience: v1beta1.DefaultDeletionTimeout}},
		"left: the entry goes": {given: []func(*scene){entry(ours, absentEntry), deleting, attempt(v1beta1.AttemptAbsent)},
			then: outcome{Removes: true}},
		"left: another claims it live": {given: []func(*scene){entry(ours, absentEntry), foreign, deleting, attempt(v1beta1.AttemptAbsent)},
			then: outcome{Removes: true}},
		"left: beside another's entry": {given: []func(*scene){neighbour, entry(ours, absentEntry), deleting, attempt(v1beta1.AttemptAbsent)},
			then: outcome{Removes: true}},
		"left: two at the same time":    {given: []func(*scene){deleting, attempt(v1beta1.AttemptAbsent)}, then: outcome{Removes: true}},
		"left: another's entry remains": {given: []func(*scene){neighbour, deleting, attempt(v1beta1.AttemptAbsent)}},
		"unclaimed, and no such Module: kept": {
			given: []func(*scene){live, attempt(v1beta1.AttemptUnclaimed), func(s *scene) { s.module = nil }},
		},
		"an order from before the definition of Modules came: kept": {
			given: []func(*scene){entry(ours), live, func(s *scene) { s.module, s.defined = nil, noon }},
		},
		"unclaimed leaves by an order": {
			given: []func(*scene){live, attempt(v1beta1.AttemptUnclaimed), deleting},
			then:  outcome{Writes: true, State: v1beta1.NodeModuleAbsent, Reason: ReasonDeleted, Remaining: 1},
		},
		"unclaimed and wanted is claimed": {
			given: []func(*scene){live, holding, attempt(v1beta1.AttemptUnclaimed)}, then: outcome{Writes: true, Remaining: 1},
		},
		"a node that is gone waits for nobody": {
			given: []func(*scene){entry(ours), live, deleting, carrier(ours), func(s *scene) { s.node.Node = nil }}, then: outcome{Discards: true},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := &scene{module: given(), node: emptyNode()}
			for _, change := range tc.given {
				change(s)
			}
			if diff := cmp.Diff(tc.then, s.play(t)); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
		})
	}
}
