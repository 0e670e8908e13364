// SPDX-License-Identifier: Apache-2.0

package env_test

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
