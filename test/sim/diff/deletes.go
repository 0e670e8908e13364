// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"fmt"
	"net/http"
)

// removing deletes a target.
func removing(t target, options any, query ...string) step {
	s := step{method: http.MethodDelete, path: t.path(), query: sets(query...)}
	if options != nil {
		s.contentType, s.body = jsonBody, options
	}
	return s
}

func remove(g *gen) []step {
	t := g.any(nil)
	return seen(t.path(), removing(t, nil, g.dry()))
}

func removeIf(g *gen) []step {
	t := g.any(nil)
	options := g.one(`{"preconditions":{"uid":"{{uid PATH}}"}}`, `{"preconditions":{"uid":"11111111-2222-3333-4444-555555555555"}}`,
		`{"preconditions":{"resourceVersion":"{{version PATH}}"}}`, `{"preconditions":{"resourceVersion":"{{older PATH}}"}}`,
		`{"preconditions":{"uid":"{{uid PATH}}","resourceVersion":"{{version PATH}}"}}`, `{"preconditions":{"resourceVersion":"x"}}`,
		`{"preconditions":{"uid":"{{uid PATH}}","resourceVersion":"{{older PATH}}"}}`, `{"preconditions":{}}`,
		`{"preconditions":{"uid":""}}`)
	return seen(t.path(), removing(t, at(options, t)))
}

func removeOptions(g *gen) []step {
	t := g.any(nil)
	if g.chance(40) {
		t = g.any(is("pods"))
	}
	options := g.one(`{"propagationPolicy":"Background"}`, `{"propagationPolicy":"Foreground"}`, `{"propagationPolicy":"Orphan"}`,
		`{"propagationPolicy":"Never"}`, `{"orphanDependents":true}`, `{"orphanDependents":false,"propagationPolicy":"Background"}`,
		`{"gracePeriodSeconds":0}`, `{"gracePeriodSeconds":30}`, `{"gracePeriodSeconds":-1}`, `{"dryRun":["All"]}`, `{"dryRun":["Some"]}`,
		`{"apiVersion":"v1","kind":"DeleteOptions","gracePeriodSeconds":1}`, `{"kind":"DeleteOptions","apiVersion":"v9"}`,
		`{"strange":1}`, `{`, `[]`,
		`{"kind":"DeleteOptions","apiVersion":"`+t.apiVersion()+`","propagationPolicy":"Background"}`)
	s := removing(t, options)
	if g.chance(25) {
		s = removing(t, nil, g.one("gracePeriodSeconds=0", "gracePeriodSeconds=30", "propagationPolicy=Foreground",
			"propagationPolicy=Orphan",
			"propagationPolicy=x", "gracePeriodSeconds=x"))
	}
	if g.chance(40) { // and once more, when it waits
		return seen(t.path(), s, step{method: http.MethodGet, path: t.path()}, removing(t, nil, g.one("", "gracePeriodSeconds=0",
			"gracePeriodSeconds=2")))
	}
	return seen(t.path(), s)
}

func removeAll(g *gen) []step {
	t := g.any(func(k *kind) bool { return k.namespaced || listable(k) })
	path := t.kind.collection(t.space)
	selection := g.one("labelSelector=color%3Dred", "labelSelector=color%3Dnever", "fieldSelector=metadata.name%3Da",
		"labelSelector=color%3Dblue&limit=1")
	return []step{{method: http.MethodDelete, path: path, query: sets(selection, g.dry(), g.one("", "gracePeriodSeconds=0"))},
		{method: http.MethodGet, path: path}}
}

// finalizersOf sets finalizers by one of the ways to write them.
func finalizersOf(g *gen, t target, list string) step {
	set := text(`{"metadata":{"finalizers":%s}}`, list)
	switch g.rand.IntN(4) {
	case 0:
		return step{method: http.MethodPut, path: t.path(), contentType: jsonBody, over: t.path(), body: set}
	case 1:
		return patching(t, jsonPatch, fmt.Sprintf(`[{"op":"add","path":"/metadata/finalizers","value":%s}]`, list))
	case 2:
		return applying(t, merged(t.bare(), set), "fieldManager=drover-finalizer", "force=true")
	}
	return patching(t, mergePatch, set)
}

