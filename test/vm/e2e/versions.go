// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/drover-project/drover/internal/testkit/devcluster"
)

// releases of Kubernetes whose kubelets have no image volumes unless they are switched on, the
// oldest and the newest that Drover knows.
var releases = []string{"1.31", "1.34"}

// versions runs group release for each of the releases, one after the other, in a process of its
// own: what a process builds and starts is of one.
func versions(ctx context.Context) error {
	begin := time.Now()
	result := map[string]any{"loaded": true, "withoutImageVolumes": true}
	var kubelets []any
	var failed []error
	for _, release := range releases {
		fmt.Printf("Kubernetes %s: control plane and kubelet\n", release)
		one, err := ofRelease(ctx, release)
		if err != nil {
			failed = append(failed, fmt.Errorf("with Kubernetes %s: %w", release, err))
		}
		for _, promise := range []string{"loaded", "withoutImageVolumes"} {
			result[promise] = result[promise] == true && one[promise] == true
		}
		kubelets = append(kubelets, one["kubelet"])
		if b, ok := one["break"]; ok {
			result["break"] = b
		}
	}
	result["kubelets"], result["seconds"] = kubelets, time.Since(begin).Round(100*time.Millisecond).Seconds()
	line, err := json.Marshal(result)
	fmt.Printf("RESULT %s\n", line)
	return errors.Join(append(failed, err)...)
}

// ofRelease runs group release, prints what it prints but for its result, and returns that.
func ofRelease(ctx context.Context, release string) (result map[string]any, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), "GROUP=release", devcluster.VersionVariable+"="+release)
	cmd.Stderr = os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	result, err = followed(stdout, os.Stdout)
	return result, errors.Join(err, cmd.Wait())
}

// followed copies lines and returns what the one says that is a result.
func followed(from io.Reader, to io.Writer) (result map[string]any, err error) {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		text, ends := strings.CutPrefix(lines.Text(), "RESULT ")
		if !ends {
			fmt.Fprintln(to, text)
			continue
		}
		err = errors.Join(err, json.Unmarshal([]byte(text), &result))
	}
	return result, errors.Join(err, lines.Err())
}
