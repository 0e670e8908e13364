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

	"github.com/drover-project/drover/test/web/browser"
)

// plain reads the page with scripts off, and again after the greeting changed.
func plain(ctx context.Context, r *rig) error {
	l := browser.Desktop
	l.Plain = true
	for _, greeting := range []string{`Without "scripts" & <b>`, "And another one"} {
		err := r.visit(ctx, greeting, l, func(_ *pod, t *browser.Tab) error {
			shown, err := greetingOf(t)
			if err != nil {
				return err
			}
			state, err := browser.Evaluate[string](t, `[document.querySelector('noscript a').getClientRects().length > 0, document.getElementById('state').textContent,
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
		err := r.visit(ctx, greeting, browser.Look{Width: 320, Height: 640, Still: true}, func(_ *pod, t *browser.Tab) error {
			state, err := browser.Evaluate[string](t, overflow)
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
	for _, l := range []browser.Look{{Width: 1120, Height: 700, Dark: dark, Still: true},
		{Width: 320, Height: 640, Dark: dark, Plain: true, Still: true}} {
		err := r.visit(ctx, "How well can you read this?", l, func(_ *pod, t *browser.Tab) error {
			least, where, err := t.Measure()
			if err == nil && least < browser.Minimum {
				err = fmt.Errorf("%.2f at %q, %d pixels wide", least, where, l.Width)
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
		evening := browser.Look{Width: 640, Height: 480, Dark: dark, Still: true}
		err := r.visit(ctx, "Good night", evening, func(_ *pod, t *browser.Tab) (err error) {
			brightness[i], err = t.Brightness()
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
	return r.visit(ctx, greeting, browser.Look{Width: 800, Height: 600}, func(_ *pod, t *browser.Tab) error {
		found, err := accessible(t)
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
		language, err := browser.Evaluate[string](t, `document.documentElement.lang`)
		if err != nil || language != "en" {
			return errors.Join(fmt.Errorf("the language is %q", language), err)
		}
		return nil
	})
}

// accessible returns what is in the accessibility tree, as "role name" and "role live value". It is
// an error for a control or a picture to have no name.
func accessible(t *browser.Tab) (map[string]bool, error) {
	tree, err := chromedp.Call(t.Ctx, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
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
		err := r.visit(ctx, "Dizzy?", browser.Look{Width: 800, Height: 600, Still: c.still}, func(_ *pod, t *browser.Tab) error {
			if c.stopped {
				if _, err := browser.Evaluate[bool](t, `(document.getElementById('still').click(), true)`); err != nil {
					return err
				}
			}
			n, err := browser.Evaluate[int](t, running)
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
	look           browser.Look
}{
	{"lolcow-light.png", "Oh my gosh, I am a cow in a cluster!", browser.Look{Width: 1120, Height: 700, Still: true}},
	{"lolcow-dark.png", "Oh my gosh, I am a cow in a cluster!", browser.Look{Width: 1120, Height: 700, Still: true, Dark: true}},
	{"lolcow-narrow.png", `"Quotes", $HOME, <b>tags</b>, emoji 🐄 and averyveryveryverylongwordwithoutanyspace`,
		browser.Look{Width: 320, Height: 640, Still: true}},
}

func shots(ctx context.Context, r *rig) error {
	dir := filepath.Join(repository, r.shots)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the folder of pictures: %w", err)
	}
	for _, p := range pictures {
		err := r.visit(ctx, p.greeting, p.look, func(_ *pod, t *browser.Tab) error {
			if !p.look.Plain {
				if err := t.Until(`document.getElementById('state').textContent !== ''`, limit); err != nil {
					return err
				}
			}
			shot, err := chromedp.Run(t.Ctx, chromedp.FullScreenshot(100))
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
	err := r.visit(ctx, "Moo", browser.Desktop, func(_ *pod, t *browser.Tab) error {
		return t.Until(`document.fonts.status === 'loaded'`, limit)
	})
	if err != nil {
		return err
	}
	requests := r.tab.Requests()
	for _, address := range requests {
		if address != "about:blank" && !strings.HasPrefix(address, "http://127.0.0.1:") {
			return fmt.Errorf("a page asked for %s", address)
		}
	}
	if len(requests) == 0 {
		return errors.New("no request was seen")
	}
	return nil
}

// quiet judges what the browser said of all pages so far.
func quiet(_ context.Context, r *rig) error {
	if complaints := r.tab.Complaints(); len(complaints) > 0 {
		return errors.New(strings.Join(complaints, "; "))
	}
	return nil
}
