// SPDX-License-Identifier: Apache-2.0

//go:build helm

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// releaser is the name of the Job that takes finalizers off, and of all that it needs.
const releaser = "drover-release"

// playKubelet runs the pod of that Job, as soon as there is one: the operator's program, with the
// pod's arguments, as its ServiceAccount.
func (w *world) playKubelet(t *testing.T) <-chan error {
	t.Helper()
	program := compile(t)
	kubeconfig, ended := filepath.Join(t.TempDir(), "kubeconfig"), make(chan error, 1)
	go func() { ended <- w.runPod(t.Context(), program, kubeconfig) }()
	return ended
}

// compile makes the operator's program.
func compile(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "drover-operator")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./cmd/drover-operator")
	build.Dir = root
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("compile the operator: %v: %s", err, said)
	}
	return program
}

func (w *world) runPod(ctx context.Context, program, kubeconfig string) error {
	pods := &corev1.PodList{}
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, 5*time.Minute, true, func(ctx context.Context) (bool, error) {
		err := w.List(ctx, pods, client.InNamespace("drover-system"), client.MatchingLabels{"app.kubernetes.io/name": releaser})
		return len(pods.Items) > 0, err
	})
	if err != nil {
		return fmt.Errorf("wait for the Job's pod: %w", err)
	}
	pod := &pods.Items[0]
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Spec.ServiceAccountName}}
	token := &authenticationv1.TokenRequest{}
	if err := w.SubResource("token").Create(ctx, account, token); err != nil {
		return fmt.Errorf("get a token for the pod: %w", err)
	}
	config, err := clientcmd.LoadFromFile(w.kubeconfig)
	if err != nil {
		return fmt.Errorf("read the kubeconfig: %w", err)
	}
	for name := range config.AuthInfos {
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	}
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		return fmt.Errorf("write the pod's kubeconfig: %w", err)
	}
	cmd := exec.CommandContext(ctx, program, pod.Spec.Containers[0].Args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("the pod's program: %w: %s", err, said)
	}
	before := pod.DeepCopy() // the scheduler has written to it since, that there is no node
	pod.Status.Phase = corev1.PodSucceeded
	if err := w.Status().Patch(ctx, pod, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("end the pod: %w", err)
	}
	return nil
}
