// SPDX-License-Identifier: Apache-2.0

package modprobe

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-project/drover/internal/kmod"
	"github.com/drover-project/drover/internal/kmod/synth"
)

const release = "6.1.0-1-test"

// kmodProgram is the machine's own. Tests of what it does need it.
func kmodProgram(t *testing.T) string {
	t.Helper()
	program, err := exec.LookPath("kmod")
	if err != nil {
		t.Skip("kmod is not installed")
	}
	return program
}

func modules(prefix string, all ...synth.Module) fstest.MapFS {
	tree := fstest.MapFS{}
	for _, m := range all {
		m.Vermagic = release + " SMP mod_unload"
		tree[prefix+m.Name+".ko"] = &fstest.MapFile{Data: m.Bytes(), Mode: 0o644}
	}
	return tree
}

// stage is a host with modules, written to disk.
func stage(t *testing.T, program string, host fstest.MapFS) Stage {
	t.Helper()
	s := Stage{Temp: t.TempDir(), Kmod: program, HostModules: filepath.Join(t.TempDir(), "lib/modules", release), Release: release}
	for name, file := range host {
		if err := writeFile(filepath.Join(s.HostModules, name), strings.NewReader(string(file.Data))); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// loads are the modules that the real modprobe would load, in order.
func loads(t *testing.T, s Stage, c Content, names ...string) []string {
	t.Helper()
	cmd := exec.Command(s.Kmod)
	cmd.Args = slices.Concat([]string{"modprobe"}, strings.Fields(s.Options(c)), []string{"-d", s.Root(c.Dir), "-S", release, "--show-depends"}, names)
	if s.Options(c) == "" {
		cmd.Args = slices.Insert(cmd.Args, 1, "-C", "/dev/null")
	}
	output, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	var order []string
	for line := range strings.Lines(string(output)) {
		fields := strings.Fields(line)
		name, ok := kmod.ModuleName(fields[1])
		if fields[0] != "insmod" || !ok {
			t.Fatalf("unexpected line %q", line)
		}
		if _, err := os.Stat(fields[1]); err != nil {
			t.Error(err)
		}
		if !slices.Contains(order, name) { // named twice when two ways lead to it
			order = append(order, name)
		}
	}
	return order
}

// native is what the agent's own loader makes of the same trees.
func native(t *testing.T, image, host fs.FS, c Content, names ...string) []string {
	t.Helper()
	imageTree, err := kmod.NewTree(image)
	if err != nil {
		t.Fatal(err)
	}
	hostTree, err := kmod.NewTree(host)
	if err != nil {
		t.Fatal(err)
	}
	steps, err := kmod.Resolve(kmod.Want{Modules: names, LoadOrder: c.LoadOrder}, imageTree, hostTree)
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, s := range steps {
		order = append(order, s.Name)
	}
	return order
}

// TestLayoutLoadsWhatTheAgentLoads compares modprobe, in the layout that is made for it, with the native loader.
func TestLayoutLoadsWhatTheAgentLoads(t *testing.T) {
	program := kmodProgram(t)
	exports := func(name, symbol string, depends ...string) synth.Module {
		return synth.Module{Name: name, Depends: depends, Exports: []string{symbol}}
	}
	base, core := exports("base", "base_do"), exports("core", "core_do", "base")
	core.Imports = []string{"base_do"}
	nic := synth.Module{Name: "nic", Depends: []string{"core"}, Imports: []string{"core_do"}, SoftdepPre: []string{"extra"}}
	extra := synth.Module{Name: "extra"}
	host := modules("kernel/drivers/", base, extra, synth.Module{Name: "unrelated"})
	cases := map[string]struct {
		image fstest.MapFS
		order []string
		names []string
		then  []string
	}{
		"alone":                          {image: modules("extra/", synth.Module{Name: "solo"}), names: []string{"solo"}, then: []string{"solo"}},
		"a dependency of the host's":     {image: modules("extra/", core), names: []string{"core"}, then: []string{"base", "core"}},
		"through both, and a soft one":   {image: modules("extra/", core, nic), names: []string{"nic"}, then: []string{"base", "core", "extra", "nic"}},
		"the image's wins":               {image: modules("extra/", base, core), names: []string{"core"}, then: []string{"base", "core"}},
		"an order":                       {image: modules("extra/", synth.Module{Name: "a"}, synth.Module{Name: "b"}, synth.Module{Name: "c"}), order: []string{"a", "b", "c"}, names: []string{"a"}, then: []string{"c", "b", "a"}},
		"one of the host's own, by name": {image: modules("extra/", core), names: []string{"extra"}, then: []string{"extra"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := stage(t, program, host)
			c := Content{Dir: "/opt", Image: tc.image, Modules: tc.names, LoadOrder: tc.order}
			if err := s.Prepare(c); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.then, loads(t, s, c, tc.names...)); diff != "" {
				t.Errorf("modprobe (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.then, native(t, tc.image, host, c, tc.names...)); diff != "" {
				t.Errorf("native (-want +got):\n%s", diff)
			}
			if err := s.Remove(c.Dir); err != nil {
				t.Fatal(err)
			}
			if left, err := os.ReadDir(filepath.Join(s.Temp, "opt", "lib")); err != nil || len(left) > 0 {
				t.Errorf("left: %v, error %v", left, err)
			}
		})
	}
}

// TestIndexedImage has its own index, which leads through a link to the host's modules. Deliveries carry no links: it is made again.
func TestIndexedImage(t *testing.T) {
	program := kmodProgram(t)
	base := synth.Module{Name: "base", Exports: []string{"base_do"}}
	core := synth.Module{Name: "core", Depends: []string{"base"}, Imports: []string{"base_do"}}
	s := stage(t, program, modules("kernel/", base))
	built := Stage{Temp: t.TempDir(), Kmod: program, HostModules: s.HostModules, Release: release}
	if err := built.Prepare(Content{Dir: "/opt", Image: modules("extra/", core)}); err != nil {
		t.Fatal(err)
	}
	indexed := fstest.MapFS{}
	tree := os.DirFS(filepath.Join(built.Root("/opt"), "lib/modules", release))
	for _, name := range []string{"extra/core.ko", "modules.dep", "modules.dep.bin"} {
		data, err := fs.ReadFile(tree, name)
		if err != nil {
			t.Fatal(err)
		}
		indexed[name] = &fstest.MapFile{Data: data, Mode: 0o644}
	}
	if text := string(indexed["modules.dep"].Data); !strings.Contains(text, "extra/core.ko: host/kernel/base.ko") {
		t.Fatalf("the index does not lead to the host's modules: %s", text)
	}
	c := Content{Dir: "/opt", Image: indexed}
	if err := s.Prepare(c); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"base", "core"}, loads(t, s, c, "core")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestStageStaysBelowItsDirectory whatever the image's directory is called.
func TestStageStaysBelowItsDirectory(t *testing.T) {
	for given, then := range map[string]string{"/opt": "/t/opt", "": "/t", "/": "/t", "../../etc": "/t/etc", "a//b/": "/t/a/b"} {
		if got := (Stage{Temp: "/t"}).Root(given); got != then {
			t.Errorf("%q: %s, want %s", given, got, then)
		}
	}
}

// program writes a script in kmod's place.
func program(t *testing.T, script string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "kmod")
	if err := os.WriteFile(name, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	return name
}

// content has an index, so that depmod is not run.
func content() Content {
	return Content{Dir: "/opt", Image: fstest.MapFS{"modules.dep.bin": &fstest.MapFile{Mode: 0o644}}}
}

func TestRunReadsWhatWentWrong(t *testing.T) {
	cases := map[string]struct {
		script string
		then   *Error
	}{
		"well": {script: "echo insmod /tmp/opt/x.ko"},
		"the kernel's refusal": {
			script: "echo insmod x; echo \"modprobe: ERROR: could not insert 'nic': Exec format error\" >&2; exit 1",
			then:   &Error{Module: "nic", Errno: "ENOEXEC", Said: "ERROR: could not insert 'nic': Exec format error"},
		},
		"no key": {
			script: "echo \"modprobe: ERROR: could not insert 'nic': Key was rejected by service\" >&2; exit 1",
			then:   &Error{Module: "nic", Errno: "EKEYREJECTED", Said: "ERROR: could not insert 'nic': Key was rejected by service"},
		},
		"a symbol": {
			script: "echo \"modprobe: ERROR: could not insert 'nic': Unknown symbol in module, or unknown parameter (see dmesg)\" >&2; exit 1",
			then:   &Error{Module: "nic", Errno: "ENOENT", Said: "ERROR: could not insert 'nic': Unknown symbol in module, or unknown parameter (see dmesg)"},
		},
		"in use": {
			script: "echo 'modprobe: FATAL: Module nic is in use.' >&2; exit 1",
			then:   &Error{Module: "nic", Errno: "EBUSY", Said: "FATAL: Module nic is in use."},
		},
		"not there": {
			script: "echo 'modprobe: FATAL: Module nic not found in directory /tmp/opt/lib/modules/x' >&2; exit 1",
			then:   &Error{Said: "FATAL: Module nic not found in directory /tmp/opt/lib/modules/x"},
		},
		"without a word":        {script: "exit 3", then: &Error{Said: "exit status 3"}},
		"killed, as by an oops": {script: "kill -9 $$", then: &Error{Said: "signal: killed", Killed: true}},
		"without an end of words": {
			script: "yes modprobe: talk | head -c 300000; exit 1",
			then:   &Error{Said: strings.Repeat("talk; ", 86)[:512] + "…"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := &Runner{Stage: stage(t, program(t, tc.script), nil), Deadline: time.Minute}
			err := r.Run([]string{"nic"}, content())
			var failed *Error
			if errors.As(err, &failed) != (tc.then != nil) || tc.then == nil && err != nil {
				t.Fatalf("error %v", err)
			}
			if diff := cmp.Diff(tc.then, failed); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestCommandLineReachesTheProgram word for word, in a group of its own, with the order's directory in its environment.
func TestCommandLineReachesTheProgram(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	s := stage(t, program(t, `printf '%s\n' "$@" > `+out+`; echo "$MODPROBE_OPTIONS" >> `+out+`; cat "$(echo $MODPROBE_OPTIONS | cut -d' ' -f2)"/softdep.conf >> `+out), nil)
	c := content()
	c.LoadOrder = []string{"a", "b", "c"}
	r := &Runner{Stage: s, Deadline: time.Minute}
	if err := r.Run([]string{"-vd", "/tmp/opt", "a", "text=two words"}, c); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(out)
	want := "-vd\n/tmp/opt\na\ntext=two words\n-C " + s.Temp + "/opt/drover/modprobe.d\nsoftdep a pre: b\nsoftdep b pre: c\n"
	if diff := cmp.Diff(want, string(got)); err != nil || diff != "" {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
}

// TestHungModprobeIsLeftBehind and nothing is done in its layout before it ends.
func TestHungModprobeIsLeftBehind(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "go-on")
	if out, err := exec.Command("mkfifo", pipe).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	ended := make(chan struct{})
	r := &Runner{
		Stage: stage(t, program(t, "read line < "+pipe), nil), Deadline: 50 * time.Millisecond,
		Returned: func() { close(ended) },
	}
	if err := r.Run([]string{"nic"}, content()); !errors.Is(err, ErrLeftBehind) {
		t.Fatalf("error %v", err)
	}
	if _, err := os.Stat(filepath.Join(r.Stage.Root("/opt"), "lib/modules", release)); err != nil {
		t.Errorf("its layout is gone: %v", err)
	}
	if err := r.Run([]string{"nic"}, content()); !errors.Is(err, ErrLeftBehind) {
		t.Errorf("a second one in the same layout: error %v", err)
	}
	if err := os.WriteFile(pipe, []byte("go\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	<-ended
	r.Stage.Kmod, r.Deadline = program(t, "exit 0"), time.Minute
	if err := r.Run([]string{"nic"}, content()); err != nil {
		t.Errorf("after its end: %v", err)
	}
}
