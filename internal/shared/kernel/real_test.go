// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-project/drover/internal/testkit/kernels"
)

func TestRealKernels(t *testing.T) {
	const minKernels, minDistributions = 40, 8
	versions, distributions := map[string]bool{}, map[string]bool{}
	for _, k := range kernels.Real() {
		versions[k.Version] = true
		name, _, _ := strings.Cut(k.Distribution, " ")
		distributions[name] = true
		t.Run(k.Version, func(t *testing.T) {
			values := Parse(k.Version).TagSafe().Variables(nil)
			if diff := cmp.Diff(k.Variables, values); diff != "" {
				t.Errorf("%s, package %s (-want +got):\n%s", k.Distribution, k.Package, diff)
			}
			for name, read := range variables {
				if read == nil {
					continue
				}
				got, err := Substitute("r.example/m:a-${"+name+"}-$"+name, values)
				if want, has := k.Variables[name]; has && (err != nil || got != "r.example/m:a-"+want+"-"+want) {
					t.Errorf("%s is %q in a template: %v", name, got, err)
				} else if !has && (err == nil || !strings.Contains(err.Error(), name+": kernel "+k.Variables["KERNEL_FULL_VERSION"]+" is not a")) {
					t.Errorf("%s has no value, and a template says %q: %v", name, got, err)
				}
			}
		})
	}
	if len(versions) < minKernels || len(distributions) < minDistributions {
		t.Errorf("%d kernels of %d distributions, want %d of %d", len(versions), len(distributions), minKernels, minDistributions)
	}
}
