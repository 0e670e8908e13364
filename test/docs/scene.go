// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/registry"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/drover-project/drover/internal/testkit/devcluster"
	"github.com/drover-project/drover/internal/testkit/fleet"
	"github.com/drover-project/drover/test/docs/page"
)

// yours is the registry that pages call the reader's own.
const yours = "registry.example.com/you"

// imagesThatExist: no other registry has anything.
const imagesThatExist = `^registry\.example\.com/`

// scene is the cluster and the copy of the checkout on which pages run.
type scene struct {
	// fleet is what was started; nil where the cluster was there already.
	fleet *fleet.Fleet
	// admin is the administrator's kubeconfig, bin the folder of kubectl and devcluster.
	admin, bin string
	dir        string
	// checkout is the copy's folder: pages may build there and change files.
	checkout string
	// registry takes what pages push.
	registry *httptest.Server
}

// onlyHere has a block push to the registry of the scene. What it deploys keeps the images of
// config/, since the cluster's operator has that agent's.
func (s *scene) onlyHere(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		instead := "registry.invalid"
		if strings.Contains(line, "docker-push") {
			instead = strings.TrimPrefix(s.registry.URL, "http://") + "/you"
		}
		out.WriteString(strings.ReplaceAll(line, yours, instead))
	}
	return out.String()
}

// newScene starts the same cluster as `make demo`, without the Module, or takes the one of a
// kubeconfig.
func newScene(ctx context.Context, admin string) (_ *scene, err error) {
	s := &scene{admin: admin}
	s.registry = httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithReferrersSupport(true)))
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.dir, err = os.MkdirTemp("", "drover-docs-"); err != nil {
		return s, fmt.Errorf("make a folder: %w", err)
	}
	s.checkout = filepath.Join(s.dir, "drover")
	if s.admin == "" {
		if err := s.start(ctx); err != nil {
			return s, err
		}
	}
	binary, err := devcluster.Build(ctx)
	if err != nil {
		return s, err
	}
	s.bin = filepath.Dir(binary)
	return s, s.copyCheckout(ctx)
}

func (s *scene) start(ctx context.Context) (err error) {
	say := func(format string, args ...any) { fmt.Printf(format+"\n", args...) }
	s.fleet, err = fleet.Start(ctx, fleet.Options{
		Nodes: 4, Kernels: []string{"6.1.0-44-amd64", "6.12.57+deb12-amd64"}, ImagePattern: imagesThatExist, Dir: filepath.Join(s.dir, "fleet"),
		NodeLabels: map[string]string{"drover.dev/sample-device": "true"}, Say: say,
		// what preflights and builds need; their Jobs' pods are played
		OperatorArgs: []string{"--signer-image=registry.example.com/drover/drover-signer:dev"},
	})
	if err == nil {
		s.admin = s.fleet.Cluster.Kubeconfig
	}
	return err
}

func (s *scene) close() error {
	var err error
	if s.fleet != nil {
		err = s.fleet.Stop()
	}
	s.registry.Close()
	return errors.Join(err, os.RemoveAll(s.dir))
}

// kubectl runs kubectl as the administrator.
func (s *scene) kubectl(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, "assets", "kubectl"), append([]string{"--kubeconfig", s.admin}, args...)...)
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, said)
	}
	return nil
}

// copyCheckout copies what git has or would add, and links the tools that take long to build.
func (s *scene) copyCheckout(ctx context.Context) error {
	bin := filepath.Join(s.checkout, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return fmt.Errorf("make the copy's folder: %w", err)
	}
	script := `git ls-files -z --cached --others --exclude-standard | xargs -0 cp -p --parents -t "$1"
for t in devcluster devcluster.key assets kubectl controller-gen; do test ! -e "$2/$t" || ln -s "$2/$t" "$1/bin/$t"; done`
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", script, "copy", s.checkout, s.bin)
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("copy the checkout: %w\n%s", err, said)
	}
	return nil
}

// kubeconfig of the administrator, whose namespace is the page's.
func (s *scene) kubeconfig(path, namespace string) error {
	config, err := clientcmd.LoadFromFile(s.admin)
	if err != nil {
		return fmt.Errorf("read the kubeconfig: %w", err)
	}
	config.Contexts[config.CurrentContext].Namespace = namespace
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("write the page's kubeconfig: %w", err)
	}
	return nil
}

// clean removes what a page left behind: Modules first, for a namespace that holds some cannot be
// deleted. Samples are in "default".
func (s *scene) clean(ctx context.Context, namespace string) error {
	return errors.Join(
		s.kubectl(ctx, "delete", "modules", "--all", "-n", "default", "--timeout=2m"),
		s.kubectl(ctx, "delete", "modules", "--all", "-n", namespace, "--timeout=2m"),
		s.kubectl(ctx, "delete", "namespace", namespace, "--timeout=2m"))
}

// onCluster runs what needs a cluster or a compiler.
func (c *checker) onCluster(ctx context.Context, pages []*page.Page) error {
	needed := false
	for _, p := range pages {
		for _, b := range p.Blocks {
			k, err := kindOf(b)
			needed = needed || err == nil && (k == runs || k == service || k == manifest || k == compiles)
		}
	}
	if !needed {
		return nil
	}
	s, err := newScene(ctx, os.Getenv("CLUSTER"))
	if err != nil {
		return err
	}
	for _, p := range pages {
		if err := c.page(ctx, s, p); err != nil {
			return errors.Join(err, s.close())
		}
	}
	return s.close()
}

// page runs the blocks of a page in order, in a namespace of its own. What fails ends the page:
// later blocks build on it.
func (c *checker) page(ctx context.Context, s *scene, p *page.Page) (err error) {
	namespace := "docs-" + strings.TrimSuffix(filepath.Base(strings.ToLower(p.Path)), ".md")
	if err := s.kubectl(ctx, "create", "namespace", namespace); err != nil {
		return err
	}
	sh, err := newShell(s, namespace)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, sh.close(), s.clean(ctx, namespace))
	}()
	fmt.Printf("=== %s\n", p.Path)
	for _, b := range p.Blocks {
		k, err := kindOf(b)
		if err == nil {
			err = sh.block(ctx, k, b)
		}
		if err != nil {
			c.fail(b, err)
			return nil
		}
		if k == runs || k == service || k == output || k == manifest || k == compiles {
			c.done(k)
		}
	}
	return nil
}
