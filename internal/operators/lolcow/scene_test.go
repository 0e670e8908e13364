// SPDX-License-Identifier: Apache-2.0

package lolcow_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "github.com/drover-project/drover/api/lolcow/v1alpha1"
	"github.com/drover-project/drover/internal/operators/lolcow"
	"github.com/drover-project/drover/internal/testkit/env"
	"github.com/drover-project/drover/kit"
)

func TestMain(m *testing.M) { os.Exit(env.Main(m)) }

const (
	system  = "lolcow-operator-system"
	account = "lolcow-operator-controller-manager"
	tree    = "operators/lolcow"
)

// program is the operator's, as its main package has it.
func program() kit.Program {
	return kit.Program{
		Name: lolcow.Name, AddToScheme: []func(*runtime.Scheme) error{api.AddToScheme}, Requires: lolcow.Requirements(),
		Setup: func(mgr ctrl.Manager) error {
			if kind, err := lolcow.SetupControllers(mgr); err != nil {
				return fmt.Errorf("%s: %w", kind, err)
			}
			return nil
		},
	}
}

// scene is a namespace in a cluster that has the operator's definitions and its role. There is no
// Deployment controller: the test plays it.
type scene struct {
	*testing.T
	env       *env.Env
	admin     client.Client
	namespace string

	mu  sync.Mutex
	log strings.Builder
}

func newScheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, api.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

func newScene(t *testing.T) *scene {
	t.Helper()
	e := env.Get(t)
	s := &scene{T: t, env: e, namespace: e.Namespace(t)}
	var err error
	s.admin, err = client.New(e.AdminConfig(), client.Options{Scheme: newScheme(t)})
	s.must(err)
	e.Install(t, tree+"/crd")
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: system}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: account}},
	} {
		if err := s.admin.Create(t.Context(), object); !apierrors.IsAlreadyExists(err) {
			s.must(err)
		}
	}
	e.Install(t, tree+"/rbac")
	t.Cleanup(s.freePorts)
	return s
}

// freePorts deletes the namespace's Services: their ports are the whole cluster's.
func (s *scene) freePorts() {
	s.must(s.admin.DeleteAllOf(context.Background(), &api.Lolcow{}, client.InNamespace(s.namespace)))
	s.must(s.admin.DeleteAllOf(context.Background(), &corev1.Service{}, client.InNamespace(s.namespace)))
}

// config is for the operator's ServiceAccount, with the rights of the generated role and no others.
func (s *scene) config() *rest.Config {
	s.Helper()
	request := &authenticationv1.TokenRequest{}
	s.must(s.admin.SubResource("token").Create(s.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: account}}, request))
	config := rest.AnonymousClientConfig(s.env.AdminConfig())
	config.BearerToken = request.Status.Token
	return config
}

// start runs the operator until stop is called or the test ends.
func (s *scene) start() (stop func()) {
	s.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	config := s.config()
	go func() {
		done <- program().Run(ctx, config, &kit.Options{MetricsAddress: "0", ProbeAddress: "0", Namespaces: []string{s.namespace},
			Log: s.logger()})
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			s.Errorf("the operator ended: %v", err)
		}
	})
	s.Cleanup(stop)
	return stop
}

func (s *scene) logger() logr.Logger {
	return funcr.New(func(prefix, args string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.log.WriteString(prefix + " " + args + "\n")
	}, funcr.Options{})
}

// logged counts the lines of the log that contain a text.
func (s *scene) logged(text string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for line := range strings.Lines(s.log.String()) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

func (s *scene) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *scene) await(what string, done func() bool) {
	s.Helper()
	err := wait.PollUntilContextTimeout(s.Context(), 20*time.Millisecond, time.Minute, true,
		func(context.Context) (bool, error) { return done(), nil })
	if err != nil {
		s.Fatalf("wait for %s: %v\nLolcow: %+v\nlog:\n%s", what, err, get(s, "cow", &api.Lolcow{}), s.log.String())
	}
}

