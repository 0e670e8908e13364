// SPDX-License-Identifier: Apache-2.0

package cow

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"strings"

	"github.com/rivo/uniseg"
)

//go:embed page
var files embed.FS

// titleLength bounds the greeting in the title of a browser's tab, characters as people count them.
const titleLength = 60

// page is what the web server answers with, made once: a greeting changes only with the process.
type page struct {
	html, icon []byte
	// policy is the Content-Security-Policy: only the page's own style and script, by their hashes,
	// and nothing from elsewhere.
	policy string
}

// render makes the page. Style, script and pictures are in it, so that one answer is all that a
// browser needs: while a pod replaces another, a second request may be answered by the other one.
func render(greeting string) (*page, error) {
	parts := map[string]string{}
	for _, name := range []string{"page.html", "style.css", "script.js", "meadow.svg", "flight.svg", "icon.svg"} {
		content, err := files.ReadFile("page/" + name)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		parts[name] = string(content)
	}
	t, err := template.New("page").Parse(parts["page.html"])
	if err != nil {
		return nil, fmt.Errorf("parse the page: %w", err)
	}
	var html bytes.Buffer
	err = t.Execute(&html, map[string]any{
		"Greeting": greeting,
		"Title":    title(greeting),
		"Size":     size(greeting),
		"Style":    template.CSS(parts["style.css"]),
		"Script":   template.JS(parts["script.js"]),
		"Meadow":   template.HTML(parts["meadow.svg"]),
		"Flight":   template.HTML(parts["flight.svg"]),
	})
	if err != nil {
		return nil, fmt.Errorf("render the page: %w", err)
	}
	policy := strings.Join([]string{
		"default-src 'none'",
		"style-src " + source(parts["style.css"]),
		"script-src " + source(parts["script.js"]),
		"connect-src 'self'", "img-src 'self'",
		"base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
	}, "; ")
	return &page{html: html.Bytes(), icon: []byte(parts["icon.svg"]), policy: policy}, nil
}

// source names an inline style or script in a Content-Security-Policy.
func source(content string) string {
	sum := sha256.Sum256([]byte(content))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// title is the greeting's beginning on one line.
func title(greeting string) string {
	text := strings.Join(strings.Fields(greeting), " ")
	rest, state, length := text, -1, 0
	for rest != "" {
		if length++; length > titleLength {
			return strings.TrimSpace(text[:len(text)-len(rest)]) + "…"
		}
		_, rest, _, state = uniseg.FirstGraphemeClusterInString(rest, state)
	}
	return text
}

// size is the class of letters that lets a greeting fill its balloon, and not much more.
func size(greeting string) string {
	switch length := uniseg.StringWidth(greeting); {
	case length <= 40:
		return "short"
	case length <= 160:
		return "medium"
	default:
		return "long"
	}
}
