// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// What is installed, and where.
const (
	system       = "drover-system"
	operatorName = "drover-operator"
	agentName    = "drover-agent"
	nameLabel    = "app.kubernetes.io/name"
)

// Snapshot is what was read of a cluster. All checks judge it and nothing else.
type Snapshot struct {
	// Client is this program's version, Server the API server's.
	Client, Server string
	// Resources are all that the API server serves. Silent are groups that do not answer.
	Resources map[schema.GroupVersionResource]bool
	Silent    []string
	// Features are the API server's feature gates by name; nil: they were not seen.
	Features map[string]bool

	// Now is this machine's clock, and ServerNow the API server's at the same moment. LeasesAt is the
	// API server's clock when it answered with Leases.
	Now, ServerNow, LeasesAt time.Time

	Namespaces  map[string]*corev1.Namespace
	Definitions map[string]*unstructured.Unstructured
	// Policies and Bindings are the names of the admission policies that are there.
	Policies, Bindings map[string]bool
	Hooks              []Hook
	// Endpoints are the services with a ready endpoint, as namespace/name, of those that Hooks name.
	Endpoints map[string]bool

	Operator, Hub *appsv1.Deployment
	Agents        *appsv1.DaemonSet
	AgentPods     []corev1.Pod
	Trial         *Trial

	// TaintRules are the names of the DeviceTaintRules that Drover has made.
	TaintRules []string

	Nodes      []corev1.Node
	NodeLeases []coordinationv1.Lease
	// Peers are the Leases of KMM's operators.
	Peers []coordinationv1.Lease

	Modules []v1beta1.Module
	Configs []v1beta1.NodeModulesConfig
	// ModulePolicies is how many there are; meaningless where that kind is not served.
	ModulePolicies int

	// Unseen are the parts that the user may not read, each with the missing right.
	Unseen map[string]string
}

// Hook is a webhook of a configuration.
type Hook struct {
	Configuration, Name string
	Rules               []admissionv1.RuleWithOperations
	// Service as namespace/name; empty: it is called by an URL.
	Service string
	// Fails: without an answer, the request is refused.
	Fails bool
	// Spaces chooses namespaces; nil: all.
	Spaces *metav1.LabelSelector
	// Narrow: it sees some objects of a kind only.
	Narrow bool
}

// Trial is a dry run that creates the agent's pod.
type Trial struct{ Refused string }

// Parts of the snapshot that rights can hide.
const (
	partNodes     = "nodes"
	partLeases    = "node leases"
	partPeers     = "leases of KMM"
	partSpaces    = "namespaces"
	partWorkloads = "operator and agents"
	partPods      = "agents' pods"
	partPolicies  = "admission policies"
	partHooks     = "webhooks"
	partServices  = "endpoints of webhooks"
	partCRDs      = "definitions"
	partModules   = "Modules"
	partConfigs   = "NodeModulesConfigs"
	partRules     = "ModulePolicies"
	partTaints    = "DeviceTaintRules"
	partTrial     = "dry run of an agent's pod"
)

// Installed reports whether Drover loads kernel modules in this cluster.
func (s *Snapshot) Installed() bool { return s.Operator != nil || s.Agents != nil }

// maybe reports whether Drover is installed, or that cannot be seen: what may be there is judged as
// what is.
func (s *Snapshot) maybe() bool { return s.Installed() || s.Unseen[partWorkloads] != "" }

// serves reports whether a kind is served in any of the versions; without one, in whatever version.
func (s *Snapshot) serves(group, resource string, versions ...string) bool {
	for r := range s.Resources {
		if r.Group != group || r.Resource != resource {
			continue
		}
		if len(versions) == 0 {
			return true
		}
		for _, v := range versions {
			if r.Version == v {
				return true
			}
		}
	}
	return false
}
