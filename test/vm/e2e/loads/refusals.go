// SPDX-License-Identifier: Apache-2.0

//go:build linux

package loads

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/images"
	"github.com/drover-project/drover/test/vm/artifacts"
	"github.com/drover-project/drover/test/vm/e2e/suite"
	"github.com/drover-project/drover/test/vm/kmodbuild"
	"github.com/drover-project/drover/test/vm/registry"
)

// NodeModule compiles this group's modules for the first node's kernel and returns the file of one.
func (s *Steps) NodeModule(ctx context.Context, name string) ([]byte, error) {
	source := filepath.Join(s.Cache.Repository(), "test", "vm", "kmods", "drover-node")
	built, err := kmodbuild.Build(ctx, s.Cache, s.Images.Kernels[artifacts.Linux61], source)
	if err != nil {
		return nil, err
	}
	path, ok := built[name]
	if !ok {
		return nil, fmt.Errorf("%s was not built", name)
	}
	return os.ReadFile(path)
}

// PushNodeModule compiles one of this group's modules and pushes it with more files.
func (s *Steps) PushNodeModule(ctx context.Context, name string, more map[string]registry.File) (string, error) {
	content, err := s.NodeModule(ctx, name)
	if err != nil {
		return "", err
	}
	return s.PushModule(ctx, name, content, more)
}

// PushModule pushes an image with one module and more files.
func (s *Steps) PushModule(ctx context.Context, name string, content []byte, more map[string]registry.File) (string, error) {
	files := map[string]registry.File{images.KmodPath(s.Images.Kernels[artifacts.Linux61].Release, name+".ko"): {Content: content}}
	for path, file := range more {
		files[path] = file
	}
	image, err := registry.Image(registry.Spec{Files: files})
	if err != nil {
		return "", err
	}
	tagged, _, err := s.Registry.Push(ctx, fmt.Sprintf("kmods/%s:%d", name, time.Now().UnixNano()), image)
	return tagged, err
}

// refuse asks for a damaged module and waits until the Module says why it is not loaded. tries is
// how often the kernel may have been asked.
func (s *Steps) refuse(ctx context.Context, damage func([]byte) ([]byte, error), reason, kernelSays string, tries int) error {
	const name = "drover_refused"
	content, err := s.NodeModule(ctx, name)
	if err != nil {
		return err
	}
	if content, err = damage(content); err != nil {
		return err
	}
	image, err := s.PushModule(ctx, name, content, nil)
	if err != nil {
		return err
	}
	key := client.ObjectKey{Namespace: Restricted, Name: "refused"}
	before, err := s.Count(ctx, "dmesg | grep -c '"+kernelSays+"' || true")
	if err != nil {
		return err
	}
	if err := s.Client.Create(ctx, Module(key, artifacts.Linux61, image, name)); err != nil {
		return err
	}
	if err := s.Eventually(ctx, "the Module says why", func(ctx context.Context) error {
		return s.ConditionIs(ctx, key, v1beta1.ConditionLoaded, "False", reason)
	}); err != nil {
		return err
	}
	// Longer than the first pauses between tries.
	if err := s.Throughout(ctx, 12*time.Second, func(ctx context.Context) error {
		after, err := s.Count(ctx, "dmesg | grep -c '"+kernelSays+"' || true")
		if err == nil && after-before != tries {
			err = fmt.Errorf("the kernel was asked %d times, not %d", after-before, tries)
		}
		return err
	}); err != nil {
		return err
	}
	return s.Remove(ctx, key, name)
}

// vermagic changes a flag that the kernel compares: certain, so that the kernel is never asked.
func (s *Steps) vermagic(ctx context.Context) error {
	return s.refuse(ctx, func(content []byte) ([]byte, error) {
		return replaced(content, []byte(" SMP preempt "), []byte(" SMP preempX "))
	}, v1beta1.ReasonVermagicMismatch, "drover_refused: version magic", 0)
}

// symbolCRC changes the CRC of a symbol: the kernel is asked once and its answer is the reason.
func (s *Steps) symbolCRC(ctx context.Context) error {
	// Another build too: what the kernel refuses here must not be held against the whole one, which
	// later steps load.
	return s.refuse(ctx, func(content []byte) ([]byte, error) {
		other, err := otherBuild(content)
		if err != nil {
			return nil, err
		}
		return OtherCRC(other)
	}, v1beta1.ReasonUnknownSymbol, "drover_refused: disagrees about version", 1)
}

