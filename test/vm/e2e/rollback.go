// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/test/vm/artifacts"
)

// otherBuild makes a module another build than the one it was copied from.
func otherBuild(content []byte) ([]byte, error) { return withBuildID(content, 1) }

func withBuildID(content []byte, flip byte) ([]byte, error) {
	// A note: the sizes of name and content, the type NT_GNU_BUILD_ID (3), the name, the build ID.
	note := append([]byte{4, 0, 0, 0, 20, 0, 0, 0, 3, 0, 0, 0}, "GNU\x00"...)
	at := bytes.Index(content, note)
	if at < 0 || at+len(note) >= len(content) {
		return nil, errors.New("the module has no build ID")
	}
	changed := bytes.Clone(content)
	changed[at+len(note)] ^= flip
	return changed, nil
}

// rolledBack orders a new build that the kernel refuses, after the old one had to go for it.
func (s *suite) rolledBack(ctx context.Context) error {
	const name, loaded = "drover_refused", "dmesg | grep -c 'drover_refused: loaded' || true"
	good, err := s.nodeModule(ctx, name)
	if err != nil {
		return err
	}
	bad, err := withBuildID(good, 2) // not the one that symbolCRC has shown
	if err != nil {
		return err
	}
	if bad, err = otherCRC(bad); err != nil {
		return err
	}
	before, err := s.pushModule(ctx, name, good, nil)
	if err != nil {
		return err
	}
	after, err := s.pushModule(ctx, name, bad, nil)
	if err != nil {
		return err
	}
	key := client.ObjectKey{Namespace: restricted, Name: "rolled-back"}
	m := module(key, artifacts.Linux61, before, name)
	if err := s.client.Create(ctx, m); err != nil {
		return err
	}
	if err := s.eventually(ctx, "the first build is ready", func(ctx context.Context) error {
		return s.ready(ctx, artifacts.Linux61, key, name)
	}); err != nil {
		return err
	}
	had, err := s.count(ctx, loaded)
	if err != nil {
		return err
	}
	changed := m.DeepCopy()
	changed.Spec.ModuleLoader.Container.KernelMappings[0].ContainerImage = after
	if err := s.client.Patch(ctx, changed, client.MergeFrom(m)); err != nil {
		return err
	}
	if err := s.eventually(ctx, "the first build is back", func(ctx context.Context) error {
		if err := s.conditionIs(ctx, key, v1beta1.ConditionLoaded, "False", v1beta1.ReasonRolledBack); err != nil {
			return err
		}
		now, err := s.count(ctx, loaded)
		if err == nil && now != had+1 {
			err = errors.New("the first build was not loaded once more")
		}
		return errors.Join(err, s.inKernel(ctx, artifacts.Linux61, name, true), s.serves(ctx, key, before))
	}); err != nil {
		return err
	}
	return s.remove(ctx, key, name)
}

// serves checks which image the node's status says is loaded.
func (s *suite) serves(ctx context.Context, key client.ObjectKey, image string) error {
	nmc := &v1beta1.NodeModulesConfig{}
	if err := s.client.Get(ctx, client.ObjectKey{Name: nodeName(artifacts.Linux61)}, nmc); err != nil {
		return err
	}
	var live []string
	for i := range nmc.Status.Modules {
		if l := &nmc.Status.Modules[i]; l.Namespace == key.Namespace && l.Name == key.Name {
			if l.Config.ContainerImage == image {
				return nil
			}
			live = append(live, l.Config.ContainerImage)
		}
	}
	return errors.New("live is " + strings.Join(live, ", ") + " instead of " + image)
}
