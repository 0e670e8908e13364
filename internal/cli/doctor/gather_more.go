// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/definition"
)

// enabled is a line of the API server's metrics that tells a feature gate.
var enabled = regexp.MustCompile(`^kubernetes_feature_enabled\{name="([A-Za-z0-9]+)",.*\} ([01])$`)

// features reads feature gates from the API server's metrics. Many users may not, and need no note.
func (g *gatherer) features(ctx context.Context) error {
	raw, err := g.kube.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the API server's metrics: %w", err)
	}
	g.Features = gates(raw)
	return nil
}

func gates(metrics []byte) map[string]bool {
	found := map[string]bool{}
	lines := bufio.NewScanner(bytes.NewReader(metrics))
	for lines.Scan() {
		if m := enabled.FindSubmatch(lines.Bytes()); m != nil {
			found[string(m[1])] = m[2][0] == '1'
		}
	}
	return found
}

func (g *gatherer) policies(ctx context.Context) error {
	g.Policies, g.Bindings = map[string]bool{}, map[string]bool{}
	client, right := g.kube.AdmissionregistrationV1(), "list on validatingadmissionpolicies and their bindings"
	err := pages(ctx, client.ValidatingAdmissionPolicies().List, metav1.ListOptions{}, func(l *admissionv1.ValidatingAdmissionPolicyList) {
		for i := range l.Items {
			g.Policies[l.Items[i].Name] = true
		}
	})
	if err := g.outcome(partPolicies, right, err); err != nil {
		return err
	}
	return g.outcome(partPolicies, right, pages(ctx, client.ValidatingAdmissionPolicyBindings().List, metav1.ListOptions{},
		func(l *admissionv1.ValidatingAdmissionPolicyBindingList) {
			for i := range l.Items {
				g.Bindings[l.Items[i].Spec.PolicyName] = true
			}
		}))
}

func (g *gatherer) hooks(ctx context.Context) error {
	client := g.kube.AdmissionregistrationV1()
	err := pages(ctx, client.ValidatingWebhookConfigurations().List, metav1.ListOptions{},
		func(l *admissionv1.ValidatingWebhookConfigurationList) {
			for i := range l.Items {
				for _, w := range l.Items[i].Webhooks {
					g.hook("ValidatingWebhookConfiguration "+l.Items[i].Name, w.ClientConfig, w.FailurePolicy, Hook{Name: w.Name, Rules: w.Rules,
						Spaces: w.NamespaceSelector, Narrow: narrow(w.ObjectSelector, w.MatchConditions)})
				}
			}
		})
	if err := g.outcome(partHooks, "list on validatingwebhookconfigurations", err); err != nil {
		return err
	}
	err = pages(ctx, client.MutatingWebhookConfigurations().List, metav1.ListOptions{},
		func(l *admissionv1.MutatingWebhookConfigurationList) {
			for i := range l.Items {
				for _, w := range l.Items[i].Webhooks {
					g.hook("MutatingWebhookConfiguration "+l.Items[i].Name, w.ClientConfig, w.FailurePolicy, Hook{Name: w.Name, Rules: w.Rules,
						Spaces: w.NamespaceSelector, Narrow: narrow(w.ObjectSelector, w.MatchConditions)})
				}
			}
		})
	if err := g.outcome(partHooks, "list on mutatingwebhookconfigurations", err); err != nil {
		return err
	}
	return g.servers(ctx)
}

func (g *gatherer) hook(configuration string, where admissionv1.WebhookClientConfig, policy *admissionv1.FailurePolicyType, h Hook) {
	h.Configuration, h.Fails = configuration, ptr.Deref(policy, admissionv1.Fail) == admissionv1.Fail
	if where.Service != nil {
		h.Service = where.Service.Namespace + "/" + where.Service.Name
	}
	g.Hooks = append(g.Hooks, h)
}

// narrow reports whether a webhook sees some objects of a kind only.
func narrow(objects *metav1.LabelSelector, conditions []admissionv1.MatchCondition) bool {
	return len(conditions) > 0 || objects != nil && len(objects.MatchLabels)+len(objects.MatchExpressions) > 0
}

// servers looks who answers for the services of webhooks that concern us, and of definitions that
// convert.
func (g *gatherer) servers(ctx context.Context) error {
	g.Endpoints = map[string]bool{}
	wanted := map[string]bool{}
	for i := range g.Hooks {
		if g.Hooks[i].Service != "" && g.concerns(&g.Hooks[i]) != "" {
			wanted[g.Hooks[i].Service] = true
		}
	}
	for _, d := range g.Definitions {
		if service, _ := definition.Converter(d); service != "" {
			wanted[service] = true
		}
	}
	for service := range wanted {
		namespace, name, _ := strings.Cut(service, "/")
		of := metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + name}
		err := pages(ctx, g.kube.DiscoveryV1().EndpointSlices(namespace).List, of, func(l *discoveryv1.EndpointSliceList) {
			for i := range l.Items {
				for _, e := range l.Items[i].Endpoints {
					g.Endpoints[service] = g.Endpoints[service] || ptr.Deref(e.Conditions.Ready, true)
				}
			}
		})
		if err := g.outcome(partServices, "list on endpointslices.discovery.k8s.io in namespace "+namespace, err); err != nil {
			return err
		}
	}
	return nil
}

