// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/gate"
	"github.com/drover-project/drover/internal/operator/watch"
	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/shared/rollout"
)

// +kubebuilder:rbac:groups=kmm.sigs.x-k8s.io,resources=nodemodulesconfigs,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;delete

const (
	// podNodeIndex is the index of pods with our waiting container by node.
	podNodeIndex = "drover.dev/waiting-pod-node"
	// restartDelay gives others time: the ready label, or the kubelet after a boot, may end the pod.
	restartDelay = 3 * time.Second
)

// restarter ends plugin pods that found an older instance of the kernel module than the live one;
// the DaemonSet then starts new ones. Mostly the ready label has done that, but after a quick
// reload it may be back before anybody has looked.
//
// Both times are by the node's clock. If that is set back, every pod looks too old, so each load
// ends a node's pod only once.
type restarter struct {
	client client.Client
	gate   *gate.Gate

	mu sync.Mutex
	// done is the load for which each node's pods of a Module were ended last.
	done map[string]map[types.NamespacedName]metav1.Time
}

// Reconcile looks at one node.
func (r *restarter) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if r.gate.Closed() != nil {
		return reconcile.Result{RequeueAfter: gate.Pause}, nil
	}
	config := &v1beta1.NodeModulesConfig{}
	found, err := kube.Find(ctx, r.client, request.NamespacedName, config)
	if !found || err != nil {
		if err == nil {
			r.forget(request.Name)
		}
		return reconcile.Result{}, err
	}
	var pods corev1.PodList
	err = r.client.List(ctx, &pods, client.MatchingFields{podNodeIndex: request.Name},
		client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("list plugin pods: %w", err)
	}
	for i := range pods.Items {
		if err := r.restart(ctx, config, &pods.Items[i]); err != nil {
			return reconcile.Result{}, err
		}
	}
	return reconcile.Result{}, nil
}

func (r *restarter) restart(ctx context.Context, config *v1beta1.NodeModulesConfig, pod *corev1.Pod) error {
	module := watch.ModuleOf(pod)
	began := loadOf(config, module)
	if began == nil || !outlived(pod, began) || r.did(config.Name, module, began) {
		return nil
	}
	if ours, err := kube.DaemonSetOf(ctx, r.client, pod, module, &v1beta1.Module{}); ours == nil || err != nil {
		return err
	}
	if err := kube.Delete(ctx, r.client, pod); err != nil {
		return fmt.Errorf("restart a plugin: %w", err)
	}
	r.note(config.Name, module, began)
	log.FromContext(ctx).Info("Restarted a plugin, for the kernel module was loaded anew", "pod", client.ObjectKeyFromObject(pod), "module",
		module)
	return nil
}

// loadOf is when the load of a live kernel module began; nil: nothing is live, or was loaded.
func loadOf(config *v1beta1.NodeModulesConfig, module types.NamespacedName) *metav1.Time {
	if live := rollout.EntryOf(config, module).Live; live != nil && live.Observed != nil {
		return live.Observed.LoadBegan
	}
	return nil
}

// outlived reports whether a pod's waiting container had ended before a load began. Times are cut
// to the second; in the same second, it ended afterwards.
func outlived(pod *corev1.Pod, began *metav1.Time) bool {
	if pod.DeletionTimestamp != nil {
		return false
	}
	ended := waited(pod)
	return ended != nil && ended.Before(began)
}

func waited(pod *corev1.Pod) *metav1.Time {
	for i := range pod.Status.InitContainerStatuses {
		s := &pod.Status.InitContainerStatuses[i]
		if t := s.State.Terminated; s.Name == waitName && t != nil && t.ExitCode == 0 && !t.FinishedAt.IsZero() {
			return &t.FinishedAt
		}
	}
	return nil
}

func (r *restarter) did(node string, module types.NamespacedName, began *metav1.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, known := r.done[node][module]
	return known && last.Equal(began)
}

func (r *restarter) note(node string, module types.NamespacedName, began *metav1.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done[node] == nil {
		r.done[node] = map[types.NamespacedName]metav1.Time{}
	}
	r.done[node][module] = *began
}

func (r *restarter) forget(node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.done, node)
}

func (r *restarter) setup(mgr ctrl.Manager) error {
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &corev1.Pod{}, podNodeIndex, waitingPodNode); err != nil {
		return fmt.Errorf("index plugin pods: %w", err)
	}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("plugin-restart").
		Watches(&v1beta1.NodeModulesConfig{}, later(func(o client.Object) []string { return []string{o.GetName()} }), watch.If(loaded)).
		Watches(&corev1.Pod{}, later(waitingPodNode), watch.If(waitEnded)).
		WithOptions(ctrlcontroller.Options{MaxConcurrentReconciles: workers, RateLimiter: kube.Backoff()}).
		Complete(kube.Traced("plugin-restart", r))
	if err != nil {
		return fmt.Errorf("set up the restarter of plugins: %w", err)
	}
	return nil
}

// later queues an object's nodes after a pause.
func later(nodes func(client.Object) []string) handler.Funcs {
	return watch.Changes(func(_ context.Context, q watch.Queue, before, now client.Object) {
		if now == nil {
			now = before
		}
		for _, node := range nodes(now) {
			q.AddAfter(reconcile.Request{NamespacedName: types.NamespacedName{Name: node}}, restartDelay)
		}
	})
}

func loaded(before, now *v1beta1.NodeModulesConfig) bool {
	return slices.ContainsFunc(now.Status.Modules, func(s v1beta1.NodeModuleStatus) bool {
		key := types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
		return !loadOf(before, key).Equal(loadOf(now, key))
	})
}

func waitEnded(before, now *corev1.Pod) bool { return !waited(before).Equal(waited(now)) }

func waitingPodNode(object client.Object) []string {
	pod, ok := object.(*corev1.Pod)
	if !ok || pod.Spec.NodeName == "" || pod.Labels[v1beta1.ModuleNameLabel] == "" ||
		!slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == waitName }) {
		return nil
	}
	return []string{pod.Spec.NodeName}
}
