// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/drover-project/drover/internal/cli/exit"
	"github.com/drover-project/drover/internal/cli/paint"
	"github.com/drover-project/drover/internal/shared/words"
)

// interval between two looks at what ends.
const interval = time.Second

// forward takes KMM out of the way. Each step looks at what is there, so it can be repeated. The
// order matters: nobody may wait for a webhook whose server has stopped.
func (o *options) forward(ctx context.Context) error {
	found, err := o.api.look(ctx)
	if err != nil {
		return err
	}
	for _, item := range judge(found).Items {
		if item.State == You {
			return o.refuse(item.Kind+" "+item.Object+": "+item.Says, item.Next)
		}
	}
	for _, step := range []func(context.Context, *Found) error{
		o.awaitWorkers, o.stopOperators, o.removeWebhooks, o.freeDefinitions, o.stopWebhookServers, o.collectWorkers, o.markReleases,
	} {
		if err := step(ctx, found); err != nil {
			return err
		}
	}
	if found, err = o.api.look(ctx); err != nil {
		return err
	}
	report := judge(found)
	_, _ = fmt.Fprint(o.Out, "\n"+report.render(paint.For(o.Out)))
	if !report.Clear {
		return exit.ErrNotReady
	}
	return nil
}

// awaitWorkers lets KMM finish what it has begun on nodes.
func (o *options) awaitWorkers(ctx context.Context, _ *Found) error {
	left, err := o.await(ctx, "KMM's pods that load or unload", func(ctx context.Context) ([]string, error) {
		f := &Found{}
		err := o.api.lookPods(ctx, f)
		return f.Working, err
	})
	if err != nil || len(left) == 0 {
		return err
	}
	return o.refuse("KMM still loads or unloads, in "+words.Count(len(left), "pod")+": "+names(left),
		"mend what they wait for, or delete their Module; then repeat")
}

// await looks until nothing is left, or the time is over, and returns what is left then.
func (o *options) await(ctx context.Context, what string, look func(context.Context) ([]string, error)) (left []string, err error) {
	said := ""
	err = wait.PollUntilContextTimeout(ctx, interval, o.timeout, true, func(ctx context.Context) (bool, error) {
		now, err := look(ctx)
		if err != nil {
			return false, err
		}
		left = now
		if text := fmt.Sprintf("waiting for %s: %s", what, names(left)); len(left) > 0 && text != said {
			_, _ = fmt.Fprintln(o.ErrOut, text)
			said = text
		}
		return len(left) == 0, nil
	})
	if err != nil && (ctx.Err() != nil || !wait.Interrupted(err) || len(left) == 0) {
		return nil, fmt.Errorf("wait for %s: %w", what, err)
	}
	return left, nil
}

func (o *options) stopOperators(ctx context.Context, f *Found) error {
	if err := o.stop(ctx, f, roleOperator); err != nil {
		return err
	}
	// A pod that somebody started meanwhile holds the Lease, too.
	left, err := o.await(ctx, "KMM's Lease", func(ctx context.Context) (held []string, _ error) {
		now := &Found{}
		err := o.api.lookLeases(ctx, now)
		for _, l := range now.Leases {
			if l.Pod != "" {
				held = append(held, l.Namespace+"/"+l.Pod)
			}
		}
		return held, err
	})
	if err != nil || len(left) == 0 {
		return err
	}
	return o.refuse("KMM's Lease is still held by "+names(left), "see what runs this pod, stop it, and repeat")
}

