// SPDX-License-Identifier: Apache-2.0

package lolcow

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"

	api "github.com/drover-project/drover/api/lolcow/v1alpha1"
	"github.com/drover-project/drover/kit"
)

// +kubebuilder:rbac:groups=my.domain,resources=lolcows,verbs=get;list;watch
// +kubebuilder:rbac:groups=my.domain,resources=lolcows/status,verbs=patch
// +kubebuilder:rbac:groups=my.domain,resources=lolcows/finalizers,verbs=update
// +kubebuilder:rbac:groups=my.domain,resources=lolcowworkspaces,verbs=get;create;patch
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=services,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,resourceNames=lolcows.my.domain;lolcowworkspaces.my.domain,verbs=get

// workers is how many Lolcows are reconciled at once: a slow announceURL must not delay all others.
const workers = 4

// operator has the kit's callbacks.
type operator struct {
	client client.Client
	live   client.Reader
	http   *http.Client
	// rolling are Lolcows whose pods are being replaced, said is each one's last logged greeting.
	rolling, said sync.Map
	// taken is when a Lolcow retries whose port another Service has: no watch reports a free port.
	taken workqueue.TypedRateLimiter[types.NamespacedName]
}

// Operator of Lolcows. c has no cache, see [kit.Direct]; live reads from the API server.
func Operator(c client.Client, live client.Reader) kit.Operator[*api.Lolcow] {
	return newOperator(c, live).kit()
}

func newOperator(c client.Client, live client.Reader) *operator {
	taken := workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](time.Second, retryAfter)
	return &operator{client: c, live: live, http: newHTTP(), taken: taken}
}

func (o *operator) kit() kit.Operator[*api.Lolcow] {
	return kit.Operator[*api.Lolcow]{
		Name:     Name,
		New:      func() *api.Lolcow { return &api.Lolcow{} },
		Children: []client.Object{&appsv1.Deployment{}, &corev1.Service{}},
		Desired:  Desired,
		Observe:  o.observe,
		Explain:  o.explain,
		Forget:   o.forget,
		Watch: func(_ ctrl.Manager, b *builder.Builder) *builder.Builder {
			// These options replace the kit's, also its pauses after failures.
			return b.WithOptions(controller.Options{
				MaxConcurrentReconciles: workers,
				RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](50*time.Millisecond, time.Minute),
			})
		},
	}
}

// observe fills the status, and returns why the Lolcow is not ready.
func (o *operator) observe(ctx context.Context, l *api.Lolcow, children []client.Object) error {
	o.taken.Forget(client.ObjectKeyFromObject(l))
	var rollout error
	for _, child := range children {
		switch child := child.(type) {
		case *corev1.Service:
			l.Status.ServiceName, l.Status.NodePort = child.Name, child.Spec.Ports[0].NodePort
		case *appsv1.Deployment:
			rollout = rolledOut(child)
		}
	}
	if rollout != nil {
		o.rolling.Store(client.ObjectKeyFromObject(l), true)
		return rollout
	}
	l.Status.Greeting = l.Spec.Greeting
	o.say(ctx, l)
	return o.announce(ctx, l)
}

// say logs a new greeting once.
func (o *operator) say(ctx context.Context, l *api.Lolcow) {
	key := client.ObjectKeyFromObject(l)
	if _, rolling := o.rolling.LoadAndDelete(key); !rolling {
		return
	}
	if before, _ := o.said.Swap(key, l.Spec.Greeting); before != l.Spec.Greeting {
		log.FromContext(ctx).Info("The cow says something new", "greeting", l.Spec.Greeting)
	}
}

func (o *operator) forget(key types.NamespacedName) {
	o.rolling.Delete(key)
	o.said.Delete(key)
	o.taken.Forget(key)
}

// explain finds ports that are taken. It deletes the Lolcow's own Service of a former name.
func (o *operator) explain(ctx context.Context, l *api.Lolcow, _ client.Object, refusal error) error {
	if l.Spec.Port == 0 || !portTaken(refusal) {
		return nil
	}
	var services corev1.ServiceList
	if err := o.client.List(ctx, &services, client.InNamespace(l.Namespace)); err != nil {
		return fmt.Errorf("list Services: %w", err)
	}
	for i := range services.Items {
		s := &services.Items[i]
		if s.Name == serviceName(l) || !metav1.IsControlledBy(s, l) || len(s.Spec.Ports) == 0 || s.Spec.Ports[0].NodePort != l.Spec.Port {
			continue
		}
		if err := o.client.Delete(ctx, s, client.Preconditions{UID: &s.UID}); err != nil {
			return fmt.Errorf("delete Service %s, which was renamed: %w", s.Name, err)
		}
		return kit.Waiting(kit.ReasonTerminating, "Service %s is being deleted: Service %s gets its port", s.Name, serviceName(l))
	}
	return &kit.Problem{
		Reason: api.ReasonPortConflict, Errored: true, RetryAfter: o.taken.When(client.ObjectKeyFromObject(l)),
		Message: fmt.Sprintf("Another Service has port %d: choose another spec.port, or remove it. The API server says: %v", l.Spec.Port,
			refusal),
	}
}

// portTaken tells, by its text, whether a refusal says that another Service has the port.
func portTaken(err error) bool {
	return apierrors.IsInvalid(err) && strings.Contains(err.Error(), "provided port is already allocated")
}
