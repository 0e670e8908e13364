// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2/ktesting"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kmmv1beta1 "github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator"
	"github.com/drover-project/drover/internal/operator/controller/plugin"
	"github.com/drover-project/drover/internal/shared/facts"
	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/shared/reasons"
	"github.com/drover-project/drover/internal/testkit/env"
)

func TestMain(m *testing.M) { os.Exit(env.Main(m)) }

// start runs the controller as the operator until the test ends.
func start(t *testing.T, e *env.Env) {
	t.Helper()
	startWith(t, e, agentImage)
}

// startWith is a release of its own.
func startWith(t *testing.T, e *env.Env, agentImage string) {
	t.Helper()
	startOn(t, e, agentImage, false)
}

// startOn runs the controller as on a cluster with or without what DRA drivers need.
func startOn(t *testing.T, e *env.Env, agentImage string, without bool) {
	t.Helper()
	startBinding(t, e, agentImage, without, "")
}

// startBinding runs the controller as on a cluster where the accounts that it makes need a role.
func startBinding(t *testing.T, e *env.Env, agentImage string, without bool, role string) {
	t.Helper()
	options := &operator.Options{
		Controllers: []string{"*"}, MetricsAddress: "0", ProbeAddress: "0",
		Log: ktesting.NewLogger(t, ktesting.NewConfig()),
	}
	mgr, err := operator.NewManager(e.Config(t, env.Operator), options)
	if err != nil {
		t.Fatal(err)
	}
	dra, err := kube.ServesDRA(mgr.GetRESTMapper())
	if err != nil {
		t.Fatal(err)
	}
	controller := plugin.New(mgr.GetClient(), mgr.GetAPIReader(), plugin.Options{AgentImage: agentImage, DRA: dra && !without, Role: role})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- operator.Run(ctx, mgr, options, map[string]operator.Controller{t.Name(): controller})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the operator ended: %v", err)
		}
	})
}

// told is what is told of the Module's plugin.
func told(ctx context.Context, admin client.Client, m *kmmv1beta1.Module) (reasons.Problem, error) {
	now := &kmmv1beta1.Module{}
	if err := admin.Get(ctx, client.ObjectKeyFromObject(m), now); err != nil {
		return reasons.Problem{}, err
	}
	return facts.Problems(now, kmmv1beta1.ProblemPlugin)[kmmv1beta1.AllNodes], nil
}

func eventually(t *testing.T, what string, done func(context.Context) (bool, error)) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, done); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// exists waits until the object is there, or is gone.
func exists(t *testing.T, c client.Client, object client.Object, want bool) {
	t.Helper()
	eventually(t, "wait for "+object.GetName(), func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, client.ObjectKeyFromObject(object), object)
		return (err == nil) == want, client.IgnoreNotFound(err)
	})
}

// logged waits until the audit log has the creation of a DaemonSet since a mark: the object can be
// seen before.
func logged(t *testing.T, e *env.Env, since env.Mark, namespace string) {
	t.Helper()
	eventually(t, "the DaemonSet's creation is logged", func(context.Context) (bool, error) {
		return e.Writes(t, since, namespace)[env.Write{Agent: "drover-operator", Verb: "patch", Resource: "daemonsets"}] > 0, nil
	})
}

func TestDevicePluginLifecycle(t *testing.T) {
	e := env.Get(t)
	admin := e.Admin(t)
	start(t, e)
	m := module()
	m.Namespace, m.UID = e.Namespace(t), ""
	began := e.Mark(t)
	if err := admin.Create(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	meta := metav1.ObjectMeta{Namespace: m.Namespace, Name: "nic-device-plugin"}
	daemonSet, account := &appsv1.DaemonSet{ObjectMeta: meta}, &corev1.ServiceAccount{ObjectMeta: meta}
	exists(t, admin, daemonSet, true)
	exists(t, admin, account, true)
	for _, object := range []client.Object{daemonSet, account} {
		if !kube.MadeFor(object, m.UID) || len(object.GetOwnerReferences()) > 0 {
			t.Errorf("%T says that it was made for %v, and belongs to %v", object, object.GetAnnotations(), object.GetOwnerReferences())
		}
	}

	// An edit by hand is undone; what the edit shows is that a pass ran, so nothing else was written
	// before it.
	logged(t, e, began, m.Namespace)
	mark := e.Mark(t)
	edited := daemonSet.DeepCopy()
	edited.Spec.Template.Spec.PriorityClassName = ""
	edited.Spec.Template.Spec.Containers[0].Image = "example.com/somebody:else"
	if err := admin.Update(t.Context(), edited); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the edit is undone", func(ctx context.Context) (bool, error) {
		err := admin.Get(ctx, client.ObjectKeyFromObject(daemonSet), daemonSet)
		spec := &daemonSet.Spec.Template.Spec
		return spec.Containers[0].Image == "example.com/plugin:v1" && spec.PriorityClassName == "system-node-critical", err
	})
	want := map[env.Write]int{{Agent: "drover-operator", Verb: "patch", Resource: "daemonsets"}: 1}
	if diff := cmp.Diff(want, e.Writes(t, mark, m.Namespace)); diff != "" {
		t.Errorf("writes for one edit (-want +got):\n%s", diff)
	}

	// A field that is no longer asked for goes away.
	change(t, admin, m, func() { m.Spec.DevicePlugin.Container.Args = []string{"--once"} })
	eventually(t, "args appear", func(ctx context.Context) (bool, error) {
		err := admin.Get(ctx, client.ObjectKeyFromObject(daemonSet), daemonSet)
		return len(daemonSet.Spec.Template.Spec.Containers[0].Args) == 1, err
	})
	change(t, admin, m, func() { m.Spec.DevicePlugin.Container.Args = nil })
	eventually(t, "args go", func(ctx context.Context) (bool, error) {
		err := admin.Get(ctx, client.ObjectKeyFromObject(daemonSet), daemonSet)
		return len(daemonSet.Spec.Template.Spec.Containers[0].Args) == 0, err
	})

	// A ServiceAccount of the user's own replaces the one made here.
	change(t, admin, m, func() { m.Spec.DevicePlugin.ServiceAccountName = "own" })
	exists(t, admin, account, false)
	change(t, admin, m, func() { m.Spec.DevicePlugin.ServiceAccountName = "" })
	exists(t, admin, account, true)

	change(t, admin, m, func() { m.Spec.DevicePlugin = nil })
	exists(t, admin, daemonSet, false)
	exists(t, admin, account, false)
	e.AssertNoMasters(t)
}

