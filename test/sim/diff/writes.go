// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"fmt"
	"net/http"
	"strings"
)

// post creates an object at a target.
func post(t target, o any, query ...string) step {
	return step{method: http.MethodPost, path: t.kind.collection(t.space), query: sets(query...), contentType: jsonBody, body: o}
}

func (g *gen) dry() string { return g.one("", "", "", "dryRun=All") }

func (g *gen) manager() string {
	return g.one("", "fieldManager=drover-operator", "fieldManager=drover-agent", "fieldManager=kubectl")
}

func create(g *gen) []step {
	t, ok := g.absent(nil)
	if !ok || g.chance(15) {
		t = g.any(nil)
	}
	o := g.object(t)
	if t.status != nil && g.chance(20) {
		o["status"] = t.status(g)
	}
	if g.chance(10) {
		field(o, "metadata").(object)["generation"] = 7
		field(o, "metadata").(object)["uid"] = "11111111-2222-3333-4444-555555555555"
	}
	if g.chance(3) {
		field(o, "metadata").(object)["resourceVersion"] = "5"
	}
	if !t.namespaced || g.chance(90) {
		return seen(t.path(), post(t, o, g.dry(), g.manager()))
	}
	// The namespace is the path's, or not.
	meta, _ := o["metadata"].(object)
	if delete(meta, "namespace"); g.chance(50) {
		meta["namespace"] = "elsewhere"
	}
	return seen(t.path(), post(t, o))
}

func createGenerated(g *gen) []step {
	t := g.target(g.kind(nil))
	o := g.object(t)
	meta, _ := o["metadata"].(object)
	delete(meta, "name")
	meta["generateName"] = g.one("made-", "made.of-", "Made-", strings.Repeat("long", 80)+"-")
	if g.chance(20) {
		return []step{post(t, o, "dryRun=All")}
	}
	path := t.kind.collection(t.space) + "/{{name}}"
	return []step{post(t, o), {method: http.MethodGet, path: path}, {method: http.MethodDelete, path: path, query: atOnce},
		{method: http.MethodGet, path: path}}
}

func createStrict(g *gen) []step {
	t := g.target(g.kind(nil))
	o := merged(g.object(t), g.pickText(`{"spec":{"strange":1}}`, `{"strange":{}}`, `{"metadata":{"strange":"x"}}`, `{}`))
	return seen(t.path(), post(t, o, "dryRun=All", g.one("fieldValidation=Strict", "fieldValidation=Warn", "fieldValidation=Ignore",
		"fieldValidation=Hardly", "")))
}

func createMisnamed(g *gen) []step {
	t := g.target(g.kind(nil))
	o := g.object(t)
	changes := g.one(`{"metadata":{"name":"Upper"}}`, `{"metadata":{"name":""}}`, `{"metadata":{"name":"a/b"}}`,
		`{"metadata":{"name":"-a"}}`,
		fmt.Sprintf(`{"metadata":{"name":%q}}`, strings.Repeat("x", 254)), `{"metadata":{"labels":{"a b":"c"}}}`,
		`{"metadata":{"labels":{"color":"no good!"}}}`, fmt.Sprintf(`{"metadata":{"labels":{"color":%q}}}`, strings.Repeat("y", 64)),
		`{"metadata":{"annotations":{"a b":"c"}}}`, `{"metadata":{"finalizers":["no good"]}}`,
		`{"metadata":{"finalizers":["drover.dev/x","drover.dev/x"]}}`,
		`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"a"}]}}`,
		`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"a","uid":"u","controller":true},
			{"apiVersion":"v1","kind":"Node","name":"b","uid":"w","controller":true}]}}`)
	return []step{post(t, merged(o, text("%s", changes)), "dryRun=All")}
}

func createWrong(g *gen) []step {
	t := g.target(g.kind(nil))
	s := post(t, g.object(t), "dryRun=All")
	switch o := s.body.(object); g.rand.IntN(9) {
	case 0:
		s.body = g.object(g.target(g.kind(nil)))
	case 1:
		s.body = `{"apiVersion":`
	case 2:
		s.body = `[]`
	case 3:
		s.contentType = g.one("text/plain", "application/xml", mergePatch)
	case 4:
		s.body = with(o, object{"apiVersion": g.one("v9", "", "other.example/v1")})
	case 5:
		s.body = with(o, object{"kind": g.one("", "Strange")})
	case 6:
		s.body = with(o, g.pickText(`{"metadata":[]}`, `{"metadata":null}`, `{"spec":[]}`, `{"spec":"x"}`, `{"status":5}`,
			`{"metadata":{"labels":[]}}`))
	case 7:
		s.body = nil
	default:
		s.body = merged(o, text("%s", g.one(t.invalid...)))
	}
	return []step{s}
}

