// SPDX-License-Identifier: Apache-2.0

package step

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	registry "github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/drover-project/drover/internal/build/pipeline/result"
)

// TestCredentialsAreMerged: of both forms, the first for each registry; what is missing or
// unreadable is named, and never quoted.
func TestCredentialsAreMerged(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	first := file("first", `{"auths":{"a.example":{"auth":"MQ=="}}}`)
	second := file("second", `{"a.example":{"auth":"Mg=="},"b.example":{"auth":"Mw=="}}`)
	into := filepath.Join(dir, "all")
	if err := (&Registry{Auth: []string{first, second}}).Merge(into); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(into)
	if want := `{"auths":{"a.example":{"auth":"MQ=="},"b.example":{"auth":"Mw=="}}}`; err != nil || string(raw) != want {
		t.Errorf("merged is %s, %v", raw, err)
	}
	if err := os.Mkdir(filepath.Join(dir, "older"), 0o700); err != nil {
		t.Fatal(err)
	}
	file("older/.dockercfg", `{"b.example":{"auth":"Ng=="},"d.example":{"auth":"Nw=="}}`)
	third := file("account", `{"auths":{"a.example":{"auth":"NA=="},"c.example":{"auth":"NQ=="}}}`)
	account := &Registry{Auth: []string{first, second},
		AccountAuth: []string{filepath.Join(dir, "nobody"), filepath.Join(dir, "older", "config.json"), third}}
	if err := account.Merge(into); err != nil {
		t.Fatal(err)
	}
	raw, err = os.ReadFile(into)
	if want := `{"auths":{"a.example":{"auth":"MQ=="},"b.example":{"auth":"Mw=="},"c.example":{"auth":"NQ=="},"d.example":{"auth":"Nw=="}}}`; err != nil || string(raw) != want {
		t.Errorf("merged with those of a ServiceAccount is %s, %v", raw, err)
	}
	for name, path := range map[string]string{"missing": filepath.Join(dir, "nobody"), "unreadable": file("third", `{"auths":"pAssw0rd"}`),
		"no map": file("fourth", `["pAssw0rd"]`)} {
		err := (&Registry{Auth: []string{first, path}}).Merge(into)
		if err == nil || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "pAssw0rd") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := (&Registry{Auth: []string{"nobody"}}).Merge(""); err != nil {
		t.Errorf("without a name: %v", err)
	}
}

// TestAnImmutableTagIsNoOutage: registries refuse by a code of their own, and say so in words.
// Another try, after another build, would be refused as well.
func TestAnImmutableTagIsNoOutage(t *testing.T) {
	for name, tc := range map[string]struct {
		code int
		body string
		want result.Reason
	}{
		"Amazon ECR": {http.StatusBadRequest, `{"errors":[{"code":"TAG_INVALID","message":"The image tag '1' already exists in the 'nic' ` +
			`repository and cannot be overwritten because the repository is immutable."}]}`, result.ReasonInvalid},
		"Harbor": {http.StatusPreconditionFailed, `{"errors":[{"code":"PRECONDITION","message":"Failed to process request due to 'nic:1' ` +
			`configured as immutable."}]}`, result.ReasonInvalid},
		"another refusal": {http.StatusBadRequest, `{"errors":[{"code":"MANIFEST_INVALID","message":"manifest invalid"}]}`, result.ReasonFailed},
		"an outage":       {http.StatusServiceUnavailable, `immutable storage is away`, result.ReasonUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodPut {
					w.WriteHeader(http.StatusOK)
					return
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(tc.code)
				_, _ = w.Write([]byte(tc.body))
			}))
			t.Cleanup(server.Close)
			ref, err := registry.ParseReference(strings.TrimPrefix(server.URL, "http://") + "/nic:1")
			if err != nil {
				t.Fatal(err)
			}
			err = remote.Put(ref, empty.Image, remote.WithRetryBackoff(remote.Backoff{Steps: 1}))
			if got := classify(err); err == nil || got != tc.want {
				t.Errorf("%s: %v", got, err)
			}
		})
	}
}
