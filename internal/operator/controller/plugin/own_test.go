// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"context"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kmmv1beta1 "github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator/controller/plugin"
	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/testkit/env"
)

// TestOwnerReferencesOfEarlierReleasesGo: by them the garbage collector would act. What else
// somebody put there stays.
func TestOwnerReferencesOfEarlierReleasesGo(t *testing.T) {
	e := env.Get(t)
	admin := e.Admin(t)
	m := module()
	m.Namespace, m.UID = e.Namespace(t), ""
	create(t, admin, m)
	owner := *metav1.NewControllerRef(m, kmmv1beta1.GroupVersion.WithKind("Module"))
	other := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "theirs", UID: "u1"}
	daemonSet, err := plugin.DaemonSet(m, agentImage)
	if err != nil {
		t.Fatal(err)
	}
	account := plugin.ServiceAccount(m)
	for _, object := range []client.Object{daemonSet, account} {
		delete(object.GetAnnotations(), kube.ModuleAnnotation)
		object.SetOwnerReferences([]metav1.OwnerReference{owner, other})
		create(t, admin, object)
	}
	generation := daemonSet.Generation

	start(t, e)

	for _, object := range []client.Object{daemonSet, account} {
		eventually(t, "the object is the Module's by annotation alone", func(ctx context.Context) (bool, error) {
			err := admin.Get(ctx, client.ObjectKeyFromObject(object), object)
			refs := object.GetOwnerReferences()
			return object.GetAnnotations()[kube.ModuleAnnotation] == string(m.UID) && len(refs) == 1 && refs[0].UID == other.UID, err
		})
	}
	if daemonSet.Generation != generation {
		t.Error("the DaemonSet's spec was written: its pods start anew")
	}
}

// TestWhatAGoneModuleLeftGoes: also what was left while no operator ran.
func TestWhatAGoneModuleLeftGoes(t *testing.T) {
	for name, whileDown := range map[string]bool{"the operator runs": false, "the operator was away": true} {
		t.Run(name, func(t *testing.T) {
			e := env.Get(t)
			admin := e.Admin(t)
			namespace := e.Namespace(t)
			m := module()
			m.Namespace, m.UID = namespace, ""
			meta := metav1.ObjectMeta{Namespace: namespace, Name: "nic-device-plugin"}
			daemonSet, account := &appsv1.DaemonSet{ObjectMeta: meta}, &corev1.ServiceAccount{ObjectMeta: meta}
			foreign := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "foreign", Labels: map[string]string{
				kmmv1beta1.ModuleNameLabel: m.Name, kmmv1beta1.RoleLabel: kmmv1beta1.RoleDevicePlugin,
			}}}
			create(t, admin, foreign)
			gone := func(t *testing.T) {
				t.Helper()
				if err := admin.Delete(t.Context(), m); err != nil {
					t.Fatal(err)
				}
			}
			t.Run("made", func(t *testing.T) {
				start(t, e)
				create(t, admin, m)
				exists(t, admin, daemonSet, true)
				exists(t, admin, account, true)
				if !whileDown {
					gone(t)
					exists(t, admin, daemonSet, false)
					exists(t, admin, account, false)
				}
			})
			if whileDown {
				gone(t)
				start(t, e)
				exists(t, admin, daemonSet, false)
				exists(t, admin, account, false)
			}
			exists(t, admin, foreign, true)
		})
	}
}
