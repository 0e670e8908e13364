// SPDX-License-Identifier: Apache-2.0

// Package security makes docs/reference/security.md: what was tried and must fail, from
// test/attacks, and what every identity of Drover may do, from the objects in config/ and from the
// pods that the programs themselves make. What it has no words for
// is an error, so that nothing is granted unnoticed.
package security

import (
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"text/template"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/drover-project/drover/hack/chart/tree"
	"github.com/drover-project/drover/test/attacks"
)

//go:embed page.md.tmpl
var prose string

// Page is docs/reference/security.md. root is Drover's folder.
func Page(root string) (string, error) {
	config, err := tree.Read(root)
	if err != nil {
		return "", err
	}
	words, err := readMeanings(meanings)
	if err != nil {
		return "", err
	}
	w := &writer{root: root, config: config, words: words, used: map[string]bool{}, layers: map[string][]*unstructured.Unstructured{}}
	page, err := template.New("security.md").Funcs(template.FuncMap{
		"attacks": attacks.Table, "identities": w.identities, "people": w.people, "pods": w.pods, "rendered": w.rendered, "secrets": w.secrets,
		"policies": w.policies, "same": w.same,
	}).Parse(prose)
	if err != nil {
		return "", fmt.Errorf("read the page's frame: %w", err)
	}
	var out strings.Builder
	if err := page.Execute(&out, nil); err != nil {
		return "", fmt.Errorf("make the page: %w", err)
	}
	return out.String(), w.complaints()
}

// writer makes parts of the page, and notes what has no words.
type writer struct {
	root   string
	config *tree.Tree
	// words are meanings by their key. used are those that stand on the page.
	words map[string]string
	used  map[string]bool
	// layers are what was built before: it takes seconds.
	layers map[string][]*unstructured.Unstructured
	// speechless is what has none.
	speechless []string
}

// say looks for words on a row: its role's own, or anybody's.
func (w *writer) say(r *row) string {
	role := r.role
	for _, operator := range []string{"deviceconfig-operator-", "ptemplate-operator-", "lolcow-operator-"} {
		if rest, ok := strings.CutPrefix(role, operator); ok && (rest == "metrics-auth-role" || rest == "metrics-reader") {
			role = rest
		}
	}
	for _, k := range []string{key(role, r.on, r.writes), key(anyRole, r.on, r.writes)} {
		if says := w.words[k]; says != "" {
			w.used[k] = true
			return says
		}
	}
	w.speechless = append(w.speechless, key(role, r.on, r.writes))
	return ""
}

// complaints are rights without words, and words without a right.
func (w *writer) complaints() error {
	var errs []error
	for _, k := range w.speechless {
		errs = append(errs, fmt.Errorf("hack/reference/security/meanings.tsv does not say what this means: %s", k))
	}
	for _, k := range slices.Sorted(maps.Keys(w.words)) {
		if !w.used[k] {
			errs = append(errs, fmt.Errorf("hack/reference/security/meanings.tsv has words for what nobody has: %s", k))
		}
	}
	return errors.Join(errs...)
}

// layer is an installation: a folder below config/, and a component or none.
func (w *writer) layer(resources, components string) ([]*unstructured.Unstructured, error) {
	name := resources + "+" + components
	if objects, ok := w.layers[name]; ok {
		return objects, nil
	}
	objects, err := w.config.Objects([]string{resources}, strings.Fields(components))
	if err != nil {
		return nil, err
	}
	w.layers[name] = objects
	return objects, nil
}

// same names components, and fails if one of them changes a right at the API server.
func (w *writer) same(components ...string) (string, error) {
	plain, err := w.granted("default", "")
	if err != nil {
		return "", err
	}
	for _, component := range components {
		with, err := w.granted("default", component)
		if err != nil {
			return "", err
		}
		if !reflect.DeepEqual(plain, with) {
			return "", fmt.Errorf("the component %s changes rights", component)
		}
	}
	return "`" + strings.Join(components, "`, `") + "`", nil
}

// granted are the rights of an installation.
func (w *writer) granted(resources, components string) (*granted, error) {
	objects, err := w.layer(resources, components)
	if err != nil {
		return nil, err
	}
	return rightsOf(objects)
}

