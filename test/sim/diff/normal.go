// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Replaced is all that is not compared as it was answered, with the reason of each. Everything else
// is.
var Replaced = []struct{ What, Reason string }{
	{"UIDs, wherever they stand", "they are random: compared by the question and place in which each was first seen"},
	{"versions of objects",
		"a server counts writes of its own: compared by where each was first seen, and whether it was then the latest"},
	{"versions of lists and of bookmarks", "as above: compared by whether they are at least those of all that was seen"},
	{"times within a day of now", "no two servers answer at once: compared by presence and format"},
	{"ages in Tables", "as above: compared by presence"},
	{"order of managedFields", "the real server sorts by time, to a second: sorted by manager, operation and subresource"},
	{"managedFields of an object that a message quotes", "as above, and the object itself is compared: left out"},
	{"order of resources in discovery", "the real server lists CRDs as they became established: sorted by name"},
	{"continue tokens", "they hold a version: compared by presence, and by the page that they lead to"},
	{"names that the server makes from generateName", "they are random: compared by the prefix"},
	{"order of causes, and of what a message lists", "the real server ranges over maps: sorted"},
	{"bookmarks other than the end of the initial events", "the real server sends them by time"},
	{"null for the requests of a ResourceClaim",
		"the real server stores protobuf, in which an empty list is none: compared as an empty list"},
	{"headers other than Content-Type, Retry-After and Warning", "no client of ours reads them"},
}

// object is a JSON object.
type object = map[string]any

// tokens replace what differs between any two servers.
type tokens struct {
	number, uids, rvs int
	of                map[string]string
	latest            uint64
	// names are generated ones of this question. With one, a Table is of one object.
	names map[string]string
	one   bool
}

func newTokens() *tokens { return &tokens{of: map[string]string{}, names: map[string]string{}} }

// begin numbers what is new by the question: a difference does not shift what comes after it.
func (t *tokens) begin(number int) {
	t.number, t.uids, t.rvs = number, 0, 0
	clear(t.names)
}