// OtherCRC changes what a module expects of _printk.
func OtherCRC(content []byte) ([]byte, error) {
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
func (s *Steps) firmware(ctx context.Context) error {
	const name = "drover_firmware"
	image, err := s.PushNodeModule(ctx, name, map[string]registry.File{"/firmware/drover/blob.bin": {Content: []byte("as delivered")}})
	if err != nil {
		return err
	}
	key := client.ObjectKey{Namespace: Restricted, Name: "firmware"}
	m := Module(key, artifacts.Linux61, image, name)
	m.Spec.ModuleLoader.Container.Modprobe.FirmwarePath = "/firmware"
	if err := s.Client.Create(ctx, m); err != nil {
		return err
	}
	if err := s.Eventually(ctx, "the module is ready", func(ctx context.Context) error {
		return s.Ready(ctx, artifacts.Linux61, key, name)
	}); err != nil {
		return err
	}
	if err := s.Expect(ctx, artifacts.Linux61, "dmesg | grep -o 'drover_firmware: firmware is .*'",
		"drover_firmware: firmware is as delivered"); err != nil {
		return err
	}
	if err := s.Remove(ctx, key, name); err != nil {
		return err
	}
	return s.Eventually(ctx, "the firmware is gone", func(ctx context.Context) error {
		return s.Expect(ctx, artifacts.Linux61, "ls /var/lib/firmware/drover/blob.bin 2>/dev/null || echo none; cat "+
			"/sys/module/firmware_class/parameters/path", "none")
	})
}

// crash lets a module take the node down; the next boot keeps it out for a while and serves. When
// it has done so twice, it is quarantined.
func (s *Steps) crash(ctx context.Context) error {
	const name = "drover_crash"
	image, err := s.PushNodeModule(ctx, name, nil)
	if err != nil {
		return err
	}
	key := client.ObjectKey{Namespace: Restricted, Name: "crash"}
	if err := s.Client.Create(ctx, Module(key, artifacts.Linux61, image, name)); err != nil {
		return err
	}
	if err := s.wentDown(ctx); err != nil {
		return err
	}
	// Without evidence it waits, and the node serves meanwhile: the group's Module is loaded again.
	if err := s.Eventually(ctx, "the Module says that its build is held", func(ctx context.Context) error {
		return errors.Join(s.ConditionIs(ctx, key, v1beta1.ConditionLoaded, "False", v1beta1.ReasonQuarantined),
			s.Ready(ctx, artifacts.Linux61, Loader, Sample))
	}); err != nil {
		return err
	}
	if err := s.holdIs(ctx, key, v1beta1.AttemptWaiting); err != nil {
		return err
	}
	// The node's clock goes on by more than the wait after the first strike.
	if _, err := s.Console(ctx, `date -s "@$(( $(date +%s) + 360 ))"`); err != nil {
		return err
	}
	if err := s.wentDown(ctx); err != nil {
		return err
	}
	if err := s.Eventually(ctx, "the build is quarantined, and the node serves", func(ctx context.Context) error {
		return errors.Join(s.holdIs(ctx, key, v1beta1.AttemptFailed), s.Ready(ctx, artifacts.Linux61, Loader, Sample))
	}); err != nil {
		return err
	}
	return s.Remove(ctx, key, name)
}

// holdIs checks how the node's status says that a build is held.
func (s *Steps) holdIs(ctx context.Context, key client.ObjectKey, state v1beta1.AttemptState) error {
	a, err := s.attempt(ctx, key)
	if err == nil && (a.State != state || a.Reason != v1beta1.ReasonQuarantined) {
		err = fmt.Errorf("the attempt is %s (%s) instead of %s: %s", a.State, a.Reason, state, a.Message)
	}
	return err
}

// wentDown waits for the node's end and starts it again.
func (s *Steps) wentDown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, max(2*time.Minute, s.Patience))
	defer cancel()
	n := s.Nodes[artifacts.Linux61]
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
	found, err := n.WaitReady(ctx, s.Core)
	if err == nil {
		s.Boots = append(s.Boots, found.Status.NodeInfo.BootID)
	}
	return err
}

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
func (s *Steps) rolledBack(ctx context.Context) error {
	const name, loaded = "drover_refused", "dmesg | grep -c 'drover_refused: loaded' || true"
	good, err := s.NodeModule(ctx, name)
	if err != nil {
		return err
	}
	bad, err := withBuildID(good, 2) // not the one that symbolCRC has shown
	if err != nil {
		return err
	}
	if bad, err = OtherCRC(bad); err != nil {
		return err
	}
	before, err := s.PushModule(ctx, name, good, nil)
	if err != nil {
		return err
	}
	after, err := s.PushModule(ctx, name, bad, nil)
	if err != nil {
		return err
	}
	key := client.ObjectKey{Namespace: Restricted, Name: "rolled-back"}
	m := Module(key, artifacts.Linux61, before, name)
	if err := s.Client.Create(ctx, m); err != nil {
		return err
	}
	if err := s.Eventually(ctx, "the first build is ready", func(ctx context.Context) error {
		return s.Ready(ctx, artifacts.Linux61, key, name)
	}); err != nil {
		return err
	}
	had, err := s.Count(ctx, loaded)
	if err != nil {
		return err
	}
	changed := m.DeepCopy()
	changed.Spec.ModuleLoader.Container.KernelMappings[0].ContainerImage = after
	if err := s.Client.Patch(ctx, changed, client.MergeFrom(m)); err != nil {
		return err
	}
	if err := s.Eventually(ctx, "the first build is back", func(ctx context.Context) error {
		if err := s.ConditionIs(ctx, key, v1beta1.ConditionLoaded, "False", v1beta1.ReasonRolledBack); err != nil {
			return err
		}
		now, err := s.Count(ctx, loaded)
		if err == nil && now != had+1 {
			err = errors.New("the first build was not loaded once more")
		}
		return errors.Join(err, s.InKernel(ctx, artifacts.Linux61, name, true), s.serves(ctx, key, before))
	}); err != nil {
		return err
	}
	return s.Remove(ctx, key, name)
}

// serves checks which image the node's status says is loaded.
func (s *Steps) serves(ctx context.Context, key client.ObjectKey, image string) error {
	nmc := &v1beta1.NodeModulesConfig{}
	if err := s.Client.Get(ctx, client.ObjectKey{Name: suite.NodeName(artifacts.Linux61)}, nmc); err != nil {
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