func createNowhere(g *gen) []step {
	k := g.kind(isSpaced)
	t := target{kind: k, space: g.one("nowhere", g.leaving()), name: g.one(names...)}
	switch g.rand.IntN(3) {
	case 0:
		return []step{{method: http.MethodGet, path: g.one(t.path(), t.collection(t.space))}}
	case 1:
		return []step{applying(t, g.object(t), "fieldManager=drover-operator")}
	}
	return []step{post(t, g.object(t))}
}

func update(g *gen) []step {
	t := g.any(nil)
	s := step{method: http.MethodPut, path: t.path(), contentType: jsonBody, over: t.path(), body: t.change(g), query: sets(g.dry(),
		g.manager())}
	switch g.rand.IntN(6) {
	case 0:
		s.body = object{} // the same again
	case 1:
		s.body = object{"metadata": object{"labels": g.labels()}}
	case 2: // all anew, without a version
		s.over, s.body = "", g.object(t)
	case 3:
		s.body = merged(t.change(g), object{"metadata": object{"managedFields": []any{}}})
	}
	return seen(t.path(), s)
}

func updateStale(g *gen) []step {
	t, ok := g.live(nil)
	if !ok {
		return nil
	}
	meta := g.one(`{"resourceVersion":"{{older %s}}"}`, `{"resourceVersion":"1"}`, `{"uid":"11111111-2222-3333-4444-555555555555"}`,
		`{"resourceVersion":null}`, `{"resourceVersion":"x"}`, `{"name":"other"}`, `{"resourceVersion":"0"}`,
		`{"resourceVersion":"{{older %s}}","uid":"11111111-2222-3333-4444-555555555555"}`)
	if strings.Contains(meta, "%s") {
		meta = fmt.Sprintf(meta, t.path())
	}
	return seen(t.path(), step{method: http.MethodPut, path: t.path(), contentType: jsonBody, over: t.path(),
		body: merged(t.change(g), object{"metadata": text("%s", meta)})})
}

func updateAbsent(g *gen) []step {
	t, ok := g.absent(nil)
	if !ok {
		return nil
	}
	o := g.object(t)
	if g.chance(50) {
		o = merged(o, text(`{"metadata":{"resourceVersion":%q}}`, g.one("5", "{{version "+t.path()+"}}")))
	}
	return seen(t.path(), step{method: http.MethodPut, path: t.path(), contentType: jsonBody, body: o})
}

func updateStatus(g *gen) []step {
	t := g.any(hasStatus)
	body := object{"status": t.status(g)}
	if g.chance(40) { // is not taken over
		body = merged(body, merged(t.change(g), text(`{"metadata":{"labels":{"by":"status"},"finalizers":["drover.dev/status"]}}`)))
	}
	return seen(t.path(), step{method: http.MethodPut, path: t.path() + "/status", contentType: jsonBody, over: t.path(), body: body,
		query: g.dry()})
}

// patching patches a target.
func patching(t target, contentType string, body any, query ...string) step {
	return step{method: http.MethodPatch, path: t.path(), contentType: contentType, body: body, query: sets(query...)}
}

func patchJSON(g *gen) []step {
	t := g.any(nil)
	operations := g.one(`[{"op":"add","path":"/metadata/labels/color","value":"red"}]`,
		`[{"op":"remove","path":"/metadata/labels/size"}]`,
		`[{"op":"test","path":"/metadata/labels/color","value":"red"},{"op":"replace","path":"/metadata/labels/color","value":"blue"}]`,
		`[{"op":"test","path":"/metadata/uid","value":"{{uid %s}}"},{"op":"add","path":"/metadata/annotations","value":{"j":"p"}}]`,
		`[{"op":"test","path":"/metadata/resourceVersion","value":"{{version %s}}"},
			{"op":"add","path":"/metadata/labels/size","value":"l"}]`,
		`[{"op":"test","path":"/metadata/resourceVersion","value":"{{older %s}}"},{"op":"add","path":"/metadata/labels/size","value":"l"}]`,
		`[{"op":"test","path":"/metadata/labels/none","value":null}]`, `[{"op":"replace","path":"/metadata/none/x","value":1}]`,
		`[{"op":"copy","from":"/metadata/labels","path":"/metadata/annotations"}]`,
		`[{"op":"move","from":"/metadata/labels/size","path":"/metadata/labels/gone"}]`,
		`[{"op":"remove","path":"/spec/modules/0"}]`, `[{"op":"add","path":"/spec/modules/-","value":{"name":"x"}}]`,
		`[{"op":"test","path":"/spec/modules/0/name","value":"x"},{"op":"remove","path":"/spec/modules/0/delivery"}]`,
		`[{"op":"test","path":"/spec/taints/0/key","value":"k"},{"op":"remove","path":"/spec/taints/0"}]`,
		`[{"op":"add","path":"/spec/strange","value":{}}]`, `[{"op":"spin","path":"/a"}]`, `[]`, `{}`,
		`[{"op":"replace","path":"/metadata/name","value":"z"}]`,
		`[{"op":"replace","path":"/metadata/uid","value":"11111111-2222-3333-4444-555555555555"}]`)
	operations = strings.ReplaceAll(operations, "%s", t.path())
	return seen(t.path(), patching(t, jsonPatch, operations, g.dry(), g.manager()))
}

