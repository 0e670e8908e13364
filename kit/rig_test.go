// SPDX-License-Identifier: Apache-2.0

package kit_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/testkit/env"
	"github.com/drover-project/drover/kit"
)

const operatorName = "gadget-operator"

func TestMain(m *testing.M) { os.Exit(env.Main(m)) }

// rig is a namespace of a real API server, and an operator of Gadgets under a role of its own, of
// which each pass is made by hand. Its reads are never outdated, unless a test makes them so.
type rig struct {
	*testing.T
	env       *env.Env
	admin     client.Client
	client    client.WithWatch
	namespace string
	op        kit.Operator[*Gadget]
	events    *events.FakeRecorder
	// reconciler is made by the first pass, of what stands above.
	reconciler reconcile.Reconciler
}

func newRig(t *testing.T) *rig {
	t.Helper()
	e := env.Get(t)
	r := &rig{T: t, env: e, namespace: e.Namespace(t), op: operator(), events: events.NewFakeRecorder(100)}
	r.install(e)
	r.admin, r.client = r.connect(e.AdminConfig()), r.connect(e.Config(t, operatorName))
	return r
}

func (r *rig) connect(config *rest.Config) client.WithWatch {
	r.Helper()
	c, err := client.NewWithWatch(config, client.Options{Scheme: newScheme()})
	r.must(err)
	return c
}

func (r *rig) install(e *env.Env) {
	r.Helper()
	_, err := envtest.InstallCRDs(e.AdminConfig(),
		envtest.CRDInstallOptions{Paths: []string{"testdata/gadget/crd.yaml"}, MaxTime: time.Minute})
	r.must(err)
	content, err := os.ReadFile("testdata/gadget/role.yaml")
	r.must(err)
	for _, document := range strings.Split(string(content), "\n---\n") {
		object := &unstructured.Unstructured{}
		r.must(yaml.Unmarshal([]byte(document), &object.Object))
		if err := e.Admin(r).Create(r.Context(), object); !apierrors.IsAlreadyExists(err) {
			r.must(err)
		}
	}
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *rig) await(what string, done func() bool) {
	r.Helper()
	err := wait.PollUntilContextTimeout(r.Context(), 20*time.Millisecond, 30*time.Second, true,
		func(context.Context) (bool, error) { return done(), nil })
	if err != nil {
		r.Fatalf("wait for %s: %v\nGadget: %+v\nModule: %+v", what, err, r.gadget("g"), r.module("g"))
	}
}

// gadget of a size, on nodes of nobody else's.
func (r *rig) create(name string, change ...func(*Gadget)) *Gadget {
	r.Helper()
	g := &Gadget{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: name},
		Spec:       GadgetSpec{Image: "registry.example/gadget:1", Size: "5", Selector: map[string]string{"gadget": r.namespace}},
	}
	for _, f := range change {
		f(g)
	}
	r.must(r.admin.Create(r.Context(), g))
	return g
}

func (r *rig) change(name string, f func(*Gadget)) {
	r.Helper()
	g := r.gadget(name)
	f(g)
	r.must(r.admin.Update(r.Context(), g))
}

// try makes one pass.
func (r *rig) try(name string) (reconcile.Result, error) {
	r.Helper()
	if r.reconciler == nil {
		r.reconciler = kit.NewReconciler(r.client, r.client, r.events, r.op)
	}
	return r.reconciler.Reconcile(r.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: r.namespace, Name: name}})
}

func (r *rig) pass(name string) reconcile.Result {
	r.Helper()
	result, err := r.try(name)
	r.must(err)
	return result
}

// settle makes passes until one writes nothing, and returns what each of the others wrote.
func (r *rig) settle(name string) [][]string {
	r.Helper()
	var all [][]string
	for range 20 {
		mark := r.env.Mark(r)
		r.pass(name)
		writes := r.writes(mark)
		if len(writes) == 0 {
			return all
		}
		all = append(all, writes)
	}
	r.Fatalf("20 passes, and still no end: %v", all)
	return nil
}

// writes of the operator's since a mark, as "verb resource".
func (r *rig) writes(since env.Mark) (writes []string) {
	r.Helper()
	for _, request := range r.env.Requests(r, since) {
		if strings.HasPrefix(request.UserAgent, operatorName+"/") && request.IsWrite() && request.ObjectRef.Namespace == r.namespace {
			writes = append(writes, request.Verb+" "+request.Resource())
		}
	}
	return writes
}

// ready plays Drover: the Module is ready on two nodes.
func (r *rig) ready(name string) {
	r.Helper()
	m := r.module(name)
	m.Status.ModuleLoader = v1beta1.DaemonSetStatus{NodesMatchingSelectorNumber: 2, DesiredNumber: 2, AvailableNumber: 2}
	r.must(r.admin.Status().Update(r.Context(), m))
}

// These are nil when there is none.
func (r *rig) gadget(name string) *Gadget         { return get(r, name, &Gadget{}) }
func (r *rig) module(name string) *v1beta1.Module { return get(r, name, &v1beta1.Module{}) }
func (r *rig) config(name string) *corev1.ConfigMap {
	return get(r, name+"-config", &corev1.ConfigMap{})
}

func get[T client.Object](r *rig, name string, into T) (none T) {
	r.Helper()
	err := r.admin.Get(context.Background(), client.ObjectKey{Namespace: r.namespace, Name: name}, into)
	if apierrors.IsNotFound(err) {
		return none
	}
	r.must(err)
	return into
}

// says is a condition's status, reason and message.
func (r *rig) says(name, condition string) string {
	r.Helper()
	g := r.gadget(name)
	if g == nil {
		return ""
	}
	c := meta.FindStatusCondition(g.Status.Conditions, condition)
	if c == nil {
		return ""
	}
	return string(c.Status) + " " + c.Reason + ": " + c.Message
}

func (r *rig) wantSays(name, condition string, words ...string) {
	r.Helper()
	got := r.says(name, condition)
	for _, word := range words {
		if !strings.Contains(got, word) {
			r.Errorf("%s says %q, want %q in it", condition, got, word)
		}
	}
}

// told are the events since the last call.
func (r *rig) told() (told []string) {
	for {
		select {
		case e := <-r.events.Events:
			told = append(told, e)
		default:
			return told
		}
	}
}
