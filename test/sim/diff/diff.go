// SPDX-License-Identifier: Apache-2.0

// Package diff asks two API servers the same questions and compares their answers whole: code,
// headers, objects, refusals to the letter, and the events of watches. One is kube-apiserver, the
// other is to behave like it.
//
// Questions are HTTP requests, made from a seed by the functions in [questions]. What is compared
// after what replacement, and why, is in [Replaced].
package diff

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
)

// Side is one API server, as an administrator reaches it.
type Side struct {
	Name string
	// URL is the base.
	URL string
	// HTTP adds the credentials of an administrator, who may impersonate.
	HTTP http.RoundTripper
}

// Report is what Ask found.
type Report struct {
	// Questions counts the questions, Requests the requests of each side that they consist of.
	Questions, Requests int
	Different           []Difference
	// Kinds counts questions by kind, Codes answers of the first side by HTTP status, Live those
	// requests of questions that named an object which existed.
	Kinds map[string]int
	Codes map[int]int
	Live  int
	// Digest is of all requests, before each side's values are put in: the same seed, the same
	// digest.
	Digest uint64
}

// Difference is one request that the two sides answered differently.
type Difference struct {
	Seed   uint64
	Number int
	Kind   string
	// Step is the request's place in its question, from 1 on; Requests are that request, as each
	// side was asked.
	Step     int
	Requests [2]string
	// Answers are both sides', after what is replaced. Path is where they first differ.
	Answers [2]string
	Path    string
	names   [2]string
}

// String tells how to ask again, and what differs.
func (d Difference) String() string {
	var b strings.Builder
	_, _ = fmt.Fprintf(&b, "seed %d, question %d (%s), request %d: different at %s\n", d.Seed, d.Number, d.Kind, d.Step, d.Path)
	for i, name := range d.names {
		_, _ = fmt.Fprintf(&b, "asked %s: %s\n", name, d.Requests[i])
	}
	for i, name := range d.names {
		_, _ = fmt.Fprintf(&b, "%s: %s\n", name, d.Answers[i])
	}
	return b.String()
}

// Ask asks n questions made from seed of both, and returns what was answered differently. What the
// questions take from answers, such as UIDs and versions, is each side's own; which objects there
// are is known from a's answers. Kinds of questions named in without are left out. Both servers
// must have the same CRDs and policies, and no objects of the questions' kinds but those that come
// with a control plane; all that was made is deleted at the end. The error is of a server that
// cannot be reached.
func Ask(ctx context.Context, a, b Side, seed uint64, n int, without ...string) (Report, error) {
	e := &exam{
		report: Report{Kinds: map[string]int{}, Codes: map[int]int{}}, seed: seed,
		sides: [2]*side{newSide(a), newSide(b)},
	}
	g := &gen{rand: rand.New(rand.NewPCG(seed, 0)), known: e.sides[0].known, tag: fmt.Sprintf("s%d", seed)}
	if err := e.prepare(ctx, g); err != nil {
		return e.report, err
	}
	kinds := slices.DeleteFunc(slices.Clone(questions), func(k questionKind) bool { return slices.Contains(without, k.name) })
	total := 0
	for _, k := range kinds {
		total += k.weight
	}
	for number := 1; number <= n; number++ {
		// Each question has random numbers of its own: how many one takes does not change the next.
		g.rand, g.number = rand.New(rand.NewPCG(seed, uint64(number))), number
		g.look()
		kind := pick(kinds, g.rand.IntN(total))
		if err := e.ask(ctx, number, kind.name, kind.make(g)); err != nil {
			return e.report, err
		}
	}
	return e.report, e.clean(ctx, g)
}

func pick(kinds []questionKind, at int) questionKind {
	for _, k := range kinds {
		if at -= k.weight; at < 0 {
			return k
		}
	}
	return kinds[len(kinds)-1]
}

// exam is one run of Ask.
type exam struct {
	report Report
	seed   uint64
	sides  [2]*side
}

// ask asks one question of both sides. After a difference, what it was about is removed from both:
// one difference is reported once.
func (e *exam) ask(ctx context.Context, number int, kind string, steps []step) error {
	if len(steps) == 0 {
		return nil
	}
	e.report.Questions++
	e.report.Kinds[kind]++
	for _, s := range e.sides {
		s.begin(number)
	}
	different := false
	for i, step := range steps {
		e.report.Requests++
		e.report.Digest = digest(e.report.Digest, step)
		if _, ok := e.sides[0].known[step.key()]; ok {
			e.report.Live++
		}
		answers, err := e.both(ctx, step)
		if err != nil {
			return fmt.Errorf("question %d (%s) of seed %d: %w", number, kind, e.seed, err)
		}
		if answers[0].code != 0 {
			e.report.Codes[answers[0].code]++
		}
		if path := firstDifference(answers[0].normal, answers[1].normal); path != "" {
			different = true
			e.report.Different = append(e.report.Different, Difference{
				Seed: e.seed, Number: number, Kind: kind, Step: i + 1, Path: path,
				Requests: [2]string{answers[0].asked, answers[1].asked},
				Answers:  [2]string{answers[0].text(), answers[1].text()},
				names:    [2]string{e.sides[0].Name, e.sides[1].Name},
			})
		}
	}
	for _, s := range e.sides {
		s.end()
	}
	if different {
		return e.heal(ctx, steps)
	}
	return nil
}

