// SPDX-License-Identifier: Apache-2.0

// Package cluster is an API server in memory with all that an installation of Drover gives one, as
// the administrator and the cluster's own programs see it: objects as they are now.
package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta2"
	"github.com/drover-project/drover/test/sim/memapi"
)

// Cluster is an API server and its administrator.
type Cluster struct {
	API *memapi.Server
	// Admin writes, and reads without a cache.
	Admin client.Client

	decoded map[string]decoded // by key
}

// New starts an API server with Drover's custom resources, admission policies and namespace; root
// is the repository's folder. It takes a second or two.
func New(ctx context.Context, root string, now func() time.Time) (*Cluster, error) {
	c := &Cluster{decoded: map[string]decoded{}}
	var err error
	if c.API, err = memapi.New(ctx, memapi.Options{Now: now}); err != nil {
		return nil, err
	}
	for _, pattern := range []string{"crd/bases/*.yaml", "default/namespace.yaml", "operator/images.yaml", "policies/agent-status.yaml",
		"policies/carriers.yaml"} {
		objects, err := manifests(filepath.Join(root, "config", pattern))
		if err != nil {
			return nil, err
		}
		if err := c.API.Install(ctx, objects...); err != nil {
			return nil, err
		}
	}
	if c.Admin, err = client.New(c.API.Config(memapi.Admin()), client.Options{Scheme: Scheme, Mapper: Mapper}); err != nil {
		return nil, err
	}
	return c, c.awaitPolicies(ctx)
}

// Scheme has the kinds that Drover reads and writes.
var Scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1beta1.AddToScheme, v1beta2.AddToScheme,
		v1alpha1.AddToScheme, metav1.AddMetaToScheme} {
		utilruntime.Must(add(s))
	}
	utilruntime.Must(apiextensionsv1.AddToScheme(s))
	return s
}()

// Mapper knows the kinds without asking.
var Mapper = func() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	cluster := map[string]bool{"Node": true, "Namespace": true, "NodeModulesConfig": true, "ModulePolicy": true,
		"CustomResourceDefinition":  true,
		"ValidatingAdmissionPolicy": true, "ValidatingAdmissionPolicyBinding": true, "PriorityClass": true}
	for gvk := range Scheme.AllKnownTypes() {
		scope := meta.RESTScopeNamespace
		if cluster[gvk.Kind] {
			scope = meta.RESTScopeRoot
		}
		m.Add(gvk, scope)
	}
	return m
}()

// awaitPolicies returns when the admission policies are enforced, and their parameters known: from
// then on they answer the same in each process.
func (c *Cluster) awaitPolicies(ctx context.Context) error {
	carrier := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "probe", Labels: map[string]string{v1beta1.CarrierLabel: ""}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "probe", Image: "probe"}}}}
	var last error
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		last = c.Admin.Create(ctx, carrier.DeepCopy(), client.DryRunAll)
		return last != nil && strings.Contains(last.Error(), "a carrier runs "), nil
	})
	if err != nil {
		return fmt.Errorf("wait until the admission policies are enforced: %w", errors.Join(err, last))
	}
	return nil
}

// manifests reads all objects of the YAML files that match a pattern.
func manifests(pattern string) (all []*unstructured.Unstructured, err error) {
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("no file matches %s: %w", pattern, err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		for _, part := range bytes.Split(text, []byte("\n---\n")) {
			o := &unstructured.Unstructured{}
			if err := yaml.Unmarshal(part, &o.Object); err != nil {
				return nil, fmt.Errorf("%s: %w", f, err)
			}
			if len(o.Object) > 0 {
				all = append(all, o)
			}
		}
	}
	return all, nil
}
