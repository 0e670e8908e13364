// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// site of two kinds, of which the second shares an object with the first.
var site = map[string]string{
	"reference/api/thing.html": `<div class="vp-doc"><h1 id="thing">Thing</h1>
		<table><tr><td><code>kind</code></td><td>Thing</td></tr></table>
		<h2 id="fields">Fields <a class="header-anchor" href="#fields">#</a></h2>
		<table><tr><th>field</th></tr><tr><td><code>spec</code></td><td>object</td>
		<td></td><td>The wish. Fields: <a href="#spec">spec</a>.</td></tr></table>
		<h2 id="spec"><code>spec</code></h2>
		<table><tr><td><code>size</code></td><td>integer</td>
		<td></td><td>How large.</td></tr>
		<tr><td><code>parts</code></td><td>list of objects</td>
		<td></td><td>Its parts. Fields: <a href="#specparts">spec.parts[]</a>.</td></tr></table>
		<h2 id="specparts"><code>spec.parts[]</code></h2>
		<table><tr><td><code>name</code></td><td>string</td>
		<td></td><td>What it is called.</td></tr></table></div>`,
	"reference/api/other.html": `<div class="vp-doc"><h1 id="other">Other</h1><h2 id="fields">Fields</h2>
		<table><tr><td><code>part</code></td><td>object</td><td></td>
		<td>One. Fields as of <a href="/reference/api/thing.html#specparts">spec.parts[]</a>.</td></tr></table></div>`,
	"reference/flags.html": `<div class="vp-doc"><h2 id="x"><code>x</code></h2>
		<table><tr><td><code>--y</code>, <code>-y</code></td>
		<td></td><td>Yes.</td></tr></table></div>`,
	"reference/reasons.html": `<div class="vp-doc"><h1 id="r">Reasons</h1>
		<table><tr><td><code>Ready</code></td><td>all is well</td></tr></table></div>`,
	"reference/metrics.html": `<div class="vp-doc"><h1 id="m">Metrics</h1>
		<table><tr><td><code>m_total</code></td>
		<td></td><td>Many.</td></tr></table></div>`,
	"index.html": `<a href="/reference/api/thing.html#spec">a</a>
		<a href="#top" id="top">b</a><a href="https://example.com/">c</a><img src="/a.png">`,
	"a.png": "",
}

func exist() *Existing {
	return &Existing{
		Fields: map[string][]string{
			"thing": {"spec", "spec.parts", "spec.parts[].name", "spec.size"},
			"other": {"part", "part.name"},
		},
		Flags: map[string][]string{"x": {"--y"}}, Reasons: []string{"Ready"}, Metrics: []string{"m_total"},
	}
}

// written returns the site with some texts replaced, old and new in turn.
func written(t *testing.T, replaced ...string) *Site {
	t.Helper()
	dir := t.TempDir()
	for name, content := range site {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(strings.NewReplacer(replaced...).Replace(content)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	read, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	return read
}

func TestJudge(t *testing.T) {
	for name, tc := range map[string]struct {
		replaced               []string
		change                 func(*Existing)
		undocumented, unlisted []string
	}{
		"all is listed":          {},
		"a field is missing":     {replaced: []string{"<code>size</code>", "size"}, undocumented: []string{"thing spec.size"}},
		"a field has no meaning": {replaced: []string{"How large.", ""}, undocumented: []string{"thing spec.size"}},
		"only a link is said":    {replaced: []string{"Its parts. ", ""}, undocumented: []string{"thing spec.parts"}},
		"a shared field is absent": {
			replaced:     []string{"<code>name</code>", ""},
			undocumented: []string{"other part.name", "thing spec.parts[].name"},
		},
		"a link is missing": {replaced: []string{`href="#specparts"`, ""}, undocumented: []string{"thing spec.parts[].name"}},
		"a field does not exist": {
			change:   func(e *Existing) { e.Fields["thing"] = e.Fields["thing"][:3] },
			unlisted: []string{"thing spec.size"},
		},
		"a flag is another":        {replaced: []string{"--y", "--z"}, undocumented: []string{"x --y"}, unlisted: []string{"x --z"}},
		"a program does not exist": {change: func(e *Existing) { e.Flags = nil }, unlisted: []string{"flags of x"}},
		"a reason is missing": {
			change:       func(e *Existing) { e.Reasons = append(e.Reasons, "Lost") },
			undocumented: []string{"reasons Lost"},
		},
		"a metric does not exist":     {change: func(e *Existing) { e.Metrics = nil }, unlisted: []string{"metrics m_total"}},
		"a page's kind doesn't exist": {change: func(e *Existing) { delete(e.Fields, "other") }, unlisted: []string{"page of other"}},
	} {
		t.Run(name, func(t *testing.T) {
			all := exist()
			if tc.change != nil {
				tc.change(all)
			}
			v := written(t, tc.replaced...).Judge(all)
			if !slices.Equal(v.Undocumented, tc.undocumented) || !slices.Equal(v.Unlisted, tc.unlisted) {
				t.Errorf("undocumented %q, want %q; unlisted %q, want %q", v.Undocumented, tc.undocumented, v.Unlisted, tc.unlisted)
			}
		})
	}
	v := written(t).Judge(exist())
	if v.Fields != 6 || v.Flags != 1 || v.Reasons != 1 || v.Metrics != 1 {
		t.Errorf("counted %+v", v)
	}
}

func TestBroken(t *testing.T) {
	for name, tc := range map[string]struct {
		replaced []string
		broken   string
	}{
		"none": {},
		"no such anchor": {
			replaced: []string{"thing.html#spec\"", "thing.html#none\""},
			broken:   "/index.html links to /reference/api/thing.html#none",
		},
		"no such page":    {replaced: []string{"thing.html#spec\"", "no.html\""}, broken: "/index.html links to /reference/api/no.html"},
		"no such picture": {replaced: []string{"/a.png", "/b.png"}, broken: "/index.html loads /b.png"},
		"a foreign asset": {
			replaced: []string{"/a.png", "https://example.com/a.png"},
			broken:   "/index.html loads https://example.com/a.png",
		},
		"not https": {
			replaced: []string{"https://example.com/", "http://example.com/"},
			broken:   "/index.html links to http://example.com/",
		},
	} {
		t.Run(name, func(t *testing.T) {
			links, broken := written(t, tc.replaced...).Broken()
			if got := strings.Join(broken, "; "); got != tc.broken || links < 6 {
				t.Errorf("%d links, broken: %q, want %q", links, got, tc.broken)
			}
		})
	}
}

func TestOutline(t *testing.T) {
	for name, tc := range map[string]struct {
		levels []int
		want   string
	}{
		"good":        {levels: []int{1, 2, 3, 3, 2, 3}},
		"none":        {want: "has no heading"},
		"no title":    {levels: []int{2}, want: `has "h" at level 2`},
		"two titles":  {levels: []int{1, 2, 1}, want: `has "h" at level 1`},
		"one skipped": {levels: []int{1, 3}, want: `skips a level before "h"`},
	} {
		t.Run(name, func(t *testing.T) {
			var headings []Heading
			for _, level := range tc.levels {
				headings = append(headings, Heading{Level: level, Text: "h"})
			}
			if got := outline(headings); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}
