// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"golang.org/x/sync/errgroup"

	"github.com/drover-project/drover/internal/testkit/fleet"
	"github.com/drover-project/drover/test/soak/plan"
)

// parallel is how many nodes one event reaches at a time.
const parallel = 16

// storm makes a storm's events happen, each at its time, and returns when the last is over.
func (s *scene) storm(ctx context.Context, events []plan.Event) error {
	begin := time.Now()
	all, ctx := errgroup.WithContext(ctx)
	for _, e := range events {
		all.Go(func() error {
			if err := pause(ctx, e.At-time.Since(begin)); err != nil {
				return err
			}
			if err := s.happen(ctx, e); err != nil {
				return fmt.Errorf("%s: %w", e.Kind, err)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.result.Faults[e.Kind]++
			return nil
		})
	}
	return all.Wait()
}

// happen does what a kind is.
func (s *scene) happen(ctx context.Context, e plan.Event) error {
	switch e.Kind {
	case plan.Reboot:
		return s.nodes(ctx, e.Nodes, "/reboot?")
	case plan.Kernel:
		return s.nodes(ctx, e.Nodes, "/reboot?kernel="+url.QueryEscape(kernels[e.Value]))
	case plan.AgentRestart:
		return errors.Join(s.nodes(ctx, e.Nodes, "/agent-off?"), s.nodes(ctx, e.Nodes, "/agent?"))
	case plan.AgentKill:
		return s.kill(ctx, e)
	case plan.OperatorKill:
		return s.keeper.kill(ctx)
	case plan.APIRestart:
		return s.outage(ctx, e.For)
	case plan.Throttle:
		return s.throttle(ctx, e)
	case plan.Registry:
		return s.refuse(ctx, e)
	case plan.FullDisk:
		full := append(slices.Clone(e.Nodes), e.Boot...)
		return s.between(ctx, e, func(ctx context.Context) error {
			return errors.Join(s.nodes(ctx, full, "/fill?"), s.nodes(ctx, e.Boot, "/reboot?"))
		}, func(ctx context.Context) error { return s.nodes(ctx, full, "/empty?") })
	case plan.Clock:
		return s.nodes(ctx, e.Nodes, "/clock?off="+e.Step.String())
	case plan.Labels, plan.OtherLabels:
		return s.relabel(ctx, e)
	}
	return s.edit(ctx, e)
}

// nodes calls a verb of hollow nodes.
func (s *scene) nodes(ctx context.Context, numbers []int, verb string) error {
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(parallel)
	for _, i := range numbers {
		all.Go(func() error {
			return s.persist(ctx, func(ctx context.Context) error { return s.f.Debug(ctx, verb+"&node="+nodeName(i)) })
		})
	}
	return all.Wait()
}

// persist tries again what fails while the API server is away.
func (s *scene) persist(ctx context.Context, do func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, s.o.patience, true, func(ctx context.Context) (bool, error) {
		last = do(ctx)
		return last == nil, nil
	})
	if err != nil {
		return errors.Join(err, last)
	}
	return nil
}

// between begins something, gives a Module another image for what was begun to matter, lets time
// pass and ends it.
func (s *scene) between(ctx context.Context, e plan.Event, begin, end func(context.Context) error) error {
	if err := s.persist(ctx, begin); err != nil {
		return err
	}
	err := s.edit(ctx, plan.Event{Kind: plan.Image, Module: e.Module, Value: e.Value})
	return errors.Join(err, pause(ctx, e.For), s.persist(context.WithoutCancel(ctx), end))
}

// outage takes the API server away. Outages come one at a time.
func (s *scene) outage(ctx context.Context, away time.Duration) error {
	s.outages.Lock()
	defer s.outages.Unlock()
	defer s.keeper.trouble()()
	s.say("the API server goes for %s", away)
	_, err := s.f.Outage(ctx, away)
	return err
}