func patchMerge(g *gen) []step {
	t := g.any(nil)
	body := t.change(g)
	switch g.rand.IntN(5) {
	case 0:
		body = merged(body, text(`{"metadata":{"resourceVersion":"{{%s %s}}"}}`, g.one("version", "older"), t.path()))
	case 1:
		body = merged(body, text(`{"metadata":{"uid":%q}}`, g.one("{{uid "+t.path()+"}}", "11111111-2222-3333-4444-555555555555")))
	case 2:
		body = with(body, object{"strange": 1})
	}
	return seen(t.path(), patching(t, mergePatch, body, g.dry(), g.manager(), g.one("", "", "fieldValidation=Strict")))
}

func patchStrategic(g *gen) []step {
	t := g.any(isNative)
	if g.chance(15) {
		t = g.any(isCustom)
	}
	body := t.change(g)
	if g.chance(50) {
		body = g.pickText(`{"metadata":{"labels":{"$patch":"replace","color":"red"}}}`,
			`{"spec":{"containers":[{"name":"c","image":"example.com/i:9"}]}}`,
			`{"metadata":{"finalizers":["drover.dev/x"]}}`, `{"metadata":{"$deleteFromPrimitiveList/finalizers":["drover.dev/x"]}}`,
			`{"spec":{"taints":[{"key":"k","effect":"NoSchedule","value":"w"}]}}`,
			`{"spec":{"template":{"spec":{"containers":[{"name":"d","image":"i:1"}]}}}}`,
			`{"metadata":{"labels":null}}`, `{"spec":{"$setElementOrder/containers":[{"name":"c"}]}}`, `{"$retainKeys":["x"]}`,
			`{"data":{"k":null}}`,
			`{"metadata":{"ownerReferences":[{"$patch":"delete","uid":"u"}]}}`)
	}
	if t.status != nil && g.chance(30) {
		s := patching(t, strategicPatch, text(`{"status":{"conditions":[%s]}}`, g.condition()))
		s.path += "/status"
		return seen(t.path(), s)
	}
	return seen(t.path(), patching(t, strategicPatch, body, g.dry(), g.manager()))
}

func patchMeta(g *gen) []step {
	t := g.any(nil)
	body := g.one(`{"metadata":{"labels":{"color":"red"}}}`, `{"metadata":{"labels":{"color":"blue","size":null}}}`,
		`{"metadata":{"labels":null}}`,
		`{"metadata":{"annotations":{"drover.dev/note":"x"}}}`, `{"metadata":{"annotations":{"drover.dev/note":null}}}`, `{}`,
		`{"metadata":{"annotations":null,"labels":{"size":"l"}}}`, `{"metadata":{"generation":99}}`,
		`{"metadata":{"managedFields":null}}`,
		`{"metadata":{"creationTimestamp":null}}`, `{"metadata":{"deletionTimestamp":"2001-01-01T00:00:00Z"}}`,
		`{"metadata":{"labels":{"bad label":"x"}}}`, `{"metadata":{"name":"z"}}`, `{"metadata":{"namespace":"z"}}`,
		`{"metadata":{"generateName":"z"}}`)
	return seen(t.path(), patching(t, mergePatch, body, g.dry(), g.manager()))
}

func patchStatus(g *gen) []step {
	t := g.any(hasStatus)
	body := object{"status": t.status(g)}
	if g.chance(40) { // is not taken over
		body = merged(body, merged(t.change(g), text(`{"metadata":{"labels":{"by":"status"},"annotations":{"by":"status"}}}`)))
	}
	s := patching(t, mergePatch, body, g.dry(), g.manager())
	if s.path += "/status"; g.chance(20) {
		s.path = t.path() // where the status is not taken over
	}
	if g.chance(15) {
		s.contentType, s.body = jsonPatch,
			`[{"op":"test","path":"/status/attempts/0/name","value":"x"},{"op":"remove","path":"/status/attempts/0"}]`
	}
	return seen(t.path(), s)
}

func patchInvalid(g *gen) []step {
	t := g.any(nil)
	s := patching(t, mergePatch, g.one(t.invalid...))
	switch g.rand.IntN(6) {
	case 0:
		s.contentType = g.one(jsonBody, "text/plain", "application/yaml", "")
	case 1:
		s.body = g.one("{", "", "null", "7")
	case 2:
		s.body = g.one(`{"kind":"Other"}`, `{"apiVersion":"v9"}`, `{"metadata":null}`, `{"metadata":[]}`, `{"spec":null}`)
	}
	return seen(t.path(), s)
}
