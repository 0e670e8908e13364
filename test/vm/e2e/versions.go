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

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/internal/testkit/devcluster"
	"github.com/drover-project/drover/test/vm/artifacts"
)

// releases of Kubernetes whose kubelets have no image volumes unless they are switched on, the oldest and the newest that Drover knows.
var releases = []string{"1.31", "1.34"}

// versions runs group release for each of the releases, one after the other, in a process of its own: what a process builds and starts is of one.
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

// kubeletIsOfRelease notes the kubelet's version, as it says itself, and checks that it and the API server are of the release that is asked for.
func (s *suite) kubeletIsOfRelease(ctx context.Context) error {
	found := &corev1.Node{}
	if err := s.client.Get(ctx, client.ObjectKey{Name: nodeName(artifacts.Linux61)}, found); err != nil {
		return err
	}
	server, err := s.core.Discovery().ServerVersion()
	if err != nil {
		return err
	}
	kubelet, asked := found.Status.NodeInfo.KubeletVersion, "v"+os.Getenv(devcluster.VersionVariable)+"."
	s.extra["kubelet"] = kubelet
	for name, version := range map[string]string{"kubelet": kubelet, "API server": server.GitVersion} {
		if !strings.HasPrefix(version, asked) {
			return fmt.Errorf("the %s is of %s, not of %s", name, version, asked)
		}
	}
	return nil
}

// loadWithoutImageVolumes: nothing says how images are delivered; the operator finds out that these nodes lack image volumes.
func (s *suite) loadWithoutImageVolumes(ctx context.Context) error {
	if err := s.namespace(ctx, restricted, "restricted"); err != nil {
		return err
	}
	if s.breaks == "mode" {
		if err := s.deliveryMode(ctx, "imageVolume"); err != nil {
			return err
		}
	}
	image, err := s.pushCopyable(ctx)
	if err != nil {
		return err
	}
	return s.copied(ctx, image)
}

// goesAgain: the module of the step before leaves the kernel with its Module.
func (s *suite) goesAgain(ctx context.Context) error {
	return s.loadsAndGoes(ctx, copiedModule, sample)
}