// throttle has the API server's own fairness refuse Drover's requests by 429: all of them, or those
// beyond a very few at a time.
func (s *scene) throttle(ctx context.Context, e plan.Event) error {
	s.throttles.Lock()
	defer s.throttles.Unlock()
	defer s.keeper.trouble()()
	level := &flowcontrolv1.PriorityLevelConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "soak"},
		Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
			Type: flowcontrolv1.PriorityLevelEnablementLimited,
			Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
				NominalConcurrencyShares: ptr.To(int32(e.Value % 2)), LendablePercent: ptr.To(int32(0)), BorrowingLimitPercent: ptr.To(int32(0)), //nolint:gosec // 0 or 1
				LimitResponse: flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject},
			},
		},
	}
	account := func(name string) flowcontrolv1.Subject {
		return flowcontrolv1.Subject{
			Kind:           flowcontrolv1.SubjectKindServiceAccount,
			ServiceAccount: &flowcontrolv1.ServiceAccountSubject{Namespace: fleet.Namespace, Name: name},
		}
	}
	flow := &flowcontrolv1.FlowSchema{
		ObjectMeta: metav1.ObjectMeta{Name: "soak"},
		Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: level.Name}, MatchingPrecedence: 100,
			Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
				Subjects: []flowcontrolv1.Subject{account("drover-operator"), account("drover-agent")},
				ResourceRules: []flowcontrolv1.ResourcePolicyRule{{
					Verbs: []string{flowcontrolv1.VerbAll}, APIGroups: []string{flowcontrolv1.APIGroupAll},
					Resources: []string{flowcontrolv1.ResourceAll}, Namespaces: []string{flowcontrolv1.NamespaceEvery}, ClusterScope: true,
				}},
			}},
		},
	}
	return s.between(ctx, e, func(ctx context.Context) error {
		for _, o := range []client.Object{level.DeepCopy(), flow.DeepCopy()} {
			if err := s.f.Admin.Create(ctx, o); err != nil && !apierrors.IsAlreadyExists(err) {
				return fmt.Errorf("throttle Drover: %w", err)
			}
		}
		return nil
	}, func(ctx context.Context) error {
		for _, o := range []client.Object{flow, level} {
			if err := s.f.Admin.Delete(ctx, o); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("end the throttling: %w", err)
			}
		}
		return nil
	})
}

// refuse has the registry refuse a Module's images.
func (s *scene) refuse(ctx context.Context, e plan.Event) error {
	cook := func(recipe string) func(context.Context) error {
		return func(ctx context.Context) error {
			pattern := "^" + s.world.modules[e.Module].repository() + ":"
			return s.f.Debug(ctx, "/recipe?"+url.Values{"pattern": {pattern}, "recipe": {recipe}}.Encode())
		}
	}
	return s.between(ctx, e, cook("unreachable"), cook(""))
}

// kill ends agents at their next call to the kernel, before or after it, and gives them something
// to do.
func (s *scene) kill(ctx context.Context, e plan.Event) error {
	verb := "/kill?"
	if e.Value%2 == 1 {
		verb += "before=true"
	}
	return errors.Join(s.nodes(ctx, e.Nodes, verb), s.edit(ctx, plan.Event{Kind: plan.Params, Module: e.Module, Value: e.Value}))
}

// edit changes a Module.
func (s *scene) edit(ctx context.Context, e plan.Event) error {
	s.world.mu.Lock()
	m := s.world.modules[e.Module]
	switch e.Kind {
	case plan.Image:
		m.version = 1 + e.Value
	case plan.Params:
		m.params = e.Value
	case plan.Selector:
		m.narrow = !m.narrow
	}
	s.world.mu.Unlock()
	return s.persist(ctx, func(ctx context.Context) error { return s.write(ctx, e.Module) })
}

// relabel changes labels of nodes: those that a Module looks at, which it may need to be told, or
// others.
func (s *scene) relabel(ctx context.Context, e plan.Event) error {
	s.world.mu.Lock()
	label, module := otherLabel, s.world.labelled(e.Module)
	if e.Kind == plan.Labels {
		label = s.world.modules[module].label
	}
	for _, i := range e.Nodes {
		n := s.world.nodes[i]
		switch {
		case e.Kind == plan.OtherLabels:
			n.labels[label] = fmt.Sprint(e.Value)
		case n.labels[label] == "true":
			n.labels[label] = ""
		default:
			n.labels[label] = "true"
		}
	}
	s.world.mu.Unlock()
	if e.Kind == plan.Labels {
		if err := s.persist(ctx, func(ctx context.Context) error { return s.write(ctx, module) }); err != nil {
			return err
		}
	}
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(parallel)
	for _, i := range e.Nodes {
		all.Go(func() error { return s.persist(ctx, func(ctx context.Context) error { return s.label(ctx, i) }) })
	}
	return all.Wait()
}

// pause lets time pass: it is part of what happens, not a wait for something.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
