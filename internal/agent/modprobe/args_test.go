// SPDX-License-Identifier: Apache-2.0

package modprobe

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

func TestCommandLines(t *testing.T) {
	both := func(load, unload []string) *v1beta1.ModprobeArgs {
		return &v1beta1.ModprobeArgs{Load: load, Unload: unload}
	}
	cases := map[string]struct {
		given        v1beta1.ModprobeSpec
		wanted       bool
		main         string
		load, unload []string
	}{
		"nothing of a kind": {
			given: v1beta1.ModprobeSpec{ModuleName: "nic", DirName: "/opt"}, main: "nic",
			load: []string{"-vd", "/tmp/opt", "nic"}, unload: []string{"-rvd", "/tmp/opt", "nic"},
		},
		"empty lists are unset": {
			given: v1beta1.ModprobeSpec{ModuleName: "nic", DirName: "/opt", Args: both(nil, []string{}), RawArgs: both([]string{}, nil)},
			main:  "nic",
			load:  []string{"-vd", "/tmp/opt", "nic"}, unload: []string{"-rvd", "/tmp/opt", "nic"},
		},
		"args go before the name, parameters after it": {
			given: v1beta1.ModprobeSpec{
				ModuleName: "my-nic", DirName: "/opt", Args: both([]string{"--force-vermagic"}, []string{"-w", "500"}),
				Parameters: []string{"a=1", "b=x y"},
			},
			wanted: true, main: "my_nic",
			load:   []string{"-vd", "/tmp/opt", "--force-vermagic", "my-nic", "a=1", "b=x y"},
			unload: []string{"-rvd", "/tmp/opt", "-w", "500", "my-nic"},
		},
		"an order is unloaded whole": {
			given: v1beta1.ModprobeSpec{ModuleName: "a", DirName: "modules", Args: both([]string{"-v"}, nil),
				ModulesLoadingOrder: []string{"a", "b", "c"}},
			wanted: true, main: "a",
			load: []string{"-vd", "/tmp/modules", "-v", "a"}, unload: []string{"-rvd", "/tmp/modules", "a", "b", "c"},
		},
		"rawArgs word for word, all else ignored": {
			given: v1beta1.ModprobeSpec{DirName: "/opt", Parameters: []string{"a=1"},
				RawArgs: both([]string{"-d", "/tmp/opt", "my-nic", "a=2"}, []string{"-r", "my-nic"})},
			wanted: true, main: "my_nic",
			load: []string{"-d", "/tmp/opt", "my-nic", "a=2"}, unload: []string{"-r", "my-nic"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if Wanted(&tc.given) != tc.wanted || Main(&tc.given) != tc.main {
				t.Errorf("wanted %t, main %q", Wanted(&tc.given), Main(&tc.given))
			}
			if diff := cmp.Diff(tc.load, LoadArgs(&tc.given)); diff != "" {
				t.Errorf("load (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.unload, UnloadArgs(&tc.given)); diff != "" {
				t.Errorf("unload (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParse(t *testing.T) {
	cases := map[string]struct {
		given []string
		then  Call
	}{
		"nothing": {nil, Call{}},
		"a module with parameters": {[]string{"-vd", "/tmp/opt", "my-nic", "a=1", "b"},
			Call{Modules: []string{"my_nic"}, Params: []string{"a=1", "b"}, Paths: []string{"/tmp/opt"}}},
		"several": {[]string{"-a", "a", "b-c"}, Call{Modules: []string{"a", "b_c"}}},
		"removal takes several": {[]string{"-rd", "/tmp/opt", "a", "b"},
			Call{Remove: true, Modules: []string{"a", "b"}, Paths: []string{"/tmp/opt"}}},
		"a value in the same word": {[]string{"-d/tmp/opt", "-Sx", "a"},
			Call{Modules: []string{"a"}, Paths: []string{"/tmp/opt"}, Versions: []string{"x"}}},
		"a value with its own letters": {[]string{"-dr", "a"}, Call{Modules: []string{"a"}, Paths: []string{"r"}}},
		"a file":                       {[]string{"/tmp/a-b.ko"}, Call{Modules: []string{"/tmp/a_b.ko"}, Paths: []string{"/tmp/a-b.ko"}}},
		"a parameter is no file":       {[]string{"a", "x=/y"}, Call{Modules: []string{"a"}, Params: []string{"x=/y"}}},
		"long options": {[]string{"--dirname", "/tmp/opt", "--set-version=r", "--remove", "a"},
			Call{Remove: true, Modules: []string{"a"}, Paths: []string{"/tmp/opt"}, Versions: []string{"r"}}},
		"their beginnings": {[]string{"--dir", "/tmp/opt", "--rem", "--wait", "5", "a"},
			Call{Remove: true, Modules: []string{"a"}, Paths: []string{"/tmp/opt"}}},
		"force":                        {[]string{"--force-vermagic", "a"}, Call{Force: true, Modules: []string{"a"}}},
		"force in short":               {[]string{"-vf", "a"}, Call{Force: true, Modules: []string{"a"}}},
		"options after the name":       {[]string{"a", "-f", "x=1"}, Call{Force: true, Modules: []string{"a"}, Params: []string{"x=1"}}},
		"after two dashes":             {[]string{"--", "-a", "x=1"}, Call{Modules: []string{"_a"}, Params: []string{"x=1"}}},
		"a dash alone is a word":       {[]string{"a", "-"}, Call{Modules: []string{"a"}, Params: []string{"-"}}},
		"a value that is missing":      {[]string{"a", "-d"}, Call{Modules: []string{"a"}, Paths: []string{""}}},
		"an empty long option's value": {[]string{"--wait=5", "a"}, Call{Modules: []string{"a"}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.then, Parse(tc.given)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestStrays: what KMM's documentation and users write passes; what only this agent's pod could
// read does not.
func TestStrays(t *testing.T) {
	const pods = "/var/lib/kubelet/pods/0-1/volumes/kubernetes.io~empty-dir/mine"
	for line, then := range map[string]string{
		"-vd /tmp/opt nic a=1":                   "",
		"-rvd /tmp/opt nic":                      "",
		"-d /tmp/opt -S 6.1.0 nic p=/var/x":      "",
		"-d /host nic":                           "",
		"--dirname=/ nic":                        "",
		"-C /dev/null nic":                       "",
		"-C /etc/modprobe.d nic":                 "",
		"-d /host/lib/modules/../modules nic":    "/host/lib/modules/../modules",
		"-d " + pods + " nic":                    pods,
		"-vd/tmp/opt -d" + pods + " nic":         pods,
		"-vd /tmp/opt nic a=1 --dirname " + pods: pods,
		"--di=" + pods + " nic":                  pods,
		"-qC " + pods + "/x.conf nic":            pods + "/x.conf",
		"-S ../../../" + pods + " nic":           "../../../" + pods,
		"--set-v .. nic":                         "..",
		"-vd /tmp/opt " + pods + "/evil.ko":      pods + "/evil.ko",
		"-a nic ./proc/1/root/evil.ko":           "./proc/1/root/evil.ko",
		"-d /proc/1/root nic":                    "/proc/1/root",
		"-d /host/proc/1/root nic":               "/host/proc/1/root",
		"-C /host/var/log/pods/a/0.log nic":      "/host/var/log/pods/a/0.log",
		"-d /var/lib/drover/store nic":           "/var/lib/drover/store",
		"-d /tmpfoo nic":                         "/tmpfoo",
		"-d /tmp/../var/lib/kubelet/pods/x nic":  "/tmp/../var/lib/kubelet/pods/x",
	} {
		if got := Strays(strings.Fields(line)); got != then {
			t.Errorf("%s: %q, want %q", line, got, then)
		}
	}
	if got := Strays(LoadArgs(&v1beta1.ModprobeSpec{ModuleName: "nic", DirName: "../" + pods,
		Args: &v1beta1.ModprobeArgs{Load: []string{"-v"}}})); got != pods {
		t.Errorf("dirName: %q", got)
	}
}
