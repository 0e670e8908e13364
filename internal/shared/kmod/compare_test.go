// SPDX-License-Identifier: Apache-2.0

//go:build compare

package kmod_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-project/drover/internal/shared/kmod"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
)

// These tests ask kmod's own programs and binutils (`make compare`).

// tool finds a program, which distributions put where only root looks.
func tool(t *testing.T, name string) string {
	t.Helper()
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), "/usr/sbin", "/sbin") {
		if path := filepath.Join(dir, name); isFile(path) {
			return path
		}
	}
	t.Fatalf("%s is not installed (Debian packages: kmod, binutils)", name)
	return ""
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	command := exec.Command(tool(t, name), args...)
	var stderr strings.Builder
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil || stderr.Len() > 0 {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, stderr.String())
	}
	return string(out)
}

// linked makes modules that depend on each other in both ways that readers know: names in .modinfo,
// symbols in ELF.
func linked(name string, depends ...string) synth.Module {
	module := synth.Module{Name: name, Depends: depends, Vermagic: vermagic, ModVersions: true, Exports: []string{"from_" + name}}
	for _, on := range depends {
		module.Imports = append(module.Imports, "from_"+on)
	}
	return module
}

// hostTree writes lib/modules/<kernel> below a new root and lets depmod index it.
func hostTree(t *testing.T, kernel string, builtin string, modules map[string]synth.Module) (root string) {
	t.Helper()
	root = t.TempDir()
	dir := filepath.Join(root, "lib", "modules", kernel)
	for path, module := range modules {
		file := filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		content := compressed(t, strings.TrimPrefix(filepath.Ext(path), "."), module.Bytes())
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range map[string]string{"modules.builtin": builtin, "modules.order": "", "modules.builtin.modinfo": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run(t, "depmod", "-b", root, kernel)
	return root
}

func TestOrderIsModprobes(t *testing.T) {
	const kernelVersion = "6.1.0-18-amd64"
	soft := linked("soft", "base")
	soft.SoftdepPre, soft.SoftdepPost = []string{"crypto-sum", "absent", "early"}, []string{"late"}
	sum := linked("sum-generic")
	sum.Aliases = []string{"crypto-sum"}
	late := linked("late", "late_base")
	root := hostTree(t, kernelVersion, "kernel/in.ko\n", map[string]synth.Module{
		"kernel/base.ko":          linked("base"),
		"kernel/middle-one.ko.xz": linked("middle-one", "base"),
		"kernel/top.ko":           linked("top", "middle-one"),
		"kernel/left.ko.zst":      linked("left", "base"),
		"kernel/right.ko":         linked("right", "left"),
		"kernel/wide.ko":          linked("wide", "left", "right"),
		"kernel/soft.ko":          soft,
		"kernel/early.ko":         linked("early"),
		"kernel/late.ko":          late,
		"kernel/late_base.ko":     linked("late_base"),
		"kernel/sum-generic.ko":   sum,
		"kernel/twice.ko":         linked("twice", "base"),
		"updates/twice.ko":        linked("twice", "left"),
	})
	tree := newTree(t, os.DirFS(filepath.Join(root, "lib", "modules", kernelVersion)))
	for _, module := range tree.Names() {
		t.Run(module, func(t *testing.T) {
			var want []string
			for line := range strings.Lines(run(t, "modprobe", "-C", "/dev/null", "-d", root, "-S", kernelVersion, "--show-depends", module)) {
				command, path, _ := strings.Cut(strings.TrimSpace(line), " ")
				if command != "insmod" {
					t.Fatalf("modprobe says %q", line)
				}
				path, _, _ = strings.Cut(path, " ")
				relative, err := filepath.Rel(filepath.Join(root, "lib", "modules", kernelVersion), path)
				if err != nil {
					t.Fatal(err)
				}
				want = append(want, relative)
			}
			steps, err := kmod.Resolve(kmod.Want{Modules: []string{module}}, nil, tree)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, step := range steps {
				got = append(got, step.Path)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-modprobe +ours):\n%s", diff)
			}
		})
	}
	out := run(t, "modprobe", "-C", "/dev/null", "-d", root, "-S", kernelVersion, "--show-depends", "in")
	if strings.TrimSpace(out) != "builtin in" || !tree.Builtin("in") {
		t.Errorf("modprobe says %q, we say built in: %v", out, tree.Builtin("in"))
	}
}

func TestModinfoReadsWhatWeRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "my-module.ko")
	module := full()
	module.Signed = false // modinfo would look into the signature, which is empty
	if err := os.WriteFile(path, module.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	info, err := kmod.Read(module.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	field := func(name string) string { return strings.TrimSuffix(run(t, "modinfo", "-F", name, path), "\n") }
	for name, ours := range map[string]string{
		"name": info.Name, "vermagic": info.Vermagic, "version": info.Version, "license": info.License, "srcversion": info.SrcVersion,
		"depends": "dep-one,dep_two", "softdep": "pre: soft-a soft_b post: after", "intree": "Y",
		"firmware": strings.Join(info.Firmware, "\n"),
	} {
		if theirs := field(name); theirs != ours {
			t.Errorf("%s: modinfo says %q, we say %q", name, theirs, ours)
		}
	}
	if all := run(t, "modinfo", path); !strings.Contains(all, "debug:level: 0 or 1 (int)") {
		t.Errorf("modinfo knows no parameter:\n%s", all)
	}
	if notes := run(t, "readelf", "-n", "-h", "-W", path); !strings.Contains(notes, "Build ID: "+info.BuildID) ||
		!strings.Contains(notes, "REL (Relocatable file)") {
		t.Errorf("readelf disagrees:\n%s", notes)
	}
	symbols := run(t, "readelf", "-s", "-S", "-W", path)
	for _, want := range []string{"UND their_export", "__ksymtab_my_export", "__crc_my_export", ".gnu.linkonce.this_module"} {
		if !strings.Contains(symbols, want) {
			t.Errorf("readelf finds no %q:\n%s", want, symbols)
		}
	}
}
