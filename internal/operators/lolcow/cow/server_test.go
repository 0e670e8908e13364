// SPDX-License-Identifier: Apache-2.0

package cow

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"
)

func answerTo(t *testing.T, greeting, method, path string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	handler, err := Handler(greeting)
	if err != nil {
		t.Fatal(err)
	}
	request := httptest.NewRequest(method, path, nil)
	for i := 0; i+1 < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, request)
	return recorder
}

func TestPageHoldsExactlyTheGreeting(t *testing.T) {
	shown := regexp.MustCompile(`(?s)<p id="greeting" dir="auto">(.*?)</p>`)
	for _, greeting := range []string{
		"Oh my", `"quotes" & 'others'`, "$HOME $(PORT) $$ ${x}", "</p><script>alert(1)</script>", "&lt;&amp;", "🐄 牛 \u202eשלום", "{{.Title}}",
		"a\n  b\x1b\u0085", "",
	} {
		page := answerTo(t, greeting, http.MethodGet, "/").Body.String()
		found := shown.FindStringSubmatch(page)
		if found == nil || html.UnescapeString(found[1]) != greeting || strings.ContainsAny(found[1], `<>"'`) {
			t.Errorf("greeting %q is on the page as %q", greeting, found)
		}
		if got := answerTo(t, greeting, http.MethodGet, "/greeting").Body.String(); got != greeting {
			t.Errorf("/greeting is %q instead of %q", got, greeting)
		}
		if strings.Count(page, "<script") != 1 || strings.Count(page, "<style") != 1 {
			t.Errorf("greeting %q brings elements of its own", greeting)
		}
	}
}

// TestPolicyNamesStyleAndScript: a browser compares the hashes with what stands between the tags.
func TestPolicyNamesStyleAndScript(t *testing.T) {
	answer := answerTo(t, "Moo", http.MethodGet, "/")
	policy := answer.Header().Get("Content-Security-Policy")
	for tag, directive := range map[string]string{"style": "style-src", "script": "script-src"} {
		found := regexp.MustCompile(`(?s)<` + tag + `>(.*?)</` + tag + `>`).FindStringSubmatch(answer.Body.String())
		if found == nil || len(found[1]) < 500 {
			t.Fatalf("no %s on the page: %q", tag, found)
		}
		sum := sha256.Sum256([]byte(found[1]))
		if want := fmt.Sprintf("%s 'sha256-%s'", directive, base64.StdEncoding.EncodeToString(sum[:])); !strings.Contains(policy, want+";") {
			t.Errorf("no %s in %s", want, policy)
		}
	}
	for _, want := range []string{"default-src 'none';", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"} {
		if !strings.Contains(policy, want) {
			t.Errorf("no %s in %s", want, policy)
		}
	}
	// Attributes would need 'unsafe-inline'.
	if regexp.MustCompile(`<[^>]*\s(style|on[a-z]+)=`).MatchString(answer.Body.String()) {
		t.Error("the page has styles or handlers in attributes")
	}
}

func TestAnswers(t *testing.T) {
	tag := answerTo(t, "Moo", http.MethodGet, "/").Header().Get("ETag")
	for given, c := range map[string]struct {
		method, path string
		header       []string
		status       int
		mediaType    string
		caching      string
		body         string
	}{
		"the page":       {"GET", "/", nil, 200, "text/html; charset=utf-8", "no-cache", "<!doctype html>"},
		"its headers":    {"HEAD", "/", nil, 200, "text/html; charset=utf-8", "no-cache", ""},
		"the page again": {"GET", "/", []string{"If-None-Match", tag}, 304, "", "no-cache", ""},
		"the page of another greeting": {"GET", "/", []string{"If-None-Match", `"another"`}, 200, "text/html; charset=utf-8", "no-cache",
			"<!doctype html>"},
		"the greeting":                  {"GET", "/greeting", nil, 200, "text/plain; charset=utf-8", "no-cache", "Moo"},
		"the cow":                       {"GET", "/cow", nil, 200, "text/plain; charset=utf-8", "no-cache", " _____\n< Moo >"},
		"the icon":                      {"GET", "/icon.svg", nil, 200, "image/svg+xml", "public, max-age=86400", "<svg"},
		"a probe":                       {"GET", "/healthz", nil, 200, "text/plain; charset=utf-8", "no-store", "ok\n"},
		"a method that changes":         {"POST", "/", nil, 405, "text/plain; charset=utf-8", "", "Method Not Allowed"},
		"nothing there":                 {"GET", "/nothing", nil, 404, "text/plain; charset=utf-8", "", "404"},
		"a path that climbs":            {"GET", "/..%2f..%2fetc/passwd", nil, 404, "text/plain; charset=utf-8", "", "404"},
		"the page's sources, by a name": {"GET", "/page/page.html", nil, 404, "text/plain; charset=utf-8", "", "404"},
	} {
		got := answerTo(t, "Moo", c.method, c.path, c.header...)
		if got.Code != c.status || got.Header().Get("Content-Type") != c.mediaType || got.Header().Get("Cache-Control") != c.caching {
			t.Errorf("%s: %d %v", given, got.Code, got.Header())
		}
		if !strings.HasPrefix(got.Body.String(), c.body) || (c.body == "" && got.Body.Len() > 0) {
			t.Errorf("%s: the body is %.60q", given, got.Body.String())
		}
		if got.Header().Get("X-Content-Type-Options") != "nosniff" || got.Header().Get("Content-Security-Policy") == "" {
			t.Errorf("%s: headers %v", given, got.Header())
		}
	}
}

