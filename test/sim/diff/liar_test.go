// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// liar answers as another server does, but falsifies one in every of the answers that lie can be
// told about.
type liar struct {
	http.RoundTripper
	every int
	lie   func(*http.Request, *told) bool

	mu         sync.Mutex
	seen, lies int
}

// told is an answer; lines are those of a watch, read one by one.
type told struct {
	code    int
	headers http.Header
	body    object
	lines   []object
}

func (l *liar) RoundTrip(request *http.Request) (*http.Response, error) {
	sent, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, err
	}
	request.Body = io.NopCloser(bytes.NewReader(sent))
	response, err := l.RoundTripper.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	request.Body = io.NopCloser(bytes.NewReader(sent))
	if strings.Contains(request.URL.RawQuery, "watch=true") {
		if response.StatusCode == http.StatusOK {
			response.Body = l.watch(request, response.Body)
		}
		return response, nil
	}
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	t := &told{code: response.StatusCode, headers: response.Header}
	if json.Unmarshal(content, &t.body) == nil && t.body != nil && l.tells(request, t) {
		if content, err = json.Marshal(t.body); err != nil {
			return nil, err
		}
		response.StatusCode, response.Header = t.code, t.headers
	}
	response.Body = io.NopCloser(bytes.NewReader(content))
	return response, nil
}

// tells says whether the lie is told about an answer, and tells it.
func (l *liar) tells(request *http.Request, t *told) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	copied := *t
	copied.lines = slices.Clone(t.lines)
	copied.body = merged(t.body, nil)
	if !l.lie(request, &copied) {
		return false
	}
	if l.seen++; l.seen%l.every != 0 {
		return false
	}
	l.lies++
	*t = copied
	return true
}

// watch passes events on one by one.
func (l *liar) watch(request *http.Request, body io.ReadCloser) io.ReadCloser {
	out, in := io.Pipe()
	go func() {
		decoder := json.NewDecoder(body)
		encoder := json.NewEncoder(in)
		for {
			var event object
			if err := decoder.Decode(&event); err != nil {
				_ = in.CloseWithError(err)
				return
			}
			t := &told{code: http.StatusOK, lines: []object{event}}
			l.tells(request, t)
			for _, line := range t.lines {
				if encoder.Encode(line) != nil {
					return
				}
			}
		}
	}()
	return struct {
		io.Reader
		io.Closer
	}{out, closers{out, body}}
}

type closers []io.Closer

func (c closers) Close() error {
	for _, one := range c {
		_ = one.Close() // read from only
	}
	return nil
}

// without takes a field out of a copy.
func without(o object, path ...string) (object, bool) {
	if field(o, path...) == nil {
		return o, false
	}
	patch := object{path[len(path)-1]: nil}
	for _, name := range slices.Backward(path[:len(path)-1]) {
		patch = object{name: patch}
	}
	return merged(o, patch), true
}

// drops is a lie that leaves out a field.
func drops(path ...string) func(*http.Request, *told) bool {
	return func(_ *http.Request, t *told) bool {
		var ok bool
		if t.code > 299 || t.body == nil {
			return false
		}
		t.body, ok = without(t.body, path...)
		return ok
	}
}

// says is a lie that changes a field of a refusal or of an object.
func says(value any, path ...string) func(*http.Request, *told) bool {
	return func(_ *http.Request, t *told) bool {
		was := field(t.body, path...)
		if was == nil || reflect.DeepEqual(was, value) {
			return false
		}
		patch := object{path[len(path)-1]: value}
		for _, name := range slices.Backward(path[:len(path)-1]) {
			patch = object{name: patch}
		}
		t.body = merged(t.body, patch)
		return true
	}
}

// bumped is a lie about the version after an apply.
func bumped(request *http.Request, t *told) bool {
	version, _ := field(t.body, "metadata", "resourceVersion").(string)
	n, err := strconv.Atoi(version)
	if err != nil || request.Header.Get("Content-Type") != applyPatch || t.code != http.StatusOK {
		return false
	}
	return says(strconv.Itoa(n+1), "metadata", "resourceVersion")(request, t)
}