// stop scales Deployments of a role to 0 and waits until their pods have gone.
func (o *options) stop(ctx context.Context, f *Found, role string) error {
	for _, d := range f.Deployments {
		if d.Role != role {
			continue
		}
		if d.Replicas > 0 {
			merge := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}},"spec":{"replicas":0}}`, replicasAnnotation, strconv.Itoa(int(d.Replicas)))
			if err := o.api.patch(ctx, deployments, d.Namespace, d.Name, merge); err != nil {
				return err
			}
			o.say("stopped    Deployment %s/%s, which had %s", d.Namespace, d.Name, words.Count(int(d.Replicas), "replica"))
		}
		left, err := o.await(ctx, "the pods of "+d.Name, func(ctx context.Context) ([]string, error) { return o.api.running(ctx, d) })
		if err != nil {
			return err
		}
		if len(left) > 0 {
			return o.refuse(fmt.Sprintf("pods of Deployment %s/%s do not end: %s", d.Namespace, d.Name, names(left)),
				"see what starts it again, such as OLM, Argo CD or Flux, remove KMM there, and repeat")
		}
	}
	return nil
}

func (o *options) removeWebhooks(ctx context.Context, f *Found) error {
	for _, w := range f.Webhooks {
		kind := webhookKinds[w.Kind]
		live, err := o.api.get(ctx, kind, "", w.Name)
		if err != nil {
			return err
		}
		if live == nil {
			continue
		}
		if err := o.api.keep(ctx, w.Kind, w.Name, clean(live)); err != nil {
			return err
		}
		if err := o.api.remove(ctx, kind, live); err != nil {
			return err
		}
		o.say("removed    %s %s; a copy is in ConfigMap %s/%s", w.Kind, w.Name, droverNamespace, copies)
	}
	return nil
}

func (o *options) freeDefinitions(ctx context.Context, f *Found) error {
	for _, d := range f.Definitions {
		if !d.Ours {
			continue
		}
		crd, err := o.api.get(ctx, definitions, "", d.Name)
		if err != nil {
			return err
		}
		if crd == nil {
			return fmt.Errorf("definition %s was deleted meanwhile", d.Name)
		}
		if describe(crd).Converts {
			conversion, _, err := unstructured.NestedMap(crd.Object, "spec", "conversion")
			if err != nil {
				return fmt.Errorf("read the conversion of %s: %w", d.Name, err)
			}
			if err := o.api.keep(ctx, crd.GetKind(), d.Name, conversion); err != nil {
				return err
			}
		}
		changed, err := free(crd)
		if err != nil {
			return fmt.Errorf("change definition %s: %w", d.Name, err)
		}
		if !changed {
			continue
		}
		if err := o.api.update(ctx, definitions, crd); err != nil {
			return err
		}
		o.say("freed      definition %s: no webhook converts it, and anybody may apply it", d.Name)
	}
	return nil
}

func (o *options) stopWebhookServers(ctx context.Context, f *Found) error {
	return o.stop(ctx, f, roleWebhook)
}

// collectWorkers removes pods that have ended, whose finalizer KMM would have removed.
func (o *options) collectWorkers(ctx context.Context, _ *Found) error {
	f := &Found{}
	if err := o.api.lookPods(ctx, f); err != nil {
		return err
	}
	for _, each := range f.Ended {
		namespace, name, _ := strings.Cut(each, "/")
		pod, err := o.api.get(ctx, pods, namespace, name)
		if err != nil {
			return err
		}
		if pod == nil {
			continue
		}
		pod.SetFinalizers(slices.DeleteFunc(pod.GetFinalizers(), func(f string) bool { return f == workerFinalizer }))
		if err := o.api.update(ctx, pods, pod); err != nil {
			return err
		}
		if err := o.api.remove(ctx, pods, pod); err != nil {
			return err
		}
		o.say("removed    pod %s, which had ended", each)
	}
	return nil
}

// markReleases has `helm uninstall` keep the definitions.
func (o *options) markReleases(ctx context.Context, f *Found) error {
	for _, found := range f.Releases {
		if len(found.Deletes) == 0 {
			continue
		}
		r, err := o.api.release(ctx, found.Namespace, found.Name)
		if err != nil {
			return err
		}
		if r.Problem != "" {
			return errors.New("release " + found.Name + ": " + r.Problem)
		}
		if len(r.Deletes) == 0 {
			continue
		}
		if err := o.api.keepInRecord(ctx, r); err != nil {
			return err
		}
		o.say("marked     %s in Helm's release %s/%s as to be kept", strings.Join(r.Deletes, ", "), r.Namespace, r.Name)
	}
	return nil
}
