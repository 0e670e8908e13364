// SPDX-License-Identifier: Apache-2.0

package kit_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/kit"
)

// TestWhatIsWrittenIsRequired: the fields follow from what Desired sets, branches that an example
// shows included.
func TestWhatIsWrittenIsRequired(t *testing.T) {
	desired := func(g *Gadget) ([]client.Object, error) {
		m := kit.NewModule(g.Name).Selector(g.Spec.Selector).KernelModule("k").Mapping(kit.Regexp("^.+$"), g.Spec.Image)
		if g.Spec.Size == "large" {
			m.FirmwarePath("/firmware")
		}
		if g.Spec.Account {
			m.ServiceAccount("puller")
		}
		return []client.Object{&corev1.ConfigMap{}, m.Build()}, nil
	}
	least := []string{
		"spec", "spec.moduleLoader", "spec.moduleLoader.container", "spec.moduleLoader.container.kernelMappings",
		"spec.moduleLoader.container.kernelMappings.containerImage", "spec.moduleLoader.container.kernelMappings.regexp",
		"spec.moduleLoader.container.modprobe",
		"spec.moduleLoader.container.modprobe.moduleName", "spec.moduleLoader.serviceAccountName", "spec.selector",
	}
	for given, test := range map[string]struct {
		examples []*Gadget
		more     string
	}{
		"no example":                     {},
		"one that takes another branch":  {[]*Gadget{{Spec: GadgetSpec{Size: "large"}}}, "spec.moduleLoader.container.modprobe.firmwarePath"},
		"one that sets nothing, besides": {[]*Gadget{{}}, ""},
	} {
		t.Run(given, func(t *testing.T) {
			got := kit.Required(desired, test.examples...)
			if len(got) != 3 {
				t.Fatalf("%+v", got)
			}
			if _, own := got[0].Object.(*Gadget); !own || len(got[0].Fields) > 0 {
				t.Errorf("of its own kind: %+v", got[0])
			}
			if _, module := got[2].Object.(*v1beta1.Module); !module {
				t.Fatalf("of the child: %+v", got[2])
			}
			var more []string
			for _, field := range got[2].Fields {
				if strings.HasPrefix(field, "spec.selector.") || field == test.more && test.more != "" {
					continue
				}
				more = append(more, field)
			}
			if diff := cmp.Diff(least, more); diff != "" {
				t.Errorf("fields (-want +got):\n%s", diff)
			}
			if test.more != "" && !strings.Contains(strings.Join(got[2].Fields, " "), test.more) {
				t.Errorf("%s is not required", test.more)
			}
		})
	}
}

// TestRefusedExamplesAreTold at the program's start, and not before: Required is called where a
// variable is made.
func TestRefusedExamplesAreTold(t *testing.T) {
	refuse := func(g *Gadget) ([]client.Object, error) {
		if g.Spec.Size != "large" {
			return nil, errors.New("size 1 is too small")
		}
		return nil, nil
	}
	err := kit.Requires(t.Context(), nil, newScheme(), nil, kit.Required(refuse)...)
	if err == nil || !strings.Contains(err.Error(), "size 1 is too small") || !strings.Contains(err.Error(), "Gadget: give examples") {
		t.Errorf("error %v", err)
	}
}
