// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/chromedp"
)

// plain reads the page with scripts off, and again after the greeting changed.
func plain(ctx context.Context, r *rig) error {
	l := desktop
	l.plain = true
	for _, greeting := range []string{`Without "scripts" & <b>`, "And another one"} {
		err := r.visit(ctx, greeting, l, func(_ *pod, t *tab) error {
			shown, err := t.greeting()
			if err != nil {
				return err
			}
			state, err := evaluate[string](t, `[document.querySelector('noscript a').getClientRects().length > 0, document.getElementById('state').textContent,
				new URL(document.querySelector('noscript a').href).pathname, document.getElementById('cow').getBoundingClientRect().width > 50].join('|')`)
			if err != nil {
				return err
			}
			if shown != greeting || state != "true||/|true" {
				return fmt.Errorf("the page shows %q; link to ask again, state, where to, a cow: %s", shown, state)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// wide are greetings that no narrow screen has room for on one line.
var wide = []string{
	strings.Repeat("W", 400),
	"https://example.com/" + strings.Repeat("a-very-long-path/without?spaces&", 12),
	strings.Repeat("牛", 300),
	strings.Repeat("👩‍👩‍👧‍👦", 80),
	"Moo",
}

// overflow looks at the page: a picture may hang over, nothing with a text may.
const overflow = `[
	document.documentElement.scrollWidth <= 320,
	(scrollTo(1000, 0), scrollX === 0),
	[...document.querySelectorAll('body, header, main, footer, h1, p, a, label, blockquote')].every(e => e.getBoundingClientRect().right <= 320.5 && e.getBoundingClientRect().left >= -0.5),
	(() => { const g = document.getElementById('greeting'); return g.scrollWidth <= g.clientWidth && g.scrollHeight <= g.clientHeight + 1; })(),
].join()`

func narrow(ctx context.Context, r *rig) error {
	for _, greeting := range wide {
		err := r.visit(ctx, greeting, look{width: 320, height: 640, still: true}, func(_ *pod, t *tab) error {
			state, err := evaluate[string](t, overflow)
			if err != nil {
				return err
			}
			if state != "true,true,true,true" {
				return fmt.Errorf("greeting %.20q: no overflow, no scrolling, all inside, greeting whole: %s", greeting, state)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *rig) contrast(ctx context.Context, dark bool) error {
	for _, l := range []look{{width: 1120, height: 700, dark: dark, still: true},
		{width: 320, height: 640, dark: dark, plain: true, still: true}} {
		err := r.visit(ctx, "How well can you read this?", l, func(_ *pod, t *tab) error {
			least, where, err := t.measure()
			if err == nil && least < minimum {
				err = fmt.Errorf("%.2f at %q, %d pixels wide", least, where, l.width)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func darkMode(ctx context.Context, r *rig) error {
	var brightness [2]float64
	for i, dark := range []bool{false, true} {
		err := r.visit(ctx, "Good night", look{width: 640, height: 480, dark: dark, still: true}, func(_ *pod, t *tab) (err error) {
			brightness[i], err = t.brightness()
			return err
		})
		if err != nil {
			return err
		}
	}
	if brightness[0] < 0.4 || brightness[1] > 0.2 {
		return fmt.Errorf("mean luminance is %.2f in light mode and %.2f in dark mode", brightness[0], brightness[1])
	}
	return nil
}

// screenReader reads the accessibility tree.
func screenReader(ctx context.Context, r *rig) error {
	const greeting = `Hear "me" & <moo>`
	return r.visit(ctx, greeting, look{width: 800, height: 600}, func(_ *pod, t *tab) error {
		found, err := t.accessible()
		if err != nil {
			return err
		}
		for _, want := range []string{
			"RootWebArea “" + greeting + "” · LolCow", "banner ", "main ", "contentinfo ", "heading The cow says", "StaticText " + greeting,
			"blockquote live polite", "status live polite", "checkbox Stop the motion", "link the cow as text",
			"image A white cow with brown spots stands on a meadow and speaks.",
		} {
			if !found[want] {
				return fmt.Errorf("not in the accessibility tree: %q; there is %q", want, slices.Sorted(maps.Keys(found)))
			}
		}
		language, err := evaluate[string](t, `document.documentElement.lang`)
		if err != nil || language != "en" {
			return errors.Join(fmt.Errorf("the language is %q", language), err)
		}
		return nil
	})
}

// accessible returns what is in the accessibility tree, as "role name" and "role live value". It is
// an error for a control or a picture to have no name.
func (t *tab) accessible() (map[string]bool, error) {
	tree, err := chromedp.Call(t.ctx, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	if err != nil {
		return nil, fmt.Errorf("read the accessibility tree: %w", err)
	}
	found := map[string]bool{}
	for _, node := range tree.Nodes {
		if node.Ignored {
			continue
		}
		role, name := word(node.Role), word(node.Name)
		if name == "" && slices.Contains([]string{"link", "checkbox", "button", "image"}, role) {
			return nil, fmt.Errorf("a %s has no name", role)
		}
		found[role+" "+name] = true
		for _, property := range node.Properties {
			if property.Name == accessibility.PropertyNameLive {
				found[role+" live "+word(property.Value)] = true
			}
		}
	}
	return found, nil
}

// word is a string of the accessibility tree.
func word(value *accessibility.Value) string {
	var s string
	if value == nil || json.Unmarshal(value.Value, &s) != nil {
		return ""
	}
	return s
}

func motion(ctx context.Context, r *rig) error {
	const running = `document.getAnimations().filter(a => a.playState === 'running').length`
	for _, c := range []struct{ still, stopped, moves bool }{{moves: true}, {still: true}, {stopped: true}} {
		err := r.visit(ctx, "Dizzy?", look{width: 800, height: 600, still: c.still}, func(_ *pod, t *tab) error {
			if c.stopped {
				if _, err := evaluate[bool](t, `(document.getElementById('still').click(), true)`); err != nil {
					return err
				}
			}
			n, err := evaluate[int](t, running)
			if err == nil && (n > 0) != c.moves {
				err = fmt.Errorf("%d things move; reduced motion: %t, stopped: %t", n, c.still, c.stopped)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// pictures of the page, by file name.
var pictures = []struct {
	name, greeting string
	look           look
}{
	{"lolcow-light.png", "Oh my gosh, I am a cow in a cluster!", look{width: 1120, height: 700, still: true}},
	{"lolcow-dark.png", "Oh my gosh, I am a cow in a cluster!", look{width: 1120, height: 700, still: true, dark: true}},
	{"lolcow-narrow.png", `"Quotes", $HOME, <b>tags</b>, emoji 🐄 and averyveryveryverylongwordwithoutanyspace`,
		look{width: 320, height: 640, still: true}},
}

func shots(ctx context.Context, r *rig) error {
	dir := filepath.Join(repository, r.shots)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the folder of pictures: %w", err)
	}
	for _, p := range pictures {
		err := r.visit(ctx, p.greeting, p.look, func(_ *pod, t *tab) error {
			if !p.look.plain {
				if err := t.until(`document.getElementById('state').textContent !== ''`, limit); err != nil {
					return err
				}
			}
			shot, err := chromedp.Run(t.ctx, chromedp.FullScreenshot(100))
			if err != nil {
				return fmt.Errorf("take a picture: %w", err)
			}
			return os.WriteFile(filepath.Join(dir, p.name), shot, 0o644)
		})
		if err != nil {
			return err
		}
		r.files = append(r.files, filepath.Join(r.shots, p.name))
	}
	return nil
}

// ownOnly judges what all pages so far have asked for.
func ownOnly(ctx context.Context, r *rig) error {
	err := r.visit(ctx, "Moo", desktop, func(_ *pod, t *tab) error { return t.until(`document.fonts.status === 'loaded'`, limit) })
	if err != nil {
		return err
	}
	r.tab.mu.Lock()
	defer r.tab.mu.Unlock()
	for _, address := range r.tab.requests {
		if address != "about:blank" && !strings.HasPrefix(address, "http://127.0.0.1:") {
			return fmt.Errorf("a page asked for %s", address)
		}
	}
	if len(r.tab.requests) == 0 {
		return errors.New("no request was seen")
	}
	return nil
}

// quiet judges what the browser said of all pages so far.
func quiet(_ context.Context, r *rig) error {
	r.tab.mu.Lock()
	defer r.tab.mu.Unlock()
	if len(r.tab.complaints) > 0 {
		return errors.New(strings.Join(r.tab.complaints, "; "))
	}
	return nil
}
