// SPDX-License-Identifier: Apache-2.0

package host

import (
	"io/fs"
	"slices"
	"testing"

	"github.com/drover-project/drover/internal/agent/modprobe"
)

const (
	withSELinux    = "nodev\tsysfs\nnodev\tselinuxfs\nnodev\ttmpfs\n\text4"
	withoutSELinux = "nodev\tsysfs\nnodev\ttmpfs\n\text4"
)

func hostOf(files map[string]string) hostFile {
	return func(name string) (string, error) {
		content, found := files[name]
		if !found {
			return "", fs.ErrNotExist
		}
		return content, nil
	}
}

func TestLoadsByLabel(t *testing.T) {
	cases := map[string]struct {
		given map[string]string
		want  bool
	}{
		"without SELinux":                  {map[string]string{"proc/filesystems": withoutSELinux}, false},
		"with SELinux":                     {map[string]string{"proc/filesystems": withSELinux}, true},
		"named last, without a line's end": {map[string]string{"proc/filesystems": "nodev\tsysfs\nnodev\tselinuxfs"}, true},
		"LoadPin is compiled in":           {map[string]string{"proc/filesystems": withSELinux, "proc/sys/kernel/loadpin/enforce": "0"}, true},
		"LoadPin wants the file itself":    {map[string]string{"proc/filesystems": withSELinux, "proc/sys/kernel/loadpin/enforce": "1"}, false},
		"nothing can be read":              {nil, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := loadsByLabel(hostOf(tc.given)); got != tc.want {
				t.Errorf("by label: %v", got)
			}
		})
	}
}

// TestPacking: modprobe hands a module over from memory only if the kernel cannot unpack it.
func TestPacking(t *testing.T) {
	cases := map[string]struct {
		given map[string]string
		want  string
	}{
		"without SELinux":     {map[string]string{"proc/filesystems": withoutSELinux}, ""},
		"unpacks nothing":     {map[string]string{"proc/filesystems": withSELinux}, "zstd"},
		"unpacks xz":          {map[string]string{"proc/filesystems": withSELinux, "sys/module/compression": "xz"}, "zstd"},
		"unpacks zstd":        {map[string]string{"proc/filesystems": withSELinux, "sys/module/compression": "zstd"}, "xz"},
		"LoadPin is enforced": {map[string]string{"proc/filesystems": withSELinux, "proc/sys/kernel/loadpin/enforce": "1"}, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := packing(hostOf(tc.given))
			if got != tc.want {
				t.Errorf("packing: %q", got)
			}
			if _, known := modprobe.Packings[got]; got != "" && !known {
				t.Errorf("modprobe's layout knows no %q", got)
			}
		})
	}
}

func TestSELinuxSays(t *testing.T) {
	const mode, boolean = "sys/fs/selinux/enforce", "sys/fs/selinux/booleans/secure_mode_insmod"
	cases := map[string]struct {
		errno string
		given map[string]string
		want  []string
	}{
		"denied":               {"EACCES", map[string]string{mode: "1", boolean: "0 0"}, []string{SELinuxEnforces}},
		"denied, no selinuxfs": {"EACCES", nil, []string{SELinuxEnforces}},
		"permissive":           {"EACCES", map[string]string{mode: "0"}, nil},
		"by the boolean":       {"EPERM", map[string]string{mode: "1", boolean: "1 1"}, []string{SELinuxForbids}},
		"permissive, boolean":  {"EPERM", map[string]string{mode: "0", boolean: "1 1"}, nil},
		"not the boolean":      {"EPERM", map[string]string{mode: "1", boolean: "0 1"}, nil},
		"another error":        {"ENOEXEC", map[string]string{mode: "1", boolean: "1 1"}, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"proc/filesystems": withSELinux}
			for name, content := range tc.given {
				files[name] = content
			}
			if got := seLinuxSays(hostOf(files), tc.errno); !slices.Equal(got, tc.want) {
				t.Errorf("%q", got)
			}
			files["proc/filesystems"] = withoutSELinux
			if got := seLinuxSays(hostOf(files), tc.errno); got != nil {
				t.Errorf("without SELinux: %q", got)
			}
		})
	}
}
