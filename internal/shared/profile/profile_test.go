// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestCheck(t *testing.T) {
	for address, good := range map[string]bool{
		"0": true, "127.0.0.1:6060": true, "127.0.0.2:1": true, "[::1]:6060": true,
		"": false, ":6060": false, "0.0.0.0:6060": false, "10.0.0.1:6060": false, "localhost:6060": false, "127.0.0.1": false,
	} {
		if err := Check(address); (err == nil) != good {
			t.Errorf("%q: %v", address, err)
		}
	}
}

// TestServe: profiles are there until the context ends, and nowhere else.
func TestServe(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it is closed at once
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	if err := Serve(ctx, address); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"heap": "\x1f\x8b", "profile?seconds=1": "\x1f\x8b", "goroutine?debug=1": "goroutine profile:", "cmdline": "profile",
	} {
		if got, err := get(t, "http://"+address+"/debug/pprof/"+path); err != nil || !strings.Contains(got, want) {
			t.Errorf("%s: %v, %.60q", path, err, got)
		}
	}
	if err := Serve(ctx, address); err == nil || !strings.Contains(err.Error(), address) {
		t.Errorf("an address that is taken: %v", err)
	}
	end()
	patience, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	for patience.Err() == nil {
		if _, err := get(t, "http://"+address+"/debug/pprof/"); err != nil {
			return
		}
	}
	t.Error("it serves although its context has ended")
}

func TestNowhere(t *testing.T) {
	if err := Serve(t.Context(), Off); err != nil {
		t.Error(err)
	}
	if err := Serve(t.Context(), "0.0.0.0:0"); err == nil {
		t.Error("it serves to everybody")
	}
}

func get(t *testing.T, url string) (string, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }()
	content, err := io.ReadAll(answer.Body)
	return string(content), err
}
