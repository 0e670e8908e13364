// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"testing"
)

// FuzzUevent: an event is about a module exactly if one of its pairs says so.
func FuzzUevent(f *testing.F) {
	f.Add([]byte("add@/module/loop\x00ACTION=add\x00DEVPATH=/module/loop\x00SUBSYSTEM=module\x00SEQNUM=1\x00"))
	f.Add([]byte("SUBSYSTEM=module\x00"))
	f.Add([]byte("add@/x\x00SUBSYSTEM=modules\x00A=SUBSYSTEM=module\x00"))
	f.Fuzz(func(t *testing.T, event []byte) {
		want := false
		pairs := bytes.Split(event, []byte{0})
		for i, pair := range pairs {
			// The first is the header, and the last has no end.
			want = want || i > 0 && i < len(pairs)-1 && string(pair) == "SUBSYSTEM=module"
		}
		if got := aboutModule(event); got != want {
			t.Errorf("%q: %v", event, got)
		}
	})
}
