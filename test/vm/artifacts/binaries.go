// SPDX-License-Identifier: Apache-2.0

package artifacts

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/drover-project/drover/internal/testkit/devcluster"
)

// Versions of what a node runs. The Go modules under tools/vmnode pin the same
// ones; here they are what the binaries say of themselves.
const (
	containerdVersion = "2.4.2"
	runcVersion       = "1.5.2"
)

// binarySet is a set of Go programs that one module builds with one set of
// flags.
type binarySet struct {
	name     string
	module   string // folder of the go.mod, from the repository's root
	packages []string
	sources  []string // what the key covers besides go.mod and go.sum
	flags    []string
	cgo      bool
}

// size-saving link flags; nobody debugs these binaries in the guest.
const stripped = "-s -w"

var binarySets = []binarySet{
	{
		name:   "containerd",
		module: "tools/vmnode/containerd",
		packages: []string{
			"github.com/containerd/containerd/v2/cmd/containerd",
			"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
		},
		flags: []string{
			"-tags", "no_btrfs no_devmapper no_zfs no_aufs no_tracing netgo osusergo urfave_cli_no_docs",
			"-ldflags", stripped + " -X github.com/containerd/containerd/v2/version.Version=" + containerdVersion,
		},
	},
	{
		name:     "runc",
		module:   "tools/vmnode/runc",
		packages: []string{"github.com/opencontainers/runc"},
		// Static, because the guest has no C library; with seccomp, because an
		// unprivileged pod's sandbox asks for it.
		flags: []string{
			"-tags", "seccomp netgo osusergo urfave_cli_no_docs",
			"-ldflags", stripped + " -linkmode external -extldflags -static -X main.version=" + runcVersion,
		},
		cgo: true,
	},
	{
		name:   "cni",
		module: "tools/vmnode/cni",
		packages: []string{
			"github.com/containernetworking/plugins/plugins/ipam/host-local",
			"github.com/containernetworking/plugins/plugins/main/loopback",
			"github.com/containernetworking/plugins/plugins/main/ptp",
		},
		flags: []string{"-ldflags", stripped},
	},
	{
		name:     "guest",
		module:   ".",
		packages: []string{"./test/vm/guest/forward", "./images/pause"},
		sources:  []string{"test/vm/guest", "images/pause"},
		flags:    []string{"-ldflags", stripped},
	},
}

// Binaries compiles the node's programs and returns their paths by name.
func (c *Cache) Binaries(ctx context.Context) (map[string]string, error) {
	paths := map[string]string{}
	kubelet, err := devcluster.BuildKubelet(ctx)
	if err != nil {
		return nil, fmt.Errorf("build the kubelet: %w", err)
	}
	paths["kubelet"] = kubelet
	for _, set := range binarySets {
		dir, err := c.build(ctx, set)
		if err != nil {
			return nil, err
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			return nil, fmt.Errorf("list binaries: %w", err)
		}
		for _, entry := range entries {
			paths[entry.Name()] = filepath.Join(dir, entry.Name())
		}
	}
	return paths, nil
}

func (c *Cache) build(ctx context.Context, set binarySet) (string, error) {
	module := filepath.Join(c.repo, set.module)
	inputs := []string{runtime.Version(), fmt.Sprint(set.cgo)}
	inputs = append(inputs, set.packages...)
	inputs = append(inputs, set.flags...)
	covered := []string{filepath.Join(module, "go.mod"), filepath.Join(module, "go.sum")}
	if len(set.sources) > 0 {
		// Programs of our own use the standard library only.
		covered = nil
		for _, source := range set.sources {
			covered = append(covered, filepath.Join(c.repo, source))
		}
	}
	sources, err := Digest(covered...)
	if err != nil {
		return "", err
	}
	return c.Entry(ctx, set.name, append(inputs, sources), func(ctx context.Context, dir string) error {
		args := []string{"build", "-trimpath", "-buildvcs=false", "-o", dir + string(filepath.Separator)}
		args = append(args, set.flags...)
		args = append(args, set.packages...)
		cgo := "CGO_ENABLED=0"
		if set.cgo {
			cgo = "CGO_ENABLED=1"
		}
		if _, err := (command{dir: module, name: "go", args: args, env: []string{cgo, "GOFLAGS=", "GOWORK=off"}}).run(ctx); err != nil {
			return fmt.Errorf("compile: %w", err)
		}
		return nil
	})
}
