// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta2"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
	"github.com/drover-project/drover/test/vm/registry"
)

// Kernels that no node runs.
const (
	kernelNext  = "6.1.0-99-arm64"
	kernelAfter = "6.12.99-arm64"
)

// ahead is a corner with Modules for kernels that no node runs, a registry, and a node that runs
// Jobs.
type ahead struct {
	*scenario
	registry *registry.Registry
}

var signerProgram = program("drover-signer")

func givenAhead(t *testing.T, name string) *ahead {
	t.Helper()
	a := &ahead{scenario: given(t, "preflight-"+name)}
	signer, err := signerProgram()
	a.must(err)
	a.registry, err = registry.Start()
	a.must(err)
	a.Cleanup(func() { a.must(a.registry.Down()) })
	a.startKubelet(signer)
	return a
}

// repository is where a Module's images are.
func (a *ahead) repository(name string) string { return a.key.Namespace + "/" + name }

// reference is the image of a Module for a kernel.
func (a *ahead) reference(name, kernel string) string {
	return fmt.Sprintf("127.0.0.1:%d/%s:%s", a.registry.Port(), a.repository(name), kernel)
}

// compiled is what a compiler makes of a kernel module for a kernel.
func compiled(name, kernel string) []byte {
	return synth.Module{Name: name, Vermagic: kernel + " SMP preempt mod_unload aarch64", Machine: synth.MachineAArch64}.Bytes()
}

// push puts an image for one kernel, with a kernel module that is compiled for another or the same,
// into the registry.
func (a *ahead) push(name, kernel, compiledFor string) {
	a.Helper()
	image, err := registry.Image(registry.Spec{Files: map[string]registry.File{
		"/opt/lib/modules/" + kernel + "/extra/" + name + ".ko": {Content: compiled(name, compiledFor)},
	}})
	a.must(err)
	_, _, err = a.registry.Push(a.Context(), a.repository(name)+":"+kernel, image)
	a.must(err)
}

// pushed are the tags and digests of manifests that a Module's repository was sent.
func (a *ahead) pushed(name string) (sent []registry.Push) {
	for _, p := range a.registry.Pushes() {
		if p.Repository == a.repository(name) && p.Manifest {
			sent = append(sent, p)
		}
	}
	return sent
}

// future makes a Module whose image the registry has, on nodes that are not there.
func (a *ahead) future(name string, changes ...func(*v1beta1.Module)) {
	a.Helper()
	m := a.module(append([]func(*v1beta1.Module){func(m *v1beta1.Module) {
		m.Name = name
		m.Spec.Selector = map[string]string{a.selector(): "yes"}
		m.Spec.ModuleLoader.Container.Modprobe.ModuleName = name
		m.Spec.ModuleLoader.Container.RegistryTLS.Insecure = true
		m.Spec.ModuleLoader.Container.KernelMappings[0].ContainerImage = a.reference(name, "${KERNEL_FULL_VERSION}")
	}}, changes...)...)
	a.leave(client.ObjectKeyFromObject(m), name)
	a.must(shared.Admin.Create(a.Context(), m))
}

// building makes a Module's image be compiled with a command of the shell in a folder with a file
// per kernel.
func (a *ahead) building(command string) func(*v1beta1.Module) {
	return func(m *v1beta1.Module) {
		a.Helper()
		source := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: a.key.Namespace, Name: m.Name + "-source"},
			Data: map[string]string{}}
		for _, kernel := range []string{kernelNext, kernelAfter} {
			source.Data[kernel] = base64.StdEncoding.EncodeToString(compiled(m.Name, kernel))
		}
		a.must(shared.Admin.Create(a.Context(), source))
		// The Module's own nodes are not there yet.
		anywhere := map[string]string{corev1.LabelOSStable: "linux"}
		m.Spec.ModuleLoader.Container.Build = &v1beta1.Build{Selector: anywhere, Native: &v1beta1.NativeBuild{
			ToolchainImage: "registry.example.com/toolchain:1", SourceConfigMap: &corev1.LocalObjectReference{Name: source.Name},
			Command: []string{"/bin/sh", "-ec", command},
		}}
	}
}

// compiles is the command that stands for a compiler.
func compiles(name string) string {
	return `base64 -d "$KERNEL_FULL_VERSION" >` + name + `.ko`
}

