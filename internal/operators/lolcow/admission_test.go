// SPDX-License-Identifier: Apache-2.0

package lolcow_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	api "github.com/drover-project/drover/api/lolcow/v1alpha1"
	"github.com/drover-project/drover/internal/operators/lolcow"
	"github.com/drover-project/drover/kit"
)

// TestAdmission: what cannot work is refused when it is written, and says why.
func TestAdmission(t *testing.T) {
	s := newScene(t)
	long := strings.Repeat("🐮", 1024)
	for name, tc := range map[string]struct {
		name string
		spec api.LolcowSpec
		// refused is in the answer; "": it is taken.
		refused string
	}{
		"nothing":                    {},
		"a greeting":                 {spec: api.LolcowSpec{Greeting: `"$(PORT)" <b>`}},
		"the longest greeting":       {spec: api.LolcowSpec{Greeting: long}},
		"a longer greeting":          {spec: api.LolcowSpec{Greeting: long + "!"}, refused: "Too long"},
		"a greeting with NUL":        {spec: api.LolcowSpec{Greeting: "a\x00b"}, refused: "NUL"},
		"the first port":             {spec: api.LolcowSpec{Port: 30000}},
		"the last port":              {spec: api.LolcowSpec{Port: 32767}},
		"a port below":               {spec: api.LolcowSpec{Port: 29999}, refused: "range 30000-32767"},
		"a port above":               {spec: api.LolcowSpec{Port: 32768}, refused: "range 30000-32767"},
		"a negative port":            {spec: api.LolcowSpec{Port: -1}, refused: "range 30000-32767"},
		"a Service":                  {spec: api.LolcowSpec{ServiceName: "backend-service"}},
		"a Service with a dot":       {spec: api.LolcowSpec{ServiceName: "a.b"}, refused: "spec.serviceName"},
		"a Service with a digit":     {spec: api.LolcowSpec{ServiceName: "1a"}, refused: "spec.serviceName"},
		"a name with a dot":          {name: "a.b", refused: "DNS label"},
		"a name with a digit":        {name: "1a", refused: "DNS label"},
		"the longest name":           {name: strings.Repeat("a", 63)},
		"a longer name":              {name: strings.Repeat("a", 64), refused: "DNS label"},
		"an announceURL":             {spec: api.LolcowSpec{AnnounceURL: "https://example.com:8443/a?b=c@d"}},
		"an announceURL with a user": {spec: api.LolcowSpec{AnnounceURL: "http://me:secret@example.com/"}, refused: "without a user"},
		"an announceURL of a file":   {spec: api.LolcowSpec{AnnounceURL: "file:///etc/passwd"}, refused: "http or https"},
		"an announceURL of no host":  {spec: api.LolcowSpec{AnnounceURL: "http:///a"}, refused: "a host"},
		"an announceURL of words":    {spec: api.LolcowSpec{AnnounceURL: "moo"}, refused: "http or https"},
	} {
		t.Run(name, func(t *testing.T) {
			l := &api.Lolcow{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "cow"}, Spec: tc.spec}
			if tc.name != "" {
				l.Name = tc.name
			}
			err := s.admin.Create(t.Context(), l, client.DryRunAll)
			if tc.refused == "" && err != nil || tc.refused != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), tc.refused)) {
				t.Errorf("%v, want %q", err, tc.refused)
			}
			if err == nil && l.Spec.Image != "ghcr.io/vsoch/lolcow-operator" {
				t.Errorf("image %q", l.Spec.Image)
			}
		})
	}
	bare := &unstructured.Unstructured{}
	bare.SetGroupVersionKind(api.GroupVersion.WithKind("Lolcow"))
	bare.SetNamespace(s.namespace)
	bare.SetName("bare")
	s.must(s.admin.Create(t.Context(), bare, client.DryRunAll))
	if image, _, _ := unstructured.NestedString(bare.Object, "spec", "image"); image == "" {
		t.Error("a Lolcow without spec has no image")
	}
}

// TestPodsAreRestricted: the API server admits the pods where Pod Security enforces "restricted".
// The image is the Lolcow's.
func TestPodsAreRestricted(t *testing.T) {
	s := newScene(t)
	s.must(s.admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "lolcow-restricted", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}))
	s.start()
	s.create("cow", api.LolcowSpec{Greeting: "moo", Image: "example.com/cow:1"})
	s.awaitReason("cow", "!"+api.ReasonRollingOut)
	template := s.deployment("cow").Spec.Template
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "lolcow-restricted", Name: "p", Labels: template.Labels}, Spec: template.Spec}
	if image := pod.Spec.Containers[0].Image; image != "example.com/cow:1" {
		t.Errorf("image %q", image)
	}
	s.must(s.admin.Create(t.Context(), pod.DeepCopy(), client.DryRunAll))
	pod.Spec.Containers[0].SecurityContext.AllowPrivilegeEscalation = nil
	if err := s.admin.Create(t.Context(), pod, client.DryRunAll); !apierrors.IsForbidden(err) {
		t.Errorf("without allowPrivilegeEscalation: false, the answer is %v", err)
	}
}

