// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// startBrowser starts Chromium with an empty profile and one tab.
func startBrowser(ctx context.Context, profile string) (*tab, context.CancelFunc, error) {
	path, err := exec.LookPath("chromium")
	if err != nil {
		return nil, nil, fmt.Errorf("find Chromium: %w", err)
	}
	options := slices.Concat(chromedp.DefaultExecAllocatorOptions[:], []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(path), chromedp.UserDataDir(profile), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
	})
	allocator, cancelAllocator := chromedp.NewExecAllocator(ctx, options...)
	browser, cancel := chromedp.NewContext(allocator)
	t, stop := &tab{browser: browser}, func() { cancel(); cancelAllocator() }
	if err := chromedp.Listen(browser, t.note); err != nil {
		stop()
		return nil, nil, fmt.Errorf("start Chromium: %w", err)
	}
	return t, stop, nil
}

// look is how a user looks at a page.
type look struct {
	width, height int64
	dark          bool
	// still: the user prefers reduced motion.
	still bool
	// plain: scripts are off.
	plain bool
}

var desktop = look{width: 1280, height: 800, still: true}

// tab is where all pages are shown, one after the other, with what they asked for and what the
// browser complained about.
type tab struct {
	// browser is the context of the tab, ctx that of the visit under way.
	browser, ctx context.Context

	mu         sync.Mutex
	requests   []string
	complaints []string
	// expected: the page's server goes away, or its policy is tried, and the browser says so.
	expected bool
}

// expectComplaints of the browser until the visit's end.
func (t *tab) expectComplaints(expected bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expected = expected
}

// visit shows an address to a user until do returns.
func (t *tab) visit(ctx context.Context, url string, l look, do func() error) error {
	visit, cancel := context.WithCancel(t.browser)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	t.ctx = visit
	if err := t.prepare(l); err != nil {
		return fmt.Errorf("prepare the tab: %w", err)
	}
	if err := chromedp.Do(visit, chromedp.Navigate(url)); err != nil {
		return fmt.Errorf("open %s: %w", url, err)
	}
	err := do()
	if left := chromedp.Do(visit, chromedp.Navigate("about:blank")); left != nil {
		err = errors.Join(err, fmt.Errorf("leave %s: %w", url, left))
	}
	t.expectComplaints(false)
	return err
}

func (t *tab) prepare(l look) error {
	scheme, motion := "light", "no-preference"
	if l.dark {
		scheme = "dark"
	}
	if l.still {
		motion = "reduce"
	}
	if _, err := chromedp.Call(t.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: motion},
	}}); err != nil {
		return err
	}
	if _, err := chromedp.Call(t.ctx, emulation.SetScriptExecutionDisabled,
		emulation.SetScriptExecutionDisabledParams{Value: l.plain}); err != nil {
		return err
	}
	return chromedp.Do(t.ctx, chromedp.EmulateViewport(l.width, l.height))
}

func (t *tab) note(event any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	complaint := ""
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		t.requests = append(t.requests, e.Request.URL)
	case *log.EventEntryAdded:
		complaint = e.Entry.Text + " " + e.Entry.URL
	case *runtime.EventExceptionThrown:
		complaint = e.ExceptionDetails.Text
	case *runtime.EventConsoleAPICalled:
		complaint = fmt.Sprint("console: ", e.Type)
	}
	if complaint != "" && !t.expected {
		t.complaints = append(t.complaints, complaint)
	}
}

// evaluate returns what an expression of JavaScript is in a tab.
func evaluate[T any](t *tab, expression string) (T, error) {
	value, err := chromedp.Run(t.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		return value, fmt.Errorf("evaluate %s: %w", strings.TrimSpace(expression), err)
	}
	return value, nil
}

// until waits for an expression to be true.
func (t *tab) until(expression string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(t.ctx, timeout)
	defer cancel()
	if _, err := chromedp.Run(ctx, chromedp.Poll[bool](expression, chromedp.WithPollingInterval(50*time.Millisecond),
		chromedp.WithPollingTimeout(0))); err != nil {
		return fmt.Errorf("wait for %s: %w", expression, err)
	}
	return nil
}

// greeting is what the page shows.
func (t *tab) greeting() (string, error) {
	return evaluate[string](t, `document.getElementById('greeting').innerText`)
}