// signed makes a Module's image be signed with a key that is in a Secret.
func (a *ahead) signed() func(*v1beta1.Module) {
	return func(m *v1beta1.Module) {
		a.Helper()
		private, err := rsa.GenerateKey(rand.Reader, 2048)
		a.must(err)
		template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "e2e"}, NotAfter: time.Now().AddDate(1, 0, 0)}
		certificate, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
		a.must(err)
		key, err := x509.MarshalPKCS8PrivateKey(private)
		a.must(err)
		a.must(shared.Admin.Create(a.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: a.key.Namespace, Name: "signing"},
			Data: map[string][]byte{
				"key":  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
				"cert": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}),
			},
		}))
		in := &corev1.LocalObjectReference{Name: "signing"}
		m.Spec.ModuleLoader.Container.Sign = &v1beta1.Sign{
			KeySecret: in, CertSecret: in, FilesToSign: []string{"/opt/lib/modules/${KERNEL_FULL_VERSION}/extra/*.ko"},
		}
	}
}

// ask makes a PreflightValidation for the corner's Modules.
func (a *ahead) ask(kernel string, push bool) *v1beta2.PreflightValidation {
	a.Helper()
	p := &v1beta2.PreflightValidation{
		ObjectMeta: metav1.ObjectMeta{GenerateName: a.key.Namespace + "-"},
		Spec: v1beta2.PreflightValidationSpec{
			KernelVersion: kernel, PushBuiltImage: push, Labels: map[string]string{a.selector(): "yes", corev1.LabelArchStable: builderArch},
		},
	}
	a.must(shared.Admin.Create(a.Context(), p))
	a.Cleanup(func() { a.takeBack(p) })
	return p
}

func (a *ahead) takeBack(p *v1beta2.PreflightValidation) {
	a.Helper()
	a.must(client.IgnoreNotFound(shared.Admin.Delete(context.WithoutCancel(a.Context()), p)))
}

// answer waits until a preflight has found something of so many Modules, and nothing is looked at
// any more.
func (a *ahead) answer(p *v1beta2.PreflightValidation, status metav1.ConditionStatus, reason string, modules int) {
	a.Helper()
	a.eventually(fmt.Sprintf("%s is answered with %s", p.Name, reason), func(ctx context.Context) error {
		if err := shared.Admin.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		c := meta.FindStatusCondition(p.Status.Conditions, v1beta1.ConditionReady)
		if c == nil || c.Status != status || c.Reason != reason || len(p.Status.Modules) != modules {
			return fmt.Errorf("Ready is %+v, and %d Modules are told of", c, len(p.Status.Modules))
		}
		for _, m := range p.Status.Modules {
			if m.VerificationStatus == v1beta2.VerificationInProgress {
				return fmt.Errorf("%s is still looked at: %s: %s", m.Name, m.Reason, m.StatusReason)
			}
		}
		return nil
	})
}

// found fails the test unless a preflight says this of a Module, and all words.
func (a *ahead) found(p *v1beta2.PreflightValidation, module string, status v1beta2.VerificationStatus, reason string, words ...string) {
	a.Helper()
	at := slices.IndexFunc(p.Status.Modules, func(m v1beta2.PreflightValidationModuleStatus) bool { return m.Name == module })
	if at < 0 {
		a.Fatalf("%s says nothing of %s: %+v", p.Name, module, p.Status.Modules)
	}
	m := &p.Status.Modules[at]
	if m.VerificationStatus != status || m.Reason != reason {
		a.Errorf("%s is %s %q, want %s %q: %s", module, m.VerificationStatus, m.Reason, status, reason, m.StatusReason)
	}
	for _, word := range words {
		if !strings.Contains(m.StatusReason, word) {
			a.Errorf("of %s it does not say %q: %s", module, word, m.StatusReason)
		}
	}
}

// made are the ModuleImages of a Module, and their Jobs.
func (a *ahead) made(ctx context.Context, module string) ([]v1alpha1.ModuleImage, []batchv1.Job, error) {
	var images v1alpha1.ModuleImageList
	var jobs batchv1.JobList
	of := client.MatchingLabels{v1beta1.ModuleNameLabel: module}
	err := errors.Join(
		shared.Admin.List(ctx, &images, client.InNamespace(a.key.Namespace), of),
		shared.Admin.List(ctx, &jobs, client.InNamespace(a.key.Namespace), of))
	return images.Items, jobs.Items, err
}

// steps are the names of a Job's containers, in their order.
func steps(job *batchv1.Job) (names []string) {
	for _, c := range slices.Concat(job.Spec.Template.Spec.InitContainers, job.Spec.Template.Spec.Containers) {
		names = append(names, c.Name)
	}
	return names
}
