// SPDX-License-Identifier: Apache-2.0

// Package browser shows pages in Chromium, as users look at them, and notes what they ask for and
// what the browser complains about.
package browser

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

// Start starts Chromium with an empty profile and one tab.
func Start(ctx context.Context, profile string) (*Tab, context.CancelFunc, error) {
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
	t, stop := &Tab{browser: browser}, func() { cancel(); cancelAllocator() }
	if err := chromedp.Listen(browser, t.note); err != nil {
		stop()
		return nil, nil, fmt.Errorf("start Chromium: %w", err)
	}
	return t, stop, nil
}

// Look is how a user looks at a page.
type Look struct {
	Width, Height int64
	Dark          bool
	// Still: the user prefers reduced motion.
	Still bool
	// Plain: scripts are off.
	Plain bool
}

// Desktop is a usual screen.
var Desktop = Look{Width: 1280, Height: 800, Still: true}

// Tab is where all pages are shown, one after the other, with what they asked for and what the
// browser complained about.
type Tab struct {
	// browser is the context of the tab.
	browser context.Context
	// Ctx is that of the visit under way.
	Ctx context.Context

	mu         sync.Mutex
	requests   []string
	complaints []string
	// expected: the page's server goes away, or its policy is tried, and the browser says so.
	expected bool
}

// ExpectComplaints of the browser until the visit's end.
func (t *Tab) ExpectComplaints(expected bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expected = expected
}

// Visit shows an address to a user until do returns.
func (t *Tab) Visit(ctx context.Context, url string, l Look, do func() error) error {
	visit, cancel := context.WithCancel(t.browser)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	t.Ctx = visit
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
	t.ExpectComplaints(false)
	return err
}

func (t *Tab) prepare(l Look) error {
	scheme, motion := "light", "no-preference"
	if l.Dark {
		scheme = "dark"
	}
	if l.Still {
		motion = "reduce"
	}
	if _, err := chromedp.Call(t.Ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: motion},
	}}); err != nil {
		return err
	}
	if _, err := chromedp.Call(t.Ctx, emulation.SetScriptExecutionDisabled,
		emulation.SetScriptExecutionDisabledParams{Value: l.Plain}); err != nil {
		return err
	}
	return chromedp.Do(t.Ctx, chromedp.EmulateViewport(l.Width, l.Height))
}

func (t *Tab) note(event any) {
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

// Evaluate returns what an expression of JavaScript is in a tab.
func Evaluate[T any](t *Tab, expression string) (T, error) {
	value, err := chromedp.Run(t.Ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		return value, fmt.Errorf("evaluate %s: %w", strings.TrimSpace(expression), err)
	}
	return value, nil
}

// Until waits for an expression to be true.
func (t *Tab) Until(expression string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(t.Ctx, timeout)
	defer cancel()
	if _, err := chromedp.Run(ctx, chromedp.Poll[bool](expression, chromedp.WithPollingInterval(50*time.Millisecond),
		chromedp.WithPollingTimeout(0))); err != nil {
		return fmt.Errorf("wait for %s: %w", expression, err)
	}
	return nil
}

// Requests are the addresses that all pages so far have asked for.
func (t *Tab) Requests() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.requests)
}

// Complaints are what the browser said of all pages so far.
func (t *Tab) Complaints() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.complaints)
}
