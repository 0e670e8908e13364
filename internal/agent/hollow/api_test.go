// SPDX-License-Identifier: Apache-2.0

package hollow

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/rest"
)

// TestKubeletsAreNoNewerThanTheAPIServer: a newer one would be given pods with fields that the API
// server drops.
func TestKubeletsAreNoNewerThanTheAPIServer(t *testing.T) {
	for name, c := range map[string]struct {
		answer, want string
		fails        bool
	}{
		"an older one": {answer: `{"major":"1","minor":"31","gitVersion":"v1.31.0"}`, want: "v1.31.0"},
		"no JSON":      {answer: "<html>", fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/version" {
					t.Errorf("asked for %s", r.URL.Path)
				}
				if _, err := io.WriteString(w, c.answer); err != nil {
					t.Error(err)
				}
			}))
			defer server.Close()
			a, err := newAPI(&rest.Config{Host: server.URL})
			if err != nil {
				t.Fatal(err)
			}
			if err := a.learnRelease(t.Context()); (err != nil) != c.fails || a.release != c.want {
				t.Errorf("%q, %v", a.release, err)
			}
		})
	}
}