// peerLease is what KMM's operator holds, in whatever namespace it runs.
const peerLease = "kmm.sigs.x-k8s.io"

func (g *gatherer) leases(ctx context.Context) error {
	client := g.kube.CoordinationV1()
	err := pages(ctx, client.Leases(corev1.NamespaceNodeLease).List, metav1.ListOptions{}, func(l *coordinationv1.LeaseList) {
		g.NodeLeases = append(g.NodeLeases, l.Items...)
	})
	g.LeasesAt = g.dates.now()
	if err := g.outcome(partLeases, "list on leases.coordination.k8s.io in namespace "+corev1.NamespaceNodeLease, err); err != nil {
		return err
	}
	of := metav1.ListOptions{FieldSelector: metav1.ObjectNameField + "=" + peerLease}
	return g.outcome(partPeers, "list on leases.coordination.k8s.io (cluster-wide)", pages(ctx, client.Leases("").List, of,
		func(l *coordinationv1.LeaseList) { g.Peers = append(g.Peers, l.Items...) }))
}

// own are the objects of our kinds, as far as the cluster serves them.
func (g *gatherer) own(ctx context.Context) error {
	for _, each := range []struct {
		part, resource string
		add            func(*unstructured.Unstructured) error
	}{
		{partModules, "modules", into(&g.Modules)}, {partConfigs, "nodemodulesconfigs", into(&g.Configs)},
	} {
		if !g.serves(v1beta1.GroupVersion.Group, each.resource, v1beta1.GroupVersion.Version) {
			continue
		}
		if err := g.list(ctx, each.part, v1beta1.GroupVersion.WithResource(each.resource), each.add); err != nil {
			return err
		}
	}
	for r := range g.Resources {
		if r.Group == rulesGroup && r.Resource == rulesResource {
			return g.list(ctx, partRules, r, func(*unstructured.Unstructured) error { g.ModulePolicies++; return nil })
		}
	}
	return nil
}

// taints are the DeviceTaintRules that Drover's operator has made.
func (g *gatherer) taints(ctx context.Context) error {
	for r := range g.Resources {
		if r.Group != resourcev1.GroupName || r.Resource != "devicetaintrules" {
			continue
		}
		return g.list(ctx, partTaints, r, func(rule *unstructured.Unstructured) error {
			if slices.ContainsFunc(rule.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool { return f.Manager == taintOwner }) {
				g.TaintRules = append(g.TaintRules, rule.GetName())
			}
			return nil
		})
	}
	return nil
}

func (g *gatherer) list(ctx context.Context, part string, kind schema.GroupVersionResource,
	add func(*unstructured.Unstructured) error) error {
	var wrong error
	err := pages(ctx, g.dynamic.Resource(kind).List, metav1.ListOptions{}, func(l *unstructured.UnstructuredList) {
		for i := range l.Items {
			if err := add(&l.Items[i]); err != nil && wrong == nil {
				wrong = err
			}
		}
	})
	if wrong != nil {
		return wrong
	}
	return g.outcome(part, "list on "+kind.GroupResource().String()+" (cluster-wide)", err)
}

func into[T any](all *[]T) func(*unstructured.Unstructured) error {
	return func(u *unstructured.Unstructured) error {
		var one T
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &one); err != nil {
			return fmt.Errorf("read %s %s: %w", u.GetKind(), u.GetName(), err)
		}
		*all = append(*all, one)
		return nil
	}
}

// trial asks whether policies and webhooks would take an agent's pod. Nothing is created.
func (g *gatherer) trial(ctx context.Context) error {
	if g.Agents == nil {
		return nil
	}
	pod := &corev1.Pod{ObjectMeta: *g.Agents.Spec.Template.ObjectMeta.DeepCopy(), Spec: *g.Agents.Spec.Template.Spec.DeepCopy()}
	pod.GenerateName, pod.Namespace = agentName+"-", system
	// A refusal by rights reads like one by a policy.
	mine, err := g.kube.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: system, Verb: "create", Resource: "pods",
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("ask whether you may create pods in namespace %s: %w", system, err)
	}
	if !mine.Status.Allowed {
		g.Unseen[partTrial] = "create on pods in namespace " + system
		return nil
	}
	_, err = g.kube.CoreV1().Pods(system).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	switch {
	case err == nil:
		g.Trial = &Trial{}
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsInternalError(err):
		g.Trial = &Trial{Refused: err.Error()}
	default:
		return fmt.Errorf("try an agent's pod: %w", err)
	}
	return nil
}
