// SPDX-License-Identifier: Apache-2.0

package ooto

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	kmmac "github.com/drover-project/drover/api/kmm/v1beta1/applyconfiguration/kmm/v1beta1"
	"github.com/drover-project/drover/api/ooto/v1alpha1"
	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/shared/reasons"
)

// retryAfter is when a problem is looked at again that no watch shows.
const retryAfter = time.Minute

// act writes what differs, and returns the KMM Module once it is what is asked for. New Dockerfiles
// come first; unused ones go a pass later, when everybody has seen the change.
func (c *Controller) act(ctx context.Context, want *translation, have *world) (*v1beta1.Module, *reasons.Problem, error) {
	switch {
	case have.module == nil:
	case !have.ours:
		return nil, taken("Module", have.module.Name), nil
	case have.module.DeletionTimestamp != nil:
		return nil, &reasons.Problem{Reason: v1alpha1.ReasonTerminating, Message: fmt.Sprintf(
			"The Module %s of %s is being deleted; Drover creates it again afterwards", have.module.Name, v1beta1.GroupVersion.Group)}, nil
	}
	for _, dockerfile := range want.dockerfiles {
		if p, err := c.create(ctx, dockerfile, have); p != nil || err != nil {
			return nil, p, err
		}
	}
	settled, err := settled(want.module, have.module)
	if err != nil {
		return nil, nil, err
	}
	if !settled {
		p, err := c.apply(ctx, want.module, have.module)
		return nil, p, err
	}
	keep := func(o *metav1.PartialObjectMetadata) bool {
		return slices.ContainsFunc(want.dockerfiles, func(d *corev1.ConfigMap) bool { return d.Name == o.Name })
	}
	if err := kube.Prune(ctx, c.client, have.dockerfiles, keep); err != nil {
		return nil, nil, fmt.Errorf("delete Dockerfiles: %w", err)
	}
	return have.module, nil, nil
}

func taken(kind, name string) *reasons.Problem {
	return &reasons.Problem{Reason: v1alpha1.ReasonNameTaken,
		Message: fmt.Sprintf("The %s %s exists and does not belong to this Module: delete or rename one of them", kind, name)}
}

// create makes a missing ConfigMap. It is immutable, and its name follows from its content.
func (c *Controller) create(ctx context.Context, dockerfile *corev1.ConfigMap, have *world) (*reasons.Problem, error) {
	if slices.ContainsFunc(have.dockerfiles, func(o *metav1.PartialObjectMetadata) bool { return o.Name == dockerfile.Name }) {
		return nil, nil
	}
	err := c.client.Create(ctx, dockerfile.DeepCopy(), kube.OwnerOoto)
	if !apierrors.IsAlreadyExists(err) {
		return refused(err, "ConfigMap "+dockerfile.Name)
	}
	// The cache has not shown it yet, or somebody else made it.
	other := &metav1.PartialObjectMetadata{}
	other.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	if err := c.live.Get(ctx, client.ObjectKeyFromObject(dockerfile), other); err != nil {
		return nil, fmt.Errorf("get ConfigMap %s: %w", dockerfile.Name, err)
	}
	if controller := metav1.GetControllerOf(other); controller == nil || controller.UID != dockerfile.OwnerReferences[0].UID {
		return taken("ConfigMap", dockerfile.Name), nil
	}
	return nil, nil
}

// apply writes the KMM Module; a new one without force, so that one made meanwhile stays.
func (c *Controller) apply(ctx context.Context, want, have *v1beta1.Module) (*reasons.Problem, error) {
	config, err := kube.Convert[kmmac.ModuleApplyConfiguration](want)
	if err != nil {
		return nil, err
	}
	config.Status = nil
	options := []client.ApplyOption{kube.OwnerOoto}
	if have != nil {
		config.WithUID(have.UID)
		options = append(options, client.ForceOwnership)
	}
	return refused(c.client.Apply(ctx, config, options...), "Module "+want.Name+" of "+v1beta1.GroupVersion.Group)
}

// refused turns an API server's refusal, which it would repeat, into a problem.
func refused(err error, what string) (*reasons.Problem, error) {
	switch {
	case err == nil:
		return nil, nil
	case apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err):
		return &reasons.Problem{Reason: v1alpha1.ReasonRefused, Message: fmt.Sprintf("The API server refuses the %s: %v", what, err)}, nil
	}
	return nil, fmt.Errorf("write %s: %w", what, err)
}

// settled is true when the Module has all that is asked for and was last written for the same wish.
// Other fields are the API server's or other writers', such as rollout.
func settled(want, have *v1beta1.Module) (bool, error) {
	if have == nil {
		return false, nil
	}
	wish, err := kube.Wish(want, v1beta1.GroupVersion.WithKind("Module"))
	if err != nil {
		return false, err
	}
	return kube.Settled(wish, have)
}