func TestSecondPassWritesNothing(t *testing.T) {
	e := env.Get(t)
	admin := e.Admin(t)
	m := module(everything)
	m.Namespace, m.UID = e.Namespace(t), ""
	if err := admin.Create(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	t.Run("first", func(t *testing.T) {
		start(t, e)
		exists(t, admin, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: "nic-device-plugin"}}, true)
	})
	mark := e.Mark(t)
	t.Run("second", func(t *testing.T) {
		start(t, e)
		// Another Module, made now, is served after or beside the old one, whose pass began with the
		// start.
		other := module()
		other.Namespace, other.Name, other.UID = m.Namespace, "other", ""
		if err := admin.Create(t.Context(), other); err != nil {
			t.Fatal(err)
		}
		exists(t, admin, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: "other-device-plugin"}}, true)
	})
	for _, request := range e.Requests(t, mark) {
		if request.Ours() && request.IsWrite() && request.ObjectRef.Namespace == m.Namespace &&
			!strings.HasPrefix(request.ObjectRef.Name, "other") {
			t.Errorf("a second pass wrote: %s %s", request.Verb, request.RequestURI)
		}
	}
}

func TestForeignObjectsAreNotTaken(t *testing.T) {
	e := env.Get(t)
	admin := e.Admin(t)
	start(t, e)
	m := module()
	m.Namespace, m.UID = e.Namespace(t), ""
	foreign := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: "nic-device-plugin"}}
	if err := admin.Create(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	if err := admin.Create(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the problem is reported", func(ctx context.Context) (bool, error) {
		problem, err := told(ctx, admin, m)
		return strings.Contains(problem.Message, "ServiceAccount nic-device-plugin exists and does not belong to this Module"), err
	})
	if err := admin.Delete(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	exists(t, admin, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: "nic-device-plugin"}}, true)
}

// TestAProblemIsWrittenOnce: neither tries that are refused again nor another process write what is
// told already.
func TestAProblemIsWrittenOnce(t *testing.T) {
	e := env.Get(t)
	admin := e.Admin(t)
	m := module()
	m.Namespace, m.UID = e.Namespace(t), ""
	foreign := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: "nic-device-plugin"}}
	create(t, admin, foreign)
	create(t, admin, m)
	for _, process := range []string{"first", "second"} {
		t.Run(process, func(t *testing.T) {
			mark := e.Mark(t)
			start(t, e)
			eventually(t, "the problem is told", func(ctx context.Context) (bool, error) {
				problem, err := told(ctx, admin, m)
				return problem.Reason == kmmv1beta1.ReasonDevicesPending, err
			})
			// Another Module, made now, is served beside this one, which is tried again and again.
			other := module()
			other.Namespace, other.Name, other.UID = m.Namespace, "other-"+process, ""
			create(t, admin, other)
			exists(t, admin, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: other.Name + "-device-plugin"}}, true)
			writes := 0
			for _, request := range e.Requests(t, mark) {
				if request.Ours() && request.IsWrite() && request.ObjectRef.Namespace == m.Namespace &&
					!strings.HasPrefix(request.ObjectRef.Name, "other") {
					writes++
				}
			}
			if want := map[string]int{"first": 1}[process]; writes != want {
				t.Errorf("%d writes, want %d", writes, want)
			}
		})
	}
}

// change updates the Module, again when somebody else has written it meanwhile.
func change(t *testing.T, admin client.Client, m *kmmv1beta1.Module, edit func()) {
	t.Helper()
	eventually(t, "update the Module", func(ctx context.Context) (bool, error) {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(m), m); err != nil {
			return false, err
		}
		edit()
		err := admin.Update(ctx, m)
		if apierrors.IsConflict(err) {
			return false, nil
		}
		return err == nil, err
	})
}
