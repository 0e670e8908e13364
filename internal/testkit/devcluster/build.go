// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/drover-project/drover/internal/testkit/gobuild"
	"github.com/drover-project/drover/internal/testkit/source"
)

// BinaryVariable names an environment variable with the path of a devcluster
// binary to use instead of building one.
const BinaryVariable = "DROVER_DEVCLUSTER"

// VersionVariable names an environment variable with the minor version of Kubernetes to build,
// "1.31"; empty: that of go.mod. Others have a go-<version>.mod beside it.
const VersionVariable = "KUBERNETES"

const (
	defaultModfile = "go.mod"
	// defaultVersion is what it requires.
	defaultVersion = "1.37"
)

// target is a program that can be built from devcluster's module. The product
// must not depend on k8s.io/kubernetes, so it is built, not imported.
type target struct {
	// name is the program's file name below bin/.
	name string
	// pkg is what to build.
	pkg string
	// cost is what a first build takes, for the person who waits.
	cost string
	// version of Kubernetes as "1.31"; empty: that of go.mod.
	version string
}

var (
	devclusterTarget = target{name: "devcluster", pkg: ".", cost: "about 12 minutes on 2 cores, 3 GB of memory, 3 GB of Go caches and " +
		"140 MB in bin/"}
	kubeletTarget = target{name: "kubelet", pkg: "k8s.io/kubernetes/cmd/kubelet",
		cost: "under a minute after devcluster itself, 85 MB in bin/"}
)

// Build returns the path of the devcluster binary, bin/devcluster of Drover's checkout (see package
// source for other modules), and builds it when it is missing or its sources have changed. A first
// build takes minutes and tells on standard error how far it is. bin/ is what CI has to cache.
// Processes that build at the same time wait for the first.
func Build(ctx context.Context) (string, error) {
	if path := os.Getenv(BinaryVariable); path != "" {
		return path, nil
	}
	t, err := devclusterTarget.asked()
	if err != nil {
		return "", err
	}
	return build(ctx, t, os.Stderr)
}

// buildKwok returns the binary whose kwok plays pods: that of go.mod, whatever release is tested:
// older ones play less, and none compiles with every release.
func buildKwok(ctx context.Context) (string, error) {
	if path := os.Getenv(BinaryVariable); path != "" {
		return path, nil
	}
	return build(ctx, devclusterTarget, os.Stderr)
}

// BuildKubelet does the same for the kubelet of the same release, bin/kubelet:
// linked statically, for the virtual machines of the end-to-end tests.
func BuildKubelet(ctx context.Context) (string, error) {
	t, err := kubeletTarget.asked()
	if err != nil {
		return "", err
	}
	return build(ctx, t, os.Stderr)
}

// Assets returns a folder in which the control plane's programs have their
// usual names, as envtest wants it in KUBEBUILDER_ASSETS.
func Assets(ctx context.Context) (string, error) {
	binary, err := Build(ctx)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(filepath.Dir(binary), strings.Replace(filepath.Base(binary), devclusterTarget.name, "assets", 1))
	output, err := exec.CommandContext(ctx, binary, "assets", "--dir", dir).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("make the folder of assets: %w: %s", err, output)
	}
	return dir, nil
}

func build(ctx context.Context, t target, progress io.Writer) (_ string, err error) {
	tree, err := source.Find(ctx)
	if err != nil {
		return "", err
	}
	bin, sources := tree.Bin, tree.Devcluster
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return "", fmt.Errorf("make bin/: %w", err)
	}
	unlock, err := lock(ctx, filepath.Join(bin, "."+t.name+".lock"))
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, unlock()) }()

	flags, err := buildFlags(sources, t.modfile())
	if err != nil {
		return "", err
	}
	key, err := buildKey(sources, t, flags)
	if err != nil {
		return "", err
	}
	binary := filepath.Join(bin, t.name)
	keyFile := binary + ".key"
	if upToDate(binary, keyFile, key) {
		return binary, nil
	}
	if err := compile(ctx, sources, t, flags, binary, progress); err != nil {
		return "", err
	}
	if err := os.WriteFile(keyFile, []byte(key+"\n"), 0o644); err != nil {
		return "", fmt.Errorf("write the key of %s: %w", t.name, err)
	}
	return binary, nil
}

