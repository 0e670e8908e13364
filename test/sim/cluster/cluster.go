// SPDX-License-Identifier: Apache-2.0

// Package cluster is the API server that histories share, as a new cluster with Drover's resources
// has it, one history after the other.
package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
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
	"k8s.io/apiserver/pkg/authentication/user"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta2"
	"github.com/drover-project/drover/test/sim/memapi"
)

// Scheme has the kinds that the operator, its agents and those who act on a cluster use.
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

// Cluster is an API server, its clock, and the clients of two who use it.
type Cluster struct {
	API      *memapi.Server
	Clock    *clocktesting.FakeClock
	Admin    client.Client
	Operator http.RoundTripper

	kept   map[string]bool // the keys of a new cluster
	before int64           // the revision at which the history before this one began
}

// Namespace is where histories' Modules are.
const Namespace = "tenant"

// Epoch is when every history begins.
var Epoch = time.Date(2001, time.January, 1, 0, 0, 0, 0, time.UTC)

// New starts an API server with our custom resources; root is the repository's folder. It
// takes a second or two.
func New(ctx context.Context, root string) (*Cluster, error) {
	c := &Cluster{Clock: clocktesting.NewFakeClock(Epoch), kept: map[string]bool{}}
	var err error
	if c.API, err = memapi.New(ctx, memapi.Options{Now: c.Clock.Now}); err != nil {
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
	c.Operator = c.API.As(&user.DefaultInfo{Name: "system:serviceaccount:drover-system:drover-operator",
		Groups: []string{user.AllAuthenticated}})
	if c.Admin, err = client.New(c.API.Config(memapi.Admin()), client.Options{Scheme: Scheme, Mapper: Mapper}); err != nil {
		return nil, err
	}
	if err := c.awaitPolicies(ctx); err != nil {
		return nil, err
	}
	// One for all histories: admission learns of new ones late.
	if err := c.Admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace}}); err != nil {
		return nil, err
	}
	all, _ := c.API.Etcd().All("/")
	for i := range all {
		c.kept[all[i].Key] = true
	}
	return c, nil
}

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

// Reset leaves what a new cluster has.
func (c *Cluster) Reset() error {
	c.API.Etcd().Delete(func(key string) bool { return !c.kept[key] })
	// What watches the server may still be reading the last history's changes.
	c.API.Etcd().Compact(c.before)
	c.before = c.API.Etcd().Revision()
	return nil
}
