// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// settings are the options that the file is about.
type settings struct {
	Probe, Metrics, LeaseName string
	Elect, Secure             bool
	Notes                     int
}

func TestConfigFile(t *testing.T) {
	defaults := settings{Probe: ":8081", Metrics: ":8443", LeaseName: Name, Elect: true, Secure: true}
	whole := "healthProbeBindAddress: :9081\nleaderElection: {enabled: false, resourceID: x}\nmetrics: {bindAddress: 0.0.0.0:8443, " +
		"secureServing: true}\n"
	cases := map[string]struct {
		given *string
		flags []string
		then  settings
		fails string
	}{
		"no file":         {then: settings{Probe: ":8081", Metrics: ":8443", LeaseName: Name, Elect: true, Secure: true, Notes: 1}},
		"an empty file":   {given: new(string), then: defaults},
		"all that counts": {given: &whole, then: settings{Probe: ":9081", Metrics: "0.0.0.0:8443", LeaseName: "x", Secure: true}},
		"flags win": {
			given: &whole, flags: []string{"--leader-elect", "--metrics-bind-address=0", "--leader-election-id=y", "--metrics-secure=false",
				"--health-probe-bind-address=:1"},
			then: settings{Probe: ":1", Metrics: "0", LeaseName: "y", Elect: true},
		},
		"what has no effect": {
			given: text("webhookPort: 9443\njob: {gcDelay: 1h}\nworker: {runAsUser: 0, seLinuxType: spc_t, firmwareHostPath: " +
				"/lib/firmware}\nmetrics: {enableAuthnAuthz: true}\n"),
			then: settings{Probe: ":8081", Metrics: ":8443", LeaseName: Name, Elect: true, Secure: true, Notes: 6},
		},
		"an unknown key":   {given: text("worker: {setFirmwareClassPath: /x}\n"), fails: `unknown field "setFirmwareClassPath"`},
		"a key twice":      {given: text("webhookPort: 1\nwebhookPort: 2\n"), fails: "webhookPort"},
		"a bad value":      {given: text("metrics: {secureServing: often}\n"), fails: "secureServing"},
		"a bad duration":   {given: text("job: {gcDelay: -1s}\n"), fails: "job.gcDelay"},
		"nothing of YAML":  {given: text("{"), fails: "yaml"},
		"a list of things": {given: text("- a\n"), fails: "array"},
	}
	for name, tc := range cases {
		for how, path := range map[string]func(dir string) string{
			"a file":                func(dir string) string { return filepath.Join(dir, configKey) },
			"the ConfigMap's mount": func(dir string) string { return dir },
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				dir := t.TempDir()
				if tc.given != nil {
					if err := os.WriteFile(filepath.Join(dir, configKey), []byte(*tc.given), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				o, err := ParseFlags(append([]string{"--agent-image=a:1", "--config=" + path(dir)}, tc.flags...))
				if tc.fails != "" {
					if err == nil || !strings.Contains(err.Error(), tc.fails) || strings.Contains(err.Error(), "\n") {
						t.Errorf("error %v; it should have %q, in one line", err, tc.fails)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				got := settings{
					Probe: o.ProbeAddress, Metrics: o.MetricsAddress, LeaseName: o.LeaderElectionID, Elect: o.LeaderElect, Secure: o.MetricsSecure,
					Notes: len(o.Notes),
				}
				if diff := cmp.Diff(tc.then, got); diff != "" {
					t.Errorf("options (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func text(s string) *string { return &s }
