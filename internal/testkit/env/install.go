// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	kmmv1beta1 "github.com/drover-project/drover/api/kmm/v1beta1"
)

// installed are the manifests below config/ that a cluster gets besides the CRDs.
var installed = []string{"rbac/*.yaml", "metrics/*.yaml", "policies/*.yaml", "operator/images.yaml"}

// install creates the operator's namespace, the roles, their bindings and the admission policies,
// and returns when the policies are enforced.
func (e *Env) install(ctx context.Context, root string) error {
	admin, err := client.New(e.AdminConfig(), client.Options{Scheme: e.scheme})
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: OperatorNamespace}}
	if err := admin.Create(ctx, namespace); err != nil {
		return fmt.Errorf("create namespace %s: %w", OperatorNamespace, err)
	}
	for _, pattern := range installed {
		objects, err := manifests(filepath.Join(root, "config", pattern))
		if err != nil {
			return err
		}
		for _, object := range objects {
			if err := admin.Create(ctx, object); err != nil {
				return fmt.Errorf("install %s %s: %w", object.GetKind(), object.GetName(), err)
			}
		}
	}
	return e.awaitPolicies(ctx, admin)
}

// Install adds a folder of config/ that not every cluster gets, such as "ooto". What is there
// already stays.
func (e *Env) Install(t testing.TB, folder string) {
	t.Helper()
	root, err := repositoryRoot()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, "config", folder)
	if _, err := envtest.InstallCRDs(e.admin, envtest.CRDInstallOptions{Scheme: e.scheme, Paths: []string{dir}}); err != nil {
		t.Fatalf("install the CRDs of %s: %v", dir, err)
	}
	objects, err := manifests(filepath.Join(dir, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		if err := e.Admin(t).Create(t.Context(), object); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatalf("install %s %s: %v", object.GetKind(), object.GetName(), err)
		}
	}
}

// InstallBuild gives the operator the rights of config/build, and waits until they are in force.
func (e *Env) InstallBuild(t testing.TB) {
	t.Helper()
	e.Install(t, "build")
	operator := e.Client(t, e.Config(t, Operator))
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		err := operator.List(ctx, &corev1.ConfigMapList{}, client.Limit(1))
		if apierrors.IsForbidden(err) {
			return false, nil
		}
		return true, err
	})
	if err != nil {
		t.Fatalf("wait until the operator may read ConfigMaps: %v", err)
	}
}

// manifests reads all objects from the YAML files that match pattern, but kustomization.yaml.
func manifests(pattern string) ([]*unstructured.Unstructured, error) {
	files, err := filepath.Glob(pattern)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", pattern, err)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no file matches %s", pattern)
	}
	var objects []*unstructured.Unstructured
	for _, file := range files {
		if filepath.Base(file) == "kustomization.yaml" {
			continue
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read a manifest: %w", err)
		}
		decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(string(content)), 4096)
		for {
			object := &unstructured.Unstructured{}
			err := decoder.Decode(&object.Object)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("decode %s: %w", file, err)
			}
			if len(object.Object) > 0 {
				objects = append(objects, object)
			}
		}
	}
	return objects, nil
}

// awaitPolicies tries, dry run, what the policies refuse, until they do: the API server takes up a
// new policy within about a second.
func (e *Env) awaitPolicies(ctx context.Context, admin client.Client) error {
	name := "policy-probe"
	pod := corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.com/i:1"}}}
	probes := map[string]func() client.Object{
		"drover-carriers": func() client.Object {
			return &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: OperatorNamespace, Name: kmmv1beta1.CarrierPrefix + name},
				Spec:       pod,
			}
		},
		"drover-carrier-image": func() client.Object {
			labels := map[string]string{kmmv1beta1.CarrierLabel: ""}
			return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: OperatorNamespace, Name: name, Labels: labels}, Spec: pod}
		},
		"drover-modules": func() client.Object {
			return &kmmv1beta1.Module{
				ObjectMeta: metav1.ObjectMeta{Namespace: OperatorNamespace, Name: strings.Repeat("m", 63)},
				Spec:       kmmv1beta1.ModuleSpec{Selector: map[string]string{}},
			}
		},
		"drover-module-annotations": func() client.Object {
			return &kmmv1beta1.Module{
				ObjectMeta: metav1.ObjectMeta{Namespace: OperatorNamespace, Name: name,
					Annotations: map[string]string{kmmv1beta1.RetryAnnotation: "now"}},
				Spec: kmmv1beta1.ModuleSpec{Selector: map[string]string{}},
			}
		},
	}
	for policy, probe := range probes {
		err := awaitRefusal(ctx, policy, func(ctx context.Context) error {
			return admin.Create(ctx, probe(), client.DryRunAll)
		})
		if err != nil {
			return err
		}
	}
	if err := e.awaitKubelets(ctx); err != nil {
		return err
	}
	return e.awaitObjectPolicies(ctx, admin)
}

