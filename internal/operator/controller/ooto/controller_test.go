// SPDX-License-Identifier: Apache-2.0

package ooto_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2/ktesting"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/api/ooto/v1alpha1"
	"github.com/drover-project/drover/internal/operator"
	"github.com/drover-project/drover/internal/operator/controller/ooto"
	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/testkit/env"
)

func TestMain(m *testing.M) { os.Exit(env.Main(m)) }

// scene is a namespace and an operator that serves nothing but Modules of this group, with the
// rights that config/ooto adds.
type scene struct {
	*testing.T
	env       *env.Env
	admin     client.Client
	namespace string
}

func newScene(t *testing.T) *scene {
	t.Helper()
	e := env.Get(t)
	e.Install(t, "ooto")
	s := &scene{T: t, env: e, admin: e.Admin(t), namespace: e.Namespace(t)}
	return s
}

// start runs the operator until the end of the test. It knows its controller by name only: "*" does
// not run it.
func (s *scene) start() {
	s.Helper()
	options := &operator.Options{Controllers: []string{"ooto"}, MetricsAddress: "0", ProbeAddress: "0",
		Log: ktesting.NewLogger(s.T, ktesting.NewConfig())}
	mgr, err := operator.NewManager(s.env.Config(s.T, env.Operator), options)
	s.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- operator.Run(ctx, mgr, options, map[string]operator.Controller{
			"ooto": ooto.New(mgr.GetClient(), mgr.GetAPIReader(), ooto.Options{Recorder: kube.NewRecorder(mgr.GetEventRecorder(operator.Name))}),
		})
	}()
	s.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			s.Errorf("the operator ended: %v", err)
		}
	})
}

func (s *scene) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *scene) await(what string, done func() bool) {
	s.Helper()
	err := wait.PollUntilContextTimeout(s.Context(), 20*time.Millisecond, 30*time.Second, true,
		func(context.Context) (bool, error) { return done(), nil })
	if err != nil {
		m, child := s.module("module-sample"), s.child("module-sample")
		s.Fatalf("wait for %s: %v\nModule: %+v\nKMM Module: %+v", what, err, m, child)
	}
}

// sample is the Module of config/samples/ooto, as its author's tools see it.
func (s *scene) sample() *unstructured.Unstructured {
	s.Helper()
	content, err := os.ReadFile("../../../../config/samples/ooto/module.yaml")
	s.must(err)
	object := &unstructured.Unstructured{}
	s.must(yaml.Unmarshal(content, &object.Object))
	object.SetNamespace(s.namespace)
	return object
}

// module and child are nil when they are not there.
func (s *scene) module(name string) *v1alpha1.Module { return get(s, name, &v1alpha1.Module{}) }

func (s *scene) child(name string) *v1beta1.Module { return get(s, name, &v1beta1.Module{}) }

func get[T client.Object](s *scene, name string, into T) (none T) {
	s.Helper()
	err := s.admin.Get(context.Background(), client.ObjectKey{Namespace: s.namespace, Name: name}, into)
	if apierrors.IsNotFound(err) {
		return none
	}
	s.must(err)
	return into
}

// reason of a condition, with "!" before it when it is not True.
func (s *scene) reason(name, condition string) string {
	s.Helper()
	m := s.module(name)
	if m == nil || m.Status.ObservedGeneration != m.Generation {
		return ""
	}
	c := meta.FindStatusCondition(m.Status.Conditions, condition)
	switch {
	case c == nil:
		return ""
	case c.Status != metav1.ConditionTrue:
		return "!" + c.Reason
	}
	return c.Reason
}

func (s *scene) dockerfiles() (names []string) {
	s.Helper()
	var list corev1.ConfigMapList
	s.must(s.admin.List(s.Context(), &list, client.InNamespace(s.namespace)))
	for i := range list.Items {
		if strings.Contains(list.Items[i].Name, "-dockerfile-") {
			names = append(names, list.Items[i].Name)
		}
	}
	return names
}

// simple is a small Module.
func (s *scene) simple(name string) *v1alpha1.Module {
	return &v1alpha1.Module{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec: v1alpha1.ModuleSpec{
			Selector: map[string]string{"a": "b"},
			DriverContainer: v1alpha1.DriverContainerSpec{Container: v1alpha1.DriverContainer{
				ContainerImage: "r.example/nic:1", KernelMappings: []v1alpha1.KernelMapping{{Regexp: "."}},
			}},
		},
	}
}

// quiet is when the operator has seen everything so far: another Module has gone through it.
func (s *scene) quiet() {
	s.Helper()
	name := fmt.Sprintf("probe-%d", time.Now().UnixNano())
	s.must(s.admin.Create(s.Context(), s.simple(name)))
	s.await("a probe", func() bool { return s.reason(name, v1alpha1.ConditionTranslated) == v1alpha1.ReasonTranslated })
}

