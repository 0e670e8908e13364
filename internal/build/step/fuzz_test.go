// SPDX-License-Identifier: Apache-2.0

package step

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzCredentials: a file of credentials is merged as it is, or refused without being quoted.
func FuzzCredentials(f *testing.F) {
	f.Add([]byte(`{"auths":{"a.example":{"auth":"MQ=="}}}`))
	f.Add([]byte(`{"b.example":{"auth":"Mg=="}}`))
	f.Add([]byte(`{"auths":null}`))
	f.Add([]byte(`{"auths":{"a":null},"credHelpers":{}}`))
	f.Add([]byte(`null`))
	f.Add([]byte(`{"auths":"pAssw0rd"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		dir := t.TempDir()
		file, into := filepath.Join(dir, "in"), filepath.Join(dir, "out")
		if err := os.WriteFile(file, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		r := &Registry{Auth: []string{file}}
		if err := r.Merge(into); err != nil {
			if len(raw) > 8 && strings.Contains(err.Error(), string(raw)) {
				t.Errorf("the error quotes the credentials: %v", err)
			}
			return
		}
		c, err := readCredentials(file)
		if err != nil {
			t.Fatal(err)
		}
		merged, err := readCredentials(into)
		if err != nil || merged.bare || len(merged.auths) != len(c.auths) {
			t.Fatalf("merged: %+v, %v", merged, err)
		}
		for registry, auth := range c.auths {
			var want, got any
			if json.Unmarshal(auth, &want) != nil || json.Unmarshal(merged.auths[registry], &got) != nil {
				t.Errorf("%q is lost", registry)
			}
		}
		if _, err := r.keychain(t.Context()); err != nil && len(raw) > 8 && strings.Contains(err.Error(), string(raw)) {
			t.Errorf("the error quotes the credentials: %v", err)
		}
	})
}
