// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"fmt"
	"net/http"
)

// selections are queries by label, valid and not.
var selections = []string{
	"", "labelSelector=color%3Dred", "labelSelector=color+in+(red,blue),size", "labelSelector=%21size", "labelSelector=color%21%3Dred",
	"labelSelector=color+in+", "fieldSelector=metadata.name%3Da", "fieldSelector=metadata.name%21%3Da", "fieldSelector=spec.nodeName%3Da",
	"fieldSelector=status.phase%3DRunning", "fieldSelector=metadata.name%3D", "fieldSelector=spec.unschedulable%3Dtrue",
	"labelSelector=color%3Dred&fieldSelector=metadata.name%3Db",
}

func get(g *gen) []step {
	t := g.any(nil)
	path := t.path()
	if t.status != nil && g.chance(20) {
		path += "/status"
	}
	return []step{{method: http.MethodGet, path: path}}
}

func getForm(g *gen) []step {
	t := g.any(nil)
	return []step{{method: http.MethodGet, path: t.path(), accept: g.one(asPartial, asTable), one: true}}
}

// otherVersions are served beside those that kinds names, by its path.
var otherVersions = map[string]string{
	"/apis/events.k8s.io/v1": "/api/v1", "/apis/kmm.sigs.x-k8s.io/v1beta2": "/apis/kmm.sigs.x-k8s.io/v1beta1",
}

func getOtherVersion(g *gen) []step {
	t, ok := g.live(func(k *kind) bool { return otherVersions[k.base()] != "" })
	if !ok {
		return nil
	}
	path := otherVersions[t.base()] + t.path()[len(t.base()):]
	return []step{{method: http.MethodGet, path: path, accept: g.one("", asPartial)}}
}

func list(g *gen) []step {
	t := g.most(listable)
	form := g.one("", "", asPartialList, asTable)
	return []step{{method: http.MethodGet, path: g.collection(t), query: g.one(selections...), accept: form}}
}

// collection is a target's, or in one of four that of all namespaces.
func (g *gen) collection(t target) string {
	if t.namespaced && g.chance(25) && t.resource != "serviceaccounts" {
		return t.base() + "/" + t.resource
	}
	return t.kind.collection(t.space)
}

// most is a target in that of a few collections which has the most objects.
func (g *gen) most(is func(*kind) bool) target {
	most, count := g.any(is), -1
	for range 6 {
		t, n := g.any(is), 0
		for _, name := range names {
			if g.known[target{kind: t.kind, space: t.space, name: name}.path()] != nil {
				n++
			}
		}
		if n > count {
			most, count = t, n
		}
	}
	return most
}

func listPages(g *gen) []step {
	t := g.most(nil)
	path, selection := t.kind.collection(t.space), g.one("", "labelSelector=color+in+(red,blue)")
	next := step{method: http.MethodGet, path: path, query: sets(selection, "limit=1", "continue={{continue}}")}
	return []step{{method: http.MethodGet, path: path, query: sets(selection, "limit=1")}, next, next}
}

func listCached(g *gen) []step {
	t := g.any(nil)
	path := t.kind.collection(t.space)
	query := g.one("resourceVersion=0", "resourceVersion=0&limit=2", "resourceVersion={{at}}&resourceVersionMatch=NotOlderThan",
		"resourceVersion=0&resourceVersionMatch=Exact", "resourceVersionMatch=NotOlderThan", "resourceVersion=x",
		"resourceVersion={{at}}&resourceVersionMatch=Exact&limit=2", "resourceVersion={{at}}&resourceVersionMatch=Sometimes")
	return []step{{method: http.MethodGet, path: path},
		{method: http.MethodGet, path: path, query: query, lags: true},
		{method: http.MethodGet, path: t.path(), query: "resourceVersion=0", lags: true}}
}

func unknown(g *gen) []step {
	path := g.one("/apis/kmm.sigs.x-k8s.io/v1beta9/modules", "/apis/nowhere.example/v1/things", "/api/v1/things", "/api/v2/pods",
		"/apis/drover.dev/v1alpha1/things/a", "/api/v1/namespaces/default/nodes",
		"/apis/kmm.sigs.x-k8s.io/v1beta1/namespaces/default/nodemodulesconfigs",
		"/api/v1/nodes/a/strange", "/apis/kmm.sigs.x-k8s.io/v1beta1/nodemodulesconfigs/a/scale",
		"/apis/drover.dev/v1alpha1/modulepolicies/a/status",
		"/api/v1/pods/a")
	method := g.one(http.MethodGet, http.MethodGet, http.MethodPost, http.MethodDelete, http.MethodPatch, http.MethodPut)
	s := step{method: method, path: path}
	switch method {
	case http.MethodPatch:
		s.contentType, s.body = mergePatch, object{}
	case http.MethodPost, http.MethodPut:
		s.contentType, s.body = jsonBody, object{}
	}
	return []step{s}
}