// TestSampleIsServed: the proposal's YAML applies under strict validation, becomes a KMM Module,
// shows its status under its own names, is healed, and costs no write when nothing changes.
func TestSampleIsServed(t *testing.T) {
	s := newScene(t)
	s.start()
	s.must(s.admin.Create(t.Context(), s.sample(), client.FieldValidation("Strict")))
	s.await("the translation", func() bool {
		return s.reason("module-sample", v1alpha1.ConditionTranslated) == v1alpha1.ReasonTranslated
	})
	child := s.child("module-sample")
	if got := len(child.Spec.ModuleLoader.Container.KernelMappings); got != 5 || child.Spec.ModuleLoader.Container.Build != nil {
		t.Errorf("%d mappings, and a build for all of them: %v", got, child.Spec.ModuleLoader.Container.Build)
	}
	if build := child.Spec.ModuleLoader.Container.KernelMappings[2].Build; build == nil ||
		!slices.Contains(s.dockerfiles(), build.DockerfileConfigMap.Name) {
		t.Errorf("build: {} became %+v; Dockerfiles: %v", build, s.dockerfiles())
	}
	if owner := metav1.GetControllerOf(child); owner == nil || owner.UID != s.module("module-sample").UID || !*owner.BlockOwnerDeletion {
		t.Errorf("the KMM Module's owner is %+v", owner)
	}
	if got := s.reason("module-sample", v1alpha1.ConditionAllFieldsUsed); got != "!"+v1alpha1.ReasonFieldIgnored {
		t.Errorf("condition %s: %s", v1alpha1.ConditionAllFieldsUsed, got)
	}

	// What the rest of the operator would find.
	child.Status = v1beta1.ModuleStatus{
		ObservedGeneration: child.Generation,
		ModuleLoader:       v1beta1.DaemonSetStatus{NodesMatchingSelectorNumber: 9, DesiredNumber: 8, AvailableNumber: 7},
		DevicePlugin:       v1beta1.DaemonSetStatus{NodesMatchingSelectorNumber: 6, DesiredNumber: 5, AvailableNumber: 4},
		Conditions: []metav1.Condition{{
			Type: v1beta1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1beta1.ReasonLoading, Message: "7 of 8",
			LastTransitionTime: metav1.Now(),
		}},
	}
	s.must(s.admin.Status().Update(t.Context(), child))
	s.await("the status", func() bool { return s.reason("module-sample", v1alpha1.ConditionReady) == "!"+v1beta1.ReasonLoading })
	status := s.module("module-sample").Status
	want := []*v1alpha1.NodeCounts{{DesiredNumberScheduled: 8, NumberReady: 7, NumberAvailable: 7},
		{DesiredNumberScheduled: 5, NumberReady: 4, NumberAvailable: 4}}
	if diff := cmp.Diff(want, []*v1alpha1.NodeCounts{status.DriverContainer, status.DevicePlugin}); diff != "" {
		t.Errorf("driverContainer and devicePlugin (-want +got):\n%s", diff)
	}

	mark := s.env.Mark(t)
	s.quiet()
	restarted := *s
	restarted.start()
	restarted.quiet()
	for _, r := range s.env.Requests(t, mark) {
		if r.Ours() && r.IsWrite() && strings.Contains(r.RequestURI, "module-sample") {
			t.Errorf("a write that nobody needed: %s %s", r.Verb, r.RequestURI)
		}
	}
	s.env.AssertNoMasters(t)
}

// TestIgnoredFieldsWarn: whoever sets a field that does nothing is told by the API server, and by
// one event.
func TestIgnoredFieldsWarn(t *testing.T) {
	s := newScene(t)
	s.start()
	config := s.env.AdminConfig()
	var warnings warned
	config.WarningHandlerWithContext = &warnings
	c, err := client.New(config, client.Options{Scheme: s.env.Scheme()})
	s.must(err)
	const path = "FieldIgnored: spec.driverContainer."
	want := []string{path + "container.securityContext", path + "container.volumeMounts", path + "volumes"}
	s.await("warnings", func() bool { // the API server takes up a policy within about a second
		warnings = nil
		m := s.simple("nic")
		m.Spec.DriverContainer.Volumes = []corev1.Volume{{Name: "v"}}
		m.Spec.DriverContainer.Container.VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}
		m.Spec.DriverContainer.Container.SecurityContext = &corev1.SecurityContext{}
		s.must(c.Create(t.Context(), m, client.DryRunAll))
		return !slices.ContainsFunc(want, func(text string) bool { return !strings.Contains(strings.Join(warnings, "\n"), text) })
	})
	warnings = nil
	m := s.simple("nic")
	m.Spec.DriverContainer.Volumes = []corev1.Volume{}
	s.must(c.Create(t.Context(), m))
	if len(warnings) > 0 {
		t.Errorf("warnings about fields that are empty: %v", warnings)
	}
	s.await("no complaint", func() bool { return s.reason("nic", v1alpha1.ConditionAllFieldsUsed) == v1alpha1.ReasonAllFieldsUsed })
	s.must(c.Get(t.Context(), client.ObjectKeyFromObject(m), m))
	m.Spec.DriverContainer.Volumes = []corev1.Volume{{Name: "v"}}
	s.must(c.Update(t.Context(), m))
	s.await("an event", func() bool { return s.events(m.UID, v1alpha1.ReasonFieldIgnored) == 1 })
}

