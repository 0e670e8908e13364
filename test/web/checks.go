// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/drover-project/drover/test/web/browser"
)

// check is a property of the page. Its name is the key in RESULT.
type check struct {
	name, says string
	run        func(context.Context, *rig) error
}

var checks = []check{
	{"exact", "the page shows exactly the greeting: quotes, $, <, emoji", exact},
	{"injection", "markup in a greeting is text, and no script of it runs", injection},
	{"policy", "a script that gets into the page nevertheless does not run", policy},
	{"fortune", "without a greeting the cow tells fortunes", fortune},
	{"terminal", "the cow speaks in the terminal, too", terminal},
	{"server", "headers, methods, caching, probes and end of a server fit for production", server},
	{"addresses", "PORT is honoured, on all addresses", addresses},
	{"follows", "an open page follows a changed greeting without a reload", follows},
	{"plain", "the page works without scripts", plain},
	{"narrow", "no horizontal scrolling on 320 pixels, with any greeting", narrow},
	{"contrastLight", "every text has a contrast of 4.5 in light mode",
		func(ctx context.Context, r *rig) error { return r.contrast(ctx, false) }},
	{"contrastDark", "and in dark mode", func(ctx context.Context, r *rig) error { return r.contrast(ctx, true) }},
	{"darkMode", "dark mode is dark, light mode is light", darkMode},
	{"screenReader", "a screen reader gets landmarks, names and news", screenReader},
	{"motion", "nothing moves for those who want it so, by their system's settings or the page's switch", motion},
	{"shots", "pictures are taken", shots},
	{"ownOnly", "all that was asked for came from the page's own address", ownOnly},
	{"ends", "each cow ended by itself when it was asked to", ends},
	{"quiet", "the browser had nothing to complain about", quiet},
}

// visit starts the program with a greeting and shows its page until do returns.
func (r *rig) visit(ctx context.Context, greeting string, l browser.Look, do func(*pod, *browser.Tab) error) error {
	return r.running(ctx, greeting, func(p *pod) error {
		address, closeProxy, err := r.spoil.via(p.url)
		if err != nil {
			return err
		}
		defer closeProxy()
		return r.tab.Visit(ctx, address, l, func() error { return do(p, r.tab) })
	})
}

// running starts the program with a greeting, and asks it to end when do returns.
func (r *rig) running(ctx context.Context, greeting string, do func(*pod) error) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	p, err := r.start(ctx, greeting, port)
	if err != nil {
		return err
	}
	err = do(p)
	r.ending.Go(func() {
		if ended := p.stop(); ended != nil {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.ends = append(r.ends, ended)
		}
	})
	return err
}

// tricky are greetings that something on the way could take for more than text.
var tricky = []string{
	`"Double" and 'single' quotes, back\slash & ampersand, 1 < 2 > 0`,
	`$HOME ${HOME} $(PORT) $$(PORT) $$ 100$ $(`,
	`<b>bold</b> &lt;already escaped&gt; &amp; {{.Greeting}} {{"x"}} <!-- no comment -->`,
	"🐄 Grüß dich, 牛 さん! \u200Fשלום 👩‍👩‍👧‍👦 🇨🇭",
	"two lines,\n  the second one indented",
	"--help",
	"-n *",
}

