// SPDX-License-Identifier: Apache-2.0

package env_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kmmv1beta1 "github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/testkit/env"
)

func TestMain(m *testing.M) { os.Exit(env.Main(m)) }

func TestOperatorHasItsRoleAndNoMore(t *testing.T) {
	e := env.Get(t)
	namespace := e.Namespace(t)
	operator := e.Client(t, e.Config(t, env.Operator))
	mark := e.Mark(t)

	if err := operator.List(t.Context(), &kmmv1beta1.ModuleList{}); err != nil {
		t.Errorf("list Modules: %v", err)
	}
	if err := operator.List(t.Context(), &corev1.SecretList{}, client.InNamespace(namespace)); !apierrors.IsForbidden(err) {
		t.Errorf("list Secrets: got %v, want Forbidden", err)
	}
	nmc := &kmmv1beta1.NodeModulesConfig{ObjectMeta: metav1.ObjectMeta{GenerateName: "counted-"}}
	if err := operator.Create(t.Context(), nmc, client.DryRunAll); err != nil {
		t.Errorf("create a NodeModulesConfig, dry run: %v", err)
	}
	if err := operator.Create(t.Context(), nmc); err != nil {
		t.Errorf("create a NodeModulesConfig: %v", err)
	}

	want := map[env.Write]int{{Agent: "drover-operator", Verb: "create", Resource: "nodemodulesconfigs"}: 1}
	if diff := cmp.Diff(want, e.Writes(t, mark)); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	e.AssertNoMasters(t)
}

// TestWritesWaitsForAnswers: the first ConfigMap is gone long before the request that deletes them
// all is answered.
func TestWritesWaitsForAnswers(t *testing.T) {
	e := env.Get(t)
	admin, namespace := e.Admin(t), e.Namespace(t)
	const configMaps = 100
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "sweeper"},
		Rules: []rbacv1.PolicyRule{{Verbs: []string{"deletecollection"}, APIGroups: []string{""}, Resources: []string{"configmaps"}}}}
	binding := &rbacv1.RoleBinding{ObjectMeta: role.ObjectMeta,
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "sweeper"}}}
	objects := []client.Object{role, binding}
	for i := range configMaps {
		objects = append(objects, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("dust-%d", i)}})
	}
	for _, object := range objects {
		if err := admin.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	config := e.UserConfig(t, "sweeper")
	config.UserAgent = "drover-operator/test"
	sweeper := e.Client(t, config)
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		err := sweeper.DeleteAllOf(ctx, &corev1.ConfigMap{}, client.InNamespace(namespace), client.DryRunAll)
		if apierrors.IsForbidden(err) {
			return false, nil // the role is not in force at once
		}
		return err == nil, err
	})
	if err != nil {
		t.Fatal(err)
	}
	mark := e.Mark(t)
	swept := make(chan error, 1)
	go func() {
		swept <- sweeper.DeleteAllOf(t.Context(), &corev1.ConfigMap{}, client.InNamespace(namespace))
	}()
	err = wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		left := &corev1.ConfigMapList{}
		err := admin.List(ctx, left, client.InNamespace(namespace))
		return len(left.Items) < configMaps, err
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[env.Write]int{{Agent: "drover-operator", Verb: "deletecollection", Resource: "configmaps"}: 1}
	if diff := cmp.Diff(want, e.Writes(t, mark, namespace)); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	if err := <-swept; err != nil {
		t.Errorf("delete the ConfigMaps: %v", err)
	}
}
