// SPDX-License-Identifier: Apache-2.0

package guard_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/testkit/env"
)

func TestMain(m *testing.M) { os.Exit(env.Main(m)) }

// reason is why the gate is closed after a first look with the operator's rights, or nothing, and
// the whole of what it says.
func reason(t *testing.T, now time.Time) (short, whole string) {
	t.Helper()
	return newWatch(t, now).look(t)
}
func TestDefinitionsOfSomebodyElse(t *testing.T) {
	const configs, modules, preflights = "nodemodulesconfigs.kmm.sigs.x-k8s.io", "modules.kmm.sigs.x-k8s.io",
		"preflightvalidations.kmm.sigs.x-k8s.io"
	remove := func(parent map[string]any, key string) { delete(parent, key) }
	cases := map[string]struct {
		name, pointer string
		edit          func(map[string]any, string)
		then          string
	}{
		"the list of orders is atomic": {configs, "properties.spec.properties.modules.x", func(list map[string]any, _ string) {
			list["x-kubernetes-list-type"] = "atomic"
			delete(list, "x-kubernetes-list-map-keys")
		}, "spec.modules is not a map"},
		"an order to unload cannot be told": {configs, "properties.spec.properties.modules.items.properties.state", remove,
			"spec.modules.state is missing"},
		"no attempts": {configs, "properties.status.properties.attempts", remove, "status.attempts"},
		"a node cannot say that a check fails": {
			configs, "properties.status.properties.modules.items.properties.observed.properties.unusable", remove,
			"status.modules.observed.unusable is missing",
		},
		"checks of readiness get lost": {modules, "properties.spec.x-kubernetes-validations", func(spec map[string]any, rules string) {
			delete(spec, rules) // which name the field
			container := "properties.moduleLoader.properties.container.properties"
			for _, key := range strings.Split(container, ".") {
				spec = spec[key].(map[string]any) //nolint:errcheck,forcetypeassert // the shape of every CRD
			}
			delete(spec, "readyWhen")
		}, "spec.moduleLoader.container.readyWhen"},
		"a whole branch is gone": {modules, "properties.spec.properties.rollout", remove,
			"fields are missing, such as spec.rollout"},
		"a preflight cannot say of what Module it speaks": {preflights, "properties.status.properties.modules", remove,
			"fields are missing, such as status.modules"},
		"a Module has no conditions": {modules, "properties.status.properties.conditions", remove, "status.conditions is missing"},
	}
	if got, message := reason(t, time.Now()); got != "" {
		t.Fatalf("our own: %s: %s", got, message)
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			env.Get(t).Redefine(t, tc.name, tc.pointer, tc.edit)
			got, message := reason(t, time.Now())
			if got != v1beta1.ReasonCRDIncompatible || !strings.Contains(message, tc.name+": ") || !strings.Contains(message, tc.then) {
				t.Errorf("%q: %s", got, message)
			}
		})
	}
	if got, message := reason(t, time.Now()); got != "" {
		t.Errorf("ours are back: %s: %s", got, message)
	}
}
