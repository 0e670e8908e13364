// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/images"
	"github.com/drover-project/drover/test/vm/artifacts"
	"github.com/drover-project/drover/test/vm/kmodbuild"
	"github.com/drover-project/drover/test/vm/registry"
)

// nodeModule compiles this group's modules for the first node's kernel and returns the file of one.
func (s *suite) nodeModule(ctx context.Context, name string) ([]byte, error) {
	source := filepath.Join(s.cache.Repository(), "test", "vm", "kmods", "drover-node")
	built, err := kmodbuild.Build(ctx, s.cache, s.images.Kernels[artifacts.Linux61], source)
	if err != nil {
		return nil, err
	}
	path, ok := built[name]
	if !ok {
		return nil, fmt.Errorf("%s was not built", name)
	}
	return readFile(path)
}

// pushModule pushes an image with one module and more files.
func (s *suite) pushModule(ctx context.Context, name string, content []byte, more map[string]registry.File) (string, error) {
	files := map[string]registry.File{images.KmodPath(s.images.Kernels[artifacts.Linux61].Release, name+".ko"): {Content: content}}
	for path, file := range more {
		files[path] = file
	}
	image, err := registry.Image(registry.Spec{Files: files})
	if err != nil {
		return "", err
	}
	tagged, _, err := s.registry.Push(ctx, fmt.Sprintf("kmods/%s:%d", name, time.Now().UnixNano()), image)
	return tagged, err
}

// refuse asks for a damaged module and waits until the Module says why it is not loaded. tries is how often the kernel may have been asked.
func (s *suite) refuse(ctx context.Context, damage func([]byte) ([]byte, error), reason, kernelSays string, tries int) error {
	const name = "drover_refused"
	content, err := s.nodeModule(ctx, name)
	if err != nil {
		return err
	}
	if content, err = damage(content); err != nil {
		return err
	}
	image, err := s.pushModule(ctx, name, content, nil)
	if err != nil {
		return err
	}
	key := client.ObjectKey{Namespace: restricted, Name: "refused"}
	before, err := s.count(ctx, "dmesg | grep -c '"+kernelSays+"' || true")
	if err != nil {
		return err
	}
	if err := s.client.Create(ctx, module(key, artifacts.Linux61, image, name)); err != nil {
		return err
	}
	if err := s.eventually(ctx, "the Module says why", func(ctx context.Context) error {
		return s.conditionIs(ctx, key, v1beta1.ConditionLoaded, "False", reason)
	}); err != nil {
		return err
	}
	// Longer than the first pauses between tries.
	if err := s.throughout(ctx, 12*time.Second, func(ctx context.Context) error {
		after, err := s.count(ctx, "dmesg | grep -c '"+kernelSays+"' || true")
		if err == nil && after-before != tries {
			err = fmt.Errorf("the kernel was asked %d times, not %d", after-before, tries)
		}
		return err
	}); err != nil {
		return err
	}
	return s.remove(ctx, key, name)
}

// vermagic changes a flag that the kernel compares: certain, so that the kernel is never asked.
func (s *suite) vermagic(ctx context.Context) error {
	return s.refuse(ctx, func(content []byte) ([]byte, error) {
		return replaced(content, []byte(" SMP preempt "), []byte(" SMP preempX "))
	}, v1beta1.ReasonVermagicMismatch, "drover_refused: version magic", 0)
}

// symbolCRC changes the CRC of a symbol: the kernel is asked once and its answer is the reason.
func (s *suite) symbolCRC(ctx context.Context) error {
	// Another build too: what the kernel refuses here must not be held against the whole one, which later steps load.
	return s.refuse(ctx, func(content []byte) ([]byte, error) {
		other, err := otherBuild(content)
		if err != nil {
			return nil, err
		}
		return otherCRC(other)
	}, v1beta1.ReasonUnknownSymbol, "drover_refused: disagrees about version", 1)
}

// otherCRC changes what a module expects of _printk.
func otherCRC(content []byte) ([]byte, error) {
	// An entry of __versions: the CRC in 8 bytes, then the name in 56.
	entry := append([]byte("_printk"), make([]byte, 40)...)
	at := bytes.Index(content, entry)
	if at < 8 {
		return nil, errors.New("the module has no CRC of _printk")
	}
	changed := bytes.Clone(content)
	changed[at-8] ^= 1
	return changed, nil
}

func replaced(content, old, new []byte) ([]byte, error) {
	if bytes.Count(content, old) != 1 {
		return nil, fmt.Errorf("the module holds %q %d times", old, bytes.Count(content, old))
	}
	return bytes.Replace(content, old, new, 1), nil
}

