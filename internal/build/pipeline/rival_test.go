// SPDX-License-Identifier: Apache-2.0

package pipeline_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/build/pipeline"
	"github.com/drover-project/drover/internal/shared/kernel"
)

// TestTheProcessorIsInNames of what is pushed and read, and not an input of a build.
func TestTheProcessorIsInNames(t *testing.T) {
	m := module(func(m *v1beta1.Module) {
		mapping(m).ContainerImage = "r.example/m:$KERNEL_FULL_VERSION-${NODE_ARCH}"
		container(m).Sign = &v1beta1.Sign{KeySecret: ref("k"), CertSecret: ref("c"), UnsignedImage: "r.example/u:$NODE_ARCH",
			FilesToSign: []string{"/opt/$NODE_ARCH/a.ko"}}
	})
	for _, arch := range []string{"amd64", "arm64"} {
		mapper, err := kernel.NewMapper(m.Spec.ModuleLoader, m.Namespace, m.Name)
		if err != nil {
			t.Fatal(err)
		}
		resolved, _, err := mapper.For(kernelVersion, arch)
		if err != nil {
			t.Fatal(err)
		}
		spec, err := pipeline.Declare(m, &resolved, arch)
		if err != nil {
			t.Fatal(err)
		}
		if spec.Image != "r.example/m:"+kernelVersion+"-"+arch || spec.Sign.UnsignedImage != "r.example/u:"+arch || spec.Sign.Files[0] != "/opt/"+
			arch+"/a.ko" {
			t.Errorf("%s: %s, %+v", arch, spec.Image, spec.Sign)
		}
		if slices.ContainsFunc(spec.Build.Args, func(a v1beta1.BuildArg) bool { return a.Name == "NODE_ARCH" }) {
			t.Errorf("%s: the processor is a build argument", arch)
		}
	}
}

// TestTheOldestHasTheName of those that would be pushed to it.
func TestTheOldestHasTheName(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	one := func(name string, age time.Duration, change ...func(*v1alpha1.ModuleImage)) v1alpha1.ModuleImage {
		i := v1alpha1.ModuleImage{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, CreationTimestamp: metav1.NewTime(noon.Add(-age))},
			Spec: v1alpha1.ModuleImageSpec{
				Module: "m", KernelVersion: kernelVersion, Architecture: "amd64", Image: "r/m:1", Build: &v1alpha1.ImageBuild{},
				WantedBy: []string{"Module/m"},
			},
		}
		for _, c := range change {
			c(&i)
		}
		return i
	}
	given := func(change func(*v1alpha1.ModuleImageSpec)) func(*v1alpha1.ModuleImage) {
		return func(i *v1alpha1.ModuleImage) { change(&i.Spec) }
	}
	for name, tc := range map[string]struct {
		other v1alpha1.ModuleImage
		waits bool
		says  string
	}{
		"older, another processor": {other: one("a", time.Hour, given(func(s *v1alpha1.ModuleImageSpec) { s.Architecture = "arm64" })),
			waits: true, says: "${NODE_ARCH}"},
		"older, another kernel": {other: one("a", time.Hour, given(func(s *v1alpha1.ModuleImageSpec) { s.KernelVersion = "6.2" })),
			waits: true, says: "${KERNEL_FULL_VERSION}"},
		"older, a kernel of one tag": {other: one("a", time.Hour, given(func(s *v1alpha1.ModuleImageSpec) { s.KernelVersion += "+" })),
			waits: true, says: "are the same in a tag"},
		"older, another Module": {other: one("a", time.Hour, given(func(s *v1alpha1.ModuleImageSpec) { s.Module = "n" })), waits: true,
			says: "${MOD_NAME}"},
		"older, other inputs":          {other: one("a", time.Hour), waits: true, says: "nobody wants the other"},
		"of the same second, by name":  {other: one("a", 0), waits: true},
		"of the same second, this one": {other: one("z", 0)},
		"newer":                        {other: one("a", -time.Hour)},
		"older, wanted by nobody":      {other: one("a", time.Hour, given(func(s *v1alpha1.ModuleImageSpec) { s.WantedBy = nil }))},
		"older, being deleted": {other: one("a", time.Hour,
			func(i *v1alpha1.ModuleImage) { i.DeletionTimestamp = &metav1.Time{Time: noon} })},
		"older, only examined": {other: one("a", time.Hour, given(func(s *v1alpha1.ModuleImageSpec) { s.Examine = &v1alpha1.ImageExamine{} }))},
		"older, another name":  {other: one("a", time.Hour, given(func(s *v1alpha1.ModuleImageSpec) { s.Image = "r/m:2" }))},
		"older, its unsigned image is": {other: one("a", time.Hour, given(func(s *v1alpha1.ModuleImageSpec) {
			s.Image, s.Sign = "r/m:2", &v1alpha1.ImageSign{UnsignedImage: "r/m:1"}
		})), waits: true},
		"older, it only signs this one": {other: one("a", time.Hour, given(func(s *v1alpha1.ModuleImageSpec) {
			s.Image, s.Build, s.Sign = "r/m:2", nil, &v1alpha1.ImageSign{UnsignedImage: "r/m:1"}
		}))},
	} {
		t.Run(name, func(t *testing.T) {
			image := one("m", 0)
			rival := pipeline.Rival(&image, []v1alpha1.ModuleImage{image, tc.other})
			if (rival != nil) != tc.waits {
				t.Fatalf("it waits for %+v", rival)
			}
			if rival == nil {
				return
			}
			if text := pipeline.Clash(&image, rival); !strings.Contains(text, tc.says) || !strings.Contains(text, "r/m:1") {
				t.Errorf("%q does not say %q", text, tc.says)
			}
		})
	}
}
