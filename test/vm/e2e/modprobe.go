// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/test/vm/artifacts"
)

const (
	probed = "drover_probed"
	// probedNeeds is the kernel's own module that it needs.
	probedNeeds = "crc_itu_t"
	// probedFacts are what the kernel says of both that does not depend on the moment of the load.
	probedFacts = "for f in /sys/module/" + probed + "/initstate /sys/module/" + probed + "/taint /sys/module/" + probed + "/parameters/text /sys/module/" + probed +
		"/notes/.note.gnu.build-id /sys/module/" + probedNeeds + "/initstate /sys/module/" + probedNeeds + "/holders; do " +
		"if test -d $f; then ls $f; else md5sum < $f; fi; done; dmesg | grep -o '" + probed + ": loaded, .*' | tail -n 1"
	probedText = "text=two words"
)

// modprobe loads one module in three ways: by the agent itself, and by kmod's program with args and with rawArgs. It needs a module of the
// kernel's own, and depmod has never seen its image. The kernel must show the same each time, and nothing of it in the end.
func (s *suite) modprobe(ctx context.Context) error {
	if err := s.namespace(ctx, restricted, "restricted"); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	content, err := s.nodeModule(ctx, probed)
	if err != nil {
		return err
	}
	image, err := s.pushModule(ctx, probed, content, nil)
	if err != nil {
		return err
	}
	ways := []struct {
		name   string
		change func(*v1beta1.ModprobeSpec)
	}{
		{"native", func(*v1beta1.ModprobeSpec) {}},
		{"args", func(m *v1beta1.ModprobeSpec) {
			// The program must know these: as parameters, the kernel would complain of them.
			m.Args = &v1beta1.ModprobeArgs{Load: []string{"--first-time"}, Unload: []string{"--first-time"}}
		}},
		{"raw-args", func(m *v1beta1.ModprobeSpec) {
			m.ModuleName, m.Parameters = "", nil
			m.RawArgs = &v1beta1.ModprobeArgs{
				Load:   []string{"--verbose", "--dirname=/tmp/opt", "drover-probed", probedText},
				Unload: []string{"-r", "-d", "/tmp/opt", probed},
			}
		}},
	}
	facts := map[string]string{}
	for _, way := range ways {
		if facts[way.name], err = s.loadedBy(ctx, way.name, image, way.change); err != nil {
			return fmt.Errorf("%s: %w", way.name, err)
		}
		if facts[way.name] != facts["native"] {
			return fmt.Errorf("%s: the kernel says %s, and %s of a native load", way.name, facts[way.name], facts["native"])
		}
	}
	return nil
}

// loadedBy lets a Module come and go, and returns what the kernel says of it meanwhile.
func (s *suite) loadedBy(ctx context.Context, name, image string, change func(*v1beta1.ModprobeSpec)) (string, error) {
	key := client.ObjectKey{Namespace: restricted, Name: "probed-" + name}
	m := module(key, artifacts.Linux61, image, probed, probedText)
	change(&m.Spec.ModuleLoader.Container.Modprobe)
	if err := s.client.Create(ctx, m); err != nil {
		return "", err
	}
	if err := s.eventually(ctx, "the Module is ready", func(ctx context.Context) error {
		return errors.Join(s.ready(ctx, artifacts.Linux61, key, probed), s.inKernel(ctx, artifacts.Linux61, probedNeeds, true))
	}); err != nil {
		return "", err
	}
	facts, err := s.console(ctx, probedFacts)
	if err != nil {
		return "", err
	}
	if err := s.expect(ctx, artifacts.Linux61, "cat /sys/module/"+probed+"/parameters/text", "two words"); err != nil {
		return "", err
	}
	if err := s.remove(ctx, key, probed); err != nil {
		return "", err
	}
	return facts, s.inKernel(ctx, artifacts.Linux61, probedNeeds, false)
}