// identities lists what ServiceAccounts may do, where that differs from the installation over. It
// names what they lack.
func (w *writer) identities(resources, components, over string) (string, error) {
	now, err := w.granted(resources, components)
	if err != nil {
		return "", err
	}
	before := &granted{}
	if over != "" {
		if before, err = w.granted(over, ""); err != nil {
			return "", err
		}
	}
	var b strings.Builder
	for _, identity := range slices.Sorted(maps.Keys(now.identities)) {
		all, had := now.identities[identity], before.identities[identity]
		more, less := rowsOf(without(all, had)), rowsOf(without(had, all))
		_, known := before.identities[identity]
		if known && len(more)+len(less) == 0 {
			continue
		}
		namespace, name, _ := strings.Cut(identity, "/")
		fmt.Fprintf(&b, "### `%s` in `%s`\n\n", name, namespace)
		switch {
		case len(all) == 0:
			b.WriteString("It may do nothing at the API server.\n\n")
		case len(more) > 0:
			if known {
				b.WriteString("Besides what it may above:\n\n")
			}
			w.table(&b, more, "where")
		}
		if len(less) > 0 {
			b.WriteString("It lacks, of what it may above:\n\n" + listed(less) + "\n")
		}
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// table of rows, with where they hold or which role they are of.
func (w *writer) table(b *strings.Builder, rows []row, second string) {
	fmt.Fprintf(b, "| may | %s | what that means |\n|---|---|---|\n", second)
	for i := range rows {
		r := &rows[i]
		cell := "`" + r.role + "`"
		if second == "where" {
			cell = "everywhere"
			if r.where != "" {
				cell = "in `" + r.where + "`"
			}
		}
		fmt.Fprintf(b, "| %s `%s`%s | %s | %s |\n", strings.Join(r.verbs, ", "), r.on, only(r.names), cell, w.say(r))
	}
	b.WriteString("\n")
}

func only(names string) string {
	if names == "" {
		return ""
	}
	return " named " + names
}

func listed(rows []row) string {
	var all string
	for _, r := range rows {
		all += fmt.Sprintf("- %s `%s`\n", strings.Join(r.verbs, ", "), r.on)
	}
	return all
}

// people lists the roles that are bound to nobody, of several installations.
func (w *writer) people(layers ...string) (string, error) {
	all := &granted{unbound: map[string]map[right]bool{}, aggregated: map[string]string{}}
	for _, l := range layers {
		resources, components, _ := strings.Cut(l, "+")
		g, err := w.granted(resources, components)
		if err != nil {
			return "", err
		}
		maps.Copy(all.unbound, g.unbound)
		maps.Copy(all.aggregated, g.aggregated)
	}
	var b strings.Builder
	b.WriteString("| role | may | what that means |\n|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(all.unbound)) {
		label := "`" + name + "`"
		if to := all.aggregated[name]; to != "" {
			label += ", part of `" + to + "`"
		}
		for _, r := range rowsOf(all.unbound[name]) {
			fmt.Fprintf(&b, "| %s | %s `%s`%s | %s |\n", label, strings.Join(r.verbs, ", "), r.on, only(r.names), w.say(&r))
		}
	}
	return b.String(), nil
}

// pods lists the workloads of an installation that the installation over does not have so.
func (w *writer) pods(resources, components, over string) (string, error) {
	now, err := w.workloads(resources, components)
	if err != nil {
		return "", err
	}
	var before map[string]*corev1.PodSpec
	if over != "" {
		if before, err = w.workloads(over, ""); err != nil {
			return "", err
		}
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(now)) {
		facts, had := factsOf(now[name]), []string(nil)
		if old := before[name]; old != nil {
			had = factsOf(old)
		}
		if over != "" {
			name += ", with `config/" + components + "`"
		}
		lost := slices.DeleteFunc(slices.Clone(had), func(f string) bool { return slices.Contains(facts, f) })
		facts = slices.DeleteFunc(facts, func(f string) bool { return slices.Contains(had, f) })
		switch {
		case had == nil:
			fmt.Fprintf(&b, "| %s | %s |\n", name, strings.Join(facts, "; "))
		case len(facts)+len(lost) > 0:
			fmt.Fprintf(&b, "| %s | %s |\n", name, strings.Join(append(prefixed("also: ", facts), prefixed("no longer: ", lost)...), "; "))
		}
	}
	return b.String(), nil
}

func prefixed(prefix string, words []string) []string {
	var all []string
	for _, word := range words {
		all = append(all, prefix+word)
	}
	return all
}

// workloads are an installation's pods, by what makes them.
func (w *writer) workloads(resources, components string) (map[string]*corev1.PodSpec, error) {
	objects, err := w.layer(resources, components)
	if err != nil {
		return nil, err
	}
	pods := map[string]*corev1.PodSpec{}
	for _, o := range objects {
		if o.GetKind() != "Deployment" && o.GetKind() != "DaemonSet" {
			continue
		}
		var set struct {
			Spec struct {
				Template corev1.PodTemplateSpec `json:"template"`
			} `json:"spec"`
		}
		if err := convert(o, &set); err != nil {
			return nil, err
		}
		pods[o.GetKind()+" `"+o.GetName()+"`"] = &set.Spec.Template.Spec
	}
	return pods, nil
}

// rendered lists the pods that are made at run time.
func (w *writer) rendered() (string, error) {
	pods, err := rendered(w.root)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, p := range pods {
		fmt.Fprintf(&b, "| %s | %s |\n", p.name, strings.Join(factsOf(p.pod), "; "))
	}
	return b.String(), nil
}

// policies lists the admission policies of an installation.
func (w *writer) policies(resources, components string) (string, error) {
	objects, err := w.layer(resources, components)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, o := range objects {
		if o.GetKind() != "ValidatingAdmissionPolicy" {
			continue
		}
		policy := &admissionv1.ValidatingAdmissionPolicy{}
		if err := convert(o, policy); err != nil {
			return "", err
		}
		if policies[policy.Name] == "" {
			w.speechless = append(w.speechless, "policy "+policy.Name)
		}
		var on []string
		for _, r := range policy.Spec.MatchConstraints.ResourceRules {
			var operations []string
			for _, operation := range r.Operations {
				operations = append(operations, strings.ToLower(string(operation)))
			}
			on = append(on, strings.Join(operations, ", ")+" `"+strings.Join(r.Resources, "`, `")+"`")
		}
		failure := "refused"
		if f := policy.Spec.FailurePolicy; f != nil && *f == admissionv1.Ignore {
			failure = "admitted"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", policy.Name, strings.Join(on, "; "), failure, policies[policy.Name])
	}
	return b.String(), nil
}