const ourFinalizer = "kmm.node.kubernetes.io/module-finalizer"

// finalizers hold a deleted object, which is written meanwhile, until they are taken off.
func finalizers(g *gen) []step {
	t, ok := g.live(nil)
	if !ok {
		return nil
	}
	read := step{method: http.MethodGet, path: t.path()}
	steps := []step{finalizersOf(g, t, `["`+ourFinalizer+`"]`), read}
	if g.chance(80) {
		steps = append(steps, removing(t, nil), read)
		meanwhile := []step{patching(t, mergePatch, t.change(g)), applying(t, g.object(t), managers[0], "force=true"), removing(t, nil),
			finalizersOf(g, t, `["`+ourFinalizer+`","drover.dev/late"]`), post(t, g.object(t)), patching(t, mergePatch,
				`{"metadata":{"labels":{"color":"red"}}}`),
			removing(t, nil, "propagationPolicy=Orphan"), removing(t, `{"preconditions":{"resourceVersion":"1"}}`)}
		for range g.rand.IntN(3) {
			steps = append(steps, meanwhile[g.rand.IntN(len(meanwhile))], read)
		}
	}
	if g.chance(70) {
		steps = append(steps, finalizersOf(g, t, g.one(`[]`, `null`)))
	}
	return seen(t.path(), steps...)
}

// finalizersOff takes off what earlier questions left on objects that are being deleted.
func finalizersOff(g *gen) []step {
	var held []target
	for _, k := range g.kinds {
		for _, space := range k.spacesOf(g) {
			for _, name := range names {
				t := target{kind: k, space: space, name: name}
				if field(g.known[t.path()], "metadata", "deletionTimestamp") != nil {
					held = append(held, t)
				}
			}
		}
	}
	if len(held) == 0 {
		return nil
	}
	t := held[g.rand.IntN(len(held))]
	return seen(t.path(), finalizersOf(g, t, g.one(`["foregroundDeletion"]`, `["orphan"]`, `[]`, `null`)),
		step{method: http.MethodGet, path: t.path()}, finalizersOf(g, t, `null`))
}

// owners are set, changed and lost.
func owners(g *gen) []step {
	t := g.any(nil)
	o, ok := g.live(nil)
	if !ok {
		return nil
	}
	reference := owner(o, g.one(``, `,"controller":true`, `,"controller":true,"blockOwnerDeletion":true`, `,"blockOwnerDeletion":true`))
	set := object{"metadata": object{"ownerReferences": []any{reference}}}
	switch g.rand.IntN(5) {
	case 0:
		return seen(t.path(), patching(t, mergePatch, `{"metadata":{"ownerReferences":null}}`))
	case 1:
		return seen(t.path(), applying(t, merged(t.bare(), set), g.one(managers...), "force=true"))
	case 2: // twice, or two controllers
		second := owner(target{kind: o.kind, space: o.space, name: g.one(names...)}, g.one(``, `,"controller":true`))
		set["metadata"].(object)["ownerReferences"] = []any{reference, second}
		return seen(t.path(), patching(t, mergePatch, set))
	case 3: // as the garbage collector takes a reference off
		body := at(`{"metadata":{"ownerReferences":[{"$patch":"delete","uid":"{{uid PATH}}"}],`, o) + at(`"uid":"{{uid PATH}}"}}`, t)
		return seen(t.path(), patching(t, g.one(strategicPatch, mergePatch), body))
	}
	return seen(t.path(), patching(t, mergePatch, set))
}

