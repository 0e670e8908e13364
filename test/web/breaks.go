// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"html"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// spoiler spoils one property of the page on its way to the browser.
type spoiler struct {
	// of are the checks that must notice.
	of []string
	// page changes the page's HTML. The Content-Security-Policy is taken off unless it is kept, or the
	// browser would not take what is put in.
	page       func(string) string
	keepPolicy bool
	// header changes the headers of every answer.
	header func(http.Header)
}

// styled puts a style into the page.
func styled(style string) func(string) string {
	return func(page string) string {
		return strings.Replace(page, "</head>", "<style>"+style+"</style></head>", 1)
	}
}

// within changes what stands between two texts.
func within(before, after string, change func(string) string) func(string) string {
	return func(page string) string {
		head, rest, found := strings.Cut(page, before)
		inside, tail, closed := strings.Cut(rest, after)
		if !found || !closed {
			return page
		}
		return head + before + change(inside) + after + tail
	}
}

// greetingText is the start tag of the greeting.
const greetingText = `<p id="greeting" dir="auto">`

// frozen answers for ever with the first page.
func frozen() func(string) string {
	var once sync.Once
	var first string
	return func(page string) string {
		once.Do(func() { first = page })
		return first
	}
}

var spoilers = map[string]spoiler{
	"":         {},
	"escape":   {of: []string{"exact", "injection"}, page: within(greetingText, "</blockquote>", html.UnescapeString)},
	"csp":      {of: []string{"policy"}, page: func(page string) string { return page }},
	"scroll":   {of: []string{"narrow"}, page: styled("#greeting { white-space: pre; overflow-wrap: normal; }")},
	"contrast": {of: []string{"contrastLight", "contrastDark"}, page: styled("#greeting { color: #808080; }")},
	"dark": {of: []string{"darkMode"}, page: func(page string) string {
		return strings.ReplaceAll(page, "prefers-color-scheme",
			"prefers-nothing")
	}},
	"follow": {of: []string{"follows"}, page: frozen()},
	"script": {of: []string{"plain"}, page: within(greetingText, "</p>", func(string) string { return "" })},
	"label":  {of: []string{"screenReader"}, page: strings.NewReplacer(`aria-live="polite"`, "", `<title id="picture">`, `<title>`).Replace},
	"motion": {of: []string{"motion"}, page: styled(".bob { animation: bob 1s infinite alternate !important; }")},
	"external": {of: []string{"ownOnly"}, page: styled("@font-face { font-family: x; src: url(http://fonts.example.invalid/x.woff2); } h1 { " +
		"font-family: x; }")},
	"server": {of: []string{"server"}, header: func(h http.Header) { h.Set("Server", "Development/1.0") }},
}

func spoilerOf(name string) (*spoiler, error) {
	s, ok := spoilers[name]
	if !ok {
		return nil, fmt.Errorf("BREAK is %q: give one of %s, or none", name, strings.Join(slices.Sorted(maps.Keys(spoilers)), " "))
	}
	return &s, nil
}

// concerns reports whether a check runs.
func (s *spoiler) concerns(check string) bool { return len(s.of) == 0 || slices.Contains(s.of, check) }

// via returns the address by which a page is looked at: its own, or that of a proxy that spoils it.
func (s *spoiler) via(address string) (string, func(), error) {
	if len(s.of) == 0 {
		return address, func() {}, nil
	}
	return proxy(address, s)
}

// proxy serves what is at an address, spoilt.
func proxy(address string, s *spoiler) (string, func(), error) {
	target, err := url.Parse(address)
	if err != nil {
		return "", nil, fmt.Errorf("address of the page: %w", err)
	}
	server := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			if s.page != nil {
				r.Out.Header.Del("If-None-Match")
			}
			r.Out.Header.Del("Accept-Encoding")
		},
		ModifyResponse: s.modify,
		ErrorHandler:   func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	})
	return server.URL + "/", server.Close, nil
}

func (s *spoiler) modify(response *http.Response) error {
	if s.header != nil {
		s.header(response.Header)
	}
	if s.page == nil || !strings.HasPrefix(response.Header.Get("Content-Type"), "text/html") {
		return nil
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("read the page: %w", err)
	}
	changed := s.page(string(body))
	response.Body = io.NopCloser(bytes.NewReader([]byte(changed)))
	response.ContentLength = int64(len(changed))
	response.Header.Set("Content-Length", strconv.Itoa(len(changed)))
	response.Header.Del("ETag")
	if !s.keepPolicy {
		response.Header.Del("Content-Security-Policy")
	}
	return nil
}
