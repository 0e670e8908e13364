// SPDX-License-Identifier: Apache-2.0

package newoperator

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"
)

const projectFile = "PROJECT"

type project struct {
	ProjectName string `json:"projectName"`
	Repo        string `json:"repo"`
	Resources   []struct {
		Group  string `json:"group"`
		Kind   string `json:"kind"`
		Plural string `json:"plural"`
	} `json:"resources"`
}

// addition is a text to put before each occurrence of an anchor in a file.
type addition struct{ file, anchor, text string }

func newKindCommand(streams genericiooptions.IOStreams) *cobra.Command {
	o := &options{IOStreams: streams}
	cmd := &cobra.Command{
		Use:     "kind KIND",
		Short:   "Add a kind to an operator that `drover new operator` has written",
		Long:    "Adds a kind to the operator in the working directory: its type, what it becomes, a test and a sample. Needs no cluster.",
		Example: "  drover new kind Switch\n  make generate manifests test",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			o.Kind = args[0]
			return o.addKind()
		},
	}
	cmd.Flags().StringVar(&o.Plural, "plural", "", "The kind's plural in URLs (default: the English plural)")
	cmd.Flags().StringVar(&o.Dir, "dir", ".", "The operator's folder")
	return cmd
}

// addKind writes a kind's files and its lines in existing ones, or nothing on an error.
func (o *options) addKind() error {
	if err := o.readProject(); err != nil {
		return err
	}
	if err := o.validateKind(); err != nil {
		return err
	}
	data := o.names()
	files := map[string][]byte{}
	templates := map[string]string{
		"api/v1alpha1/" + data.Singular + "_types.go":     "template/api/v1alpha1/types.go.tmpl",
		"internal/operator/" + data.Singular + ".go":      "kind/operator.go.tmpl",
		"internal/operator/" + data.Singular + "_test.go": "kind/operator_test.go.tmpl",
		"config/samples/" + data.Singular + ".yaml":       "kind/sample.yaml.tmpl",
	}
	for _, path := range slices.Sorted(maps.Keys(templates)) {
		if _, err := os.Stat(filepath.Join(o.Dir, path)); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s exists: choose another kind, or remove the file", path)
		}
		content, err := render(templates[path], data)
		if err != nil {
			return err
		}
		files[path] = content
	}
	var errs []error
	for _, a := range additions(data) {
		content, known := files[a.file]
		if !known {
			var err error
			if content, err = os.ReadFile(filepath.Join(o.Dir, a.file)); err != nil {
				errs = append(errs, fmt.Errorf("add the kind: %w", err))
				continue
			}
		}
		if !strings.Contains(string(content), a.anchor) {
			errs = append(errs, fmt.Errorf("%s has no line %q, before which %q belongs: restore it", a.file, strings.TrimSpace(a.anchor),
				strings.TrimSpace(a.text)))
			continue
		}
		files[a.file] = []byte(strings.ReplaceAll(string(content), a.anchor, a.text+a.anchor))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := write(o.Dir, files); err != nil {
		return err
	}
	fmt.Fprintf(o.Out, "Kind %s is written. Next: make generate manifests test\n", o.Kind)
	return nil
}

func (o *options) readProject() error {
	content, err := os.ReadFile(filepath.Join(o.Dir, projectFile))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the folder %s has no file %s: `drover new operator` has not written it", o.Dir, projectFile)
	}
	if err != nil {
		return fmt.Errorf("read the project: %w", err)
	}
	var p project
	if err := yaml.Unmarshal(content, &p); err != nil {
		return fmt.Errorf("read %s: %w", projectFile, err)
	}
	if len(p.Resources) == 0 {
		return fmt.Errorf("%s has no resources: the first one must name the group", projectFile)
	}
	o.Name, o.Module, o.Group = p.ProjectName, p.Repo, p.Resources[0].Group
	if o.Plural == "" {
		o.Plural = plural(o.Kind)
	}
	for _, r := range p.Resources {
		if strings.EqualFold(r.Kind, o.Kind) || r.Plural == o.Plural {
			return fmt.Errorf("%s already has the kind %s (%s)", projectFile, r.Kind, r.Plural)
		}
	}
	// People may have changed PROJECT.
	if err := errors.Join(o.validateName(), o.validateGroup(), o.validateModule()); err != nil {
		return fmt.Errorf("%s: %w", projectFile, err)
	}
	return nil
}

func additions(n names) []addition {
	return []addition{
		{"api/v1alpha1/register.go", "\t// +drover:kinds", fmt.Sprintf("\ts.AddKnownTypes(GroupVersion, &%[1]s{}, &%[1]sList{})\n", n.Kind)},
		{"internal/operator/operator.go", "\t\t// +drover:requires", fmt.Sprintf("\t\tkit.Required(Desired%s),\n", n.Kind)},
		{"internal/operator/operator.go", "\t\t\t// +drover:setup", fmt.Sprintf("\t\t\tkit.Add(mgr, operatorOf%s()),\n", n.Kind)},
		{"config/crd/kustomization.yaml", "# +drover:crds", fmt.Sprintf("- bases/%s_%s.yaml\n", n.Group, n.Plural)},
		{"config/samples/kustomization.yaml", "# +drover:samples", fmt.Sprintf("- %s.yaml\n", n.Singular)},
		{"config/rbac/users.yaml", "# +drover:editor", userRule(n, "get, list, watch, create, update, patch, delete")},
		{"config/rbac/users.yaml", "# +drover:viewer", userRule(n, "get, list, watch")},
		{projectFile, "# +drover:resources", fmt.Sprintf("- api: {crdVersion: v1, namespaced: true}\n  controller: true\n  group: %s\n  kind: "+
			"%s\n  plural: %s\n"+
			"  path: %s/api/v1alpha1\n  version: v1alpha1\n", n.Group, n.Kind, n.Plural, n.Module)},
	}
}

func userRule(n names, verbs string) string {
	return fmt.Sprintf("- apiGroups: [%s]\n  resources: [%s]\n  verbs: [%s]\n", n.Group, n.Plural, verbs)
}

func write(dir string, files map[string][]byte) error {
	for _, path := range slices.Sorted(maps.Keys(files)) {
		at := filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return fmt.Errorf("make a folder of the operator: %w", err)
		}
		if err := os.WriteFile(at, files[path], 0o644); err != nil {
			return fmt.Errorf("write the operator: %w", err)
		}
	}
	return nil
}
