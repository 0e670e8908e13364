// SPDX-License-Identifier: Apache-2.0

package result_test

import (
	"strings"
	"testing"

	"github.com/drover-project/drover/internal/build/pipeline/result"
)

// FuzzParse: a result fits into a message, which says the same step and reason, or says why not.
func FuzzParse(f *testing.F) {
	f.Add(`{"step":"check","state":"Missing"}`)
	f.Add(`{"step":"sign","files":["/a.ko","/b.ko"],"signer":{"fingerprint":"00","subject":"CN=a","notAfter":"2026-01-02T03:04:05Z"}}`)
	f.Add(` {"step":"push","error":"a\nb  c","reason":"Failed"} `)
	f.Add(`make: *** [Makefile:2: all] Error 2`)
	f.Add(`{"step":"x","digest":"` + long(2000) + `"}`)
	f.Add(`{"step":"x","error":"` + long(2000) + `","unmatched":["` + long(900) + `","` + long(900) + `"]}`)
	f.Fuzz(func(t *testing.T, text string) {
		r, err := result.Parse(text)
		if (r == nil) == (err == nil) {
			t.Fatalf("%+v, %v", r, err)
		}
		if err != nil {
			return
		}
		message, err := r.Message()
		if err != nil {
			return
		}
		again, err := result.Parse(message)
		if err != nil || len(message) > result.MaxMessage || again.Step != r.Step || again.Reason != r.Reason {
			t.Errorf("%d bytes: %q, %v", len(message), message, err)
		}
	})
}

func long(n int) string { return strings.Repeat("a", n) }
