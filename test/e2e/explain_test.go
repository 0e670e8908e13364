// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// TestLifecycleExplain reads what the built command line tool prints of a Module that is well and
// of one whose image is nowhere.
func TestLifecycleExplain(t *testing.T) {
	s := given(t, "explain")
	drover := buildTool(t)
	s.create()
	s.converged(each(everyNode, once))
	s.images("/mod:") // no image of any other name exists
	broken := s.second("broken", "e2e_explain_broken")
	broken.create(func(m *v1beta1.Module) {
		m.Spec.ModuleLoader.Container.KernelMappings = append([]v1beta1.KernelMapping{{
			Literal: "6.6.6", ContainerImage: "registry.example.com/never:1",
		}}, m.Spec.ModuleLoader.Container.KernelMappings...)
	})
	in := "-n=" + s.key.Namespace

	asks := []struct {
		args []string
		then int
		says []string
	}{
		{[]string{"explain", "mod", in}, 0, []string{"is live on 6 of 6 nodes.\n", "ok       live on 6 nodes"}},
		{[]string{"explain", "mod", "hollow-0", in}, 0, []string{
			"Module " + s.key.String() + " is live on node hollow-0.\n", "matches kernelMappings[0] (regexp .+)", "ok       delivered",
			"live: build ID ",
		}},
		{[]string{"explain", "broken", in}, 1, []string{
			"is live on 0 of 6 nodes; ImageNotFound on 6 nodes.\nNext step: push the image, or correct containerImage\n",
			"drover explain broken hollow-0 -n " + s.key.Namespace,
		}},
		{[]string{"explain", "broken", "hollow-1", in}, 1, []string{
			"Module " + broken.key.String() + " is not live on node hollow-1: ImageNotFound.\nNext step: push the image, or correct " +
				"containerImage\n",
			"kernel " + kernelOdd + " matches kernelMappings[1] (regexp .+)", "FAILED   delivered   ImageNotFound",
		}},
		{[]string{"status", in}, 1, []string{"2 Modules: 1 failing, 1 ready. Look at: drover explain broken -n " + s.key.Namespace + "\n", "6/6",
			"ImageNotFound"}},
		{[]string{"wait", "mod", in, "--timeout=60s"}, 0, []string{"Module " + s.key.String() + " is ready.\n"}},
		{[]string{"version"}, 0, []string{"Client: "}},
	}
	for _, ask := range asks {
		s.eventually("drover "+strings.Join(ask.args, " ")+" says so", func(ctx context.Context) error {
			out, code := drover(ctx, ask.args...)
			if code != ask.then {
				return fmt.Errorf("it ends with %d, want %d:\n%s", code, ask.then, out)
			}
			for _, words := range ask.says {
				if !strings.Contains(out, words) {
					return fmt.Errorf("it does not say %q:\n%s", words, out)
				}
			}
			return nil
		})
		out, _ := drover(s.Context(), ask.args...)
		t.Logf("$ drover %s\n%s", strings.Join(ask.args, " "), out)
	}
	s.images("")
}

// program builds one of ours, when it is first asked for, and gives its path.
func program(name string) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		binary := filepath.Join(shared.Dir(), name)
		build := exec.Command("go", "build", "-o", binary, "github.com/drover-project/drover/cmd/"+name)
		if out, err := build.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build %s: %w\n%s", name, err, out)
		}
		return binary, nil
	})
}

var toolProgram = program("drover")

// buildTool gives what runs the command line tool against the fleet.
func buildTool(t *testing.T) func(context.Context, ...string) (out string, code int) {
	t.Helper()
	tool, err := toolProgram()
	if err != nil {
		t.Fatal(err)
	}
	return func(ctx context.Context, args ...string) (string, int) {
		cmd := exec.CommandContext(ctx, tool, append(args, "--kubeconfig="+shared.Cluster.Kubeconfig)...)
		cmd.Env = append(os.Environ(), "NO_COLOR=1")
		out, err := cmd.CombinedOutput()
		var ended *exec.ExitError
		if err != nil && !errors.As(err, &ended) {
			return err.Error(), -1
		}
		return string(out), cmd.ProcessState.ExitCode()
	}
}
