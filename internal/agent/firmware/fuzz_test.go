// SPDX-License-Identifier: Apache-2.0

package firmware

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-project/drover/internal/agent/statefile"
)

// FuzzLedger: a ledger is moved aside, or leads nowhere outside and can be written again.
func FuzzLedger(f *testing.F) {
	sum := strings.Repeat("a", 64)
	f.Add([]byte(`{"schema":1,"claims":{"ns/m":{"dir":"/lib/firmware","files":{"a/b.bin":"` + sum + `"}}},` +
		`"dirs":{"/lib/firmware":["a"]},"wrote":{"boot":"b","value":"/x","previous":"/y"}}`))
	f.Add([]byte(`{"schema":1,"claims":null,"dirs":null}`))
	f.Add([]byte(`{"schema":1,"claims":{"m":{"dir":"/..","files":{"../x":""}}}}`))
	f.Add([]byte(`{"schema":1,"dirs":{"/a":["/b","..",".drover/x"]}}`))
	f.Add([]byte(`{"schema":1,"claims":{"m":{"dir":"/a\u0000","files":null}}}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, data []byte) {
		state, err := os.OpenRoot(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = state.Close() }()
		if err := state.WriteFile(ledgerFile, data, 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := readLedger(state)
		if err != nil {
			if _, aside := state.Lstat(ledgerFile + damagedSuffix); !errors.Is(err, errDamaged) || aside != nil {
				t.Errorf("error %v, aside: %v", err, aside)
			}
			return
		}
		for owner, c := range l.Claims {
			if checkDir(c.Dir) != nil {
				t.Errorf("%q has files in %q", owner, c.Dir)
			}
			for name := range c.Files {
				if strings.HasPrefix(name, "/") || strings.Contains("/"+name+"/", "/../") || strings.HasPrefix(name, marksDir+"/") {
					t.Errorf("%q has %q", owner, name)
				}
			}
		}
		if err := writeLedger(state, l, statefile.NoSync, func(string) {}); err != nil {
			t.Fatal(err)
		}
		again, err := readLedger(state)
		if err != nil || !again.equal(l) {
			t.Errorf("written and read, %v:\n%s", err, cmp.Diff(l, again))
		}
	})
}

// FuzzChoose: what is decided of the kernel's search path holds when it is asked again.
func FuzzChoose(f *testing.F) {
	f.Add("/lib/firmware\n", "boot", "", "", "")
	f.Add("", "boot", "boot", "/x/", "/y")
	f.Add("/a/../b\n\x00\n", "boot", "old", "/b", "/c")
	f.Add("./", "", "", "", "\n")
	f.Fuzz(func(t *testing.T, current, boot, wroteBoot, value, previous string) {
		const ours = "/var/lib/drover/firmware"
		var wrote *Wrote
		if value != "" {
			wrote = &Wrote{Boot: wroteBoot, Value: value, Previous: previous}
		}
		once := Choose(current, ours, boot, wrote)
		if once.Set && (once.Dir != ours || once.Wrote == nil || once.Wrote.Value != ours) {
			t.Fatalf("%+v", once)
		}
		if !once.Set && once.Dir != trim(current) {
			t.Errorf("%q stays, and firmware goes to %q", current, once.Dir)
		}
		now := current
		if once.Set {
			now = once.Dir + "\n" // as the kernel shows it
		}
		twice := Choose(now, ours, boot, once.Wrote)
		if twice.Set || twice.Dir != once.Dir || (once.Wrote == nil) != (twice.Wrote == nil) {
			t.Errorf("first %+v, then %+v", once, twice)
		}
	})
}