func exact(ctx context.Context, r *rig) error {
	for _, greeting := range tricky {
		err := r.visit(ctx, greeting, browser.Desktop, func(p *pod, t *browser.Tab) error {
			shown, err := greetingOf(t)
			if err != nil || shown != greeting {
				return errors.Join(fmt.Errorf("the page shows %q", shown), err)
			}
			plain, err := get(ctx, p.url+"greeting")
			if err != nil || plain.body != greeting {
				return errors.Join(fmt.Errorf("/greeting is %q", plain.body), err)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("greeting %q: %w", greeting, err)
		}
	}
	return nil
}

const attack = `</p></blockquote></title><script>window.pwned=1</script><img src=x onerror="window.pwned=1"><svg onload="window.pwned=1">` +
	`"><style>body{display:none}</style><a href="javascript:window.pwned=1">x</a>`

func injection(ctx context.Context, r *rig) error {
	return r.visit(ctx, attack, browser.Desktop, func(_ *pod, t *browser.Tab) error {
		shown, err := greetingOf(t)
		if err != nil {
			return err
		}
		state, err := browser.Evaluate[string](t, `[window.pwned === undefined, document.scripts.length, document.querySelectorAll('style').length,
			document.images.length, document.querySelectorAll('a[href^="javascript"]').length, document.getElementById('greeting').childElementCount].join()`)
		if err != nil {
			return err
		}
		if shown != attack || state != "true,1,1,0,0,0" {
			return fmt.Errorf("untouched, scripts, styles, images, links, children are %s; the page shows %q", state, shown)
		}
		return nil
	})
}

// policy puts scripts into the page but leaves its Content-Security-Policy, unless that is to be
// broken.
func policy(ctx context.Context, r *rig) error {
	inject := &spoiler{keepPolicy: len(r.spoil.of) == 0, page: func(page string) string {
		return strings.Replace(page, "</head>", `<script>window.pwned=1</script><style>h1{color:rgb(1,2,3)}</style></head>`, 1)
	}}
	return r.running(ctx, "Moo", func(p *pod) error {
		address, done, err := proxy(p.url, inject)
		if err != nil {
			return err
		}
		defer done()
		r.tab.ExpectComplaints(true)
		return r.tab.Visit(ctx, address, browser.Desktop, func() error {
			state, err := browser.Evaluate[string](r.tab,
				`[window.pwned === undefined, getComputedStyle(document.querySelector('h1')).color !== 'rgb(1, 2, 3)'].join()`)
			if err != nil || state != "true,true" {
				return errors.Join(fmt.Errorf("script and style kept out: %s", state), err)
			}
			return nil
		})
	})
}

func fortune(ctx context.Context, r *rig) error {
	told := map[string]bool{}
	for range 8 {
		err := r.running(ctx, "", func(p *pod) error {
			if len(p.container.Args) > 0 {
				return fmt.Errorf("the Deployment has arguments %q without a greeting", p.container.Args)
			}
			text, err := get(ctx, p.url+"greeting")
			told[text.body] = true
			return err
		})
		if err != nil {
			return err
		}
	}
	return r.visit(ctx, "", browser.Desktop, func(p *pod, t *browser.Tab) error {
		shown, err := greetingOf(t)
		if err != nil {
			return err
		}
		text, err := get(ctx, p.url+"greeting")
		if err != nil {
			return err
		}
		if len(told) < 2 || len(strings.Fields(shown)) < 3 || shown != text.body {
			return fmt.Errorf("%d different fortunes in 8 starts, and %q on the page", len(told), shown)
		}
		return nil
	})
}

// follows replaces the pod behind an open page.
func follows(ctx context.Context, r *rig) error {
	return r.visit(ctx, "Before", browser.Desktop, func(p *pod, t *browser.Tab) error {
		if err := t.Until(`document.getElementById('state').textContent.startsWith('Following') && (window.mark = true)`, limit); err != nil {
			return err
		}
		t.ExpectComplaints(true)
		if err := p.stop(); err != nil {
			return fmt.Errorf("the first pod ended with %w", err)
		}
		p.ended <- nil
		if err := t.Until(`document.getElementById('state').textContent.includes('does not answer')`, limit/4); err != nil {
			return err
		}
		const second = `After: "quotes" & <i>`
		next, err := r.start(ctx, second, p.port)
		if err != nil {
			return err
		}
		defer func() { _ = next.stop() }()
		if err := t.Until(`document.getElementById('state').textContent.startsWith('Following')`, limit/4); err != nil {
			return err
		}
		shown, err := greetingOf(t)
		if err != nil {
			return err
		}
		state, err := browser.Evaluate[string](t,
			`[window.mark === true, performance.getEntriesByType('navigation').length, document.title].join('|')`)
		if err != nil {
			return err
		}
		if shown != second || state != `true|1|“`+second+`” · LolCow` {
			return fmt.Errorf("the page shows %q; not loaded again, once, title: %s", shown, state)
		}
		return nil
	})
}

// ends waits for all that were asked to end.
func ends(_ context.Context, r *rig) error {
	r.ending.Wait()
	return errors.Join(r.ends...)
}

// greetingOf is what the page shows.
func greetingOf(t *browser.Tab) (string, error) {
	return browser.Evaluate[string](t, `document.getElementById('greeting').innerText`)
}
