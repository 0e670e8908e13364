// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/drover-project/drover/hack/chart/tree"
)

// nowhere sets the registry of config/. The chart's values name none.
const nowhere = `images.registry="registry.invalid"`

// helm runs helm, in a home of its own.
type helm struct{ path, dir string }

func newHelm(path string) (*helm, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("helm: %w", err)
	}
	dir, err := os.MkdirTemp("", "chart-")
	if err != nil {
		return nil, fmt.Errorf("make a home for helm: %w", err)
	}
	return &helm{path: path, dir: dir}, nil
}

func (h *helm) close() error { return os.RemoveAll(h.dir) }

func (h *helm) run(ctx context.Context, values string, args ...string) (stdout []byte, err error) {
	cmd := exec.CommandContext(ctx, h.path, append(args, "--values", "-")...)
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+filepath.Join(h.dir, "cache"), "HELM_CONFIG_HOME="+filepath.Join(h.dir, "config"),
		"HELM_DATA_HOME="+filepath.Join(h.dir, "data"), "KUBECONFIG="+filepath.Join(h.dir, "none"))
	cmd.Stdin = strings.NewReader(values)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return out.Bytes(), fmt.Errorf("helm %s: %w: %s%s", args[0], err, said.Bytes(), out.Bytes())
	}
	return out.Bytes(), nil
}

// template renders a chart with values, in YAML, and with further ones, each as path=JSON.
func (h *helm) template(ctx context.Context, chart, values string, set ...string) (objects, error) {
	args := []string{"template", "drover", chart, "--namespace", "drover-system"}
	for _, s := range set {
		args = append(args, "--set-json", s)
	}
	rendered, err := h.run(ctx, values, args...)
	if err != nil {
		return nil, err
	}
	all, documents := objects{}, utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(rendered)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read what helm rendered: %w", err)
		}
		o := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict(document, &o.Object); err != nil {
			return nil, fmt.Errorf("read what helm rendered: %w", err)
		}
		if o.Object == nil {
			continue
		}
		if name := tree.Name(o); all[name] != nil {
			return nil, fmt.Errorf("%s is rendered twice", name)
		}
		all[tree.Name(o)] = o
	}
}

// lint returns what helm finds, warnings included.
func (h *helm) lint(ctx context.Context) []string {
	var problems []string
	for _, values := range []string{`{}`, everything, `{spoke: {enabled: true}}`} {
		if _, err := h.run(ctx, values, "lint", chartDir, "--strict", "--set-json", nowhere); err != nil {
			problems = append(problems, fmt.Sprintf("%s: %v", values, err))
		}
	}
	return problems
}
