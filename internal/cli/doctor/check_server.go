// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/utils/ptr"

	"github.com/drover-project/drover/internal/shared/definition"
	"github.com/drover-project/drover/internal/shared/words"
)

// oldest is the oldest release of Kubernetes that Drover runs on.
var oldest = version.MustParseGeneric("1.31.0")

func tooOld(text string) bool {
	have, err := version.ParseGeneric(text)
	return err == nil && have.WithPreRelease("").LessThan(oldest)
}

func kubernetesVersion(s *Snapshot) []Finding {
	if tooOld(s.Server) {
		return fail("upgrade the control plane", "the API server is %s, and Drover needs 1.31 or newer", s.Server)
	}
	return ok("the API server is %s", s.Server)
}

// features says what the cluster does not have. Nothing of it is needed by all Modules.
func features(s *Snapshot) []Finding {
	var off []string
	if seen, known := s.Features["ImageVolume"]; known && !seen {
		off = append(off, "image volumes (feature gate ImageVolume): images are copied by an init container and need `cp`, "+
			"so run the operator with --delivery-mode=initContainer")
	}
	if !s.serves("resource.k8s.io", "deviceclasses", "v1") {
		off = append(off, "DRA (resource.k8s.io/v1, from Kubernetes 1.34): Modules with spec.dra do not work")
	} else if !s.serves("resource.k8s.io", "devicetaintrules") {
		off = append(off, "device taints (DeviceTaintRule): pods are not kept off DRA devices of nodes that are about to change")
	}
	if len(off) == 0 {
		return ok("image volumes, DRA and device taints are served")
	}
	return ok("off, and needed by some Modules only: %s", strings.Join(off, "; "))
}

func admission(s *Snapshot) []Finding {
	if s.serves("admissionregistration.k8s.io", "validatingadmissionpolicies", "v1") {
		return ok("ValidatingAdmissionPolicies are served")
	}
	return fail("enable admissionregistration.k8s.io/v1 and the admission plugin ValidatingAdmissionPolicy",
		"ValidatingAdmissionPolicies are not served, by which carriers are sealed and Modules checked")
}

func silentAPIs(s *Snapshot) []Finding {
	if len(s.Silent) == 0 {
		return nil
	}
	return warn("repair or delete the APIServices of these groups (kubectl get apiservices)",
		"API groups do not answer, so no namespace can be deleted: %s", words.List(slices.Sorted(slices.Values(s.Silent)), 5))
}

// skew is how far a clock may be off. Leases are renewed every ten seconds.
const skew = 5 * time.Minute

// clocks compares this machine's and the nodes' with the API server's. Leases of nodes that are not
// Ready are old because nobody renews them.
func clocks(s *Snapshot) []Finding {
	const next = "let all machines take their time from one source (chrony, systemd-timesyncd)"
	var found []Finding
	if off := s.Now.Sub(s.ServerNow); !s.ServerNow.IsZero() && off.Abs() > skew {
		found = warn(next, "this machine's clock differs from the API server's: it is %s", apart(off))
	}
	ready := map[string]bool{}
	for i := range s.Nodes {
		ready[s.Nodes[i].Name] = isReady(&s.Nodes[i])
	}
	var names []string
	for i := range s.NodeLeases {
		l := &s.NodeLeases[i]
		if l.Spec.RenewTime == nil || s.LeasesAt.IsZero() || !ready[l.Name] {
			continue
		}
		if off := l.Spec.RenewTime.Sub(s.LeasesAt); off.Abs() > skew {
			names = append(names, l.Name+" "+apart(off))
		}
	}
	if len(names) > 0 {
		slices.Sort(names)
		found = append(found, warn(next, "clocks of nodes differ from the API server's: %s", words.List(names, 5))...)
	}
	if found == nil {
		found = s.hidden(partLeases, partNodes)
	}
	if found == nil {
		found = ok("this machine's clock and those of %s agree with the API server's", words.Count(len(s.NodeLeases), "node"))
	}
	return found
}

func apart(off time.Duration) string {
	if off < 0 {
		return off.Abs().Round(time.Second).String() + " behind"
	}
	return off.Round(time.Second).String() + " ahead"
}

