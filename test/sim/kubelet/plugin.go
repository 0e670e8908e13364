// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/agent/host/fake"
)

// warmup is how long a device plugin runs before it is ready: others act meanwhile.
const warmup = 3 * time.Second

// plugin is a pod of a device plugin on the node.
type plugin struct {
	name   string
	uid    types.UID
	began  metav1.Time
	waited metav1.Time // when its waiting container had ended; zero: not yet
	runs   bool        // its main container
	since  metav1.Time // when it is so, or is not so
	ready  bool
	ends   int32  // how often its main container has ended
	opened string // the kernel module that it has open; empty: none
}

// IsPlugin says whether a pod is a device plugin's.
func IsPlugin(pod *corev1.Pod) bool { return pod.Labels[v1beta1.RoleLabel] == v1beta1.RoleDevicePlugin }

// waitsFor is the kernel module for which a pod's first container waits; empty: for none.
func waitsFor(pod *corev1.Pod) string {
	for i := range pod.Spec.InitContainers {
		args := pod.Spec.InitContainers[i].Args
		if at := slices.Index(args, "--module"); at >= 0 && args[0] == "wait" && at+1 < len(args) {
			return args[at+1]
		}
	}
	return ""
}

// Open names the pods whose main container has a kernel module open.
func (k *Kubelet) Open(module string) (pods []string) {
	for _, p := range k.plugins {
		if p.opened == module {
			pods = append(pods, p.name)
		}
	}
	slices.Sort(pods)
	return pods
}

func (k *Kubelet) live(module string) bool {
	m, ok, err := k.Kernel.Module(module)
	return err == nil && ok && m.State == host.StateLive
}

func (k *Kubelet) now() metav1.Time { return metav1.NewTime(k.Clock.Now().Truncate(time.Second)) }

// plugin does the next thing for a pod of a device plugin; more: there will be another without an
// event of the API.
func (k *Kubelet) plugin(ctx context.Context, pod *corev1.Pod) (did, more bool) {
	p, now := k.plugins[pod.UID], k.Clock.Now()
	switch {
	case pod.DeletionTimestamp != nil && now.Before(k.stuck):
		return false, true
	case pod.DeletionTimestamp != nil:
		k.stop(p)
		k.end(ctx, pod)
		return true, false
	case p == nil && now.Before(k.pullless):
		return k.cannotPull(ctx, pod), true
	case p == nil:
		p = &plugin{name: pod.Namespace + "/" + pod.Name, uid: pod.UID, began: k.now(), since: k.now()}
		if k.plugins == nil {
			k.plugins = map[types.UID]*plugin{}
		}
		k.plugins[pod.UID] = p
	}
	module := waitsFor(pod)
	if p.waited.IsZero() && module != "" && !k.live(module) {
		return k.tell(ctx, pod, p), true
	}
	if p.waited.IsZero() {
		p.waited = k.now()
	}
	switch fails := now.Before(k.crashing); {
	case fails && p.runs:
		k.stop(p)
		p.runs, p.ready, p.since = false, false, k.now()
		p.ends++
	case !fails && !p.runs:
		p.runs, p.since = true, k.now()
		k.open(p, module)
	}
	if age := now.Sub(p.since.Time); p.runs && (age >= warmup || age < 0) { // below 0: the clock has stepped
		p.ready = true
	}
	return k.tell(ctx, pod, p), !p.ready || now.Before(k.crashing)
}

// open has the main container open the device of a kernel module, if there is one.
func (k *Kubelet) open(p *plugin, module string) {
	if module != "" && k.Kernel.HoldBy(module, host.User{Kind: host.UserProcess, Name: "plugin", Pod: p.name, PodUID: string(p.uid)}) == nil {
		p.opened = module
		k.Trace("      %s: %s opens %s", k.Node, p.name, module)
	}
}

// stop ends the main container, if it runs.
func (k *Kubelet) stop(p *plugin) {
	if p != nil && p.opened != "" {
		LetGo(k.Kernel, p.opened, func(u host.User) bool { return u.Pod == p.name })
		k.Trace("      %s: %s closes %s", k.Node, p.name, p.opened)
		p.opened = ""
	}
}

// LetGo ends those uses of a kernel module that are meant, and leaves the others.
func LetGo(kernel *fake.Host, module string, meant func(host.User) bool) {
	m, ok, err := kernel.Module(module)
	must(err)
	if !ok {
		return
	}
	known, err := kernel.Users(module)
	must(err)
	known = slices.DeleteFunc(known, func(u host.User) bool { return u.Kind == host.UserModule })
	all := append(make([]host.User, m.RefCount-len(m.Holders)-len(known)), known...)
	for range all {
		must(kernel.Unhold(module))
	}
	for _, u := range all {
		if !meant(u) {
			must(kernel.HoldBy(module, u))
		}
	}
}

// tell writes the pod's status; false: it is so already.
func (k *Kubelet) tell(ctx context.Context, pod *corev1.Pod, p *plugin) bool {
	was := pod.Status.DeepCopy()
	s := &pod.Status
	s.InitContainerStatuses = nil
	for i := range pod.Spec.InitContainers {
		c := corev1.ContainerStatus{Name: pod.Spec.InitContainers[i].Name, Image: pod.Spec.InitContainers[i].Image}
		if p.waited.IsZero() {
			c.State.Running = &corev1.ContainerStateRunning{StartedAt: p.began}
		} else {
			c.Ready = true
			c.State.Terminated = &corev1.ContainerStateTerminated{Reason: "Completed", StartedAt: p.began, FinishedAt: p.waited}
		}
		s.InitContainerStatuses = append(s.InitContainerStatuses, c)
	}
	c := pod.Spec.Containers[0]
	main := corev1.ContainerStatus{Name: c.Name, Image: c.Image, Ready: p.ready, RestartCount: p.ends}
	switch {
	case p.waited.IsZero():
		main.State.Waiting = &corev1.ContainerStateWaiting{Reason: "PodInitializing"}
	case p.runs:
		main.State.Running = &corev1.ContainerStateRunning{StartedAt: p.since}
		s.Phase = corev1.PodRunning
	default:
		main.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "the simulation has it crash"}
		s.Phase = corev1.PodRunning
	}
	s.ContainerStatuses = []corev1.ContainerStatus{main}
	say(s, corev1.PodInitialized, !p.waited.IsZero(), p.waited)
	turned := p.since
	if p.ready {
		turned = metav1.NewTime(p.since.Add(warmup))
	}
	say(s, corev1.ContainersReady, p.ready, turned)
	say(s, corev1.PodReady, p.ready, turned)
	if equality.Semantic.DeepEqual(was, s) {
		return false
	}
	must(k.Cluster.Admin.Status().Update(ctx, pod))
	return true
}

// say writes a condition; its time changes with its status.
func say(s *corev1.PodStatus, kind corev1.PodConditionType, is bool, since metav1.Time) {
	status := corev1.ConditionFalse
	if is {
		status = corev1.ConditionTrue
	}
	for i := range s.Conditions {
		if c := &s.Conditions[i]; c.Type == kind {
			if c.Status != status {
				c.Status, c.LastTransitionTime = status, since
			}
			return
		}
	}
	s.Conditions = append(s.Conditions, corev1.PodCondition{Type: kind, Status: status, LastTransitionTime: since})
}
