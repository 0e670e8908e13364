// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// TestLifecycleWhoMayMakeModules: a Module is root on nodes, so what people have in their namespace
// does not suffice.
func TestLifecycleWhoMayMakeModules(t *testing.T) {
	s := given(t, "roles-of-people")
	cases := map[string]struct{ sees, makes bool }{
		"view": {true, false}, "edit": {true, false}, "admin": {true, false},
		"drover-module-viewer": {true, false}, "drover-module-editor": {true, true},
	}
	for role := range cases {
		s.must(shared.Admin.Create(s.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.key.Namespace, Name: role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "has-" + role}},
		}))
	}
	may := func(ctx context.Context, role, verb string, want bool) error {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "has-" + role,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: s.key.Namespace, Verb: verb, Group: v1beta1.GroupVersion.Group, Resource: "modules",
			},
		}}
		if err := shared.Admin.Create(ctx, review); err != nil {
			return err
		}
		if review.Status.Allowed != want {
			return fmt.Errorf("who has %s may %s Modules: %t", role, verb, review.Status.Allowed)
		}
		return nil
	}
	s.eventually("each may do what is theirs", func(ctx context.Context) error {
		var all error
		for role, can := range cases {
			all = errors.Join(all, may(ctx, role, "list", can.sees), may(ctx, role, "create", can.makes),
				may(ctx, role, "patch", can.makes), may(ctx, role, "delete", can.makes))
		}
		return all
	})
}
