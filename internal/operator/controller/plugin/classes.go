// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/kube"
)

// +kubebuilder:rbac:groups=resource.k8s.io,resources=deviceclasses,verbs=get;list;watch;create;update;delete

// DeviceClasses are a Module's. They belong to the cluster, and the Module's author need not have
// any right to them: only classes that were made here for this Module are changed. So they are
// created and updated, not applied, since an apply takes over what others have created
// meanwhile.
func DeviceClasses(module *v1beta1.Module) []*resourcev1.DeviceClass {
	if module.Spec.DRA == nil {
		return nil
	}
	var classes []*resourcev1.DeviceClass
	for i := range module.Spec.DRA.DeviceClasses {
		spec := &module.Spec.DRA.DeviceClasses[i]
		classes = append(classes, &resourcev1.DeviceClass{
			ObjectMeta: metav1.ObjectMeta{Name: spec.Name, Labels: classLabels(module)},
			Spec:       resourcev1.DeviceClassSpec{Selectors: spec.Selectors, Config: spec.Config},
		})
	}
	return classes
}

func classLabels(module *v1beta1.Module) map[string]string {
	return map[string]string{
		v1beta1.ModuleNameLabel:      module.Name,
		v1beta1.ModuleNamespaceLabel: module.Namespace,
		partOfLabel:                  partOf,
	}
}

// kmmOwner is the name by which KMM's program writes.
const kmmOwner = client.FieldOwner("manager")

// ownsClass is true for a DeviceClass that was made for the Module, here or by KMM, whose classes
// are taken over. Labels alone do not show it.
func ownsClass(module *v1beta1.Module, class *resourcev1.DeviceClass) bool {
	return class.Labels[v1beta1.ModuleNameLabel] == module.Name && class.Labels[v1beta1.ModuleNamespaceLabel] == module.Namespace &&
		(kube.WrittenBy(class, kube.OwnerPlugin) || kube.WrittenBy(class, kmmOwner))
}

func (c *Controller) classes(ctx context.Context, module *v1beta1.Module) ([]*resourcev1.DeviceClass, error) {
	if !c.options.DRA {
		return nil, nil
	}
	var list resourcev1.DeviceClassList
	err := c.client.List(ctx, &list, client.MatchingLabels{
		v1beta1.ModuleNameLabel: module.Name, v1beta1.ModuleNamespaceLabel: module.Namespace,
	})
	if err != nil {
		return nil, fmt.Errorf("list DeviceClasses: %w", err)
	}
	var own []*resourcev1.DeviceClass
	for i := range list.Items {
		if ownsClass(module, &list.Items[i]) {
			own = append(own, &list.Items[i])
		}
	}
	return own, nil
}

// ensureClasses creates, updates and deletes the Module's DeviceClasses, and returns the names that
// others have taken.
func (c *Controller) ensureClasses(ctx context.Context, module *v1beta1.Module, have []*resourcev1.DeviceClass) (taken []string,
	err error) {
	want := DeviceClasses(module)
	var errs []error
	for _, class := range want {
		switch err := c.ensureClass(ctx, class, find(have, class.Name)); {
		case apierrors.IsAlreadyExists(err):
			taken = append(taken, class.Name)
		case err != nil:
			errs = append(errs, err)
		}
	}
	err = kube.Prune(ctx, c.client, have, func(class *resourcev1.DeviceClass) bool { return find(want, class.Name) != nil })
	if err != nil {
		errs = append(errs, fmt.Errorf("prune DeviceClasses: %w", err))
	}
	return taken, errors.Join(errs...)
}

func (c *Controller) ensureClass(ctx context.Context, want, current *resourcev1.DeviceClass) error {
	if current == nil {
		if err := c.client.Create(ctx, want, kube.OwnerPlugin); err != nil {
			return fmt.Errorf("create DeviceClass %s: %w", want.Name, err)
		}
		return nil
	}
	if same, err := sameClass(want, current); same || err != nil {
		return err
	}
	next := current.DeepCopy()
	maps.Copy(next.Labels, want.Labels)
	next.Spec.Selectors, next.Spec.Config = want.Spec.Selectors, want.Spec.Config
	// A conflict is an error: others may have taken the class over.
	if err := c.client.Update(ctx, next, kube.OwnerPlugin); err != nil {
		return fmt.Errorf("update DeviceClass %s: %w", want.Name, err)
	}
	return nil
}

// sameClass compares drivers' parameters by meaning.
func sameClass(want, got *resourcev1.DeviceClass) (bool, error) {
	for key, value := range want.Labels {
		if got.Labels[key] != value {
			return false, nil
		}
	}
	meanings := [2]any{}
	for i, class := range []*resourcev1.DeviceClass{want, got} {
		said := resourcev1.DeviceClassSpec{Selectors: class.Spec.Selectors, Config: class.Spec.Config}
		text, err := json.Marshal(said)
		if err != nil {
			return false, fmt.Errorf("encode DeviceClass %s: %w", want.Name, err)
		}
		if err := json.Unmarshal(text, &meanings[i]); err != nil {
			return false, fmt.Errorf("decode DeviceClass %s: %w", want.Name, err)
		}
	}
	return reflect.DeepEqual(meanings[0], meanings[1]), nil
}