// get is nil when the object is not there.
func get[T client.Object](s *scene, name string, into T) (none T) {
	s.Helper()
	err := s.admin.Get(context.Background(), client.ObjectKey{Namespace: s.namespace, Name: name}, into)
	if apierrors.IsNotFound(err) {
		return none
	}
	s.must(err)
	return into
}

func (s *scene) cow(name string) *api.Lolcow               { return get(s, name, &api.Lolcow{}) }
func (s *scene) service(name string) *corev1.Service       { return get(s, name, &corev1.Service{}) }
func (s *scene) deployment(name string) *appsv1.Deployment { return get(s, name, &appsv1.Deployment{}) }

// create makes a Lolcow.
func (s *scene) create(name string, spec api.LolcowSpec) *api.Lolcow {
	s.Helper()
	l := &api.Lolcow{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}, Spec: spec}
	s.must(s.admin.Create(s.Context(), l))
	return l
}

// change changes a Lolcow's spec.
func (s *scene) change(name string, change func(*api.LolcowSpec)) {
	s.Helper()
	l := s.cow(name)
	before := l.DeepCopy()
	change(&l.Spec)
	s.must(s.admin.Patch(s.Context(), l, client.MergeFrom(before)))
}

// reason is that of the condition Ready of the present generation, with "!" before it while it is
// not True.
func (s *scene) reason(name string) string {
	s.Helper()
	l := s.cow(name)
	if l == nil {
		return ""
	}
	c := meta.FindStatusCondition(l.Status.Conditions, kit.ConditionReady)
	switch {
	case c == nil || c.ObservedGeneration != l.Generation:
		return ""
	case c.Status != metav1.ConditionTrue:
		return "!" + c.Reason
	}
	return c.Reason
}

func (s *scene) awaitReason(name, want string) {
	s.Helper()
	s.await(name+": "+want, func() bool { return s.reason(name) == want })
}

// rollOut plays the Deployment controller: every pod is there, of the current template, and serves.
func (s *scene) rollOut(name string) {
	s.Helper()
	d := s.deployment(name)
	before := d.DeepCopy()
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: 1,
		AvailableReplicas: 1}
	s.must(s.admin.Status().Patch(s.Context(), d, client.MergeFrom(before)))
}

// ready makes a Lolcow and waits until it is ready.
func (s *scene) ready(name string, spec api.LolcowSpec) *api.Lolcow {
	s.Helper()
	s.create(name, spec)
	s.awaitReason(name, "!"+api.ReasonRollingOut)
	s.rollOut(name)
	s.awaitReason(name, kit.ReasonReconciled)
	return s.cow(name)
}

// writes are what the operator wrote in the namespace since a mark, as "verb resource code", except
// to objects with these names.
func (s *scene) writes(since env.Mark, but ...string) (writes []string) {
	s.Helper()
	for _, r := range s.env.Requests(s, since) {
		ours := r.User.Username == "system:serviceaccount:"+system+":"+account && r.ObjectRef.Namespace == s.namespace
		if ours && r.IsWrite() && !slices.Contains(but, r.ObjectRef.Name) {
			writes = append(writes, fmt.Sprintf("%s %s %d", r.Verb, r.Resource(), r.ResponseStatus.Code))
		}
	}
	return writes
}

// events are those about a Lolcow, as "type reason".
func (s *scene) events(name string) (events []string) {
	s.Helper()
	var list eventsv1.EventList
	s.must(s.admin.List(s.Context(), &list, client.InNamespace(s.namespace)))
	for i := range list.Items {
		if e := &list.Items[i]; e.Regarding.Kind == "Lolcow" && e.Regarding.Name == name {
			again := ""
			if e.Series != nil {
				again = fmt.Sprintf(" x%d", e.Series.Count)
			}
			events = append(events, e.Type+" "+e.Reason+again)
		}
	}
	return events
}
