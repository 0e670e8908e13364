// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/utils/clock"
)

// TestMessages: what the agent logs when it cannot arrange loading at boot. DIR is the directory in
// question.
func TestMessages(t *testing.T) {
	for name, c := range map[string]struct {
		given func(dir string) error
		then  string
	}{
		"the options are incomplete": {
			func(dir string) error {
				o := podOptions(dir, filepath.Join(dir, "manifests"))
				o.StatePath = ""
				return Enable(t.Context(), o)
			},
			"static pod: it needs a node name, an image, the state directory's path on the host, and a manifest directory below the host's root",
		},
		"somebody's manifest": {
			func(dir string) error {
				if err := os.WriteFile(filepath.Join(dir, ManifestFile), []byte("kind: Pod\n"), 0o600); err != nil {
					return err
				}
				return Enable(t.Context(), podOptions(dir, dir))
			},
			"DIR/drover-boot.yaml exists, and drover-agent did not write it: remove it, or turn loading at boot off",
		},
		"no manifest directory": {
			func(dir string) error { return Enable(t.Context(), podOptions(dir, filepath.Join(dir, "manifests"))) },
			"replace drover-boot.yaml: open DIR/manifests: no such file or directory",
		},
		"another agent works": {
			func(dir string) error {
				held, err := TryTake(dir, "the DaemonSet's agent")
				if err != nil {
					return err
				}
				defer func() { _ = held.Release() }()
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				_, err = Take(ctx, dir, "the static pod's agent", clock.RealClock{})
				return err
			},
			"wait for the lock DIR/agent.lock: context canceled",
		},
		"no state directory": {
			func(dir string) error {
				_, err := TryTake(filepath.Join(dir, "none"), "the static pod's agent")
				return err
			},
			"lock: open DIR/none/agent.lock.wanted: no such file or directory",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			err := c.given(dir)
			if err == nil || strings.ReplaceAll(err.Error(), dir, "DIR") != c.then {
				t.Errorf("got:\n%v\nwant:\n%s", err, c.then)
			}
		})
	}
}
