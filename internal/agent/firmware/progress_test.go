// SPDX-License-Identifier: Apache-2.0

package firmware_test

import (
	"testing"
	"time"

	"github.com/drover-project/drover/internal/agent/watchdog"
)

// TestCopiesTellTheirProgress: a GiB of firmware may take long on a slow disk without a hang.
func TestCopiesTellTheirProgress(t *testing.T) {
	n, dog := newNode(t), watchdog.New(time.Minute)
	n.opt.Watchdog = dog
	n.start()
	for _, what := range []string{"staged", "staged already"} {
		dog.Step("a step")
		for range 10 { // the next one would find it hung
			n.must(dog.Look())
		}
		n.must(n.add("ns/gadget", files{"gadget/fw.bin": "content"}))
		if err := dog.Look(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}