// TestSetupControllers registers the controller of every kind that has one, and says which one
// could not be.
func TestSetupControllers(t *testing.T) {
	s := newScene(t)
	setup := func(add func(*runtime.Scheme) error) (string, error) {
		scheme := runtime.NewScheme()
		s.must(clientgoscheme.AddToScheme(scheme))
		s.must(add(scheme))
		mgr, err := ctrl.NewManager(s.config(), ctrl.Options{Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}})
		s.must(err)
		return lolcow.SetupControllers(mgr)
	}
	if failed, err := setup(func(*runtime.Scheme) error { return nil }); failed != "Lolcow" || err == nil {
		t.Errorf("for a manager that does not know the kinds: %q, %v", failed, err)
	}
	if failed, err := setup(api.AddToScheme); failed != "" || err != nil {
		t.Errorf("%q, %v", failed, err)
	}
	// It is registered: a second one would have the same name.
	if failed, err := setup(api.AddToScheme); failed != "Lolcow" || err == nil || !strings.Contains(err.Error(), "already exists") {
		t.Errorf("again: %q, %v", failed, err)
	}
}

// TestDefinitionsAreMissing: without its definitions, or with those of an older version, the
// operator ends and says which one and what to do.
func TestDefinitionsAreMissing(t *testing.T) {
	s := newScene(t)
	run := func() error {
		return program().Run(t.Context(), s.config(), &kit.Options{MetricsAddress: "0", ProbeAddress: "0", Log: s.logger()})
	}
	s.must(apiextensionsv1.AddToScheme(s.admin.Scheme()))
	name := "lolcows." + api.GroupVersion.Group
	crd := &apiextensionsv1.CustomResourceDefinition{}
	s.must(s.admin.Get(t.Context(), client.ObjectKey{Name: name}, crd))

	delete(crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties, "announceURL")
	s.must(s.admin.Update(t.Context(), crd))
	if err := run(); err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "spec.announceURL") ||
		!strings.Contains(err.Error(), "make install") {
		t.Errorf("with an older definition: %v", err)
	}

	s.must(s.admin.Delete(t.Context(), crd))
	gone := func() bool {
		err := s.admin.List(t.Context(), &api.LolcowList{})
		return apierrors.IsNotFound(err) || meta.IsNoMatchError(err)
	}
	s.await("the kind to go", func() bool {
		return apierrors.IsNotFound(s.admin.Get(t.Context(), client.ObjectKey{Name: name}, &apiextensionsv1.CustomResourceDefinition{})) && gone()
	})
	if err := run(); err == nil || !strings.Contains(err.Error(), "Lolcow of my.domain/v1alpha1") ||
		!strings.Contains(err.Error(), "make install") {
		t.Errorf("without the definition: %v", err)
	}

	// Installing it, again and again, is all it takes.
	for range 2 {
		s.env.Install(t, tree+"/crd")
	}
	s.await("the kind to come back", func() bool { return s.admin.List(t.Context(), &api.LolcowList{}) == nil })
	s.start()
	s.ready("cow", api.LolcowSpec{})
}

// TestKinds: both kinds are namespaced, and the workspace has neither a status nor a controller
// that watches it.
func TestKinds(t *testing.T) {
	s := newScene(t)
	for _, kind := range []string{"Lolcow", "LolcowWorkspace"} {
		mapping, err := s.admin.RESTMapper().RESTMapping(schema.GroupKind{Group: "my.domain", Kind: kind}, "v1alpha1")
		s.must(err)
		if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
			t.Errorf("%s is not namespaced", kind)
		}
	}
	mark := s.env.Mark(t)
	s.start()
	h := newHerald(t)
	s.ready("cow", api.LolcowSpec{Greeting: "moo", AnnounceURL: h.URL})
	reads := 0
	for _, r := range s.env.Requests(t, mark) {
		if r.ObjectRef.Resource != "lolcowworkspaces" {
			continue
		}
		if r.Verb == "list" || r.Verb == "watch" {
			t.Errorf("the workspace is watched: %s %s", r.Verb, r.RequestURI)
		}
		if r.Verb == "get" {
			reads++
		}
	}
	if reads == 0 {
		t.Error("the workspace was never read from the API server")
	}
	s.remembers("moo")
}
