// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"image/color"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/drover-project/drover/test/web/browser"
)

// sample are pages of every sort: text, pictures, code, wide tables, long paths.
var sample = []string{
	"/index.html", "/guide/module.html",
	"/guide/lolcow.html", "/reference/api/module.html", "/reference/flags.html", "/reference/reasons.html",
	"/design/0003-orders-and-deliveries.html", "/project/contributing.html",
}

// screens are a desktop's and a phone's.
var screens = []browser.Look{{Width: 1280, Height: 800, Still: true}, {Width: 390, Height: 844, Still: true}}

// patience is how long a page may take until it is there.
const patience = time.Minute

// look shows the sample on every screen, by day and by night, and returns how often that was, and
// what was bad.
func look(ctx context.Context, dir, shots string) (looks int, bad []string, err error) {
	server := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer server.Close()
	if shots != "" {
		if err := os.MkdirAll(shots, 0o755); err != nil {
			return 0, nil, fmt.Errorf("make the folder of pictures: %w", err)
		}
	}
	profile, err := os.MkdirTemp("", "drover-site-")
	if err != nil {
		return 0, nil, fmt.Errorf("make a folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(profile)) }()
	tab, end, err := browser.Start(ctx, profile)
	if err != nil {
		return 0, nil, err
	}
	defer end()
	for _, page := range sample {
		for _, screen := range screens {
			for _, dark := range []bool{false, true} {
				screen.Dark = dark
				looks++
				name := fmt.Sprintf("%s at %d, dark %t", page, screen.Width, dark)
				found, err := inspect(ctx, tab, server.URL+page, screen, shot(shots, page, screen))
				if err != nil {
					return looks, bad, fmt.Errorf("%s: %w", name, err)
				}
				for _, problem := range found {
					bad = append(bad, name+": "+problem)
				}
			}
		}
	}
	for _, address := range tab.Requests() {
		if address != "about:blank" && !strings.HasPrefix(address, server.URL+"/") && !strings.HasPrefix(address, "data:") {
			bad = append(bad, "a page asked for "+address)
		}
	}
	for _, complaint := range tab.Complaints() {
		bad = append(bad, "the browser said: "+complaint)
	}
	return looks, bad, nil
}

// shot is the file of a picture; empty: none is wanted.
func shot(dir, page string, screen browser.Look) string {
	if dir == "" {
		return ""
	}
	name := strings.ReplaceAll(strings.TrimSuffix(strings.TrimPrefix(page, "/"), ".html"), "/", "-")
	return filepath.Join(dir, fmt.Sprintf("site-%s-%d-%s.png", name, screen.Width, map[bool]string{true: "dark", false: "light"}[screen.Dark]))
}

// inspect looks at one page.
func inspect(ctx context.Context, tab *browser.Tab, address string, screen browser.Look, picture string) (problems []string, err error) {
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = tab.Visit(bounded, address, screen, func() error {
		// The theme has taken the page over once it has chosen between day and night.
		ready := fmt.Sprintf(`document.readyState === 'complete' && document.documentElement.classList.contains('dark') === %t`, screen.Dark)
		if err := tab.Until(ready, patience); err != nil {
			return err
		}
		wide, err := browser.Evaluate[int](tab, `document.documentElement.scrollWidth - innerWidth`)
		if err != nil {
			return err
		}
		if wide > 0 {
			problems = append(problems, fmt.Sprintf("%d pixels too wide", wide))
		}
		faint, err := faintest(tab)
		if err != nil {
			return err
		}
		problems = append(problems, faint...)
		if picture == "" {
			return nil
		}
		image, err := chromedp.Run(tab.Ctx, chromedp.CaptureScreenshot())
		if err != nil {
			return fmt.Errorf("take a picture: %w", err)
		}
		return os.WriteFile(picture, image, 0o644)
	})
	return problems, err
}

// pair is a text's colour and what it stands on.
type pair struct {
	Text          string
	Front, Behind [3]uint8
	// Large is text for which less contrast is enough.
	Large bool
}

// pairs are those of all texts that a reader sees, each once. A colour that shines through is mixed
// with what is behind it.
const pairs = `(() => {
	const parse = (c) => { const n = (c.match(/[\d.]+/g) || []).map(Number); return n.length < 3 ? [0, 0, 0, 0] : [n[0], n[1], n[2], n.length > 3 ? n[3] : 1]; };
	const over = (a, b) => [0, 1, 2].map((i) => a[i] * a[3] + b[i] * (1 - a[3]));
	const behind = (e) => {
		const layers = [];
		for (; e; e = e.parentElement) {
			const c = parse(getComputedStyle(e).backgroundColor);
			if (c[3] > 0) layers.push(c);
			if (c[3] === 1) break;
		}
		return layers.reverse().reduce((below, c) => over(c, below), [255, 255, 255]);
	};
	const found = new Map();
	const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	while (walk.nextNode()) {
		const e = walk.currentNode.parentElement, text = walk.currentNode.textContent.trim();
		if (!text || e.closest('script, style, noscript, .visually-hidden, .header-anchor') || !e.checkVisibility({checkOpacity: true, checkVisibilityCSS: true})) continue;
		const style = getComputedStyle(e), size = parseFloat(style.fontSize), below = behind(e);
		const front = over(parse(style.color), below).map(Math.round);
		const large = size >= 24 || size >= 18.66 && style.fontWeight >= 700;
		found.set([front, below, large].join(), {Text: text.slice(0, 30), Front: front, Behind: below.map(Math.round), Large: large});
	}
	return [...found.values()];
})()`

// faintest are the texts with too little contrast.
func faintest(tab *browser.Tab) ([]string, error) {
	found, err := browser.Evaluate[[]pair](tab, pairs)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return []string{"no text"}, nil
	}
	var faint []string
	for _, p := range found {
		least := browser.Minimum
		if p.Large {
			least = browser.MinimumLarge
		}
		if c := browser.Contrast(rgb(p.Front), rgb(p.Behind)); c < least {
			faint = append(faint, fmt.Sprintf("contrast %.2f at %q", c, p.Text))
		}
	}
	return faint, nil
}

func rgb(c [3]uint8) color.Color { return color.RGBA{c[0], c[1], c[2], 255} }
