// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"regexp"
	"strings"
	"testing"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// FuzzParse: the parts of a version are in it, and what goes into an image's tag fits there.
func FuzzParse(f *testing.F) {
	for _, version := range []string{
		"6.1.0-18-amd64", "4.18.0-348.23.1.el8_5.x86_64", "5.14.0-503.11.1.el9_5.aarch64+64k", "6.12.115+deb12-amd64", "6.12.9-amd64",
		"6.1.0-0.deb11.13-amd64", "6.8.0-45-generic", "6.1.0+", "", "6.1", "\xff.1.2-\n",
	} {
		f.Add(version)
	}
	tag := regexp.MustCompile(`^[A-Za-z0-9._-]*$`)
	f.Fuzz(func(t *testing.T, version string) {
		v := Parse(version)
		if v.Full != version || v.X != "" && !strings.HasPrefix(version, v.X+"."+v.Y+"."+v.Z) || (v.X == "") != (v.XYZ == "") {
			t.Errorf("%+v", v)
		}
		for _, part := range []string{v.RHELVersion, v.RHELRelease, v.RHELArch, v.DebianRelease} {
			if !strings.Contains(version, part) {
				t.Errorf("%q is not in %q", part, version)
			}
		}
		if (v.RHELRelease != "") && (v.DebianRelease != "") {
			t.Errorf("%q is of two distributions", version)
		}
		safe := v.TagSafe()
		for name, value := range safe.Variables(nil) {
			if value == "" || !tag.MatchString(value) {
				t.Errorf("%s is %q", name, value)
			}
		}
		if again := safe.TagSafe(); again.Full != safe.Full && !strings.HasSuffix(safe.Full, "+") {
			t.Errorf("%q becomes %q", safe.Full, again.Full)
		}
	})
}

// FuzzMapper: a mapping applies to a kernel or not, and an image has no variable left in it.
func FuzzMapper(f *testing.F) {
	f.Add("6.1.0-18-amd64", "", `-amd64$`, "registry/x:${KERNEL_FULL_VERSION}")
	f.Add("6.1.0", "6.1.0+", "", "x:$KERNEL_XYZ-$MOD_NAME")
	f.Add("5.14", "", "(a*)*", "x:${KERNEL_RHEL_ARCH}")
	f.Add("", "", "[", "${")
	f.Fuzz(func(t *testing.T, version, literal, expression, image string) {
		spec := &v1beta1.ModuleLoaderSpec{}
		spec.Container.KernelMappings = []v1beta1.KernelMapping{{Literal: literal, Regexp: expression, ContainerImage: image}}
		m, err := NewMapper(spec, "ns", "m")
		if err != nil {
			return
		}
		resolved, found, err := m.For(version, "amd64")
		if err != nil || !found {
			if resolved.Config.ContainerImage != "" || err != nil && !found {
				t.Errorf("%+v, found %v, %v", resolved, found, err)
			}
			return
		}
		c := resolved.Config
		if c.ContainerImage == "" || len(c.ContainerImage) > maxImage || c.KernelVersion != Trim(version) || resolved.Release != version {
			t.Errorf("%+v", resolved)
		}
		if literal != "" && Trim(literal) != Trim(version) {
			t.Errorf("%q applies to %q", literal, version)
		}
		if names, err := variablesIn(c.ContainerImage); len(names) > 0 && err == nil && !strings.Contains(image, "$$") &&
			!strings.Contains(image, "}$") {
			t.Errorf("%q became %q", image, c.ContainerImage)
		}
	})
}
