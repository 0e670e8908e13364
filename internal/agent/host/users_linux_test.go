// SPDX-License-Identifier: Apache-2.0

package host

import (
	"os"
	"path/filepath"
	"testing"
)

func TestDeviceOf(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if n, ok := deviceOf(os.DevNull); !ok || n != (deviceNumber{major: 1, minor: 3}) {
		t.Errorf("%s is %+v, %v", os.DevNull, n, ok)
	}
	for _, path := range []string{file, filepath.Dir(file), file + "-missing"} {
		if n, ok := deviceOf(path); ok {
			t.Errorf("%s is %+v", path, n)
		}
	}
}

// TestOpenDeviceOfThisProcess looks at this kernel's own /proc and /sys: /dev/null has no driver,
// its class is "mem".
func TestOpenDeviceOfThisProcess(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	o := openers{proc: "/proc", rdev: deviceOf, owners: newOwners("/", "mem"), pods: &podNames{}}
	d, ok := o.process(t.Context(), os.Getpid())
	if !ok || d.is != perhapsOurs || o.opened != 1 {
		t.Fatalf("device %+v, %v; %d processes opened, %d hidden", d, ok, o.opened, o.hidden)
	}
	if u := o.user(os.Getpid(), d); u.Name == "" || u.Device == "" || !u.Guess || u.Kind != UserProcess {
		t.Errorf("user %+v", u)
	}
}