func evict(g *gen) []step {
	t := g.any(is("pods"))
	if g.chance(60) { // with a budget that no controller has seen, or that has a status
		b := target{kind: g.kind(is("poddisruptionbudgets")), space: t.space, name: g.one(names...)}
		budget := text(`{"apiVersion":"policy/v1","kind":"PodDisruptionBudget","metadata":{"name":%q,"namespace":%q},
			"spec":{"maxUnavailable":1,"selector":{}}}`,
			b.name, b.space)
		steps := []step{removing(b, nil), post(b, budget)}
		if g.chance(60) {
			status := patching(b, mergePatch,
				g.one(`{"status":{"observedGeneration":1,"disruptionsAllowed":1,"desiredHealthy":1,"currentHealthy":2,"expectedPods":2}}`,
					`{"status":{"observedGeneration":1,"disruptionsAllowed":0,"desiredHealthy":1,"currentHealthy":1,"expectedPods":1}}`))
			status.path += "/status"
			steps = append(steps, status)
		}
		running := patching(t, mergePatch, `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`)
		running.path += "/status"
		steps = append(steps, running, eviction(g, t), step{method: http.MethodGet, path: b.path()}, step{method: http.MethodGet,
			path: t.path()})
		return append(steps, removing(b, nil))
	}
	return seen(t.path(), eviction(g, t))
}

// eviction asks to delete a pod, if budgets allow.
func eviction(g *gen, t target) step {
	options := g.one(``, ``, `,"deleteOptions":{"dryRun":["All"]}`, `,"deleteOptions":{"gracePeriodSeconds":0}`,
		`,"deleteOptions":{"preconditions":{"uid":"{{uid PATH}}"}}`,
		`,"deleteOptions":{"preconditions":{"uid":"11111111-2222-3333-4444-555555555555"}}`,
		`,"deleteOptions":{"preconditions":{"resourceVersion":"1"}}`)
	body := fmt.Sprintf(`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":%q,"namespace":%q}%s}`, t.name, t.space,
		at(options, t))
	return step{method: http.MethodPost, path: t.path() + "/eviction", contentType: jsonBody, body: body, query: g.one("", "", "",
		"dryRun=All")}
}

func bind(g *gen) []step {
	t := g.any(is("pods"))
	binding := fmt.Sprintf(`{"apiVersion":"v1","kind":"Binding","metadata":{"name":%q%s},"target":%s}`, t.name,
		g.one(``, at(`,"uid":"{{uid PATH}}"`, t), `,"uid":"11111111-2222-3333-4444-555555555555"`),
		g.one(`{"kind":"Node","name":"a"}`, `{"kind":"Node","name":"b"}`, `{"kind":"Pod","name":"a"}`, `{}`))
	return seen(t.path(), step{method: http.MethodPost, path: t.path() + "/binding", contentType: jsonBody, body: binding,
		query: g.one("", "dryRun=All")})
}

// podEnds does what a kubelet does with a pod of its node: run it, and end it once it is deleted.
func podEnds(g *gen) []step {
	t := g.any(is("pods"))
	status := func(phase string) step {
		s := patching(t, strategicPatch,
			text(`{"metadata":{"uid":"{{uid %s}}"},"status":{"phase":%q,"conditions":[{"type":"Ready","status":"False",
			"lastTransitionTime":"2001-01-01T00:00:00Z"}]}}`, t.path(), phase))
		s.path += "/status"
		return s
	}
	read := step{method: http.MethodGet, path: t.path()}
	return seen(t.path(), status("Running"), removing(t, nil, "gracePeriodSeconds=30"), read, status("Succeeded"), read,
		removing(t, at(`{"gracePeriodSeconds":0,"preconditions":{"uid":"{{uid PATH}}"}}`, t)))
}

// namespaces are made, labelled, deleted, and written to meanwhile.
func namespaces(g *gen) []step {
	name := fmt.Sprintf("%s-n%d", g.tag, g.number)
	path := "/api/v1/namespaces/" + name
	inside := target{kind: g.kind(isSpaced), space: name, name: "a"}
	o := text(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, name)
	label := step{method: http.MethodPatch, path: path, contentType: mergePatch,
		body: `{"metadata":{"labels":{"a":"b","kubernetes.io/metadata.name":null}}}`}
	gone := step{method: http.MethodDelete, path: path}
	end := step{method: http.MethodPut, path: path + "/finalize", contentType: jsonBody, body: with(o,
		object{"spec": object{"finalizers": []any{}}})}
	return []step{{method: http.MethodPost, path: "/api/v1/namespaces", contentType: jsonBody, body: o, query: "fieldManager=x"}, label,
		gone,
		{method: http.MethodGet, path: path}, post(inside, g.object(inside)), gone, end, {method: http.MethodGet, path: path}}
}
