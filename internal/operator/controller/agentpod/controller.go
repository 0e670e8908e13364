// SPDX-License-Identifier: Apache-2.0

// Package agentpod lets another agent start where a node's agent cannot end: a kernel call that
// never returns keeps a process of the pod until the node's next boot, and a DaemonSet makes no
// second pod before the first is gone.
//
// Reads: NodeModulesConfig, Node, and the pods of agents, uncached. Writes: deletes such pods.
package agentpod

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/gate"
	"github.com/drover-project/drover/internal/operator/watch"
	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/shared/placement"
)

// +kubebuilder:rbac:groups="",resources=pods,verbs=list;delete

const (
	// AgentLabel is the value of app.kubernetes.io/name by which the agent's pods are known.
	AgentLabel = "drover-agent"
	// Patience is how long after the end of its grace period a pod may still be there. By then, the
	// kubelet has killed its containers several times.
	Patience = 2 * time.Minute

	again = time.Minute // between two looks at a node with such a call
)

// Controller removes agents' pods that cannot end.
type Controller struct {
	client    client.Client
	live      client.Reader
	namespace string
	gate      *gate.Gate
	clock     clock.PassiveClock
}

// New makes the controller. c reads from a cache, and live does not. namespace is the one that the
// agent runs in. A nil clock is the time of day.
func New(c client.Client, live client.Reader, namespace string, closed *gate.Gate, now clock.PassiveClock) *Controller {
	if now == nil {
		now = clock.RealClock{}
	}
	return &Controller{client: c, live: live, namespace: namespace, gate: closed, clock: now}
}

// SetupWithManager registers the controller and its watch.
func (c *Controller) SetupWithManager(mgr ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).
		Named("agentpod").
		For(&v1beta1.NodeModulesConfig{}, watch.If(func(_, now *v1beta1.NodeModulesConfig) bool { return hangs(now) })).
		WithOptions(controller.Options{RateLimiter: kube.Backoff()}).
		Complete(kube.Traced("agentpod", c))
	if err != nil {
		return fmt.Errorf("set up the controller of agents' pods: %w", err)
	}
	return nil
}

// hangs reports whether the node says of a kernel call that it has not returned.
func hangs(config *v1beta1.NodeModulesConfig) bool {
	return slices.ContainsFunc(config.Status.Attempts, func(a v1beta1.NodeModuleAttempt) bool { return a.Reason == v1beta1.ReasonTimeout })
}

// Reconcile looks after one node, while a kernel call hangs there.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	config, node := &v1beta1.NodeModulesConfig{}, &corev1.Node{}
	if found, err := kube.Find(ctx, c.client, request.NamespacedName, config); !found || !hangs(config) {
		return reconcile.Result{}, err
	}
	if c.gate.Closed() != nil {
		return reconcile.Result{RequeueAfter: gate.Pause}, nil
	}
	// Of a node that does not answer, nothing is known: its agent may be at work.
	if found, err := kube.Find(ctx, c.client, request.NamespacedName, node); err != nil || !found || !placement.Ready(node) {
		return reconcile.Result{RequeueAfter: again}, err
	}
	var pods corev1.PodList
	if err := c.live.List(ctx, &pods, client.InNamespace(c.namespace), client.MatchingLabels{"app.kubernetes.io/name": AgentLabel},
		client.MatchingFields{"spec.nodeName": request.Name}); err != nil {
		return reconcile.Result{}, fmt.Errorf("list the agent's pods of node %s: %w", request.Name, err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.DeletionTimestamp == nil || c.clock.Now().Before(pod.DeletionTimestamp.Add(Patience)) {
			continue
		}
		log.FromContext(ctx).Info("Removing the object of an agent's pod that cannot end, so that another agent starts: a kernel call on its "+
			"node does not return. Reboot the node", "node", request.Name, "pod", pod.Name)
		err := c.client.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID})
		if err = kube.UnlessGone("delete an agent's pod", err); err != nil {
			return reconcile.Result{}, err
		}
	}
	return reconcile.Result{RequeueAfter: again}, nil
}
