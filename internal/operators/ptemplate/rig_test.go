// SPDX-License-Identifier: Apache-2.0

package ptemplate_test

import (
	"context"
	"encoding/json"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/api/ptemplate/v1alpha1"
	"github.com/drover-project/drover/internal/operators/ptemplate"
	"github.com/drover-project/drover/internal/testkit/env"
	"github.com/drover-project/drover/kit"
)

func TestMain(m *testing.M) { os.Exit(env.Main(m)) }

const sampleFile = "../../../config/operators/ptemplate/samples/pt_v1alpha1_ptemplate.yaml"

// rig is a namespace of a real API server, and the operator as its own ServiceAccount, with the
// generated role.
type rig struct {
	*testing.T
	env       *env.Env
	admin     client.WithWatch
	config    *rest.Config
	namespace string
	// elsewhere is another namespace that the operator works in.
	elsewhere string

	mu     sync.Mutex
	passes map[types.NamespacedName]int
	lines  []string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	e := env.Get(t)
	r := &rig{T: t, env: e, config: e.InstallOperator(t, "ptemplate"), passes: map[types.NamespacedName]int{}}
	r.admin, r.namespace, r.elsewhere = e.Admin(t), e.Namespace(t), e.Namespace(t)
	return r
}

// start runs the operator in the rig's namespace until the end of the test. Each pass is counted,
// and what is logged at the default verbosity is kept.
func (r *rig) start() {
	r.Helper()
	program := ptemplate.Program
	program.Setup = func(mgr ctrl.Manager) error {
		op := ptemplate.New(mgr.GetClient())
		op.Check = func(_ context.Context, p *v1alpha1.Ptemplate) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.passes[client.ObjectKeyFromObject(p)]++
			return nil
		}
		return kit.Add(mgr, op)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- program.Run(ctx, r.config, r.options()) }()
	r.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			r.Errorf("the operator ended: %v", err)
		}
	})
}

func (r *rig) options() *kit.Options {
	log := funcr.New(func(_, line string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.lines = append(r.lines, line)
	}, funcr.Options{})
	return &kit.Options{MetricsAddress: "0", ProbeAddress: "0", Namespaces: []string{r.namespace, r.elsewhere}, Log: log}
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *rig) await(what string, done func() bool) {
	r.Helper()
	err := wait.PollUntilContextTimeout(r.Context(), 20*time.Millisecond, time.Minute, true,
		func(context.Context) (bool, error) { return done(), nil })
	if err == nil {
		return
	}
	var all v1alpha1.PtemplateList
	r.must(r.admin.List(context.Background(), &all, client.InNamespace(r.namespace)))
	text, broken := json.MarshalIndent(all.Items, "", " ")
	r.must(broken)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Fatalf("wait for %s: %v\n%s\nlog: %q", what, err, text, r.lines)
}

// sample is the Ptemplate of the samples, as its author's tools see it.
func (r *rig) sample() *unstructured.Unstructured {
	r.Helper()
	content, err := os.ReadFile(sampleFile)
	r.must(err)
	object := &unstructured.Unstructured{}
	r.must(yaml.Unmarshal(content, &object.Object))
	object.SetNamespace(r.namespace)
	return object
}

// create makes the sample under a name, with strict validation.
func (r *rig) create(name string) client.ObjectKey { return r.createIn(r.namespace, name) }

func (r *rig) createIn(namespace, name string) client.ObjectKey {
	r.Helper()
	object := r.sample()
	object.SetNamespace(namespace)
	object.SetName(name)
	r.must(r.admin.Create(r.Context(), object, client.FieldValidation(metav1.FieldValidationStrict)))
	return client.ObjectKeyFromObject(object)
}

func (r *rig) ptemplate(key client.ObjectKey) *v1alpha1.Ptemplate {
	return get(r, key, &v1alpha1.Ptemplate{})
}

func (r *rig) module(key client.ObjectKey) *v1beta1.Module { return get(r, key, &v1beta1.Module{}) }

func (r *rig) set(key client.ObjectKey) *appsv1.DaemonSet {
	key.Name += "-consumer"
	return get(r, key, &appsv1.DaemonSet{})
}

// get returns nil when there is no such object.
func get[T client.Object](r *rig, key client.ObjectKey, into T) (none T) {
	r.Helper()
	err := r.admin.Get(context.Background(), key, into)
	if apierrors.IsNotFound(err) {
		return none
	}
	r.must(err)
	return into
}

// ready is the condition Ready for the present generation, or an empty one.
func (r *rig) ready(key client.ObjectKey) metav1.Condition {
	r.Helper()
	p := r.ptemplate(key)
	c := meta.FindStatusCondition(p.Status.Conditions, kit.ConditionReady)
	if c == nil || c.ObservedGeneration != p.Generation {
		return metav1.Condition{}
	}
	return *c
}

// settled waits until both children are there and the status says so.
func (r *rig) settled(key client.ObjectKey) {
	r.Helper()
	r.await("both children and a status of "+key.Name, func() bool {
		return r.module(key) != nil && r.set(key) != nil && r.ready(key).Reason == kit.ReasonProgressing
	})
}

func (r *rig) patch(object client.Object, patch string) {
	r.Helper()
	r.must(r.admin.Patch(r.Context(), object, client.RawPatch(types.MergePatchType, []byte(patch))))
}

func (r *rig) passesOf(key client.ObjectKey) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.passes[key]
}

func (r *rig) logged() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.lines...)
}
