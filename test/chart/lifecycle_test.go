// SPDX-License-Identifier: Apache-2.0

//go:build helm

package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/testkit/devcluster"
	"github.com/drover-project/drover/test/chart/lifecycle"
)

const root = "../.."

// world is a cluster without nodes.
type world struct {
	client.Client
	kubeconfig string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	cluster, err := devcluster.Start(t.Context(), devcluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	config, err := cluster.RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(apiextensionsv1.AddToScheme(scheme))
	utilruntime.Must(v1beta1.AddToScheme(scheme))
	w := &world{kubeconfig: cluster.Kubeconfig}
	if w.Client, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	return w
}

// run runs commands in a folder, where helm is that of bin.
func (w *world) run(ctx context.Context, t *testing.T, dir, commands string) {
	t.Helper()
	said, err := lifecycle.Shell{Root: root, Home: t.TempDir(), Kubeconfig: w.kubeconfig}.Run(ctx, dir, commands)
	t.Logf("%s%s", commands, said)
	if err != nil {
		t.Fatal(err)
	}
}

// there reports whether an object is there, and reads it.
func (w *world) there(t *testing.T, into client.Object, namespace, name string) bool {
	t.Helper()
	err := w.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, into)
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	return err == nil
}

// column says whether the definition of Modules has a printer column.
func (w *world) column(t *testing.T, name string) bool {
	t.Helper()
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if !w.there(t, definition, "", "modules.kmm.sigs.x-k8s.io") {
		t.Fatal("there is no definition of Modules")
	}
	for _, c := range definition.Spec.Versions[0].AdditionalPrinterColumns {
		if c.Name == name {
			return true
		}
	}
	return false
}

// create makes a Module, as soon as the API server serves Modules.
func (w *world) create(t *testing.T, module *v1beta1.Module) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		err := w.Create(ctx, module)
		if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// older is a folder with a chart whose definitions have other printer columns than today's.
func older(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := lifecycle.Older(root, dir, "0.0.0-previous"); err != nil {
		t.Fatal(err)
	}
	return dir
}

// moduleOf is a Module as an operator leaves it.
func moduleOf(name string) *v1beta1.Module {
	module := &v1beta1.Module{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Finalizers: []string{v1beta1.ModuleFinalizer}}}
	module.Spec.Selector = map[string]string{"kernel": "mine"}
	module.Spec.ModuleLoader = &v1beta1.ModuleLoaderSpec{Container: v1beta1.ModuleLoaderContainerSpec{
		Modprobe:       v1beta1.ModprobeSpec{ModuleName: "mine"},
		KernelMappings: []v1beta1.KernelMapping{{Regexp: ".+", ContainerImage: "registry.example.com/mine:1"}},
	}}
	return module
}

// TestInstallUpgradeUninstall: what docs/guide/install.md says of Helm. An upgrade upgrades the
// definitions, an uninstall keeps them, the Modules without Drover's finalizer, and the namespace,
// and a second install takes them over.
func TestInstallUpgradeUninstall(t *testing.T) {
	w := newWorld(t)
	commands, err := lifecycle.Read(root)
	if err != nil {
		t.Fatal(err)
	}
	install, upgrade, uninstall := commands.Install, commands.Upgrade, commands.Uninstall

	w.run(t.Context(), t, older(t), install)
	namespace := &corev1.Namespace{}
	if !w.there(t, namespace, "", "drover-system") || namespace.Labels["pod-security.kubernetes.io/enforce"] != "privileged" {
		t.Errorf("the namespace would not let the agent in: %v", namespace.Labels)
	}
	if w.column(t, lifecycle.Column) || !w.column(t, lifecycle.OlderColumn) {
		t.Error("the older definitions are not there")
	}
	module, leaving := moduleOf("kept"), moduleOf("leaving")
	w.create(t, module)
	w.create(t, leaving)
	if err := w.Delete(t.Context(), leaving); err != nil { // nobody is there to unload it
		t.Fatal(err)
	}

	w.run(t.Context(), t, root, upgrade)
	if !w.column(t, lifecycle.Column) || w.column(t, lifecycle.OlderColumn) {
		t.Error("the upgrade left the older definitions")
	}
	// As large as a release can be: its record must fit into a Secret.
	all := filepath.Join(t.TempDir(), "all.yaml")
	values := strings.Replace(everything, "{hub:", "{images: {registry: registry.example.com}, hub:", 1)
	values = strings.Replace(values, "openshift: {enabled: true}", "openshift: {enabled: false}", 1)
	if err := os.WriteFile(all, []byte(values), 0o600); err != nil {
		t.Fatal(err)
	}
	w.run(t.Context(), t, root, "helm upgrade drover charts/drover --namespace drover-system --values "+all)
	if !w.there(t, &appsv1.Deployment{}, "lolcow-operator-system", "lolcow-operator-controller-manager") {
		t.Error("the LolCow operator is not there")
	}

	w.stays(t, module, v1beta1.ModuleFinalizer)
	released := w.playKubelet(t)
	w.run(t.Context(), t, root, uninstall)
	if err := <-released; err != nil {
		t.Fatal(err)
	}
	if w.there(t, leaving, leaving.Namespace, leaving.Name) {
		t.Errorf("a deleted Module waits for an operator: %v", leaving.Finalizers)
	}
	if w.there(t, &batchv1.Job{}, "drover-system", releaser) || w.there(t, &rbacv1.ClusterRole{}, "", releaser) {
		t.Error("what took the finalizers off is still there")
	}
	if w.there(t, &appsv1.DaemonSet{}, "drover-system", "drover-agent") || w.there(t, &rbacv1.ClusterRole{}, "", "drover-operator") {
		t.Error("agents or roles are still there")
	}
	w.stays(t, module)
	w.run(t.Context(), t, root, install)
	if !w.there(t, &appsv1.DaemonSet{}, "drover-system", "drover-agent") {
		t.Error("the agents did not come back")
	}
	w.stays(t, module)
}

// stays says whether the Module, its definition and the namespace were left alone.
func (w *world) stays(t *testing.T, module *v1beta1.Module, finalizers ...string) {
	t.Helper()
	now, definition, namespace := &v1beta1.Module{}, &apiextensionsv1.CustomResourceDefinition{}, &corev1.Namespace{}
	if !w.there(t, now, module.Namespace, module.Name) || now.UID != module.UID || now.DeletionTimestamp != nil ||
		!slices.Equal(now.Finalizers, finalizers) {
		t.Errorf("the Module was not left alone: %+v", now.ObjectMeta)
	}
	if !w.there(t, definition, "", "modules.kmm.sigs.x-k8s.io") || definition.DeletionTimestamp != nil {
		t.Error("the definition of Modules goes")
	}
	if !w.there(t, namespace, "", "drover-system") || namespace.DeletionTimestamp != nil {
		t.Error("the namespace goes")
	}
}
