// SPDX-License-Identifier: Apache-2.0

//go:build compare

package modprobe

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/ulikunitz/xz"

	"github.com/drover-project/drover/internal/shared/kmod"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
)

// kmodProgram is the machine's own. Tests of what it does need it.
func kmodProgram(t *testing.T) string {
	t.Helper()
	program, err := exec.LookPath("kmod")
	if err != nil {
		t.Fatal(err)
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

// loads are the modules that the real modprobe would load, in order.
func loads(t *testing.T, s Stage, c Content, names ...string) []string {
	t.Helper()
	cmd := exec.Command(s.Kmod)
	cmd.Args = slices.Concat([]string{"modprobe"}, strings.Fields(s.Options(c)),
		[]string{"-d", s.Root(c.Dir), "-S", release, "--show-depends"}, names)
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

// TestLayoutLoadsWhatTheAgentLoads compares modprobe, in the layout that is made for it, with the
// native loader.
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
		"alone":                      {image: modules("extra/", synth.Module{Name: "solo"}), names: []string{"solo"}, then: []string{"solo"}},
		"a dependency of the host's": {image: modules("extra/", core), names: []string{"core"}, then: []string{"base", "core"}},
		"through both, and a soft one": {image: modules("extra/", core, nic), names: []string{"nic"},
			then: []string{"base", "core", "extra", "nic"}},
		"the image's wins": {image: modules("extra/", base, core), names: []string{"core"}, then: []string{"base", "core"}},
		"an order": {image: modules("extra/", synth.Module{Name: "a"}, synth.Module{Name: "b"}, synth.Module{Name: "c"}),
			order: []string{"a", "b", "c"}, names: []string{"a"}, then: []string{"c", "b", "a"}},
		"one of the host's own, by name": {image: modules("extra/", core), names: []string{"extra"}, then: []string{"extra"}},
	}
	for name, tc := range cases {
		checkLayout := func(t *testing.T, packing string) {
			s := stage(t, program, host)
			s.Packing = packing
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
		}
		t.Run(name, func(t *testing.T) { checkLayout(t, "") })
		t.Run(name+", packed", func(t *testing.T) { checkLayout(t, "zstd") })
	}
}

// TestIndexedImage has its own index, which leads through a link to the host's modules. Deliveries
// carry no links: it is made again.
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
	c := Content{Dir: "/opt", Image: indexed, Modules: []string{"core"}}
	for _, packing := range []string{"", "zstd"} {
		s.Packing = packing
		if err := s.Prepare(c); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"base", "core"}, loads(t, s, c, "core")); diff != "" {
			t.Errorf("packing %q (-want +got):\n%s", packing, diff)
		}
	}
}

// TestPackedModules: each module is packed, also one that was packed in another way; kmod reads the
// same module from it.
func TestPackedModules(t *testing.T) {
	program := kmodProgram(t)
	for packing, suffix := range Packings {
		t.Run(packing, func(t *testing.T) {
			s := stage(t, program, modules("kernel/"))
			s.Packing = packing
			image := modules("extra/", synth.Module{Name: "plain"}, synth.Module{Name: "packed"})
			was := image["extra/packed.ko"].Data
			image["extra/packed.ko.xz"] = &fstest.MapFile{Data: packXZ(t, was), Mode: 0o644}
			delete(image, "extra/packed.ko")
			if err := s.Prepare(Content{Dir: "/opt", Image: image}); err != nil {
				t.Fatal(err)
			}
			dir := filepath.Join(s.Root("/opt"), "lib/modules", release, "extra")
			entries, err := os.ReadDir(dir)
			if err != nil || len(entries) != 2 || entries[0].Name() != "packed.ko"+suffix || entries[1].Name() != "plain.ko"+suffix {
				t.Fatalf("%v, %v", entries, err)
			}
			content, err := os.ReadFile(filepath.Join(dir, "packed.ko"+suffix))
			if err != nil {
				t.Fatal(err)
			}
			if plain, err := kmod.Decompress(content); err != nil || !bytes.Equal(plain, was) {
				t.Errorf("another module: %v", err)
			}
			info := exec.Command(program)
			info.Args = []string{"modinfo", "-F", "name", filepath.Join(dir, "packed.ko"+suffix)}
			if said, err := info.CombinedOutput(); err != nil || strings.TrimSpace(string(said)) != "packed" {
				t.Errorf("kmod: %s, %v", said, err)
			}
		})
	}
}

func packXZ(t *testing.T, content []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := xz.NewWriter(&out)
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.Write(content)
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestStraysAreWhatModprobeReads: the real program loads a tenant's file by each of these command
// lines, and each is found to stray.
func TestStraysAreWhatModprobeReads(t *testing.T) {
	s := stage(t, kmodProgram(t), modules("kernel/", synth.Module{Name: "hosts"}))
	tenant := Stage{Temp: t.TempDir(), Kmod: s.Kmod, HostModules: s.HostModules, Release: release}
	c := Content{Dir: "/mine", Image: modules("extra/", synth.Module{Name: "evil"})}
	if err := tenant.Prepare(c); err != nil {
		t.Fatal(err)
	}
	mine := tenant.Root(c.Dir)
	approved := []string{"-vd", s.Root("/opt")}
	for _, args := range [][]string{
		{"-d", mine, "-S", release, "evil"},
		{"-d" + mine, "-S", release, "evil"},
		{"--dirname=" + mine, "-S", release, "evil"},
		{"--dir", mine, "--set-v", release, "evil"},
		{"evil", "a=1", "-d", mine, "-S", release},
	} {
		line := slices.Concat(approved, args)
		cmd := exec.Command(s.Kmod)
		cmd.Args = slices.Concat([]string{"modprobe", "-C", "/dev/null", "--show-depends"}, line)
		said, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(said), mine) {
			t.Errorf("%q reads another tree: %v: %s", line, err, said)
		}
		// Where the tests' folders lie is below /tmp, which is the image's place on a node.
		moved := strings.Split(strings.ReplaceAll(strings.Join(line, "\n"), mine, "/var/lib/kubelet/pods/1/mine"), "\n")
		if Strays(moved) == "" {
			t.Errorf("%q does not stray", moved)
		}
	}
}
