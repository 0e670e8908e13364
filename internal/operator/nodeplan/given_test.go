// SPDX-License-Identifier: Apache-2.0

package nodeplan

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

func other(change func(*v1beta1.Module)) func(*scene) {
	return func(s *scene) { change(s.module) }
}

func neighbour(s *scene) {
	s.node.Config.Spec.Modules = append(s.node.Config.Spec.Modules,
		v1beta1.NodeModuleSpec{ModuleItem: v1beta1.ModuleItem{Namespace: "team", Name: "fs"}})
}

func attempt(state v1beta1.AttemptState) func(*scene) {
	return func(s *scene) {
		s.node.Config.Status.Attempts = []v1beta1.NodeModuleAttempt{{Namespace: "team", Name: "nic", State: state}}
	}
}

func annotated(key, value string) func(*scene) {
	return other(func(m *v1beta1.Module) { metav1.SetMetaDataAnnotation(&m.ObjectMeta, key, value) })
}

func grace(d time.Duration) func(*scene) {
	return other(func(m *v1beta1.Module) {
		m.Spec.Rollout = &v1beta1.RolloutSpec{DeselectGracePeriod: &metav1.Duration{Duration: d}}
	})
}
