// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"testing"
	"time"

	"github.com/drover-project/drover/internal/agent/store"
	"github.com/drover-project/drover/internal/agent/watchdog"
)

// TestCopiesTellTheirProgress: a delivery of a GiB may take long on a slow disk without a hang.
func TestCopiesTellTheirProgress(t *testing.T) {
	dog := watchdog.New(time.Minute)
	n := newNode(t, store.Options{Watchdog: dog})
	n.deliver(map[string]string{"lib/modules/6.1.0-t/gadget.ko": "content"})
	for _, c := range []struct {
		what string
		do   func()
	}{{"import", func() { n.imported("d1") }}, {"open", func() { n.read("d1") }}} {
		dog.Step("a step")
		for range 10 { // the next one would find it hung
			if err := dog.Look(); err != nil {
				t.Fatal(err)
			}
		}
		c.do()
		if err := dog.Look(); err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}
