// SPDX-License-Identifier: Apache-2.0

package modprobe

import (
	"testing"
	"testing/fstest"
	"time"

	"github.com/drover-project/drover/internal/agent/kcall"
	"github.com/drover-project/drover/internal/agent/watchdog"
)

// TestALayoutTellsItsProgress: it may copy a GiB before modprobe is called.
func TestALayoutTellsItsProgress(t *testing.T) {
	dog := watchdog.New(time.Minute)
	r := Runner{Stage: stage(t, program(t, "exit 0"), fstest.MapFS{}), Children: kcall.Children{Deadline: time.Minute}}
	r.Stage.Watchdog = dog
	dog.Step("a step")
	for range 10 { // the next one would find it hung
		if err := dog.Look(); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Run(nil, content()); err != nil {
		t.Fatal(err)
	}
	if err := dog.Look(); err != nil {
		t.Error(err)
	}
}
