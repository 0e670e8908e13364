// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Priority levels that every API server has, and the precedence of its FlowSchemas for kubelets,
// system-node-high and system-nodes.
const (
	levelNodeHigh, levelSystem           = "node-high", "system"
	precedenceNodeHigh, precedenceSystem = int32(400), int32(500)
)

// hollowFlows give the hollow kubelets' requests the priority that an API server gives to kubelets,
// whose group they are not in. Without it, signs of life wait behind the agents' reports on a busy
// machine, and the cluster takes nodes for lost.
func hollowFlows(name string) []*flowcontrolv1.FlowSchema {
	all := func(resources ...string) flowcontrolv1.ResourcePolicyRule {
		return flowcontrolv1.ResourcePolicyRule{
			Verbs: []string{flowcontrolv1.VerbAll}, APIGroups: []string{flowcontrolv1.APIGroupAll}, Resources: resources,
			Namespaces: []string{flowcontrolv1.NamespaceEvery}, ClusterScope: true,
		}
	}
	flow := func(name, level string, precedence int32, rule flowcontrolv1.ResourcePolicyRule, account string) *flowcontrolv1.FlowSchema {
		return &flowcontrolv1.FlowSchema{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: flowcontrolv1.FlowSchemaSpec{
				PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: level},
				MatchingPrecedence:         precedence,
				DistinguisherMethod:        &flowcontrolv1.FlowDistinguisherMethod{Type: flowcontrolv1.FlowDistinguisherMethodByUserType},
				Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
					Subjects: []flowcontrolv1.Subject{{
						Kind:           flowcontrolv1.SubjectKindServiceAccount,
						ServiceAccount: &flowcontrolv1.ServiceAccountSubject{Namespace: Namespace, Name: account},
					}},
					ResourceRules: []flowcontrolv1.ResourcePolicyRule{rule},
				}},
			},
		}
	}
	return []*flowcontrolv1.FlowSchema{
		flow(name+"-high", levelNodeHigh, precedenceNodeHigh, all("nodes", "nodes/status", "leases"), name),
		flow(name, levelSystem, precedenceSystem, all(flowcontrolv1.ResourceAll), name),
	}
}