// compile builds beside binary and then replaces it, so that a running one
// stays whole.
func compile(ctx context.Context, sources string, t target, flags []string, binary string, progress io.Writer) error {
	fresh := binary + ".new"
	begin := time.Now()
	say(progress, "building bin/%s (once; %s)", t.name, t.cost)
	err := gobuild.Build{
		Name: "bin/" + t.name, Dir: sources, Modfile: t.modfile(), Flags: flags, Env: buildEnvironment(), Output: fresh,
		Packages: []string{t.pkg}, Say: func(format string, args ...any) { say(progress, format, args...) },
	}.Run(ctx)
	if err != nil {
		return err
	}
	say(progress, "built bin/%s in %.0f s", t.name, time.Since(begin).Seconds())
	if err := os.Rename(fresh, binary); err != nil {
		return fmt.Errorf("put %s in place: %w", t.name, err)
	}
	return nil
}

// asked is the target in the version that the environment asks for.
func (t target) asked() (target, error) {
	asked := strings.TrimPrefix(os.Getenv(VersionVariable), "v")
	if asked == "" {
		return t, nil
	}
	numbers := strings.Split(asked, ".")
	if len(numbers) < 2 || len(numbers) > 3 {
		return t, fmt.Errorf("%s=%q is not a version of Kubernetes like 1.31", VersionVariable, asked)
	}
	return t.of(numbers[0] + "." + numbers[1]), nil
}

// of is the target in a version of Kubernetes. The one of go.mod has no name of its own.
func (t target) of(version string) target {
	if version != defaultVersion {
		t.version = version
		t.name += "-" + version
	}
	return t
}

func (t target) modfile() string {
	if t.version == "" {
		return defaultModfile
	}
	return "go-" + t.version + ".mod"
}

// say writes a line about the build. That it cannot be shown is no reason to
// fail.
func say(w io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(w, "devcluster: "+format+"\n", args...)
}

// buildEnvironment makes static programs of the modules in the folder alone.
func buildEnvironment() []string { return []string{"CGO_ENABLED=0", "GOWORK=off"} }

// buildFlags make programs quickly that report their Kubernetes version, as release builds do.
func buildFlags(sources, modfile string) ([]string, error) {
	content, err := os.ReadFile(filepath.Join(sources, modfile))
	if err != nil {
		return nil, fmt.Errorf("read devcluster's versions: %w; %s is the version of Kubernetes, one of %s", err, VersionVariable,
			strings.Join(versions(sources), ", "))
	}
	for line := range strings.Lines(string(content)) {
		version, found := strings.CutPrefix(strings.TrimSpace(line), "k8s.io/kubernetes ")
		if !found {
			continue
		}
		numbers := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
		if len(numbers) != 3 {
			return nil, fmt.Errorf("read devcluster's %s: odd version %q", modfile, version)
		}
		ldflags := []string{"-s", "-w"}
		for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
			ldflags = append(ldflags,
				"-X", pkg+".gitVersion="+version, "-X", pkg+".gitMajor="+numbers[0], "-X", pkg+".gitMinor="+numbers[1])
		}
		flags := append(gobuild.Quick(), "-ldflags", strings.Join(ldflags, " "))
		if modfile != defaultModfile {
			flags = append(flags, "-modfile="+modfile, "-tags", "nokwok") // see buildKwok
		}
		return flags, nil
	}
	return nil, fmt.Errorf("read devcluster's %s: it does not require k8s.io/kubernetes", modfile)
}

// versions of Kubernetes that there are modules for.
func versions(sources string) []string {
	all := []string{defaultVersion}
	files, _ := filepath.Glob(filepath.Join(sources, "go-*.mod")) // the pattern is a good one
	for _, file := range files {
		all = append(all, strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), "go-"), ".mod"))
	}
	slices.Sort(all)
	return all
}

// buildKey is a digest of all that a build depends on: sources, checksums of
// dependencies, flags, compiler and platform.
func buildKey(sources string, t target, flags []string) (string, error) {
	sum := sha256.New()
	fmt.Fprintln(sum, t.pkg, flags, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	root := filepath.Dir(filepath.Dir(sources))
	err := filepath.WalkDir(sources, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !builtFrom(t, entry.Name()) {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		fmt.Fprintf(sum, "%s %x\n", strings.TrimPrefix(path, root), sha256.Sum256(content))
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("read the sources of %s: %w", t.name, err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// builtFrom tells whether a file of devcluster's module goes into the target.
func builtFrom(t target, name string) bool {
	switch {
	case name == t.modfile(), name == strings.TrimSuffix(t.modfile(), "mod")+"sum":
		return true
	case t.pkg != ".", strings.HasSuffix(name, "_test.go"):
		return false
	default:
		return strings.HasSuffix(name, ".go") || strings.HasSuffix(name, ".yaml")
	}
}

func upToDate(binary, keyFile, key string) bool {
	if _, err := os.Stat(binary); err != nil {
		return false
	}
	// Without a readable key, it is built again.
	found, err := os.ReadFile(keyFile)
	return err == nil && strings.TrimSpace(string(found)) == key
}