func isReady(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// definitions must be ours once Drover is installed. Before, those of others are only in the way.
func definitions(s *Snapshot) []Finding {
	if hidden := s.hidden(partCRDs); hidden != nil {
		return hidden
	}
	if len(s.Definitions) == 0 && !s.maybe() {
		return ok("there are none of Drover's kinds yet")
	}
	var faults []string
	for _, name := range definition.Names {
		d := s.Definitions[name]
		if d == nil {
			faults = append(faults, name+" is missing")
			continue
		}
		if _, webhook := definition.Converter(d); webhook {
			continue // that is told by itself
		}
		if lacks := definition.Misfit(d); lacks != "" {
			faults = append(faults, fmt.Sprintf("%s (written by %s): %s", name, managers(d), lacks))
		}
	}
	for _, name := range []string{imageDefinition, ruleDefinition} {
		if s.Definitions[name] == nil {
			faults = append(faults, name+" is missing")
		}
	}
	switch {
	case len(faults) == 0:
		return ok("they are those of this version")
	case s.maybe():
		return fail("apply them again: make install, or upgrade the chart", "%s", definition.Problem(faults...))
	}
	return warn("`drover migrate kmm --apply` first, after which Helm keeps KMM's: else a later `helm uninstall` of KMM deletes them "+
		"with all objects. Then the installation replaces them, and their objects stay",
		"definitions of another origin are there: %s", strings.Join(faults, "; "))
}

// managers are who wrote a definition.
func managers(d *unstructured.Unstructured) string {
	names := map[string]bool{}
	for _, f := range d.GetManagedFields() {
		if f.Subresource == "" {
			names[f.Manager] = true
		}
	}
	return cmp.Or(words.List(slices.Sorted(maps.Keys(names)), 3), "nobody known")
}

// conversions by webhook are of others: Drover's definitions have none, and Drover stays read-only
// while one is left.
func conversions(s *Snapshot) []Finding {
	var found []Finding
	for _, name := range slices.Sorted(maps.Keys(s.Definitions)) {
		service, webhook := definition.Converter(s.Definitions[name])
		if !webhook {
			continue
		}
		next := "drover migrate kmm --apply, or kubectl patch crd " + name + " --type merge -p '" + definition.Unconverted + "'"
		switch {
		case service != "" && !s.Endpoints[service] && s.Unseen[partServices] == "":
			found = append(found, fail(next, "%s is converted by a webhook without a server (service %s): objects cannot be read", name, service)...)
		case s.maybe():
			found = append(found, fail(next, "%s is converted by a webhook (service %s): Drover changes nothing until that is taken off", name,
				cmp.Or(service, "given by an URL"))...)
		default:
			found = append(found, warn(next, "%s is converted by a webhook (service %s): nothing can be read once that goes", name,
				cmp.Or(service, "given by an URL"))...)
		}
	}
	return found
}

// peers: KMM's operator and Drover's must not order at the same time.
func peers(s *Snapshot) []Finding {
	if l := s.peer(); l != nil {
		const next = "`drover migrate kmm --apply` first: it stops KMM's operator, and Helm keeps the definitions, with which a later " +
			"`helm uninstall` of KMM deletes all objects. Drover then takes over what is loaded"
		judge, would := warn, "would change"
		if s.maybe() {
			judge, would = fail, "changes"
		}
		return judge(next, "KMM's operator runs in namespace %s (Lease %s, held by %s): Drover %s nothing", l.Namespace, peerLease,
			*l.Spec.HolderIdentity, would)
	}
	if hidden := s.hidden(partPeers); hidden != nil {
		return hidden
	}
	return ok("KMM's operator is not running")
}

// peer is the Lease of a KMM that runs, or nil.
func (s *Snapshot) peer() *coordinationv1.Lease {
	for i := range s.Peers {
		l := &s.Peers[i]
		holder := ptr.Deref(l.Spec.HolderIdentity, "")
		if holder == "" || l.Namespace == system && strings.HasPrefix(holder, "drover-") || l.Spec.RenewTime == nil {
			continue
		}
		lasts := time.Duration(ptr.Deref(l.Spec.LeaseDurationSeconds, 0)) * time.Second
		if s.LeasesAt.Sub(l.Spec.RenewTime.Time) <= lasts+skew {
			return l
		}
	}
	return nil
}
