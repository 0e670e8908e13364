// SPDX-License-Identifier: Apache-2.0

package world

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta2"
	"github.com/drover-project/drover/test/sim/memapi"
)

const agentImage = "registry.invalid/drover/drover-agent:dev"

var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1beta1.AddToScheme, v1beta2.AddToScheme,
		v1alpha1.AddToScheme, metav1.AddMetaToScheme} {
		utilruntime.Must(add(s))
	}
	utilruntime.Must(apiextensionsv1.AddToScheme(s))
	return s
}()

// mapper knows the kinds without asking.
var mapper = func() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	cluster := map[string]bool{"Node": true, "Namespace": true, "NodeModulesConfig": true, "ModulePolicy": true,
		"CustomResourceDefinition":  true,
		"ValidatingAdmissionPolicy": true, "ValidatingAdmissionPolicyBinding": true, "PriorityClass": true}
	for gvk := range scheme.AllKnownTypes() {
		scope := meta.RESTScopeNamespace
		if cluster[gvk.Kind] {
			scope = meta.RESTScopeRoot
		}
		m.Add(gvk, scope)
	}
	return m
}()

// Server is the API server that histories share, one after the other.
type Server struct {
	// Without names promises that are not looked at.
	Without map[string]bool

	api      *memapi.Server
	clock    *clocktesting.FakeClock
	admin    client.Client
	operator http.RoundTripper
	kept     map[string]bool // the keys of a new cluster
	before   int64           // the revision at which the history before this one began
}

// NewServer starts an API server with our custom resources; root is the repository's folder. It
// takes a second or two.
func NewServer(ctx context.Context, root string) (*Server, error) {
	s := &Server{clock: clocktesting.NewFakeClock(epoch), kept: map[string]bool{}}
	var err error
	if s.api, err = memapi.New(ctx, memapi.Options{Now: s.clock.Now}); err != nil {
		return nil, err
	}
	for _, pattern := range []string{"crd/bases/*.yaml", "default/namespace.yaml", "operator/images.yaml", "policies/agent-status.yaml",
		"policies/carriers.yaml"} {
		objects, err := manifests(filepath.Join(root, "config", pattern))
		if err != nil {
			return nil, err
		}
		if err := s.api.Install(ctx, objects...); err != nil {
			return nil, err
		}
	}
	s.operator = s.api.As(&user.DefaultInfo{Name: "system:serviceaccount:drover-system:drover-operator",
		Groups: []string{user.AllAuthenticated}})
	if s.admin, err = client.New(s.api.Config(memapi.Admin()), client.Options{Scheme: scheme, Mapper: mapper}); err != nil {
		return nil, err
	}
	if err := s.awaitPolicies(ctx); err != nil {
		return nil, err
	}
	// One for all histories: admission learns of new ones late.
	if err := s.admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		return nil, err
	}
	all, _ := s.api.Etcd().All("/")
	for i := range all {
		s.kept[all[i].Key] = true
	}
	return s, nil
}

// awaitPolicies returns when the admission policies are enforced, and their parameters known: from
// then on they answer the same in each process.
func (s *Server) awaitPolicies(ctx context.Context) error {
	carrier := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "probe", Labels: map[string]string{v1beta1.CarrierLabel: ""}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "probe", Image: "probe"}}}}
	var last error
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		last = s.admin.Create(ctx, carrier.DeepCopy(), client.DryRunAll)
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

// reset leaves what a new cluster has.
func (s *Server) reset() error {
	s.api.Etcd().Delete(func(key string) bool { return !s.kept[key] })
	// What watches the server may still be reading the last history's changes.
	s.api.Etcd().Compact(s.before)
	s.before = s.api.Etcd().Revision()
	return nil
}

// get reads an object as it is now; false: there is none.
func (w *World) get(o client.Object, key client.ObjectKey) bool {
	gvk, err := apiutil.GVKForObject(o, scheme)
	must(err)
	mapping, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	must(err)
	path := w.server.api.Prefix(mapping.Resource.GroupResource()) + strings.TrimPrefix(key.Namespace+"/"+key.Name, "/")
	all, _ := w.etcd.All(path)
	for i := range all {
		if all[i].Key == path {
			must(json.Unmarshal(all[i].Value, o))
			o.SetResourceVersion(fmt.Sprint(all[i].Revision))
			return true
		}
	}
	return false
}

// refusal is an answer that the API server did not give.
func refusal(r *http.Request, code int, reason metav1.StatusReason) *http.Response {
	body, err := json.Marshal(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Code: int32(code), Reason: reason, Message: "the simulation refuses"}) //nolint:gosec // an HTTP status
	must(err)
	return &http.Response{StatusCode: code, Status: http.StatusText(code), Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(body)), Request: r, ProtoMajor: 1, ProtoMinor: 1}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
