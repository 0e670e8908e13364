// SPDX-License-Identifier: Apache-2.0

package deviceconfig

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2/ktesting"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/deviceconfig/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/testkit/env"
	"github.com/drover-project/drover/kit"
)

func TestMain(m *testing.M) { os.Exit(env.Main(m)) }

// scene is a namespace, some nodes, and the operator as config/operators/deviceconfig installs it,
// with its rights and no more. The test plays the user, and the operator of Modules.
type scene struct {
	*testing.T
	env       *env.Env
	config    *rest.Config
	admin     client.WithWatch
	namespace string
}

func newScene(t *testing.T) *scene {
	t.Helper()
	e := env.Get(t)
	return &scene{T: t, env: e, config: e.InstallOperator(t, "deviceconfig"), admin: e.Admin(t), namespace: e.Namespace(t)}
}

// start runs the operator's program until the returned function is called, at the latest until the
// end of the test.
func (s *scene) start(change ...func(*kit.Options)) (stop func()) {
	s.Helper()
	options := &kit.Options{MetricsAddress: "0", ProbeAddress: "0", Log: ktesting.NewLogger(s.T, ktesting.NewConfig())}
	for _, f := range change {
		f(options)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Program().Run(ctx, s.config, options) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			s.Errorf("the operator ended: %v", err)
		}
	}
	s.Cleanup(stop)
	return stop
}

func (s *scene) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// await asks until it is so. name is whom to show if it does not come so.
func (s *scene) await(what, name string, done func() bool) {
	s.Helper()
	err := wait.PollUntilContextTimeout(s.Context(), 50*time.Millisecond, time.Minute, true,
		func(context.Context) (bool, error) { return done(), nil })
	if err != nil {
		s.Fatalf("wait for %s: %v\nDeviceConfig: %+v\nModule: %+v", what, err, s.get(name), s.module(name))
	}
}

// pool is the label of nodes of this test, by which it chooses them.
func (s *scene) pool(name string) map[string]string {
	return map[string]string{"example.com/" + s.namespace + "-" + name: "yes"}
}

// node makes a node in some pools, for the time of the test.
func (s *scene) node(pools ...string) *corev1.Node {
	s.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: s.namespace + "-", Labels: map[string]string{}}}
	for _, pool := range pools {
		for key, value := range s.pool(pool) {
			n.Labels[key] = value
		}
	}
	s.must(s.admin.Create(s.Context(), n))
	s.Cleanup(func() { s.must(s.admin.Delete(context.Background(), n)) })
	return n
}

// deviceConfig is one for a pool of nodes.
func (s *scene) deviceConfig(name, pool string) *v1alpha1.DeviceConfig {
	return &v1alpha1.DeviceConfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec:       v1alpha1.DeviceConfigSpec{DriverImage: "registry.example.com/driver", DriverVersion: "1.0", NodeSelector: s.pool(pool)},
	}
}

// create makes a DeviceConfig, of which nothing is left at the end of the test.
func (s *scene) create(d *v1alpha1.DeviceConfig) *v1alpha1.DeviceConfig {
	s.Helper()
	s.must(s.admin.Create(s.Context(), d, client.FieldValidation("Strict")))
	s.Cleanup(func() { s.remove(d) })
	return d
}

// remove deletes without waiting for anybody.
func (s *scene) remove(d *v1alpha1.DeviceConfig) {
	s.Helper()
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
	s.must(client.IgnoreNotFound(s.admin.Patch(context.Background(), d.DeepCopy(), patch)))
	s.must(client.IgnoreNotFound(s.admin.Delete(context.Background(), d)))
	if m := s.module(d.Name); m != nil {
		s.must(client.IgnoreNotFound(s.admin.Patch(context.Background(), m.DeepCopy(), patch)))
		s.must(client.IgnoreNotFound(s.admin.Delete(context.Background(), m)))
	}
}

// change edits a DeviceConfig as a user does.
func (s *scene) change(name string, edit func(*v1alpha1.DeviceConfigSpec)) {
	s.Helper()
	d := s.get(name)
	before := d.DeepCopy()
	edit(&d.Spec)
	s.must(s.admin.Patch(s.Context(), d, client.MergeFrom(before)))
}

// get and module are nil when there is none.
func (s *scene) get(name string) *v1alpha1.DeviceConfig {
	return read(s, name, &v1alpha1.DeviceConfig{})
}

func (s *scene) module(name string) *v1beta1.Module {
	return read(s, name+moduleSuffix, &v1beta1.Module{})
}

func read[T client.Object](s *scene, name string, into T) (none T) {
	s.Helper()
	err := s.admin.Get(context.Background(), client.ObjectKey{Namespace: s.namespace, Name: name}, into)
	if apierrors.IsNotFound(err) {
		return none
	}
	s.must(err)
	return into
}

// ready is the reason of the condition Ready of what is asked for now, with "!" before it when it
// is not True.
func (s *scene) ready(name string) string {
	s.Helper()
	d := s.get(name)
	if d == nil {
		return "gone"
	}
	c := meta.FindStatusCondition(d.Status.Conditions, kit.ConditionReady)
	switch {
	case c == nil || c.ObservedGeneration != d.Generation:
		return ""
	case c.Status != metav1.ConditionTrue:
		return "!" + c.Reason
	}
	return c.Reason
}

func (s *scene) awaitReady(name, reason string) {
	s.Helper()
	s.await(fmt.Sprintf("%s to be %s", name, reason), name, func() bool { return s.ready(name) == reason })
}

// message of the condition Ready.
func (s *scene) message(name string) string {
	s.Helper()
	if c := meta.FindStatusCondition(s.get(name).Status.Conditions, kit.ConditionReady); c != nil {
		return c.Message
	}
	return ""
}

// load plays the operator of Modules: the kernel module is live on some of the nodes.
func (s *scene) load(name string, available, desired int32) {
	s.Helper()
	s.await("the Module", name, func() bool { return s.module(name) != nil })
	m := s.module(name)
	m.Status.ModuleLoader = v1beta1.DaemonSetStatus{NodesMatchingSelectorNumber: desired, DesiredNumber: desired, AvailableNumber: available}
	s.must(s.admin.Status().Update(s.Context(), m))
}

// events counts those about a DeviceConfig by their reason.
func (s *scene) events(d *v1alpha1.DeviceConfig) map[string]int {
	s.Helper()
	var list corev1.EventList
	s.must(s.admin.List(s.Context(), &list, client.InNamespace(s.namespace)))
	counts := map[string]int{}
	for i := range list.Items {
		if list.Items[i].InvolvedObject.UID == d.UID {
			counts[list.Items[i].Type+" "+list.Items[i].Reason] += int(max(1, list.Items[i].Count))
		}
	}
	return counts
}