// as is a client of another identity, which need not exist.
func (e *Env) as(user string, groups ...string) (client.Client, error) {
	config := rest.CopyConfig(e.AdminConfig())
	config.Impersonate.UserName, config.Impersonate.Groups = user, groups
	c, err := client.New(config, client.Options{Scheme: e.scheme})
	if err != nil {
		return nil, fmt.Errorf("make a client of %s: %w", user, err)
	}
	return c, nil
}

// awaitKubelets does the same for the policy about kubelets.
func (e *Env) awaitKubelets(ctx context.Context) error {
	kubelet, err := e.as("system:node:policy-probe", "system:nodes")
	if err != nil {
		return err
	}
	return awaitRefusal(ctx, "drover-kubelets", func(ctx context.Context) error {
		labels := map[string]string{kmmv1beta1.ReadyLabel(OperatorNamespace, "policy-probe"): ""}
		return kubelet.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "policy-probe", Labels: labels}}, client.DryRunAll)
	})
}

// awaitObjectPolicies does the same for the policies that are about an object that must exist.
func (e *Env) awaitObjectPolicies(ctx context.Context, admin client.Client) error {
	agent, err := e.as("system:serviceaccount:" + OperatorNamespace + ":" + Agent)
	if err != nil {
		return err
	}
	nmc := &kmmv1beta1.NodeModulesConfig{ObjectMeta: metav1.ObjectMeta{Name: "policy-probe"}}
	if err := admin.Create(ctx, nmc); err != nil {
		return fmt.Errorf("create a probe: %w", err)
	}
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"status":{"artifacts":[{"id":"a","digest":"b"}]}}`))
	err = awaitRefusal(ctx, "drover-agent-status", func(ctx context.Context) error {
		return agent.Status().Patch(ctx, nmc.DeepCopy(), patch, &client.SubResourcePatchOptions{
			PatchOptions: client.PatchOptions{DryRun: []string{metav1.DryRunAll}},
		})
	})
	if err != nil {
		return err
	}
	if err := admin.Delete(ctx, nmc); err != nil {
		return fmt.Errorf("delete a probe: %w", err)
	}

	module := &kmmv1beta1.Module{
		ObjectMeta: metav1.ObjectMeta{Namespace: OperatorNamespace, Name: "policy-probe"},
		Spec:       kmmv1beta1.ModuleSpec{Selector: map[string]string{}},
	}
	if err := admin.Create(ctx, module); err != nil {
		return fmt.Errorf("create a probe: %w", err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: OperatorNamespace}}
	err = awaitRefusal(ctx, "drover-namespaces", func(ctx context.Context) error {
		return admin.Delete(ctx, namespace, client.DryRunAll)
	})
	if err != nil {
		return err
	}
	if err := e.awaitOperator(ctx); err != nil {
		return err
	}
	if err := admin.Delete(ctx, module); err != nil {
		return fmt.Errorf("delete a probe: %w", err)
	}
	return nil
}

// awaitRefusal repeats a dry run until the policy refuses it.
func awaitRefusal(ctx context.Context, policy string, try func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		last = try(ctx)
		return refusedBy(policy, last), nil
	})
	if err != nil {
		return fmt.Errorf("wait until policy %s is enforced: %w", policy, errors.Join(err, last))
	}
	return nil
}

// refusedBy is true for a refusal that names the policy; any other error is tried again.
func refusedBy(policy string, err error) bool {
	return (apierrors.IsInvalid(err) || apierrors.IsForbidden(err)) &&
		strings.Contains(err.Error(), "ValidatingAdmissionPolicy '"+policy+"'")
}
