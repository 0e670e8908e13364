// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/modprobe"
)

// programs are the cases about what is run on the node, the files that come with it, and the
// operator's own configuration.
var programs = map[string]func(*testing.T){
	"63_firmware_is_staged": firmwareComesAndGoes,
	"67_modprobe_arguments": modprobeArguments,
	"67_modprobe_runs":      modprobeRuns,
	"69_firmware_goes":      firmwareComesAndGoes,
	"82_unknown_key":        configuration("worker:\n  setFirmwareClassPath: /x\n", `unknown field "setFirmwareClassPath"`),
	"82_bad_value":          configuration("metrics:\n  secureServing: often\n", "secureServing"),
	"82_bad_duration":       configuration("job:\n  gcDelay: soon\n", `job.gcDelay: "soon" is no duration`),
	"82_upstreams_own": configuration(strings.Join([]string{
		"healthProbeBindAddress: :8081", "webhookPort: 9443", "leaderElection: {enabled: true, resourceID: kmm.sigs.x-k8s.io}",
		"job: {gcDelay: 0s}",
		"metrics: {enableAuthnAuthz: true, bindAddress: 0.0.0.0:8443, secureServing: true}",
		"worker: {runAsUser: 0, seLinuxType: spc_t, firmwareHostPath: /lib/firmware}",
	}, "\n"), "find the cluster"),
}

// modprobeArguments are the peer's own examples of what its worker runs.
func modprobeArguments(t *testing.T) {
	args := func(load, unload string) *v1beta1.ModprobeArgs {
		return &v1beta1.ModprobeArgs{Load: strings.Fields(load), Unload: strings.Fields(unload)}
	}
	for load, tc := range map[string]struct {
		given  v1beta1.ModprobeSpec
		unload string
	}{
		"-vd /tmp/opt nic": {given: v1beta1.ModprobeSpec{ModuleName: "nic", DirName: "/opt"}, unload: "-rvd /tmp/opt nic"},
		"-vd /tmp/opt nic a=1 b=2": {given: v1beta1.ModprobeSpec{ModuleName: "nic", DirName: "/opt",
			Parameters: []string{"a=1", "b=2"}}, unload: "-rvd /tmp/opt nic"},
		"-vd /tmp/opt -x nic a=1": {given: v1beta1.ModprobeSpec{ModuleName: "nic", DirName: "/opt", Args: args("-x", "-y"),
			Parameters: []string{"a=1"}}, unload: "-rvd /tmp/opt -y nic"},
		"-vd /tmp/dir a": {given: v1beta1.ModprobeSpec{ModuleName: "a", DirName: "/dir",
			ModulesLoadingOrder: []string{"a", "b", "c"}}, unload: "-rvd /tmp/dir a b c"},
		"--whatever it says": {given: v1beta1.ModprobeSpec{DirName: "/opt", RawArgs: args("--whatever it says", "-r it")},
			unload: "-r it"},
		"--raw wins over dir and parameters": {given: v1beta1.ModprobeSpec{DirName: "/opt", Parameters: []string{"a=1"},
			RawArgs: args("--raw wins over dir and parameters", "-r")}, unload: "-r"},
	} {
		if diff := cmp.Diff(load, strings.Join(modprobe.LoadArgs(&tc.given), " ")); diff != "" {
			t.Errorf("load (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(tc.unload, strings.Join(modprobe.UnloadArgs(&tc.given), " ")); diff != "" {
			t.Errorf("unload (-want +got):\n%s", diff)
		}
	}
}

func modprobeRuns(t *testing.T) {
	c := given(t, kernelDebian)
	c.create(func(m *v1beta1.Module) {
		modprobeOf(m).Args = &v1beta1.ModprobeArgs{Load: []string{"-v"}, Unload: []string{"-v"}}
	})
	c.loaded()
	c.must(shared.Admin.Delete(t.Context(), c.module()))
	c.eventually("the Module is gone", c.gone)
	c.must(c.kernels(t.Context(), tally{Loads: 1, Unloads: 1}))
}

// firmwareComesAndGoes looks into the node's directories, as its kernel would.
func firmwareComesAndGoes(t *testing.T) {
	c := given(t, kernelDebian)
	c.create(func(m *v1beta1.Module) { modprobeOf(m).FirmwarePath = "/firmware" })
	c.loaded()
	dir := c.searchPath()
	if dir == "" {
		t.Fatal("the kernel's search path for firmware is empty")
	}
	content, err := os.ReadFile(filepath.Join(c.nodeDir(), "root", dir, c.kernelModule+".bin"))
	c.must(err)
	if !strings.Contains(string(content), c.image("1-"+kernelDebian)) {
		t.Errorf("the firmware is %q", content)
	}
	c.must(shared.Admin.Delete(t.Context(), c.module()))
	c.eventually("the firmware is gone with the Module", func(ctx context.Context) error {
		_, err := os.Stat(filepath.Join(c.nodeDir(), "root", dir, c.kernelModule+".bin"))
		if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("it is there (%w)", err)
		}
		return c.gone(ctx)
	})
}

func (c *corner) nodeDir() string { return filepath.Join(shared.Dir(), "hollow", "nodes", c.nodes[0]) }

func (c *corner) searchPath() string {
	c.Helper()
	content, err := os.ReadFile(filepath.Join(c.nodeDir(), "firmware_class.path"))
	c.must(err)
	return string(content)
}

// configuration is a file that the operator is started with, far from any cluster, and the one line
// that it ends with.
func configuration(content, says string) func(*testing.T) {
	return func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "controller_config.yaml")
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), shared.Binary("drover-operator"), "--agent-image=a:1", "--config="+file,
			"--kubeconfig=/no/such/file")
		var said bytes.Buffer
		cmd.Stderr = &said
		var ended *exec.ExitError
		if err := cmd.Run(); !errors.As(err, &ended) || ended.ExitCode() != 1 {
			t.Errorf("the operator ended with %v", err)
		}
		lines := strings.Split(strings.TrimSpace(said.String()), "\n")
		if last := lines[len(lines)-1]; !strings.Contains(last, says) || !strings.HasPrefix(last, "drover-operator: ") {
			t.Errorf("it said %q; the last line should have %q", said.String(), says)
		}
	}
}
