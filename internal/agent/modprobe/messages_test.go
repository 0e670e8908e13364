// SPDX-License-Identifier: Apache-2.0

package modprobe

import (
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/drover-project/drover/internal/agent/kcall"
)

// TestMessages: what a node's status says of a modprobe that failed.
func TestMessages(t *testing.T) {
	indexed := content()
	for name, c := range map[string]struct {
		script  string
		content Content
		then    string
	}{
		"the kernel refuses a module": {
			`echo "insmod /tmp/opt/lib/x.ko"; echo "modprobe: ERROR: could not insert 'nic': Exec format error" >&2; exit 1`, indexed,
			"modprobe: ERROR: could not insert 'nic': Exec format error",
		},
		"two complaints": {
			`echo "modprobe: ERROR: a" >&2; echo "modprobe: ERROR: b" >&2; exit 1`, indexed,
			"modprobe: ERROR: a; ERROR: b",
		},
		"words of another kind": {
			`echo "libkmod: cannot read"; exit 1`, indexed, "modprobe: libkmod: cannot read",
		},
		"no word": {`exit 3`, indexed, "modprobe: exit status 3"},
		"a kill":  {`kill -9 $$`, indexed, "modprobe: signal: killed"},
		"many words": {
			`i=0; while [ $i -lt 60 ]; do printf 0123456789; i=$((i+1)); done; exit 1`, indexed,
			"modprobe: " + strings.Repeat("0123456789", 60)[:maxClip] + "…",
		},
		"an image without an index that depmod cannot read": {
			`echo "depmod: ERROR: bad module"; exit 1`, Content{Dir: "/opt", Image: fstest.MapFS{}},
			"lay out the image's modules for modprobe: depmod: exit status 1: depmod: ERROR: bad module",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Runner{Stage: stage(t, program(t, c.script), nil), Children: kcall.Children{Deadline: time.Minute}}
			if err := r.Run([]string{"nic"}, c.content); err == nil || err.Error() != c.then {
				t.Errorf("got:\n%v\nwant:\n%s", err, c.then)
			}
		})
	}
}
