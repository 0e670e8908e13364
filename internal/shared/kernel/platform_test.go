// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"strings"
	"testing"
	"unicode"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/testkit/kernels"
)

// TestRealKernelsAreValid: all of them, also with the mark of a modified source tree.
func TestRealKernelsAreValid(t *testing.T) {
	for _, k := range kernels.Real() {
		for _, version := range []string{k.Version, Trim(k.Version) + "+"} {
			node := &corev1.NodeSystemInfo{KernelVersion: version, Architecture: "amd64"}
			if p, err := PlatformOf(node); err != nil || p != (Platform{version, "amd64"}) || Show(node) != Trim(version) {
				t.Errorf("%s: %+v, shown as %s: %v", version, p, Show(node), err)
			}
		}
	}
}

// TestWhatNoKernelIs: nothing of it matches a mapping, and people see it quoted.
func TestWhatNoKernelIs(t *testing.T) {
	mapper, err := NewMapper(loader(func(c *v1beta1.ModuleLoaderContainerSpec) {
		c.ContainerImage, c.KernelMappings = "r/a:1", []v1beta1.KernelMapping{{Regexp: "(?s).*"}}
	}), "ns", "mod")
	if err != nil {
		t.Fatal(err)
	}
	for name, given := range map[string]Platform{
		"command":       {"6.1.0-44$(id)-amd64", "amd64"},
		"backticks":     {"6.1.0-44`id`-amd64", "amd64"},
		"separator":     {"6.1.0;id", "amd64"},
		"line":          {"6.1.0-amd64\nid", "amd64"},
		"line at last":  {"6.1.0-amd64\n", "amd64"},
		"folder":        {"../../../etc", "amd64"},
		"option":        {"-6.1.0", "amd64"},
		"hidden":        {".6.1.0", "amd64"},
		"blank":         {"6.1.0 amd64", "amd64"},
		"assignment":    {"A=6.1.0", "amd64"},
		"escape":        {"6.1.0\x1b[2J", "amd64"},
		"other letters": {"6.1.0-аmd64", "amd64"}, // a Cyrillic letter
		"no UTF-8":      {"6.1.0-\xff", "amd64"},
		"too long":      {strings.Repeat("6", 65), "amd64"},
		"very long":     {strings.Repeat("\x1b", 1<<20), "amd64"},
		"processor":     {"6.1.0-44-amd64", "amd64$(id)"},
	} {
		t.Run(name, func(t *testing.T) {
			var invalid *InvalidError
			if _, _, err := mapper.For(given.Kernel, given.Architecture); !errors.As(err, &invalid) ||
				Reason(err) != v1beta1.ReasonInvalidKernelVersion {
				t.Fatalf("the mapping says %v", err)
			}
			node := &corev1.NodeSystemInfo{KernelVersion: given.Kernel, Architecture: given.Architecture}
			if _, err := PlatformOf(node); err == nil {
				t.Error("PlatformOf has no error")
			}
			for what, text := range map[string]string{"error": invalid.Error(), "name": Show(node)} {
				odd := func(r rune) bool { return !unicode.IsPrint(r) }
				if len(text) > 512 || strings.ContainsFunc(text, odd) {
					t.Errorf("%s: %.200q", what, text)
				}
			}
		})
	}
	if _, found, err := mapper.For("", "amd64"); found || err != nil {
		t.Errorf("a node that has reported nothing: %v, %v", found, err)
	}
}