func discover(g *gen) []step {
	path := g.one("/apis/kmm.sigs.x-k8s.io/v1beta1", "/apis/kmm.sigs.x-k8s.io", "/apis/drover.dev/v1alpha1", "/apis/drover.dev/v9")
	return []step{{method: http.MethodGet, path: path}}
}

// watched is a watch of a collection from its present version, of what steps do, up to the addition
// of one more object that the selection has.
func (g *gen) watched(t target, query, accept string, steps ...step) []step {
	path := t.kind.collection(t.space)
	end := g.object(target{kind: t.kind, space: t.space, name: fmt.Sprintf("end-%d", g.number)})
	labels, _ := field(end, "metadata", "labels").(object)
	labels["color"] = "red"
	name, _ := field(end, "metadata", "name").(string)
	all := []step{{method: http.MethodGet, path: path},
		{method: http.MethodGet, path: path, query: sets("watch=true", "resourceVersion={{at}}", "allowWatchBookmarks=true", query),
			accept: accept, watch: true}}
	all = append(all, steps...)
	last := step{method: http.MethodPost, path: path, contentType: jsonBody, body: end}
	return append(all, last, step{until: name}, step{method: http.MethodDelete, path: path + "/" + name, query: atOnce})
}

// watch sees the requests of some other questions.
func watch(g *gen) []step {
	t := g.any(nil)
	var steps []step
	for range 1 + g.rand.IntN(3) {
		// Of the same kind, mostly.
		kinds, focus := g.kinds, g.focus
		g.kinds, g.focus = []*kind{t.kind}, nil
		other := pick([]questionKind{{"", 2, create}, {"", 2, patchMeta}, {"", 2, apply}, {"", 2, update}, {"", 1, remove},
			{"", 1, removeAll}, {"", 1, finalizers}}, g.rand.IntN(11))
		if g.chance(85) {
			steps = append(steps, other.make(g)...)
		}
		g.kinds, g.focus = kinds, focus
	}
	return g.watched(t, g.one("", "", "labelSelector=color%3Dred"), g.one("", "", asPartial), steps...)
}

// watchName follows one object through its life.
func watchName(g *gen) []step {
	k := g.kind(func(k *kind) bool { return k.resource != "pods" })
	t := target{kind: k, name: fmt.Sprintf("w-%d", g.number)}
	if k.namespaced {
		t.space = g.one(g.spaces()...)
	}
	path := t.kind.collection(t.space)
	label := step{method: http.MethodPatch, path: t.path(), contentType: mergePatch,
		body: text(`{"metadata":{"labels":{"color":"new"}}}`)}
	gone := step{method: http.MethodDelete, path: t.path()}
	return []step{{method: http.MethodGet, path: path},
		{method: http.MethodGet, path: path, watch: true,
			query: "watch=true&resourceVersion={{at}}&fieldSelector=metadata.name%3D" + t.name},
		{method: http.MethodPost, path: path, contentType: jsonBody, body: g.object(t)}, label, label, gone,
		{until: "count:3"}, {method: http.MethodGet, path: t.path()}}
}

func watchInitial(g *gen) []step {
	t := g.any(listable)
	query := g.one("sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
		"sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
		"sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&labelSelector=color%3Dred",
		"sendInitialEvents=true&allowWatchBookmarks=true", "sendInitialEvents=true&resourceVersionMatch=Exact&allowWatchBookmarks=true")
	return []step{{method: http.MethodGet, path: g.collection(t), query: "watch=true&" + query, accept: g.one("", "", asPartial),
		watch: true},
		{until: "bookmark"}}
}

// watchSelection sees an object enter a selection, change in it, and leave it.
func watchSelection(g *gen) []step {
	t := g.any(nil)
	color := func(c string) step {
		return step{method: http.MethodPatch, path: t.path(), contentType: mergePatch,
			body: object{"metadata": object{"labels": object{"color": c, "size": g.one("s", "l")}}}}
	}
	var steps []step
	for range 2 + g.rand.IntN(3) {
		steps = append(steps, color(g.one("red", "red", "blue")))
	}
	if g.chance(30) {
		steps = append(steps, step{method: http.MethodDelete, path: t.path()})
	}
	return g.watched(t, g.one("labelSelector=color%3Dred", "labelSelector=color%21%3Dblue"), "", seen(t.path(), steps...)...)
}

func watchOdd(g *gen) []step {
	t := g.any(nil)
	query := g.one("resourceVersion=x", "resourceVersion=-1", "labelSelector=a+b", "fieldSelector=spec.strange%3Dx", "timeoutSeconds=x")
	return []step{{method: http.MethodGet, path: t.kind.collection(t.space), query: "watch=true&" + query, watch: true}}
}
