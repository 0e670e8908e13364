// SPDX-License-Identifier: Apache-2.0

// Command bundle makes a bundle for the Operator Lifecycle Manager out of config/default, and a
// file with the objects that a bundle cannot hold: dist/bundle, and dist/drover-nodes.yaml, which
// an administrator applies first. Both together are the objects of config/default. The bundle's
// image is an OCI layout, dist/bundle-oci, or goes to a registry. tools/olm validates the bundle.
//
// BREAK=definition leaves a definition out of the bundle: the validation must be red.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/yaml"

	"github.com/drover-project/drover/hack/chart/tree"
)

const (
	templateFile = "config/olm/clusterserviceversion.yaml"
	iconFile     = "config/olm/icon.svg"
	packageName  = "drover"
)

// examples of the kinds that people write.
var examples = []string{"config/samples/module_minimal.yaml", "config/samples/preflight.yaml"}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, ".", os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bundle:", err)
		os.Exit(1)
	}
}

// release is what a bundle is made for.
type release struct {
	// version is semantic, after a "v".
	version string
	// operator and agent are images.
	operator, agent string
}

func run(ctx context.Context, root string, args []string) error {
	flags := flag.NewFlagSet("bundle", flag.ContinueOnError)
	var r release
	flags.StringVar(&r.version, "version", "", "version of the release, such as v1.2.0")
	flags.StringVar(&r.operator, "operator-image", "", "image of the operator, with its registry (required)")
	flags.StringVar(&r.agent, "agent-image", "", "image of the agent, with its registry (required)")
	out := flags.String("out", "dist/bundle", "folder for the bundle, which is written anew")
	rest := flags.String("rest", "dist/drover-nodes.yaml", "file for the objects that a bundle cannot hold")
	var i image
	flags.StringVar(&i.layout, "layout", "dist/bundle-oci", "folder for the bundle's image as an OCI layout")
	flags.StringVar(&i.push, "push", "", "name under which the bundle's image is pushed; empty: it is not")
	arch := flags.String("arch", "amd64,arm64", "processors of the nodes that unpack the bundle")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if _, err := version.ParseSemantic(r.version); err != nil || !strings.HasPrefix(r.version, "v") {
		return fmt.Errorf("--version %q is not a version such as v1.2.0", r.version)
	}
	if r.operator == "" || r.agent == "" {
		return errors.New("--operator-image and --agent-image must be set: a bundle names images that clusters can pull")
	}
	files, nodes, err := r.make(root)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(*out); err != nil {
		return fmt.Errorf("remove the old bundle: %w", err)
	}
	for name, content := range files {
		if err := write(filepath.Join(*out, name), content); err != nil {
			return err
		}
	}
	i.dir, i.labels, i.arch = *out, r.annotations(), strings.Split(*arch, ",")
	return errors.Join(write(*rest, nodes), i.write(ctx, slices.Collect(maps.Keys(files))))
}

func write(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		return fmt.Errorf("write the bundle: %w", err)
	}
	return nil
}

// make returns a bundle's files by their paths in it, and the objects beside it.
func (r release) make(root string) (files map[string][]byte, rest []byte, err error) {
	config, err := tree.Read(root)
	if err != nil {
		return nil, nil, err
	}
	objects, err := config.Objects([]string{"default"}, nil)
	if err != nil {
		return nil, nil, err
	}
	for _, o := range objects {
		o.Object, _ = r.images(o.Object).(map[string]any)
	}
	p, err := split(objects)
	if err != nil {
		return nil, nil, err
	}
	csv, err := r.csv(root, p)
	if err != nil {
		return nil, nil, err
	}
	if os.Getenv("BREAK") == "definition" {
		i := slices.IndexFunc(p.manifests, func(o *unstructured.Unstructured) bool { return o.GetKind() == "CustomResourceDefinition" })
		p.manifests = slices.Delete(p.manifests, i, i+1)
	}
	files = map[string][]byte{}
	for _, o := range append(p.manifests, csv) {
		if files["manifests/"+fileName(o)], err = yaml.Marshal(o.Object); err != nil {
			return nil, nil, fmt.Errorf("write %s: %w", tree.Name(o), err)
		}
	}
	if files["metadata/annotations.yaml"], err = yaml.Marshal(map[string]any{"annotations": r.annotations()}); err != nil {
		return nil, nil, fmt.Errorf("write the annotations: %w", err)
	}
	for _, o := range p.rest {
		text, err := yaml.Marshal(o.Object)
		if err != nil {
			return nil, nil, fmt.Errorf("write %s: %w", tree.Name(o), err)
		}
		rest = append(append(rest, "---\n"...), text...)
	}
	return files, rest, nil
}

// images puts the release's images in place of those of config/.
func (r release) images(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key := range v {
			v[key] = r.images(v[key])
		}
	case []any:
		for i := range v {
			v[i] = r.images(v[i])
		}
	case string:
		switch v {
		case "registry.invalid/drover/drover-operator:dev":
			return r.operator
		case "registry.invalid/drover/drover-agent:dev":
			return r.agent
		}
	}
	return value
}

// annotations say what a catalog must know of the bundle. A version such as v1.2.0-rc.1 is only in
// the channel for those who want to try it.
func (r release) annotations() map[string]string {
	channel := "stable"
	if strings.Contains(r.version, "-") {
		channel = "candidate"
	}
	const prefix = "operators.operatorframework.io.bundle."
	return map[string]string{
		prefix + "mediatype.v1":       "registry+v1",
		prefix + "manifests.v1":       "manifests/",
		prefix + "metadata.v1":        "metadata/",
		prefix + "package.v1":         packageName,
		prefix + "channels.v1":        channel,
		prefix + "channel.default.v1": "stable",
	}
}

// fileName of an object in the bundle.
func fileName(o *unstructured.Unstructured) string {
	return strings.ToLower(o.GetName() + "." + o.GetKind() + ".yaml")
}
