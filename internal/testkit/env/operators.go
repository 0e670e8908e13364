// SPDX-License-Identifier: Apache-2.0

package env

import (
	"path/filepath"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// InstallOperator adds a device operator, such as "deviceconfig", as config/operators has it: its
// namespace, CRDs, roles and ServiceAccount, but not its Deployment. The configuration is for that
// ServiceAccount, with these rights and no others. The user agent is "<name>-operator/test", and
// what is written with it counts as ours.
func (e *Env) InstallOperator(t testing.TB, name string) *rest.Config {
	t.Helper()
	root, err := repositoryRoot()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, "config", "operators", name)
	if _, err := envtest.InstallCRDs(e.admin,
		envtest.CRDInstallOptions{Scheme: e.scheme, Paths: []string{filepath.Join(dir, "crd")}}); err != nil {
		t.Fatalf("install the CRDs of %s: %v", name, err)
	}
	all, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(dir, "default"))
	if err != nil {
		t.Fatalf("kustomize %s: %v", dir, err)
	}
	for _, resource := range all.Resources() {
		if resource.GetKind() == "Deployment" {
			continue
		}
		content, err := resource.Map()
		if err != nil {
			t.Fatalf("read %s of %s: %v", resource.GetName(), dir, err)
		}
		object := &unstructured.Unstructured{Object: content}
		if err := e.Admin(t).Create(t.Context(), object); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatalf("install %s %s: %v", object.GetKind(), object.GetName(), err)
		}
	}
	config := e.token(t, name+"-operator-system", name+"-operator-controller-manager", nil)
	config.UserAgent = name + "-operator/test"
	return config
}