// firmware delivers a module that loads only with its firmware.
func (s *suite) firmware(ctx context.Context) error {
	const name = "drover_firmware"
	content, err := s.nodeModule(ctx, name)
	if err != nil {
		return err
	}
	image, err := s.pushModule(ctx, name, content, map[string]registry.File{"/firmware/drover/blob.bin": {Content: []byte("as delivered")}})
	if err != nil {
		return err
	}
	key := client.ObjectKey{Namespace: restricted, Name: "firmware"}
	m := module(key, artifacts.Linux61, image, name)
	m.Spec.ModuleLoader.Container.Modprobe.FirmwarePath = "/firmware"
	if err := s.client.Create(ctx, m); err != nil {
		return err
	}
	if err := s.eventually(ctx, "the module is ready", func(ctx context.Context) error {
		return s.ready(ctx, artifacts.Linux61, key, name)
	}); err != nil {
		return err
	}
	if err := s.expect(ctx, artifacts.Linux61, "dmesg | grep -o 'drover_firmware: firmware is .*'", "drover_firmware: firmware is as delivered"); err != nil {
		return err
	}
	if err := s.remove(ctx, key, name); err != nil {
		return err
	}
	return s.eventually(ctx, "the firmware is gone", func(ctx context.Context) error {
		return s.expect(ctx, artifacts.Linux61, "ls /var/lib/firmware/drover/blob.bin 2>/dev/null || echo none; cat /sys/module/firmware_class/parameters/path", "none")
	})
}

// inTree replaces a module of the kernel's own, which another one uses. Both come back.
func (s *suite) inTree(ctx context.Context) error {
	const name = "drover_refused"
	content, err := s.nodeModule(ctx, name)
	if err != nil {
		return err
	}
	image, err := s.pushModule(ctx, name, content, nil)
	if err != nil {
		return err
	}
	if _, err := s.console(ctx, "modprobe bonding"); err != nil {
		return err
	}
	both := func(ctx context.Context, want bool) error {
		return errors.Join(s.inKernel(ctx, artifacts.Linux61, "bonding", want), s.inKernel(ctx, artifacts.Linux61, "tls", want))
	}
	if err := both(ctx, true); err != nil {
		return err
	}
	key := client.ObjectKey{Namespace: restricted, Name: "in-tree"}
	m := module(key, artifacts.Linux61, image, name)
	m.Spec.ModuleLoader.Container.InTreeModulesToRemove = []string{"tls"}
	if err := s.client.Create(ctx, m); err != nil {
		return err
	}
	if err := s.eventually(ctx, "the module is loaded in place of the kernel's own", func(ctx context.Context) error {
		return errors.Join(s.ready(ctx, artifacts.Linux61, key, name), both(ctx, false))
	}); err != nil {
		return err
	}
	if err := s.remove(ctx, key, name); err != nil {
		return err
	}
	return s.eventually(ctx, "the kernel's own are back", func(ctx context.Context) error { return both(ctx, true) })
}

// crash lets a module take the node down; the next boot keeps it out for a while and serves. When it has done so twice, it is quarantined.
func (s *suite) crash(ctx context.Context) error {
	const name = "drover_crash"
	content, err := s.nodeModule(ctx, name)
	if err != nil {
		return err
	}
	image, err := s.pushModule(ctx, name, content, nil)
	if err != nil {
		return err
	}
	key := client.ObjectKey{Namespace: restricted, Name: "crash"}
	if err := s.client.Create(ctx, module(key, artifacts.Linux61, image, name)); err != nil {
		return err
	}
	if err := s.wentDown(ctx); err != nil {
		return err
	}
	// Without evidence it waits, and the node serves meanwhile: the group's Module is loaded again.
	if err := s.eventually(ctx, "the Module says that its build is held", func(ctx context.Context) error {
		return errors.Join(s.conditionIs(ctx, key, v1beta1.ConditionLoaded, "False", v1beta1.ReasonQuarantined), s.ready(ctx, artifacts.Linux61, loader, sample))
	}); err != nil {
		return err
	}
	if err := s.holdIs(ctx, key, v1beta1.AttemptWaiting); err != nil {
		return err
	}
	// The node's clock goes on by more than the wait after the first strike.
	if _, err := s.console(ctx, `date -s "@$(( $(date +%s) + 360 ))"`); err != nil {
		return err
	}
	if err := s.wentDown(ctx); err != nil {
		return err
	}
	if err := s.eventually(ctx, "the build is quarantined, and the node serves", func(ctx context.Context) error {
		return errors.Join(s.holdIs(ctx, key, v1beta1.AttemptFailed), s.ready(ctx, artifacts.Linux61, loader, sample))
	}); err != nil {
		return err
	}
	return s.remove(ctx, key, name)
}

// holdIs checks how the node's status says that a build is held.
func (s *suite) holdIs(ctx context.Context, key client.ObjectKey, state v1beta1.AttemptState) error {
	a, err := s.attempt(ctx, key)
	if err == nil && (a.State != state || a.Reason != v1beta1.ReasonQuarantined) {
		err = fmt.Errorf("the attempt is %s (%s) instead of %s: %s", a.State, a.Reason, state, a.Message)
	}
	return err
}

// wentDown waits for the node's end and starts it again.
func (s *suite) wentDown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	n := s.nodes[artifacts.Linux61]
	select {
	case <-n.Ended():
	case <-ctx.Done():
		return fmt.Errorf("the node did not go down: %w", ctx.Err())
	}
	if err := n.Kill(); err != nil { // what is left of it
		return err
	}
	if err := n.PowerOn(); err != nil {
		return err
	}
	found, err := n.WaitReady(ctx, s.core)
	if err == nil {
		s.boots = append(s.boots, found.Status.NodeInfo.BootID)
	}
	return err
}
