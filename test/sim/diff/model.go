// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
)

// The content types of bodies.
const (
	jsonBody       = "application/json"
	mergePatch     = "application/merge-patch+json"
	jsonPatch      = "application/json-patch+json"
	strategicPatch = "application/strategic-merge-patch+json"
	applyPatch     = "application/apply-patch+yaml"
)

// The forms of answers that are not the objects themselves.
const (
	asPartial     = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	asPartialList = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	asTable       = "application/json;as=Table;g=meta.k8s.io;v=v1"
)

// questionKind is one kind of question: a function that makes the requests of one such question. It
// returns none when nothing that exists can be asked about.
type questionKind struct {
	name   string
	weight int
	make   func(*gen) []step
}

// step is one request of a question. Its texts may have placeholders, which are replaced by each
// side's own values: see [side.fill].
type step struct {
	method, path, query, contentType, accept string
	// as has the headers of another identity.
	as http.Header
	// body is an object, or a text that is sent as it is.
	body any
	// over is the path of an object that is sent as last answered, with the merge patch body in it.
	over string
	// await is the code that both are asked again for; lags that they are until they agree. Only
	// for requests without effect whose answer comes from what the server itself watches.
	await int
	lags  bool
	// one tells a Table of one object from that of a list.
	one bool
	// watch leaves the answer open; until is the last event to read from it.
	watch bool
	until string
}

// key is the path of the object that a request is about, empty if it is not known before the
// answer.
func (s step) key() string {
	if s.method == http.MethodPost {
		body, _ := s.body.(object)
		name, _ := field(body, "metadata", "name").(string)
		if name == "" {
			return ""
		}
		return s.path + "/" + name
	}
	for _, subresource := range []string{"/status", "/eviction", "/binding", "/scale"} {
		if key, ok := strings.CutSuffix(s.path, subresource); ok {
			return key
		}
	}
	return s.path
}

// gen makes questions. It knows what exists from the first side's answers.
type gen struct {
	rand   *rand.Rand
	known  map[string]object
	tag    string
	number int
	// kinds are those that both servers should have.
	kinds []*kind
	// focus are a few of them, others each hundred questions, so that more objects of one kind meet.
	focus []*kind
}

// look chooses the kinds that the next questions are mostly about.
func (g *gen) look() {
	if len(g.focus) > 0 && g.number%100 != 0 {
		return
	}
	g.focus = nil
	for range 3 {
		g.focus = append(g.focus, g.kind(nil))
	}
}

// spaces are the namespaces in which objects are made; a third one is being deleted.
func (g *gen) spaces() []string { return []string{g.tag + "-a", g.tag + "-b"} }

func (g *gen) leaving() string { return g.tag + "-gone" }

// names are few, so that requests meet.
var names = []string{"a", "b", "c", "d"}

// target is one object, which need not exist.
type target struct {
	*kind
	space, name string
}

func (t target) path() string { return t.collection(t.space) + "/" + t.name }

func (g *gen) one(of ...string) string { return of[g.rand.IntN(len(of))] }

func (g *gen) chance(percent int) bool { return g.rand.IntN(100) < percent }

// kind picks one of the kinds for which is holds, by weight. There always is one: the native kinds.
func (g *gen) kind(is func(*kind) bool) *kind {
	from := g.kinds
	if g.chance(60) && slices.ContainsFunc(g.focus, func(k *kind) bool { return is == nil || is(k) }) {
		from = g.focus
	}
	var all []*kind
	for _, k := range from {
		if is == nil || is(k) {
			for range k.weight {
				all = append(all, k)
			}
		}
	}
	return all[g.rand.IntN(len(all))]
}

func (g *gen) target(k *kind) target {
	t := target{kind: k, name: g.one(names...)}
	if k.namespaced {
		t.space = g.one(g.spaces()...)
	}
	return t
}

// any is a target of which three in four exist.
func (g *gen) any(is func(*kind) bool) target {
	if t, ok := g.live(is); ok && g.chance(75) {
		return t
	}
	return g.target(g.kind(is))
}

// live is a target that exists, if there is one of a kind that is drawn.
func (g *gen) live(is func(*kind) bool) (target, bool) {
	for range 8 {
		t := g.target(g.kind(is))
		var exist []target
		for _, space := range t.spacesOf(g) {
			for _, name := range names {
				other := target{kind: t.kind, space: space, name: name}
				if _, ok := g.known[other.path()]; ok {
					exist = append(exist, other)
				}
			}
		}
		if len(exist) > 0 {
			return exist[g.rand.IntN(len(exist))], true
		}
	}
	return target{}, false
}

// absent is a target that does not exist, if there is one.
func (g *gen) absent(is func(*kind) bool) (target, bool) {
	for range 16 {
		t := g.target(g.kind(is))
		if _, ok := g.known[t.path()]; !ok {
			return t, true
		}
	}
	return target{}, false
}