var (
	uuid = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	// inMessage are versions in messages.
	inMessage = regexp.MustCompile(`(?i)(resource ?version(?: in precondition| in object meta)?: ` +
		`|current: |in (?:the precondition|record) \()(\d+)`)
	// quoted are versions of objects that a message quotes whole, and quotedManagers their field
	// managers.
	quoted         = regexp.MustCompile(`(\\*"resourceVersion\\*":\\*")(\d+)`)
	quotedManagers = regexp.MustCompile(`(\\*"managedFields\\*":)\[[^\]]*\]`)

	age    = regexp.MustCompile(`^([0-9]+[smh])+$`)
	moment = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`)
)

func (t *tokens) uid(u string) string {
	if u == "00000000-0000-0000-0000-000000000000" {
		return u
	}
	if t.of[u] == "" {
		t.uids++
		t.of[u] = fmt.Sprintf("uid@%d.%d", t.number, t.uids)
	}
	return t.of[u]
}

func (t *tokens) version(v string) string {
	n, err := strconv.ParseUint(v, 10, 64)
	if err != nil || n <= 1 {
		return v
	}
	if t.of[v] == "" {
		t.rvs++
		t.of[v] = fmt.Sprintf("version@%d.%d", t.number, t.rvs)
		if n <= t.latest {
			t.of[v] += " (not the latest)"
		}
		t.latest = max(t.latest, n)
	}
	return t.of[v]
}

// listVersion is compared by whether it is late enough.
func (t *tokens) listVersion(v string) string {
	n, err := strconv.ParseUint(v, 10, 64)
	if err != nil || n < t.latest {
		return v + " (older than what was seen)"
	}
	return "version of a list"
}

// normal replaces, in a copy.
func (t *tokens) normal(value any) any {
	switch v := value.(type) {
	case object:
		return t.object(v)
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = t.normal(v[i])
		}
		return out
	case string:
		return t.string(v)
	}
	return value
}

func (t *tokens) object(v object) object {
	out := object{}
	kind, _ := v["kind"].(string)
	isList := kind == "Table" || strings.HasSuffix(kind, "List")
	// Items first: they tell what the list's version must be at least.
	for _, key := range []string{"items", "rows"} {
		if items, ok := v[key]; ok && isList {
			out[key] = t.normal(items)
		}
	}
	if rows, ok := out["rows"].([]any); ok {
		ageless(rows)
	}
	for _, key := range slices.Sorted(maps.Keys(v)) {
		text, isText := v[key].(string)
		replaced := t.string(key)
		switch {
		case isList && (key == "items" || key == "rows"):
		case key == "metadata" && isList:
			out[key] = t.listMeta(v[key])
		case key == "resourceVersion" && isText:
			out[key] = t.version(text)
		case key == "requests" && v[key] == nil:
			out[key] = []any{}
		case key == "managedFields":
			out[key] = sorted(t.normal(v[key]), func(e any) string {
				o, _ := e.(object)
				return fmt.Sprint(o["operation"], o["manager"], o["subresource"], o["apiVersion"])
			})
		default:
			out[replaced] = t.normal(v[key])
		}
	}
	switch kind {
	case "Status":
		unordered(out)
	case "APIResourceList":
		out["resources"] = sorted(out["resources"], func(r any) string { return fmt.Sprint(field(object{"of": r}, "of", "name")) })
	}
	return out
}

// ageless replaces the ages in a Table's rows.
func ageless(rows []any) {
	for _, row := range rows {
		of, _ := row.(object)
		cells, _ := of["cells"].([]any)
		for i, cell := range cells {
			if text, ok := cell.(string); ok && age.MatchString(text) {
				cells[i] = "an age"
			}
		}
	}
}

func (t *tokens) listMeta(value any) any {
	meta, ok := value.(object)
	if !ok {
		return value
	}
	out := maps.Clone(meta)
	if version, ok := meta["resourceVersion"].(string); ok && t.one {
		out["resourceVersion"] = t.version(version)
	} else if ok {
		out["resourceVersion"] = t.listVersion(version)
	}
	if meta["continue"] != nil {
		out["continue"] = "token"
	}
	return out
}

func (t *tokens) string(v string) string {
	// The real server compares objects in messages by a library that mixes kinds of blanks.
	v = strings.ReplaceAll(v, "\u00a0", " ")
	for name, token := range t.names {
		v = strings.ReplaceAll(v, name, token)
	}
	v = uuid.ReplaceAllStringFunc(v, t.uid)
	for _, versions := range []*regexp.Regexp{inMessage, quoted} {
		v = versions.ReplaceAllStringFunc(v, func(found string) string {
			parts := versions.FindStringSubmatch(found)
			return parts[1] + t.version(parts[2])
		})
	}
	v = quotedManagers.ReplaceAllString(v, "$1 (those of the object)")
	return moment.ReplaceAllStringFunc(v, func(found string) string {
		at, err := time.Parse(time.RFC3339, found)
		if err != nil || time.Since(at).Abs() > 24*time.Hour {
			return found
		}
		return fmt.Sprintf("now (%d characters)", len(found))
	})
}

// unordered sorts the causes of a Status, and with more than one what its message lists.
func unordered(status object) {
	details, _ := status["details"].(object)
	causes, _ := details["causes"].([]any)
	if len(causes) < 2 {
		return
	}
	details["causes"] = sorted(causes, func(cause any) string {
		text, err := json.Marshal(cause)
		if err != nil {
			return err.Error()
		}
		return string(text)
	})
	if message, ok := status["message"].(string); ok {
		words := strings.FieldsFunc(message, func(r rune) bool { return strings.ContainsRune(" ,[]", r) })
		slices.Sort(words)
		status["message"] = strings.Join(words, " ")
	}
}

func sorted(value any, by func(any) string) any {
	list, ok := value.([]any)
	if !ok {
		return value
	}
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b any) int { return cmp.Compare(by(a), by(b)) })
	return list
}

// firstDifference is the path of the first difference, in the order of names; empty without one.
func firstDifference(a, b any) string {
	if reflect.DeepEqual(a, b) {
		return ""
	}
	switch x := a.(type) {
	case object:
		y, ok := b.(object)
		if !ok {
			return "."
		}
		keys := slices.Sorted(maps.Keys(x))
		for key := range y {
			if _, ok := x[key]; !ok {
				keys = append(keys, key)
			}
		}
		// What failed is said by code and body; headers follow from them.
		slices.SortStableFunc(keys, func(a, b string) int { return cmp.Compare(headersLast(a), headersLast(b)) })
		for _, key := range keys {
			_, inX := x[key]
			_, inY := y[key]
			if path := firstDifference(x[key], y[key]); path != "" || inX != inY {
				return "." + key + strings.TrimSuffix(path, ".")
			}
		}
	case []any:
		y, ok := b.([]any)
		if !ok {
			return "."
		}
		for i := range min(len(x), len(y)) {
			if path := firstDifference(x[i], y[i]); path != "" {
				return fmt.Sprintf("[%d]%s", i, strings.TrimSuffix(path, "."))
			}
		}
		return fmt.Sprintf("[%d]", min(len(x), len(y)))
	}
	return "."
}

func headersLast(key string) int {
	if key == "headers" {
		return 1
	}
	return 0
}

// field is a field below o; nil when there is none.
func field(o object, path ...string) any {
	var at any = o
	for _, name := range path {
		below, ok := at.(object)
		if !ok {
			return nil
		}
		at = below[name]
	}
	return at
}

// merged is base with a merge patch in it (RFC 7386). Neither is changed.
func merged(base object, patch any) object {
	out := maps.Clone(base)
	if out == nil {
		out = object{}
	}
	changes, ok := patch.(object)
	if !ok {
		return out
	}
	for key, value := range changes {
		inner, isObject := value.(object)
		below, _ := out[key].(object)
		switch {
		case value == nil:
			delete(out, key)
		case isObject:
			out[key] = merged(below, inner)
		default:
			out[key] = value
		}
	}
	return out
}
