// SPDX-License-Identifier: Apache-2.0

//go:build linux

package loads

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
	"github.com/drover-project/drover/test/vm/artifacts"
	"github.com/drover-project/drover/test/vm/e2e/suite"
	"github.com/drover-project/drover/test/vm/uefi"
)

// What the kernel says at each try to load a module that it refuses. It does not name the module.
const (
	saysUnsigned = "Loading of unsigned module is rejected"
	saysNoKey    = "Loading of module with unavailable key is rejected"
)

// signature boots the first node with a certificate of ours in UEFI db and a kernel that enforces
// signatures.
func (s *Steps) signature(ctx context.Context) error {
	stranger, trusted, err := s.trustOne(ctx)
	if err != nil {
		return err
	}
	// The group's own Module, which has none, is ordered all the time.
	if err := s.rejected(ctx, Loader, saysUnsigned); err != nil {
		return err
	}
	if err := s.signAnew(ctx, stranger, trusted); err != nil {
		return err
	}
	// An agent that begins anew does not ask again either; longer than the first pauses between tries.
	if err := s.replaceAgent(ctx); err != nil {
		return err
	}
	return s.Throughout(ctx, 12*time.Second, func(ctx context.Context) error {
		return errors.Join(s.tried(ctx, saysUnsigned, 1), s.tried(ctx, saysNoKey, 1))
	})
}

// signedOnly does so where nothing else is ordered.
func (s *Steps) signedOnly(ctx context.Context) error {
	stranger, trusted, err := s.trustOne(ctx)
	if err != nil {
		return err
	}
	return s.signAnew(ctx, stranger, trusted)
}

// trustOne makes two keys, and has the first node's kernel trust one of them, and nothing that is
// unsigned.
func (s *Steps) trustOne(ctx context.Context) (stranger, trusted *synth.Owner, err error) {
	if trusted, err = synth.NewOwner("drover e2e: in db"); err != nil {
		return nil, nil, err
	}
	if stranger, err = synth.NewOwner("drover e2e: in no keyring"); err != nil {
		return nil, nil, err
	}
	return stranger, trusted, s.enforceSignatures(ctx, trusted.Certificate)
}

// enforceSignatures restarts the first node.
func (s *Steps) enforceSignatures(ctx context.Context, certificate *x509.Certificate) error {
	empty, err := os.ReadFile(uefi.EmptyVariables)
	if err != nil {
		return err
	}
	variables, err := uefi.Append(empty, uefi.Trust(certificate.Raw))
	if err != nil {
		return err
	}
	n := s.Nodes[artifacts.Linux61]
	n.SetUEFI(variables)
	n.SetKernelArgs(append(slices.Clone(s.KernelArgs), "module.sig_enforce=1")...)
	if err := s.Reboot(ctx); err != nil {
		return err
	}
	ready, cancel := context.WithTimeout(ctx, max(2*time.Minute, s.Patience))
	defer cancel()
	if _, err := n.WaitReady(ready, s.Core); err != nil {
		return err
	}
	return s.Expect(ctx, artifacts.Linux61, "cat /sys/module/module/parameters/sig_enforce", "Y")
}

// signAnew orders a module signed by a key that the node does not know, and then the same build
// signed by one that it trusts.
func (s *Steps) signAnew(ctx context.Context, stranger, trusted *synth.Owner) error {
	const name = "drover_refused"
	key := client.ObjectKey{Namespace: Restricted, Name: "signed"}
	image, err := s.pushSigned(ctx, name, stranger)
	if err != nil {
		return err
	}
	m := Module(key, artifacts.Linux61, image, name)
	if err := s.Client.Create(ctx, m); err != nil {
		return err
	}
	if err := s.rejected(ctx, key, saysNoKey); err != nil {
		return err
	}
	if image, err = s.pushSigned(ctx, name, trusted); err != nil {
		return err
	}
	before := m.DeepCopy()
	m.Spec.ModuleLoader.Container.KernelMappings[0].ContainerImage = image
	if err := s.Client.Patch(ctx, m, client.MergeFrom(before)); err != nil {
		return err
	}
	if err := s.Eventually(ctx, "the module with the trusted signature is ready", func(ctx context.Context) error {
		return s.Ready(ctx, artifacts.Linux61, key, name)
	}); err != nil {
		return err
	}
	// Out of the tree, but not unsigned.
	if err := s.Expect(ctx, artifacts.Linux61, "cat /sys/module/drover_refused/taint", "O"); err != nil {
		return err
	}
	return s.Remove(ctx, key, name)
}

func (s *Steps) pushSigned(ctx context.Context, name string, by *synth.Owner) (image string, err error) {
	content, err := s.NodeModule(ctx, name)
	if err != nil {
		return "", err
	}
	if content, err = by.Sign(content, synth.SignOptions{}); err != nil {
		return "", err
	}
	return s.PushModule(ctx, name, content, nil)
}

// replaceAgent kills the first node's agent and waits for the next one.
func (s *Steps) replaceAgent(ctx context.Context) error {
	old, err := s.Console(ctx, "echo "+suite.AgentPID)
	if err != nil {
		return err
	}
	if _, err := s.Console(ctx, "kill -9 "+old); err != nil {
		return err
	}
	return s.Eventually(ctx, "another agent runs", func(ctx context.Context) error {
		now, err := s.Console(ctx, "echo "+suite.AgentPID)
		if err == nil && (now == "" || now == old) {
			err = fmt.Errorf("process %q instead of another than %q", now, old)
		}
		return err
	})
}

// rejected waits until the node's status and the Module say so; the kernel has been asked once.
func (s *Steps) rejected(ctx context.Context, key client.ObjectKey, kernelSays string) error {
	if err := s.Eventually(ctx, "the signature of "+key.Name+" is rejected", func(ctx context.Context) error {
		return errors.Join(
			s.reasonIs(ctx, key, v1beta1.ReasonSignatureRejected),
			s.ConditionIs(ctx, key, v1beta1.ConditionLoaded, "False", v1beta1.ReasonSignatureRejected),
		)
	}); err != nil {
		return err
	}
	return s.tried(ctx, kernelSays, 1)
}

// tried compares how often the kernel said something in this boot.
func (s *Steps) tried(ctx context.Context, kernelSays string, times int) error {
	return s.Expect(ctx, artifacts.Linux61, "dmesg | grep -c '"+kernelSays+"' || true", strconv.Itoa(times))
}

// reasonIs checks the reason of a failed attempt in the first node's status.
func (s *Steps) reasonIs(ctx context.Context, key client.ObjectKey, reason string) error {
	nmc := &v1beta1.NodeModulesConfig{}
	if err := s.Client.Get(ctx, client.ObjectKey{Name: suite.NodeName(artifacts.Linux61)}, nmc); err != nil {
		return err
	}
	for _, a := range nmc.Status.Attempts {
		if a.Namespace == key.Namespace && a.Name == key.Name && a.State == v1beta1.AttemptFailed && a.Reason == reason {
			return nil
		}
	}
	return fmt.Errorf("no attempt of %s failed with %s: %+v", key, reason, nmc.Status.Attempts)
}