func (s *scene) events(about any, reason string) (count int) {
	s.Helper()
	var list corev1.EventList
	s.must(s.admin.List(s.Context(), &list, client.InNamespace(s.namespace)))
	for i := range list.Items {
		if list.Items[i].Reason == reason && list.Items[i].InvolvedObject.UID == about {
			count++
		}
	}
	return count
}

// warned are the warnings of an API server.
type warned []string

func (w *warned) HandleWarningHeaderWithContext(_ context.Context, _ int, _ string, text string) {
	*w = append(*w, text)
}

var _ rest.WarningHandlerWithContext = &warned{}

// TestDriftIsHealed: what is ours comes back, what others say of the KMM Module stays, and what is
// no longer asked for goes.
func TestDriftIsHealed(t *testing.T) {
	s := newScene(t)
	s.start()
	s.must(s.admin.Create(t.Context(), s.sample()))
	s.await("the translation", func() bool {
		return s.reason("module-sample", v1alpha1.ConditionTranslated) == v1alpha1.ReasonTranslated
	})
	before := s.child("module-sample")
	spec := before.Spec.DeepCopy()

	changed := before.DeepCopy()
	changed.Spec.Rollout = &v1beta1.RolloutSpec{Paused: true}
	changed.Spec.ImageRepoSecrets = nil
	changed.Spec.ModuleLoader.Container.KernelMappings[0].ContainerImage = "evil.example/x:1"
	delete(changed.Annotations, "drover.dev/desired-hash")
	s.must(s.admin.Update(t.Context(), changed))
	spec.Rollout = changed.Spec.Rollout
	s.await("what was changed", func() bool { return cmp.Equal(*spec, s.child("module-sample").Spec) })

	names := s.dockerfiles()
	s.must(s.admin.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: names[0]}}))
	s.await("a Dockerfile", func() bool { return cmp.Equal(names, s.dockerfiles()) })

	s.must(s.admin.Delete(t.Context(), before))
	s.await("a new KMM Module", func() bool { child := s.child("module-sample"); return child != nil && child.UID != before.UID })

	m := s.module("module-sample")
	m.Spec.DevicePlugin, m.Spec.DriverContainer.Container.Build.Dockerfile = nil, "FROM another"
	s.must(s.admin.Update(t.Context(), m))
	s.await("what is asked for now", func() bool {
		child := s.child("module-sample")
		return child.Spec.DevicePlugin == nil && len(s.dockerfiles()) == 2 && !slices.Contains(s.dockerfiles(), names[0]) &&
			s.reason("module-sample", v1alpha1.ConditionTranslated) == v1alpha1.ReasonTranslated &&
			s.module("module-sample").Status.DevicePlugin == nil
	})
	s.env.AssertNoMasters(t)
}

// TestForeignModuleIsLeftAlone: a KMM Module of the same name that somebody else made is not
// touched; when it goes, ours comes.
func TestForeignModuleIsLeftAlone(t *testing.T) {
	s := newScene(t)
	foreign := &v1beta1.Module{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "nic"},
		Spec: v1beta1.ModuleSpec{Selector: map[string]string{"theirs": ""}}}
	s.must(s.admin.Create(t.Context(), foreign))
	s.start()
	m := s.simple("nic")
	s.must(s.admin.Create(t.Context(), m))
	s.await("a complaint", func() bool { return s.reason("nic", v1alpha1.ConditionTranslated) == "!"+v1alpha1.ReasonNameTaken })
	s.must(s.admin.Delete(t.Context(), m))
	s.must(s.admin.Create(t.Context(), s.simple("nic")))
	s.quiet()
	s.await("a complaint", func() bool { return s.reason("nic", v1alpha1.ConditionReady) == "!"+v1alpha1.ReasonNameTaken })
	if got := s.child("nic"); got.ResourceVersion != foreign.ResourceVersion {
		t.Errorf("the foreign Module was written: %+v", got)
	}
	s.must(s.admin.Delete(t.Context(), foreign))
	s.await("ours", func() bool { return s.reason("nic", v1alpha1.ConditionTranslated) == v1alpha1.ReasonTranslated })
}

// TestRefusalsAreTold: what the API server does not take stands in the condition, in its own words,
// and what it takes is there.
func TestRefusalsAreTold(t *testing.T) {
	s := newScene(t)
	s.start()
	m := s.simple("a-name-that-is-by-far-too-long-for-a-label-of-a-node")
	s.must(s.admin.Create(t.Context(), m))
	s.await("the refusal", func() bool { return s.reason(m.Name, v1alpha1.ConditionTranslated) == "!"+v1alpha1.ReasonRefused })
	c := meta.FindStatusCondition(s.module(m.Name).Status.Conditions, v1alpha1.ConditionTranslated)
	if !strings.Contains(c.Message, "namespace and name together may have 41 characters") {
		t.Errorf("message: %s", c.Message)
	}
}
