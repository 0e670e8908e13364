// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// program is set where this test binary plays the operator.
const program = "BE_THE_OPERATOR"

func TestMain(m *testing.M) {
	if os.Getenv(program) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestConfigurationIsChecked: at the start, with a message that names what is wrong, and an exit
// status that is not 0.
func TestConfigurationIsChecked(t *testing.T) {
	for given, test := range map[string]struct {
		args   []string
		env    string
		status int
		says   string
	}{
		"a namespace that is none": {nil, "WATCH_NAMESPACE=default,My_Namespace", 1,
			`WATCH_NAMESPACE: "My_Namespace" is not a namespace's name`},
		"an empty name in the list":     {nil, "WATCH_NAMESPACE=a,,b", 1, `WATCH_NAMESPACE: ""`},
		"a flag that there is not":      {[]string{"--metrics-addr=:1"}, "", 1, "metrics-addr"},
		"an address without a port":     {[]string{"--health-probe-bind-address=8081"}, "", 1, "--health-probe-bind-address"},
		"a verbosity that is no number": {[]string{"-v=loud"}, "", 1, `"loud"`},
		"an argument":                   {[]string{"run"}, "", 1, `unexpected argument "run"`},
		"a cluster that is not there":   {[]string{"-v=4", "--metrics-bind-address=0"}, "WATCH_NAMESPACE=a,b", 1, "find the cluster"},
		"a question for help":           {[]string{"--help"}, "", 0, "-leader-elect"},
	} {
		command := exec.Command(os.Args[0], test.args...)
		command.Env = append(os.Environ(), program+"=yes", "KUBECONFIG="+filepath.Join(t.TempDir(), "none"), test.env)
		var said bytes.Buffer
		command.Stderr = &said
		err := command.Run()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		if got := command.ProcessState.ExitCode(); got != test.status || !strings.Contains(said.String(), test.says) {
			t.Errorf("%s: exit status %d, want %d; it says %q, want %q", given, got, test.status, said.String(), test.says)
		}
	}
}
