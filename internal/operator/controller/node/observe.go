// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/build/pipeline"
	"github.com/drover-project/drover/internal/operator/budget"
	"github.com/drover-project/drover/internal/shared/delivery"
	"github.com/drover-project/drover/internal/shared/desired"
	"github.com/drover-project/drover/internal/shared/facts"
	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/shared/reasons"
	"github.com/drover-project/drover/internal/shared/rollout"
	"github.com/drover-project/drover/internal/shared/status"
)

// observe gathers all that is known about a Module. What it reads belongs to the cache and is not
// changed.
func (r *reporter) observe(ctx context.Context, module *v1beta1.Module) (*status.Module, error) {
	// Labels are written through this client all the time, and none that the labeler writes matters
	// here.
	nodes, err := kube.All[corev1.Node](ctx, r.client, &corev1.NodeList{}, kube.AsIs)
	if err != nil {
		return nil, fmt.Errorf("list Nodes: %w", err)
	}
	configs, err := r.configs(ctx)
	if err != nil {
		return nil, err
	}
	plugins, deliveries, err := r.pods(ctx, module)
	if err != nil {
		return nil, err
	}
	about := facts.Of(module)
	images, err := r.images(ctx, module)
	if err != nil {
		return nil, err
	}
	if about.MakesNone = !r.Makes && pipeline.Makes(module); r.Makes {
		about.Makes, about.ImageProblem = pipeline.Makes(module), facts.Problem(module, v1beta1.ProblemImages)
	}
	about.ReadOnly = cmp.Or(r.Gate.Closed(), about.ReadOnly)
	modules, err := budget.Sharing(ctx, r.client, r.Budget)
	if err != nil {
		return nil, err
	}
	speaking := speakingOf(module)
	scene := &facts.Scene{
		Module: module, Desired: r.desired.Of(module).With(desired.Images{Makes: r.Makes, Made: images, Problem: about.ImageProblem}),
		Held: facts.Judge(module, nodes, configs), Configs: configs, Plugins: plugins, Deliveries: deliveries,
		Taints: r.UnloadTaints, Silent: leaving(module) && r.answerDue(module) <= 0, Seen: r.Seen,
		Make: func(parts []rollout.Node, policy rollout.Policy, now time.Time) *rollout.Plan {
			return r.Budget.Tell(budget.Pass{Module: client.ObjectKeyFromObject(module), Modules: modules, Nodes: nodes, Parts: parts,
				Policy: policy, Now: now})
		},
		Labels: func(node string) *reasons.Problem { return r.refused.of(node, speaking) },
	}
	scene.See(&about, nodes, r.Now())
	return &about, nil
}

func leaving(module *v1beta1.Module) bool { return module.DeletionTimestamp != nil }

// answerDue is how long the nodes of a Module that is leaving may take until they should have
// answered. That the order may be younger than the deletion does no harm for long: an answer takes
// seconds.
func (r *reporter) answerDue(module *v1beta1.Module) time.Duration {
	return module.DeletionTimestamp.Add(status.Silence).Sub(r.Now())
}

func (r *reporter) configs(ctx context.Context) (map[string]*v1beta1.NodeModulesConfig, error) {
	// Should an order of ours not be in the cache yet, its arrival there is an event, and this runs
	// again.
	list, err := kube.All[v1beta1.NodeModulesConfig](ctx, r.client, &v1beta1.NodeModulesConfigList{}, kube.AsIs)
	if err != nil {
		return nil, fmt.Errorf("list NodeModulesConfigs: %w", err)
	}
	configs := make(map[string]*v1beta1.NodeModulesConfig, len(list))
	for _, config := range list {
		configs[config.Name] = config
	}
	return configs, nil
}

// pods tells on which nodes the device plugin or DRA driver that the Module asks for is ready, and
// what keeps deliveries from ending well.
func (r *reporter) pods(ctx context.Context, module *v1beta1.Module) (map[string]bool, func(node string) *reasons.Problem, error) {
	pods, err := kube.All[corev1.Pod](ctx, r.client, &corev1.PodList{}, kube.AsIs)
	if err != nil {
		return nil, nil, fmt.Errorf("list pods: %w", err)
	}
	plugins, carriers, made := map[string]bool{}, map[string]reasons.Problem{}, makers{}
	for _, pod := range pods {
		switch {
		case pod.Namespace != module.Namespace || pod.Labels[v1beta1.ModuleNameLabel] != module.Name:
		case isPlugin(pod):
			ready, err := made.ready(ctx, r.client, pod)
			if err != nil {
				return nil, nil, err
			}
			plugins[pod.Spec.NodeName] = plugins[pod.Spec.NodeName] || ready && roleOf(pod) == roleAsked(module)
		case delivery.IsCarrier(pod):
			if p := delivery.ProblemOf(pod); p != nil {
				carriers[pod.Spec.NodeName] = *p
			}
		}
	}
	return plugins, facts.Deliveries(module, carriers), nil
}

// roleAsked is what the Module asks for.
func roleAsked(module *v1beta1.Module) string {
	if module.Spec.DRA != nil {
		return v1beta1.RoleDRA
	}
	return v1beta1.RoleDevicePlugin
}

// images are those that are made in the cluster for a Module.
func (r *reporter) images(ctx context.Context, module *v1beta1.Module) ([]v1alpha1.ModuleImage, error) {
	if !r.Makes || !pipeline.Makes(module) {
		return nil, nil
	}
	var list v1alpha1.ModuleImageList
	err := r.client.List(ctx, &list, client.InNamespace(module.Namespace), client.MatchingLabels{v1beta1.ModuleNameLabel: module.Name},
		client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency)
	if err != nil {
		return nil, fmt.Errorf("list ModuleImages: %w", err)
	}
	return list.Items, nil
}
