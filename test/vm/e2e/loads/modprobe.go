// SPDX-License-Identifier: Apache-2.0

//go:build linux

package loads

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
	// Probed is the module that modprobe loads.
	Probed = "drover_probed"
	// probedNeeds is the kernel's own module that it needs.
	probedNeeds = "crc_itu_t"
	// probedFacts are what the kernel says of both that does not depend on the moment of the load.
	probedFacts = "for f in /sys/module/" + Probed + "/initstate /sys/module/" + Probed + "/taint /sys/module/" + Probed +
		"/parameters/text /sys/module/" + Probed +
		"/notes/.note.gnu.build-id /sys/module/" + probedNeeds + "/initstate /sys/module/" + probedNeeds + "/holders; do " +
		"if test -d $f; then ls $f; else md5sum < $f; fi; done; dmesg | grep -o '" + Probed + ": loaded, .*' | tail -n 1"
	probedText = "text=two words"
)

// modprobe loads one module in three ways: by the agent itself, and by kmod's program with args and
// with rawArgs. It needs a module of the kernel's own, and depmod has never seen its image. The
// kernel must show the same each time, and nothing of it in the end.
func (s *Steps) modprobe(ctx context.Context) error {
	if err := s.Namespace(ctx, Restricted, "restricted"); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	content, err := s.NodeModule(ctx, Probed)
	if err != nil {
		return err
	}
	image, err := s.PushModule(ctx, Probed, content, nil)
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
				Unload: []string{"-r", "-d", "/tmp/opt", Probed},
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
func (s *Steps) loadedBy(ctx context.Context, name, image string, change func(*v1beta1.ModprobeSpec)) (string, error) {
	key := client.ObjectKey{Namespace: Restricted, Name: "probed-" + name}
	m := Module(key, artifacts.Linux61, image, Probed, probedText)
	change(&m.Spec.ModuleLoader.Container.Modprobe)
	if err := s.Client.Create(ctx, m); err != nil {
		return "", err
	}
	if err := s.Eventually(ctx, "the Module is ready", func(ctx context.Context) error {
		return errors.Join(s.Ready(ctx, artifacts.Linux61, key, Probed), s.InKernel(ctx, artifacts.Linux61, probedNeeds, true))
	}); err != nil {
		return "", err
	}
	facts, err := s.Console(ctx, probedFacts)
	if err != nil {
		return "", err
	}
	if err := s.Expect(ctx, artifacts.Linux61, "cat /sys/module/"+Probed+"/parameters/text", "two words"); err != nil {
		return "", err
	}
	if err := s.Remove(ctx, key, Probed); err != nil {
		return "", err
	}
	return facts, s.InKernel(ctx, artifacts.Linux61, probedNeeds, false)
}
