// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"fmt"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/hostname"
	"github.com/drover-project/drover/internal/shared/reasons"
)

// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,resourceNames=kmm.sigs.x-k8s.io,verbs=list
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create

// PeerLease is the name of the Lease that KMM's operator holds, in whatever namespace it runs.
const PeerLease = "kmm.sigs.x-k8s.io"

// partOf is the label, and ours its value, of Drover's own pods, whose Lease can have that name.
const partOf, ours = "app.kubernetes.io/part-of", "drover"

// sight is a Lease as it was when it was last seen to change, by our clock.
type sight struct {
	spec coordinationv1.LeaseSpec
	at   time.Time
}

// Peer says whether KMM's operator is running, and when to look again. A Lease's times are its
// holder's: the holder lives while the Lease changes within its duration by our own clock.
func (c *Controller) Peer(ctx context.Context) (*reasons.Problem, time.Duration, error) {
	var leases coordinationv1.LeaseList
	if err := c.live.List(ctx, &leases, client.MatchingFields{metav1.ObjectNameField: PeerLease}); err != nil {
		return nil, 0, fmt.Errorf("list Leases of KMM: %w", err)
	}
	now, seen := c.clock.Now(), make(map[string]sight, len(leases.Items))
	for i := range leases.Items {
		namespace, spec := leases.Items[i].Namespace, leases.Items[i].Spec
		before, known := c.seen[namespace]
		if !known || !equality.Semantic.DeepEqual(before.spec, spec) {
			before = sight{spec: spec, at: now}
		}
		seen[namespace] = before
	}
	c.seen = seen
	for namespace, s := range seen {
		left := s.at.Add(time.Duration(ptr.Deref(s.spec.LeaseDurationSeconds, 0)) * time.Second).Sub(now)
		if left <= 0 {
			continue
		}
		writes, err := c.writes(ctx, namespace, ptr.Deref(s.spec.HolderIdentity, ""))
		if err != nil {
			return nil, 0, err
		}
		if writes {
			return &reasons.Problem{Reason: v1beta1.ReasonPeerActive, Message: fmt.Sprintf(
				"KMM's operator is running in namespace %s (Lease %s): Drover changes nothing until it stops", namespace, PeerLease)}, left, nil
		}
	}
	return nil, interval, nil
}

// writes reports whether a Lease's holder is a pod that may order kernel modules. Editors of one
// namespace can forge the Lease and run a pod, but cannot give it rights to objects of the cluster.
func (c *Controller) writes(ctx context.Context, namespace, holder string) (bool, error) {
	pod, err := c.holder(ctx, namespace, holder)
	if err != nil || pod == nil || pod.Labels[partOf] == ours || pod.Status.Phase == corev1.PodSucceeded ||
		pod.Status.Phase == corev1.PodFailed {
		return false, err
	}
	account := pod.Spec.ServiceAccountName
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:   "system:serviceaccount:" + namespace + ":" + account,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "patch", Group: v1beta1.GroupVersion.Group, Resource: "nodemodulesconfigs",
		},
	}}
	if err := c.live.Create(ctx, review); err != nil {
		return false, fmt.Errorf("ask what the ServiceAccount %s/%s may do: %w", namespace, account, err)
	}
	return review.Status.Allowed, nil
}

// holder is the pod that a Lease names by HOSTNAME_UUID, or nil.
func (c *Controller) holder(ctx context.Context, namespace, identity string) (*corev1.Pod, error) {
	cut := strings.LastIndex(identity, "_")
	if cut <= 0 {
		return nil, nil
	}
	host, pod := identity[:cut], &corev1.Pod{}
	err := c.live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: host}, pod)
	if err == nil {
		return pod, nil
	}
	if err = client.IgnoreNotFound(err); err != nil {
		return nil, fmt.Errorf("get pod %s/%s: %w", namespace, host, err)
	}
	var pods corev1.PodList
	if err := c.live.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list the pods of namespace %s: %w", namespace, err)
	}
	for i := range pods.Items {
		if hostname.Of(pods.Items[i].Name) == host {
			return &pods.Items[i], nil
		}
	}
	return nil, nil
}
