// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSubstitute(t *testing.T) {
	extra := map[string]string{VarModName: "mod", VarModNamespace: "ns", VarContainerImage: "quay.io/$MOD_NAME:1"}
	for name, test := range map[string]struct {
		template, kernel string
		want             string
		wantError        string
	}{
		"nothing to substitute": {template: "quay.io/a:b", kernel: "6.1.0", want: "quay.io/a:b"},
		"empty":                 {kernel: "6.1.0"},
		"braces": {template: "r/${MOD_NAMESPACE}/${MOD_NAME}:${KERNEL_FULL_VERSION}", kernel: "5.10.0-13-amd64",
			want: "r/ns/mod:5.10.0-13-amd64"},
		"no braces": {template: "r/$MOD_NAMESPACE/$MOD_NAME:$KERNEL_VERSION", kernel: "5.10.0-13-amd64",
			want: "r/ns/mod:5.10.0-13-amd64"},
		"side by side": {template: "$KERNEL_X${KERNEL_Y}$KERNEL_Z", kernel: "5.10.3", want: "5103"},
		"numbers": {template: "img:${KERNEL_XYZ}-$KERNEL_X.$KERNEL_Y.$KERNEL_Z", kernel: "5.8.18-100.fc31.x86_64",
			want: "img:5.8.18-5.8.18"},
		"RHEL": {template: "$KERNEL_RHEL_VERSION $KERNEL_RHEL_RELEASE $KERNEL_RHEL_ARCH", kernel: "4.18.0-348.23.1.el8_5.x86_64",
			want: "el8_5 348.23.1.el8_5 x86_64"},
		"Debian": {template: "$KERNEL_DEBIAN_RELEASE ${KERNEL_DEBIAN_FLAVOR}", kernel: "5.10.0-13-cloud-amd64",
			want: "13 cloud-amd64"},
		"Ubuntu":            {template: "$KERNEL_UBUNTU_RELEASE ${KERNEL_UBUNTU_FLAVOR}", kernel: "5.4.0-104-generic", want: "104 generic"},
		"normalised":        {template: "r:$KERNEL_FULL_VERSION", kernel: "6.12.115+deb12-amd64", want: "r:6.12.115_deb12-amd64"},
		"trailing plus":     {template: "r:$KERNEL_FULL_VERSION", kernel: "6.1.0+", want: "r:6.1.0"},
		"values are final":  {template: "$CONTAINER_IMAGE", kernel: "6.1.0", want: "quay.io/$MOD_NAME:1"},
		"lone dollars":      {template: "a$ $1 $$ $$KERNEL_X $", kernel: "6.1.0", want: "a$ $1 $$ $6 $"},
		"name ends at dash": {template: "$KERNEL_X-$KERNEL_Y", kernel: "6.1.0", want: "6-1"},

		"unknown": {template: "$KERNEL_FOO", kernel: "6.1.0", wantError: "unknown variable KERNEL_FOO; the variables are " +
			"CONTAINER_IMAGE, KERNEL_DEBIAN_FLAVOR"},
		"unknown in braces": {template: "${KERNELFULL}", kernel: "6.1.0", wantError: "unknown variable KERNELFULL"},
		"longer than known": {template: "$KERNEL_XYZ_1", kernel: "6.1.0", wantError: "unknown variable KERNEL_XYZ_1"},
		"case matters":      {template: "$kernel_x", kernel: "6.1.0", wantError: "unknown variable kernel_x"},
		"not closed":        {template: "img:${KERNEL_XYZ", kernel: "6.1.0", wantError: `variable "${KERNEL_XYZ" lacks its closing brace`},
		"empty braces":      {template: "${}", kernel: "6.1.0", wantError: `"" is not a variable name`},
		"shell default":     {template: "${KERNEL_X:-6}", kernel: "6.1.0", wantError: `"KERNEL_X:-6" is not a variable name`},
		"not RHEL": {template: "$KERNEL_RHEL_ARCH", kernel: "6.1.0-18-amd64", wantError: "variable KERNEL_RHEL_ARCH: kernel " +
			"6.1.0-18-amd64 is not a RHEL kernel"},
		"not Debian": {template: "$KERNEL_DEBIAN_RELEASE", kernel: "6.6.58-talos", wantError: "variable KERNEL_DEBIAN_RELEASE: " +
			"kernel 6.6.58-talos is not a Debian kernel"},
		"not Ubuntu": {template: "$KERNEL_UBUNTU_FLAVOR", kernel: "6.6.58-talos", wantError: "kernel 6.6.58-talos is not an " +
			"Ubuntu kernel"},
		"no numbers": {template: "$KERNEL_Z", kernel: "6.1", wantError: "variable KERNEL_Z: kernel 6.1 does not start with " +
			"three numbers"},
		"no kernel":            {template: "$KERNEL_VERSION", wantError: "variable KERNEL_VERSION: the kernel version is unknown"},
		"unset CONTAINERIMAGE": {template: "$CONTAINERIMAGE", kernel: "6.1.0", wantError: "unknown variable CONTAINERIMAGE"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Substitute(test.template, Parse(test.kernel).TagSafe().Variables(extra))
			if test.wantError == "" && err != nil {
				t.Fatalf("unexpected error: %v", err)
			}
			if test.wantError != "" && (err == nil || !strings.Contains(err.Error(), test.wantError)) {
				t.Fatalf("error %v, want %q", err, test.wantError)
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}

	t.Run("a variable that the caller did not give", func(t *testing.T) {
		_, err := Substitute("$MOD_NAME", Parse("6.1.0").Variables(nil))
		if err == nil || err.Error() != "variable MOD_NAME has no value here" {
			t.Errorf("error %v", err)
		}
	})
}

func TestVariablesIn(t *testing.T) {
	for _, good := range []string{"", "a", "$", "$$", "${MOD_NAME}$", "$KERNEL_RHEL_ARCH"} {
		if _, err := variablesIn(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"$A", "${A}", "${MOD_NAME", "${MOD_NAME }"} {
		if _, err := variablesIn(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func TestVariableNames(t *testing.T) {
	want := []string{
		"CONTAINER_IMAGE", "KERNEL_DEBIAN_FLAVOR", "KERNEL_DEBIAN_RELEASE", "KERNEL_FULL_VERSION",
		"KERNEL_RHEL_ARCH", "KERNEL_RHEL_RELEASE", "KERNEL_RHEL_VERSION", "KERNEL_UBUNTU_FLAVOR", "KERNEL_UBUNTU_RELEASE",
		"KERNEL_VERSION", "KERNEL_X", "KERNEL_XYZ", "KERNEL_Y", "KERNEL_Z", "MOD_NAME", "MOD_NAMESPACE", "NODE_ARCH",
	}
	if diff := cmp.Diff(want, VariableNames()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !slices.IsSorted(VariableNames()) {
		t.Error("not sorted")
	}
}

func FuzzSubstitute(f *testing.F) {
	for _, seed := range []string{"${KERNEL_X}", "$KERNEL_X", "$", "${", "$$", "${MOD_NAME}a$KERNEL_Z"} {
		f.Add(seed, "6.1.0-18-amd64")
	}
	f.Fuzz(func(t *testing.T, source, version string) {
		values := Parse(version).Variables(map[string]string{VarModName: "m", VarModNamespace: "n", VarContainerImage: "i"})
		got, err := Substitute(source, values)
		if _, refused := variablesIn(source); refused != nil && err == nil {
			t.Errorf("%q is substituted to %q although it is refused", source, got)
		}
		if !strings.Contains(source, "$") && got != source {
			t.Errorf("%q became %q", source, got)
		}
	})
}
