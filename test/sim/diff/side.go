// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"
)

const (
	// maxAttempts bounds how often a question that may come too early is asked again, each after
	// attemptPause: four seconds. Informers of admission take a few milliseconds, a policy's
	// parameters up to a second.
	maxAttempts  = 80
	attemptPause = 50 * time.Millisecond
	// watchTimeout bounds the wait for a watch's last event.
	watchTimeout = 10 * time.Second
)

// side is one API server with what its answers have told.
type side struct {
	Side
	*tokens
	// known are the objects there are, by path, as last answered; gone are those there were.
	known, gone map[string]object
	// older are the versions that objects had before their last change.
	older map[string]string
	// made is the name that the server last generated, next its last continue token, at the version
	// of its last list.
	made, next, at string
	stream         *stream
}

func newSide(s Side) *side {
	s.URL = strings.TrimSuffix(s.URL, "/")
	return &side{Side: s, tokens: newTokens(), known: map[string]object{}, gone: map[string]object{}, older: map[string]string{}}
}

// begin is called before each question, end after it.
func (s *side) begin(number int) {
	s.made = "none"
	s.tokens.begin(number)
}

func (s *side) end() {
	if s.stream != nil {
		s.stream.close()
		s.stream = nil
	}
}

// answer is what a side said.
type answer struct {
	asked  string
	code   int
	body   any
	normal any
}

func (a *answer) text() string {
	text, err := json.Marshal(a.normal)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// send asks one request.
func (s *side) send(ctx context.Context, step step) (*answer, error) {
	if step.until != "" {
		return s.collect(step)
	}
	ctx, cancel := context.WithTimeout(ctx, 3*watchTimeout)
	request, asked, err := s.request(ctx, step)
	if err != nil {
		cancel()
		return nil, err
	}
	response, err := s.HTTP.RoundTrip(request)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("%s: %w", asked, err)
	}
	if step.watch && response.StatusCode == http.StatusOK {
		s.end()
		s.stream = newStream(response.Body, cancel)
		normal := object{"code": float64(response.StatusCode), "headers": headers(response.Header)}
		return &answer{asked: asked, code: response.StatusCode, normal: normal}, nil
	}
	defer cancel()
	defer func() { _ = response.Body.Close() }() // only read from
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("%s: read the answer: %w", asked, err)
	}
	a := &answer{asked: asked, code: response.StatusCode}
	if json.Unmarshal(content, &a.body) != nil {
		a.body = string(content)
	}
	s.learn(step, a)
	s.tokens.one = step.one
	a.normal = object{
		"code": float64(a.code), "headers": s.normal(headers(response.Header)), "body": s.normal(a.body),
	}
	return a, nil
}

// request makes the HTTP request and its text for a reader.
func (s *side) request(ctx context.Context, step step) (*http.Request, string, error) {
	body := step.body
	if step.over != "" {
		base, ok := s.known[step.over]
		if !ok {
			base = s.gone[step.over]
		}
		body = merged(base, body)
	}
	var text string
	switch b := body.(type) {
	case nil:
	case string:
		text = b
	default:
		encoded, err := json.Marshal(body)
		if err != nil {
			return nil, "", fmt.Errorf("encode a body: %w", err)
		}
		text = string(encoded)
	}
	text = s.fill(text)
	path := s.fill(step.path)
	if step.query != "" {
		path += "?" + s.fill(step.query)
	}
	request, err := http.NewRequestWithContext(ctx, step.method, s.URL+path, bytes.NewReader([]byte(text)))
	if err != nil {
		return nil, "", fmt.Errorf("make a request: %w", err)
	}
	request.Header.Set("Accept", "application/json")
	if step.accept != "" {
		request.Header.Set("Accept", step.accept)
	}
	request.Header.Set("User-Agent", "asker/1")
	if step.contentType != "" {
		request.Header.Set("Content-Type", step.contentType)
	}
	maps.Copy(request.Header, step.as)
	var more []string
	for _, name := range []string{"Accept", "Content-Type", "Impersonate-User"} {
		if value := request.Header.Get(name); value != "" && value != "application/json" {
			more = append(more, fmt.Sprintf("-H '%s: %s'", name, value))
		}
	}
	return request, fmt.Sprintf("%s %s %s %s", step.method, path, strings.Join(more, " "), text), nil
}

