// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// kubectl runs it as the administrator.
func (s *scenario) kubectl(args ...string) {
	s.Helper()
	if out, err := shared.Kubectl(s.Context(), args...); err != nil {
		s.Fatalf("kubectl %v: %v\n%s", args, err, out)
	}
}

// TestLifecycleDefinitionsDeletedAndRestored is what happens when somebody else's chart with the
// same CRDs is uninstalled: all Modules and all orders go. No kernel may notice.
func TestLifecycleDefinitionsDeletedAndRestored(t *testing.T) {
	s := given(t, "crds")
	s.create()
	s.converged(each(everyNode, once))
	names := []string{"crd/modules." + v1beta1.GroupVersion.Group, "crd/nodemodulesconfigs." + v1beta1.GroupVersion.Group}

	s.whenFailed(func(ctx context.Context) error {
		_, err := shared.Kubectl(ctx, "apply", "--server-side", "-k", "config/crd")
		return err
	})
	s.kubectl(append([]string{"delete", "--timeout=80s"}, names...)...)
	s.journalIs(each(everyNode, once))
	s.kubectl("apply", "--server-side", "-k", "config/crd")
	s.kubectl(append([]string{"wait", "--for=condition=Established", "--timeout=60s"}, names...)...)

	s.eventually("the Module is back", func(ctx context.Context) error {
		return client.IgnoreAlreadyExists(shared.Admin.Create(ctx, s.module()))
	})
	s.converged(each(everyNode, once))
}

// TestLifecycleEverythingGoesAtOnce: all orders are deleted while the selector's labels are away.
func TestLifecycleEverythingGoesAtOnce(t *testing.T) {
	s := given(t, "at-once")
	s.create(s.on(everyNode...))
	s.converged(each(everyNode, once))

	for _, node := range everyNode {
		s.label(node, "null")
	}
	s.must(shared.Admin.DeleteAllOf(s.Context(), &v1beta1.NodeModulesConfig{}))
	s.eventually("the Module counts no node, and no order is left", func(ctx context.Context) error {
		var configs v1beta1.NodeModulesConfigList
		if err := shared.Admin.List(ctx, &configs); err != nil {
			return err
		}
		var left error
		if len(configs.Items) > 0 {
			left = errors.New("NodeModulesConfig " + configs.Items[0].Name + " is there")
		}
		return errors.Join(left, s.says(ctx, v1beta1.ConditionLoaded, metav1.ConditionFalse, v1beta1.ReasonNoNodes))
	})
	s.journalIs(each(everyNode, once))
	for _, node := range everyNode {
		s.label(node, `"yes"`)
	}
	s.converged(each(everyNode, once))
}
