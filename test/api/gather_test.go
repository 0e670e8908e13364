// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta2"
	"github.com/drover-project/drover/internal/testkit/devcluster"
	"github.com/drover-project/drover/internal/testkit/env"
)

// TestMustGather: the script of the image collects our objects and what is made for them, changes
// nothing, and never asks for a Secret or ConfigMap.
func TestMustGather(t *testing.T) {
	e := env.Get(t)
	admin, namespace := e.Admin(t), e.Namespace(t)
	module := valid()
	module.Namespace = namespace
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "build-1", Labels: map[string]string{v1beta1.ModuleNameLabel: module.Name}},
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "i"}},
		}}},
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "key"},
		StringData: map[string]string{"key": "do-not-tell"}}
	asks := &v1beta2.PreflightValidation{ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Spec: v1beta2.PreflightValidationSpec{KernelVersion: "6.1.0-44-amd64"}}
	t.Cleanup(func() {
		if err := admin.Delete(context.WithoutCancel(t.Context()), asks); err != nil {
			t.Error(err)
		}
	})
	policy := policed(t, admin, namespace, func(spec *v1alpha1.ModulePolicySpec) { spec.Mode = v1alpha1.PolicyAudit })
	for _, err := range []error{admin.Create(t.Context(), asks), admin.Create(t.Context(), module), admin.Create(t.Context(), job),
		admin.Create(t.Context(), secret)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	assets, err := devcluster.Assets(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	kubeconfig := writeKubeconfig(t, e.UserConfig(t, "gather-"+namespace, "system:masters"))
	mark := e.Mark(t)
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "../../images/drover-must-gather/gather", out)
	cmd.Env = append(os.Environ(), "PATH="+assets+":"+os.Getenv("PATH"), "KUBECONFIG="+kubeconfig, "HOME="+t.TempDir())
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	for file, says := range map[string]string{
		"version.txt": "Server Version", "cluster/modules.yaml": module.Name, "cluster/crds.yaml": "moduleimages.drover.dev",
		"cluster/modulepolicies.yaml": policy.Name,
		"cluster/policies.yaml":       "drover-modules", "cluster/preflightvalidations.yaml": asks.Name, namespace + "/workloads.yaml": "build-1",
	} {
		if raw, err := os.ReadFile(filepath.Join(out, file)); err != nil || !strings.Contains(string(raw), says) {
			t.Errorf("%s does not say %s: %v", file, says, err)
		}
	}
	asked := 0
	for _, r := range e.Requests(t, mark) {
		if !strings.HasPrefix(r.UserAgent, "kubectl") {
			continue
		}
		asked++
		if r.IsWrite() || r.ObjectRef.Resource == "secrets" || r.ObjectRef.Resource == "configmaps" {
			t.Errorf("it asked %s %s", r.Verb, r.RequestURI)
		}
	}
	if asked < 10 {
		t.Errorf("it made %d requests", asked)
	}
}

func writeKubeconfig(t *testing.T, c *rest.Config) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: c.Host, CertificateAuthorityData: c.CAData}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{ClientCertificateData: c.CertData, ClientKeyData: c.KeyData}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}
