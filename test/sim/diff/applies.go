// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"net/http"
	"strings"
)

// applying applies an object.
func applying(t target, o any, query ...string) step {
	return step{method: http.MethodPatch, path: t.path(), contentType: applyPatch, body: o, query: sets(query...)}
}

// managers are those who apply.
var managers = []string{"fieldManager=drover-operator", "fieldManager=drover/n/x", "fieldManager=kubectl"}

func apply(g *gen) []step {
	t := g.any(nil)
	if g.chance(30) {
		t = g.target(g.kind(nil))
	}
	return seen(t.path(), applying(t, g.object(t), g.one(managers...), g.one("", "force=true", "force=true"), g.dry()))
}

func applyAgain(g *gen) []step {
	t := g.any(nil)
	s := applying(t, g.object(t), g.one(managers...), "force=true")
	return seen(t.path(), s, s, step{method: http.MethodGet, path: t.path()}, s)
}

// applyLess takes back what a manager applied before.
func applyLess(g *gen) []step {
	t := g.any(nil)
	manager := g.one(managers...)
	o := g.object(t)
	less := t.bare()
	if g.chance(50) {
		less = with(o, object{"metadata": less["metadata"]})
	}
	return seen(t.path(), applying(t, o, manager, "force=true"), step{method: http.MethodGet, path: t.path()},
		applying(t, less, manager, g.one("", "force=true")))
}

// applyConflict applies other values by another manager, first without force.
func applyConflict(g *gen) []step {
	t := g.any(nil)
	first, second := g.object(t), g.object(t)
	field(first, "metadata", "labels").(object)["color"] = "red"
	field(second, "metadata", "labels").(object)["color"] = "blue"
	steps := []step{applying(t, first, managers[0], "force=true"), applying(t, second, managers[1]), {method: http.MethodGet,
		path: t.path()},
		applying(t, second, managers[1], "force=true"), {method: http.MethodGet, path: t.path()}, applying(t, first, managers[0])}
	return seen(t.path(), steps...)
}

func applyUID(g *gen) []step {
	t := g.any(nil)
	if g.chance(30) {
		t = g.target(g.kind(nil))
	}
	o := g.object(t)
	meta, _ := o["metadata"].(object)
	meta["uid"] = g.one("{{uid "+t.path()+"}}", "11111111-2222-3333-4444-555555555555", "no-uid")
	if g.chance(25) {
		meta["resourceVersion"] = "{{" + g.one("version ", "older ") + t.path() + "}}"
	}
	s := applying(t, o, g.one(managers...), "force=true")
	if t.status != nil && g.chance(30) {
		s.path += "/status"
		s.body = with(t.bare(), object{"metadata": meta, "status": t.status(g)})
	}
	return seen(t.path(), s)
}

func applyNulls(g *gen) []step {
	t := g.any(nil)
	body := merged(t.bare(), object{})
	body = with(body, g.pickText(`{"spec":null}`, `{"spec":{}}`, `{"spec":{"modules":null}}`, `{"spec":{"modules":[]}}`,
		`{"spec":{"selector":null}}`,
		`{"spec":{"taints":null}}`, `{"spec":{"taints":[]}}`, `{"data":{"k":null}}`, `{"data":null}`, `{"spec":{"tolerations":[]}}`))
	if g.chance(30) {
		body = merged(t.bare(), object{"metadata": g.pickText(`{"labels":{}}`, `{"labels":{"color":""}}`, `{"finalizers":[]}`,
			`{"ownerReferences":[]}`)})
	}
	return seen(t.path(), applying(t, body, g.one(managers...), g.one("", "force=true")))
}

func applyStatus(g *gen) []step {
	t := g.any(hasStatus)
	o := with(t.bare(), object{"status": t.status(g)})
	if g.chance(30) { // is not taken over
		o = merged(o, object{"spec": t.body(g)["spec"], "metadata": object{"labels": g.labels()}})
	}
	s := applying(t, o, g.one(managers...), g.one("", "force=true"), g.dry())
	s.path += "/status"
	if g.chance(40) {
		less := applying(t, with(t.bare(), object{"status": object{}}), managers[0])
		less.path = s.path
		s.query = managers[0]
		return seen(t.path(), s, s, less)
	}
	return seen(t.path(), s)
}

func applyMalformed(g *gen) []step {
	t := g.any(nil)
	o := g.object(t)
	s := applying(t, o, g.one(managers...), "force=true")
	switch g.rand.IntN(8) {
	case 0:
		s.query = "force=true"
	case 1:
		s.query = "fieldManager=" + strings.Repeat("m", 129)
	case 2:
		s.body = merged(o, text(`{"metadata":{"managedFields":[]}}`))
	case 3:
		s.body = merged(o, text(`{"metadata":{"managedFields":[{"manager":"x","operation":"Apply","apiVersion":"v1"}]}}`))
	case 4:
		s.body = with(o, g.pickText(`{"kind":"Other"}`, `{"apiVersion":"v9"}`, `{"metadata":{"name":"other"}}`, `{"metadata":{}}`))
	case 5:
		s.body = "a: [" + g.one("", "]\n- b")
	case 6:
		s.body = merged(o, text(`{"spec":{"strange":[1]}}`))
		s.query += g.one("", "&fieldValidation=Strict", "&fieldValidation=Ignore")
	default:
		s.body = merged(o, text("%s", g.one(t.invalid...)))
	}
	return seen(t.path(), s)
}

// resetManagers forgets who wrote what, as tools do that take a field over.
func resetManagers(g *gen) []step {
	t, ok := g.live(nil)
	if !ok {
		return nil
	}
	body := g.one(`[{"op":"replace","path":"/metadata/managedFields","value":[{}]}]`,
		`[{"op":"remove","path":"/metadata/managedFields/0"}]`,
		`[{"op":"replace","path":"/metadata/managedFields/0/manager","value":"renamed"}]`,
		`[{"op":"replace","path":"/metadata/managedFields/0/operation","value":"Apply"}]`,
		`[{"op":"replace","path":"/metadata/managedFields/0/fieldsV1","value":{"f:metadata":{}}}]`)
	return seen(t.path(), patching(t, jsonPatch, body), applying(t, g.object(t), managers[0], "force=true"))
}
