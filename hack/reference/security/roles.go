// SPDX-License-Identifier: Apache-2.0

package security

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// right is one verb on one kind of objects, for one identity or role.
type right struct {
	// role that grants it.
	role string
	// where is the namespace in which it holds; "" is the whole cluster.
	where string
	// on is the kind of objects, such as modules.kmm.sigs.x-k8s.io/status, with names if it holds for
	// these only.
	on, names string
	verb      string
}

// reads are the verbs that change nothing.
var reads = []string{"get", "list", "watch"}

// granted are the rights of every identity, and those of the roles that are bound to nobody: people
// bind them.
type granted struct {
	identities, unbound map[string]map[right]bool
	// aggregated are the built-in roles to which an unbound role is added.
	aggregated map[string]string
}

// rightsOf reads roles and bindings among objects.
func rightsOf(objects []*unstructured.Unstructured) (*granted, error) {
	g := &granted{identities: map[string]map[right]bool{}, unbound: map[string]map[right]bool{}, aggregated: map[string]string{}}
	roles := map[string][]rbacv1.PolicyRule{}
	bound := map[string]bool{}
	for _, o := range objects {
		switch o.GetKind() {
		case "Role", "ClusterRole":
			role := &rbacv1.ClusterRole{}
			if err := convert(o, role); err != nil {
				return nil, err
			}
			roles[roleKey(o.GetKind(), o.GetNamespace(), o.GetName())] = role.Rules
			for label := range role.Labels {
				if _, to, ok := strings.Cut(label, "/aggregate-to-"); ok {
					g.aggregated[o.GetName()] = to
				}
			}
		case "ServiceAccount":
			g.identities[o.GetNamespace()+"/"+o.GetName()] = map[right]bool{}
		}
	}
	for _, o := range objects {
		if o.GetKind() != "RoleBinding" && o.GetKind() != "ClusterRoleBinding" {
			continue
		}
		binding := &rbacv1.ClusterRoleBinding{}
		if err := convert(o, binding); err != nil {
			return nil, err
		}
		key := roleKey(binding.RoleRef.Kind, o.GetNamespace(), binding.RoleRef.Name)
		rules, ok := roles[key]
		if !ok {
			return nil, fmt.Errorf("%s binds %s, which is not there", o.GetName(), key)
		}
		bound[key] = true
		for _, s := range binding.Subjects {
			identity := s.Namespace + "/" + s.Name
			if s.Kind != rbacv1.ServiceAccountKind || g.identities[identity] == nil {
				return nil, fmt.Errorf("%s binds %s %s, which is no ServiceAccount of ours", o.GetName(), s.Kind, identity)
			}
			maps.Copy(g.identities[identity], expand(binding.RoleRef.Name, o.GetNamespace(), rules))
		}
	}
	for key, rules := range roles {
		if !bound[key] {
			_, name, _ := strings.Cut(key, " ")
			g.unbound[name] = expand(name, "", rules)
		}
	}
	return g, nil
}

func roleKey(kind, namespace, name string) string {
	if kind == "Role" {
		name = namespace + "/" + name
	}
	return kind + " " + name
}

func convert(o *unstructured.Unstructured, into any) error {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, into); err != nil {
		return fmt.Errorf("read %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	return nil
}

// expand takes rules apart.
func expand(role, where string, rules []rbacv1.PolicyRule) map[right]bool {
	all := map[right]bool{}
	for _, rule := range rules {
		names := slices.Clone(rule.ResourceNames)
		slices.Sort(names)
		var kinds []string
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				kinds = append(kinds, kindOf(group, resource))
			}
		}
		for _, on := range append(kinds, rule.NonResourceURLs...) {
			for _, verb := range rule.Verbs {
				all[right{role: role, where: where, on: on, names: strings.Join(names, ", "), verb: verb}] = true
			}
		}
	}
	return all
}

// kindOf is how kubectl calls a resource of a group: modules.kmm.sigs.x-k8s.io/status.
func kindOf(group, resource string) string {
	if group == "" {
		return resource
	}
	name, sub, ok := strings.Cut(resource, "/")
	if ok {
		sub = "/" + sub
	}
	return name + "." + group + sub
}

// without are the rights that others lack, whichever role grants them.
func without(all, others map[right]bool) map[right]bool {
	had := map[right]bool{}
	for r := range others {
		r.role = ""
		had[r] = true
	}
	rest := maps.Clone(all)
	maps.DeleteFunc(rest, func(r right, _ bool) bool {
		r.role = ""
		return had[r]
	})
	return rest
}

// row is what a role grants on one kind of objects: one line of a table.
type row struct {
	right
	verbs  []string
	writes bool
}

// rowsOf puts rights together that differ by the verb alone. Those that change something come
// first.
func rowsOf(rights map[right]bool) []row {
	verbs := map[right][]string{}
	for r := range rights {
		verb := r.verb
		r.verb = ""
		verbs[r] = append(verbs[r], verb)
	}
	var rows []row
	for r, all := range verbs {
		slices.Sort(all)
		writes := slices.ContainsFunc(all, func(v string) bool { return !slices.Contains(reads, v) })
		rows = append(rows, row{right: r, verbs: all, writes: writes})
	}
	slices.SortFunc(rows, func(a, b row) int {
		if a.writes != b.writes {
			if a.writes {
				return -1
			}
			return 1
		}
		return slices.Compare([]string{a.on, a.names, a.where, a.role}, []string{b.on, b.names, b.where, b.role})
	})
	return rows
}