// digest is that of what was asked before, and of one more request.
func digest(before uint64, s step) uint64 {
	hash := fnv.New64a()
	// Maps are printed by their sorted keys.
	_, _ = fmt.Fprint(hash, before, s.method, s.path, s.query, s.contentType, s.accept, s.as, s.body, s.over, s.until)
	return hash.Sum64()
}

// both asks one request of both sides, again while it may have been too early.
func (e *exam) both(ctx context.Context, step step) ([2]*answer, error) {
	var answers [2]*answer
	marks := [2]tokens{*e.sides[0].tokens, *e.sides[1].tokens}
	for attempt := 0; ; attempt++ {
		early := false
		for i, s := range e.sides {
			if attempt > 0 && step.await != 0 && answers[i].code == step.await {
				continue
			}
			// What an earlier attempt was answered does not count.
			s.uids, s.rvs = marks[i].uids, marks[i].rvs
			answer, err := s.send(ctx, step)
			if err != nil {
				return answers, fmt.Errorf("ask %s: %w", s.Name, err)
			}
			answers[i] = answer
			early = early || step.await != 0 && answer.code != step.await
		}
		early = early || step.lags && firstDifference(answers[0].normal, answers[1].normal) != ""
		if !early || attempt == maxAttempts {
			return answers, nil
		}
		if err := pause(ctx); err != nil {
			return answers, err
		}
	}
}

// heal removes what a question was about.
func (e *exam) heal(ctx context.Context, steps []step) error {
	var done []string
	for _, step := range steps {
		key := step.key()
		if key == "" || slices.Contains(done, key) || strings.HasPrefix(key, "/api/v1/namespaces/s") && strings.Count(key, "/") == 4 {
			continue
		}
		done = append(done, key)
		for _, s := range e.sides {
			if err := s.remove(ctx, key); err != nil {
				return fmt.Errorf("remove %s: %w", key, err)
			}
		}
	}
	return nil
}

// prepare finds out which kinds there are, and makes the namespaces.
func (e *exam) prepare(ctx context.Context, g *gen) error {
	for _, k := range kinds() {
		for _, s := range e.sides {
			a, err := s.send(ctx, step{method: http.MethodGet, path: k.base() + "/" + k.resource, query: "limit=1"})
			// The storage of a new CRD may not be ready yet.
			for attempt := 0; err == nil && a.code == http.StatusTooManyRequests && attempt < maxAttempts; attempt++ {
				if err = pause(ctx); err == nil {
					a, err = s.send(ctx, step{method: http.MethodGet, path: k.base() + "/" + k.resource, query: "limit=1"})
				}
			}
			if err != nil {
				return fmt.Errorf("look for %s at %s: %w", k.resource, s.Name, err)
			}
			if a.code == http.StatusOK && s == e.sides[0] {
				g.kinds = append(g.kinds, k)
			}
		}
	}
	if len(g.kinds) < len(kinds())/2 {
		return fmt.Errorf("%s serves %d of %d kinds: install the CRDs first", e.sides[0].Name, len(g.kinds), len(kinds()))
	}
	space := func(name string) step {
		body := text(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q,"labels":{"run":%q}}}`, name, g.tag)
		return step{method: http.MethodPost, path: "/api/v1/namespaces", contentType: jsonBody, body: body}
	}
	var steps []step
	for _, name := range append(g.spaces(), g.leaving()) {
		steps = append(steps, space(name))
	}
	steps = append(steps, step{method: http.MethodDelete, path: "/api/v1/namespaces/" + g.leaving()})
	return e.ask(ctx, 0, "preparation", steps)
}

// clean deletes what was made. A namespace is finished off as the controller of namespaces does it.
func (e *exam) clean(ctx context.Context, g *gen) error {
	for _, s := range e.sides {
		for _, k := range g.kinds {
			for _, space := range k.spacesOf(g) {
				list, err := s.send(ctx, step{method: http.MethodGet, path: k.collection(space)})
				if err != nil {
					return fmt.Errorf("list what is left: %w", err)
				}
				items, _ := field(object{"of": list.body}, "of", "items").([]any)
				for _, item := range items {
					o, _ := item.(object)
					name, _ := field(o, "metadata", "name").(string)
					if err := s.remove(ctx, k.collection(space)+"/"+name); err != nil {
						return fmt.Errorf("delete what is left: %w", err)
					}
				}
			}
		}
		for _, name := range append(g.spaces(), g.leaving()) {
			path := "/api/v1/namespaces/" + name
			body := text(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q},"spec":{"finalizers":[]}}`, name)
			for _, step := range []step{{method: http.MethodDelete, path: path},
				{method: http.MethodPut, path: path + "/finalize", contentType: jsonBody, body: body}} {
				if _, err := s.send(ctx, step); err != nil {
					return fmt.Errorf("delete a namespace: %w", err)
				}
			}
		}
	}
	return nil
}
