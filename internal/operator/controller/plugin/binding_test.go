// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"context"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/controller/plugin"
	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/testkit/env"
)

// TestAnAccountOfOursIsBound: with no rights but the generated ones and those of the overlay for
// OpenShift, whose roles any API server takes.
func TestAnAccountOfOursIsBound(t *testing.T) {
	e := env.Get(t)
	admin := e.Admin(t)
	content, err := os.ReadFile("../../../../config/openshift/roles.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range strings.Split(string(content), "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
			t.Fatal(err)
		}
		if err := admin.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := admin.Delete(context.WithoutCancel(t.Context()), object); err != nil {
				t.Error(err)
			}
		})
	}
	startBinding(t, e, agentImage, false, plugin.WorkloadRole)
	m := module()
	m.Namespace, m.UID = e.Namespace(t), ""
	if err := admin.Create(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	meta := metav1.ObjectMeta{Namespace: m.Namespace, Name: "nic-device-plugin"}
	bound, account := &rbacv1.RoleBinding{ObjectMeta: meta}, &corev1.ServiceAccount{ObjectMeta: meta}
	exists(t, admin, bound, true)
	exists(t, admin, account, true)
	subject := rbacv1.Subject{Kind: "ServiceAccount", Namespace: m.Namespace, Name: account.Name}
	if bound.RoleRef.Name != plugin.WorkloadRole || len(bound.Subjects) != 1 || bound.Subjects[0] != subject || !kube.MadeFor(bound, m.UID) ||
		len(bound.OwnerReferences) > 0 {
		t.Errorf("the binding is %+v", bound)
	}

	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(m), m); err != nil {
		t.Fatal(err)
	}
	m.Spec.DevicePlugin.ServiceAccountName = "theirs"
	if err := admin.Update(t.Context(), m); err != nil {
		t.Fatal(err)
	}

	exists(t, admin, account, false)
	exists(t, admin, bound, false)

	// A ServiceAccount that somebody deletes, while the Module is paused, leaves its binding behind.
	change(t, admin, m, func() { m.Spec.DevicePlugin.ServiceAccountName = "" })
	exists(t, admin, bound, true)
	exists(t, admin, account, true)
	change(t, admin, m, func() { m.Annotations = map[string]string{v1beta1.PausedAnnotation: ""} })
	served(t, admin, m.Namespace, "another")
	if err := admin.Delete(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	if err := admin.Delete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	exists(t, admin, bound, false)
}