func TestTitleAndSize(t *testing.T) {
	for greeting, want := range map[string]string{
		"Oh\n  my":              "Oh my",
		strings.Repeat("牛", 60): strings.Repeat("牛", 60),
		strings.Repeat("👩‍👩‍👧‍👦", 61): strings.Repeat("👩‍👩‍👧‍👦", 60) + "…",
	} {
		if got := title(greeting); got != want {
			t.Errorf("the title of %q is %q", greeting, got)
		}
	}
	for greeting, want := range map[string]string{"Oh my": "short", strings.Repeat("牛", 21): "medium", strings.Repeat("moo ", 50): "long"} {
		if got := size(greeting); got != want {
			t.Errorf("%.20q is %s", greeting, got)
		}
	}
}

// TestPicturesAreXML: what a browser forgives inside HTML it does not in an icon.
func TestPicturesAreXML(t *testing.T) {
	for _, name := range []string{"icon.svg", "meadow.svg", "flight.svg"} {
		content, err := files.ReadFile("page/" + name)
		if err != nil {
			t.Fatal(err)
		}
		decoder := xml.NewDecoder(bytes.NewReader(content))
		for {
			if _, err := decoder.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if bytes.Contains(content, []byte("<script")) || bytes.Contains(content, []byte("href")) {
			t.Errorf("%s is more than a picture", name)
		}
	}
}

func TestOnceSpeaksInTheTerminalOnly(t *testing.T) {
	var out bytes.Buffer
	err := Run(t.Context(), &out, Config{Greeting: "Moo", Once: true}, func(net.Addr) { t.Error("it listens") })
	if err != nil || out.String() != Say("Moo") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// TestRunServesUntilItsEnd also on addresses of every family, and finishes what is under way.
func TestRunServesUntilItsEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var out bytes.Buffer
	listens, ended := make(chan net.Addr, 1), make(chan error, 1)
	go func() { ended <- Run(ctx, &out, Config{Greeting: "Moo"}, func(a net.Addr) { listens <- a }) }()
	var address net.Addr
	select {
	case address = <-listens:
	case err := <-ended:
		t.Fatal(err)
	}
	if out.String() != Say("Moo") {
		t.Errorf("the terminal shows\n%s", out.String())
	}
	_, port, err := net.SplitHostPort(address.String())
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.Get("http://" + net.JoinHostPort("127.0.0.1", port) + "/greeting")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if body, err := io.ReadAll(response.Body); err != nil || string(body) != "Moo" {
		t.Errorf("%q (%v)", body, err)
	}
	if response.Header.Get("Server") != "" {
		t.Errorf("the server names itself: %v", response.Header)
	}
	// A browser opens a connection in advance, and asks nothing on it.
	idle, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = idle.Close() }()
	began := time.Now()
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("it ended after %s: a connection without a request held it up", took)
	}
}

func TestRunSaysThatAPortIsTaken(t *testing.T) {
	listener, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	taken, ok := listener.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatalf("%v is no TCP address", listener.Addr())
	}
	err = Run(t.Context(), io.Discard, Config{Greeting: "Moo", Port: taken.Port}, func(net.Addr) { t.Error("it listens") })
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("listen on port %d", taken.Port)) {
		t.Errorf("error %v", err)
	}
}