// object is a valid object for a target, with values that vary.
func (g *gen) object(t target) object {
	meta := object{"name": t.name, "labels": g.labels()}
	if t.namespaced {
		meta["namespace"] = t.space
	}
	if g.chance(30) {
		meta["annotations"] = object{"drover.dev/note": g.one("x", "y")}
	}
	o := t.body(g)
	if t.resource == "events" {
		o["regarding"] = text(`{"apiVersion":"v1","kind":"Pod","namespace":%q,"name":"a"}`, t.space)
	}
	o["apiVersion"], o["kind"], o["metadata"] = t.apiVersion(), t.name2, meta
	return o
}

func (g *gen) labels() object {
	labels := object{"color": g.one("red", "blue", "green")}
	if g.chance(50) {
		labels["size"] = g.one("s", "l")
	}
	return labels
}

// bare is the head of an object with nothing in it.
func (t target) bare() object {
	meta := object{"name": t.name}
	if t.namespaced {
		meta["namespace"] = t.space
	}
	return object{"apiVersion": t.apiVersion(), "kind": t.name2, "metadata": meta}
}

// seen adds to requests one that reads what they were about.
func seen(path string, steps ...step) []step {
	return append(steps, step{method: http.MethodGet, path: path})
}

// at puts a target's path in place of PATH, so that a placeholder is about it.
func at(text string, t target) string { return strings.ReplaceAll(text, "PATH", t.path()) }

// sets are a query's parameters; empty ones are left out.
func sets(parameters ...string) string {
	return strings.Join(slices.DeleteFunc(parameters, func(p string) bool { return p == "" }), "&")
}

// text parses JSON that stands in this package.
func text(format string, args ...any) object {
	var o object
	if err := json.Unmarshal(fmt.Appendf(nil, format, args...), &o); err != nil {
		panic(fmt.Sprintf("%s: %v", format, err)) // a mistake in this package
	}
	return o
}

// with is an object with more fields at its top.
func with(o object, more object) object {
	out := maps.Clone(o)
	maps.Copy(out, more)
	return out
}

// questions are all kinds of questions, with how often each is asked among the others.
var questions = []questionKind{
	// reads.go
	{"get", 4, get},
	{"get as metadata or table", 3, getForm},
	{"get in another version", 2, getOtherVersion},
	{"list", 4, list},
	{"list in pages", 2, listPages},
	{"list from the cache", 2, listCached},
	{"unknown resource, version or path", 2, unknown},
	{"discovery", 1, discover},
	{"watch", 4, watch},
	{"watch by name", 2, watchName},
	{"watch with initial events", 3, watchInitial},
	{"watch what enters and leaves a selection", 3, watchSelection},
	{"watch from an odd version", 1, watchOdd},
	// writes.go
	{"create", 14, create},
	{"create with generateName", 3, createGenerated},
	{"create strictly", 3, createStrict},
	{"create with an invalid name or label", 3, createMisnamed},
	{"create with a wrong body", 4, createWrong},
	{"create where no namespace is", 2, createNowhere},
	{"update", 6, update},
	{"update of an old version, or of another UID", 4, updateStale},
	{"update of what is absent", 1, updateAbsent},
	{"update of a status", 4, updateStatus},
	{"patch by JSON patch", 6, patchJSON},
	{"patch by merge patch", 6, patchMerge},
	{"patch by strategic merge patch", 4, patchStrategic},
	{"patch of metadata", 5, patchMeta},
	{"patch of a status", 5, patchStatus},
	{"patch that is invalid", 4, patchInvalid},
	// applies.go
	{"apply", 8, apply},
	{"apply the same again", 4, applyAgain},
	{"apply less than before", 4, applyLess},
	{"apply in conflict", 5, applyConflict},
	{"apply with a UID", 4, applyUID},
	{"apply with nulls and empty lists", 3, applyNulls},
	{"apply of a status", 5, applyStatus},
	{"apply that is malformed", 2, applyMalformed},
	{"managed fields reset", 1, resetManagers},
	// deletes.go
	{"delete", 5, remove},
	{"delete with preconditions", 4, removeIf},
	{"delete with options", 4, removeOptions},
	{"delete a collection", 2, removeAll},
	{"finalizers", 5, finalizers},
	{"finalizers off one by one", 2, finalizersOff},
	{"owners", 4, owners},
	{"eviction", 4, evict},
	{"binding", 2, bind},
	{"a kubelet's pod ends", 2, podEnds},
	{"namespaces", 1, namespaces},
	// admission.go
	{"rules of Modules", 8, moduleRules},
	{"policies", 6, policies},
	{"policies as another identity", 6, impersonate},
	{"module policies", 2, modulePolicies},
}
