// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestADatabaseOutOfReachIsNoGoodNews: it has a state of its own, whose message names the database.
func TestADatabaseOutOfReachIsNoGoodNews(t *testing.T) {
	refuses := httptest.NewServer(http.NotFoundHandler())
	defer refuses.Close()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for name, tc := range map[string]struct{ db, says string }{
		"no server":        {gone.URL, "is out of reach"},
		"another's server": {refuses.URL, "answers 404 Not Found"},
	} {
		t.Run(name, func(t *testing.T) {
			err := run(t.Context(), &bytes.Buffer{}, tc.db, nil)
			if !errors.Is(err, errUnchecked) || !strings.Contains(err.Error(), tc.says) || !strings.Contains(err.Error(), tc.db) {
				t.Errorf("error %v", err)
			}
		})
	}
}