// headers are those that clients act on.
func headers(h http.Header) object {
	out := object{}
	for _, name := range []string{"Content-Type", "Retry-After", "Warning"} {
		var values []any
		for _, v := range h.Values(name) {
			values = append(values, v)
		}
		if len(values) > 0 {
			out[name] = values
		}
	}
	return out
}

var placeholder = regexp.MustCompile(`\{\{(\w+) ?([^}]*)\}\}`)

// fill puts this side's values in place of {{uid PATH}}, {{version PATH}}, {{older PATH}},
// {{name}}, {{continue}} and {{at}}.
func (s *side) fill(text string) string {
	return placeholder.ReplaceAllStringFunc(text, func(found string) string {
		parts := placeholder.FindStringSubmatch(found)
		of, ok := s.known[parts[2]]
		if !ok {
			of = s.gone[parts[2]]
		}
		value := ""
		switch parts[1] {
		case "uid":
			value, _ = field(of, "metadata", "uid").(string)
		case "version":
			value, _ = field(of, "metadata", "resourceVersion").(string)
		case "older":
			value = s.older[parts[2]]
		case "name":
			return s.made
		case "continue":
			return url.QueryEscape(s.next)
		case "at":
			return s.at
		}
		if value == "" && parts[1] == "uid" {
			return "00000000-0000-0000-0000-000000000000"
		}
		if value == "" {
			return "1"
		}
		return value
	})
}

// learn keeps what an answer says about an object.
func (s *side) learn(step step, a *answer) {
	if step.lags {
		return // what comes from a cache may be old: what is asked must not depend on that
	}
	body, _ := a.body.(object)
	meta, _ := body["metadata"].(object)
	kind, _ := body["kind"].(string)
	if strings.HasSuffix(kind, "List") {
		s.next, _ = meta["continue"].(string)
		s.at, _ = meta["resourceVersion"].(string)
	}
	key := step.key()
	if a.code == http.StatusNotFound && step.method == http.MethodGet && key == step.path {
		if was, ok := s.known[key]; ok {
			s.gone[key] = was
			delete(s.known, key)
		}
	}
	name, _ := meta["name"].(string)
	if asked, _ := step.body.(object); field(asked, "metadata", "generateName") != nil {
		made, _ := field(body, "details", "name").(string) // in a refusal
		if name != "" {
			s.made, made = name, name
		}
		if made != "" {
			s.tokens.names[made] = "(generated name)"
		}
		return
	}
	whole := strings.HasPrefix(step.accept, "application/json;") || kind == "Status" || strings.HasSuffix(kind, "List")
	if name == "" || whole || a.code > 299 || strings.Contains(step.query, "dryRun") || key == "" {
		return
	}
	if step.method == http.MethodPost && !strings.HasSuffix(key, "/"+name) {
		return
	}
	was, _ := field(s.known[key], "metadata", "resourceVersion").(string)
	if now, _ := meta["resourceVersion"].(string); was != "" && was != now {
		s.older[key] = was
	}
	s.known[key] = body
}

// atOnce are parameters of a deletion that nothing delays: without a policy, Jobs get a finalizer.
const atOnce = "gracePeriodSeconds=0&propagationPolicy=Background"

// remove deletes an object, whatever holds it.
func (s *side) remove(ctx context.Context, key string) error {
	for _, step := range []step{
		{method: http.MethodPatch, path: key, contentType: mergePatch, body: `{"metadata":{"finalizers":null}}`},
		{method: http.MethodDelete, path: key, query: atOnce},
		{method: http.MethodGet, path: key},
	} {
		if _, err := s.send(ctx, step); err != nil {
			return err
		}
	}
	return nil
}

// pause waits a moment, or for the end.
func pause(ctx context.Context) error {
	timer := time.NewTimer(attemptPause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return fmt.Errorf("ask again: %w", context.Cause(ctx))
	case <-timer.C:
		return nil
	}
}