// raised is a lie about the generation after a write.
func raised(by float64) func(*http.Request, *told) bool {
	return func(request *http.Request, t *told) bool {
		generation, ok := field(t.body, "metadata", "generation").(float64)
		return ok && request.Method != http.MethodGet && generation+by > 0 && says(generation+by, "metadata", "generation")(request, t)
	}
}

// item is a lie about a list.
func item(change func([]any) []any) func(*http.Request, *told) bool {
	return func(_ *http.Request, t *told) bool {
		items, ok := t.body["items"].([]any)
		if !ok || len(items) < 2 {
			return false
		}
		t.body["items"] = change(slices.Clone(items))
		return true
	}
}

// event is a lie about a watch.
func event(change func(object) []object) func(*http.Request, *told) bool {
	return func(_ *http.Request, t *told) bool {
		if len(t.lines) == 0 || t.lines[0]["type"] == "BOOKMARK" {
			return false
		}
		t.lines = change(t.lines[0])
		return true
	}
}

// lies are ways in which a server in memory has been, or could be, wrong.
var lies = map[string]func(*http.Request, *told) bool{
	"a field of the spec lost":    drops("spec", "moduleLoader", "container", "modprobe", "moduleName"),
	"a default forgotten":         drops("spec", "moduleLoader", "container", "modprobe", "dirName"),
	"a UID lost":                  drops("metadata", "uid"),
	"managed fields lost":         drops("metadata", "managedFields"),
	"an owner lost":               drops("metadata", "ownerReferences"),
	"finalizers lost":             drops("metadata", "finalizers"),
	"a grace period lost":         drops("metadata", "deletionGracePeriodSeconds"),
	"a deletion not said":         drops("metadata", "deletionTimestamp"),
	"a status lost":               drops("status"),
	"another reason":              says("Invalid", "reason"),
	"another message":             says("no", "message"),
	"another kind in details":     says("Thing", "details", "kind"),
	"no causes":                   says([]any{}, "details", "causes"),
	"another UID":                 says("11111111-2222-3333-4444-555555555556", "metadata", "uid"),
	"an old version":              says("7", "metadata", "resourceVersion"),
	"a version after a no-op":     bumped,
	"a generation too many":       raised(1),
	"a generation not raised":     raised(-1),
	"an item lost":                item(func(items []any) []any { return items[1:] }),
	"items in another order":      item(func(items []any) []any { slices.Reverse(items); return items }),
	"an event lost":               event(func(object) []object { return nil }),
	"an event twice":              event(func(e object) []object { return []object{e, e} }),
	"an event of another type":    event(func(e object) []object { return []object{with(e, object{"type": "MODIFIED?"})} }),
	"an event without its object": event(func(e object) []object { return []object{with(e, object{"object": object{}})} }),
	"another code": func(_ *http.Request, t *told) bool {
		t.code++
		return t.code < 299
	},
	"a warning lost": func(_ *http.Request, t *told) bool {
		if len(t.headers.Values("Warning")) == 0 {
			return false
		}
		t.headers = t.headers.Clone()
		t.headers.Del("Warning")
		return true
	},
}

// rounds bound how often questions are asked until a lie is told and found: some answers are rare.
const rounds = 6

// TestLiesAreFound is the counter-proof: whatever of an answer is falsified, once in a while, is
// found.
func TestLiesAreFound(t *testing.T) {
	a, b := memory(t, false), memory(t, false)
	seed := uint64(1000)
	for _, name := range slices.Sorted(maps.Keys(lies)) {
		t.Run(name, func(t *testing.T) {
			l := &liar{RoundTripper: b.HTTP, every: 3, lie: lies[name]}
			asked, found := 0, 0
			for range rounds {
				seed++
				report, err := Ask(t.Context(), a, Side{Name: "liar", URL: b.URL, HTTP: l}, seed, 100)
				if err != nil {
					t.Fatal(err)
				}
				asked, found = asked+report.Questions, found+len(report.Different)
				if l.lies == 0 && found > 0 {
					t.Fatalf("a difference without a lie: %s", report.Different[0])
				}
				if found > 0 {
					break
				}
			}
			if found == 0 {
				t.Errorf("%d lies in %d questions, and none found", l.lies, asked)
			}
			t.Logf("%d lies in %d questions, %d differences", l.lies, asked, found)
		})
	}
}
