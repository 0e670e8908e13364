// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/drover-project/drover/internal/shared/definition"
	"github.com/drover-project/drover/internal/shared/words"
)

const (
	// droverLease is what the leader of Drover's operators holds, and the name of its Deployment.
	droverLease = "drover-operator"
	droverAgent = "drover-agent"

	removeDrover = "make undeploy    # or: helm uninstall drover -n " + droverNamespace
)

// remains is what of Drover is still there.
type remains struct {
	Leader    bool     // one renews the Lease
	Workloads []string // the Deployment, the DaemonSet
}

// hinders says why KMM must not start yet; empty: nothing hinders it.
func (r remains) hinders() string {
	switch {
	case r.Leader:
		return "Drover's operator is at work"
	case len(r.Workloads) > 0:
		return "Drover is still installed: " + names(r.Workloads)
	}
	return ""
}

// leads reports whether somebody holds the Lease and has renewed it in time.
func leads(l *coordinationv1.Lease, now time.Time) bool {
	if ptr.Deref(l.Spec.HolderIdentity, "") == "" || l.Spec.RenewTime == nil {
		return false
	}
	return now.Before(l.Spec.RenewTime.Add(time.Duration(ptr.Deref(l.Spec.LeaseDurationSeconds, 0)) * time.Second))
}

// backward puts back what --apply took. The webhooks' server comes before the webhooks, and KMM's
// operator last.
func (o *options) backward(ctx context.Context) error {
	left, err := o.api.lookDrover(ctx, o.clock.Now())
	if err != nil {
		return err
	}
	if why := left.hinders(); why != "" {
		return o.refuse(why, removeDrover)
	}
	saved, err := o.api.saved(ctx)
	if err != nil {
		return err
	}
	found := &Found{}
	if err := o.api.lookDeployments(ctx, found); err != nil {
		return err
	}
	stopped := slices.DeleteFunc(found.Deployments, func(d Deployment) bool { return d.Noted == "" })
	if saved == nil && len(stopped) == 0 {
		o.say("Nothing to do: there is no ConfigMap %s/%s, and no Deployment that --apply stopped.", droverNamespace, copies)
		return nil
	}
	for _, step := range []func() error{
		func() error { return o.start(ctx, stopped, roleWebhook) },
		func() error { return o.convertAgain(ctx, saved) },
		func() error { return o.hookAgain(ctx, saved) },
		func() error { return o.start(ctx, stopped, roleOperator) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	if saved != nil {
		if err := o.api.remove(ctx, configMaps, saved); err != nil {
			return err
		}
	}
	o.say("\nKMM is back, as far as --apply had taken it away.\nNext step: %s", "kubectl get pods -A -l app.kubernetes.io/name=kmm")
	return nil
}

// lookDrover looks for Drover.
func (a *api) lookDrover(ctx context.Context, now time.Time) (r remains, err error) {
	lease, err := a.get(ctx, leases, droverNamespace, droverLease)
	if err != nil {
		return r, err
	}
	if lease != nil {
		typed, err := as[coordinationv1.Lease](lease)
		if err != nil {
			return r, err
		}
		r.Leader = leads(typed, now)
	}
	for _, w := range []struct {
		kind schema.GroupVersionResource
		name string
	}{{deployments, droverLease}, {daemonSets, droverAgent}} {
		object, err := a.get(ctx, w.kind, droverNamespace, w.name)
		if err != nil {
			return r, err
		}
		if object != nil {
			r.Workloads = append(r.Workloads, object.GetKind()+" "+w.name)
		}
	}
	return r, nil
}

// start gives the stopped Deployments of a role the replicas that they had.
func (o *options) start(ctx context.Context, stopped []Deployment, role string) error {
	for _, d := range stopped {
		if d.Role != role {
			continue
		}
		replicas, err := strconv.Atoi(d.Noted)
		if err != nil {
			return fmt.Errorf("read the annotation %s of Deployment %s/%s: %w", replicasAnnotation, d.Namespace, d.Name, err)
		}
		merge := fmt.Sprintf(`{"metadata":{"annotations":{%q:null}},"spec":{"replicas":%d}}`, replicasAnnotation, replicas)
		if err := o.api.patch(ctx, deployments, d.Namespace, d.Name, merge); err != nil {
			return err
		}
		o.say("started    Deployment %s/%s with %s", d.Namespace, d.Name, words.Count(replicas, "replica"))
	}
	return nil
}

// convertAgain gives definitions the conversion that they had.
func (o *options) convertAgain(ctx context.Context, saved *unstructured.Unstructured) error {
	conversions, err := copied(saved, definition.Kind.Kind)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(conversions)) {
		patch, err := json.Marshal(map[string]any{"spec": map[string]any{"conversion": conversions[name].Object}})
		if err != nil {
			return fmt.Errorf("encode the conversion of %s: %w", name, err)
		}
		crd, err := o.api.get(ctx, definitions, "", name)
		if err != nil {
			return err
		}
		if crd == nil {
			o.say("left       definition %s: it is gone, and comes with KMM", name)
			continue
		}
		if err := o.api.patch(ctx, definitions, "", name, string(patch)); err != nil {
			return err
		}
		o.say("restored   the conversion of definition %s", name)
	}
	return nil
}

// hookAgain makes the webhook configurations that were removed.
func (o *options) hookAgain(ctx context.Context, saved *unstructured.Unstructured) error {
	for _, kind := range slices.Sorted(maps.Keys(webhookKinds)) {
		removed, err := copied(saved, kind)
		if err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(removed)) {
			made, err := o.api.create(ctx, webhookKinds[kind], removed[name])
			if err != nil {
				return err
			}
			if made {
				o.say("restored   %s %s", kind, name)
			}
		}
	}
	return nil
}
