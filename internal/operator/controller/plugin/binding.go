// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	rbacapply "k8s.io/client-go/applyconfigurations/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/kube"
)

// WorkloadRole is the ClusterRole that lets a plugin's ServiceAccount use OpenShift's
// SecurityContextConstraints. It, and the right to bind it, come with config/openshift.
const WorkloadRole = "drover-workload"

func binding(account *corev1.ServiceAccount, role string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "RoleBinding"},
		ObjectMeta: *account.ObjectMeta.DeepCopy(),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: account.Name, Namespace: account.Namespace}},
	}
}

// bind makes the binding, but for a ServiceAccount that the Module names.
func (c *Controller) bind(ctx context.Context, module *v1beta1.Module, account *corev1.ServiceAccount) error {
	if c.options.Role == "" || account == nil {
		return nil
	}
	want, now := binding(account, c.options.Role), &rbacv1.RoleBinding{}
	switch err := c.live.Get(ctx, client.ObjectKeyFromObject(want), now); {
	case apierrors.IsNotFound(err):
	case err != nil:
		return fmt.Errorf("get RoleBinding %s (is config/openshift applied?): %w", want.Name, err)
	case !made(now, module.Name, module.UID):
		return foreignError{what: "RoleBinding " + want.Name}
	default:
		if err := c.adopt(ctx, module, now, client.DisableReadYourWritesConsistency); err != nil {
			return err
		}
		if now.RoleRef == want.RoleRef && equality.Semantic.DeepEqual(now.Subjects, want.Subjects) {
			return nil
		}
	}
	config, err := kube.Convert[rbacapply.RoleBindingApplyConfiguration](want)
	if err != nil {
		return fmt.Errorf("convert the RoleBinding: %w", err)
	}
	// Bindings are read past the cache, which would have to hold everybody's.
	if err := c.client.Apply(ctx, config, kube.OwnerPlugin, client.ForceOwnership, client.DisableReadYourWritesConsistency); err != nil {
		return fmt.Errorf("apply RoleBinding %s: %w", want.Name, err)
	}
	return nil
}

// unbind deletes the bindings of a Module's ServiceAccounts but for those that stay. It asks for
// each that could have been made: a ServiceAccount that somebody deleted leaves its binding behind.
func (c *Controller) unbind(ctx context.Context, module *v1beta1.Module, stay []string) error {
	if c.options.Role == "" {
		return nil
	}
	for _, role := range []string{v1beta1.RoleDevicePlugin, v1beta1.RoleDRA} {
		key := types.NamespacedName{Namespace: module.Namespace, Name: Name(module.Name, role)}
		if slices.Contains(stay, key.Name) {
			continue
		}
		if err := c.unbindOne(ctx, key, module.Name); err != nil {
			return err
		}
	}
	return nil
}

func (c *Controller) unbindOne(ctx context.Context, key types.NamespacedName, module string) error {
	now := &rbacv1.RoleBinding{}
	switch err := c.live.Get(ctx, key, now); {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("get RoleBinding %s: %w", key.Name, err)
	case !made(now, module, ""):
		return nil
	}
	if err := c.client.Delete(ctx, now, client.Preconditions{UID: &now.UID},
		client.DisableReadYourWritesConsistency); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete RoleBinding %s: %w", now.Name, err)
	}
	return nil
}
