// SPDX-License-Identifier: Apache-2.0

package security

import (
	_ "embed"
	"fmt"
	"strings"
)

//go:embed meanings.tsv
var meanings string

// anyRole has the words for roles without words of their own.
const anyRole = "*"

// readMeanings returns the words on each right, by its key. Whether each right has words, and each
// row a right, is checked where the page is made.
func readMeanings(text string) (map[string]string, error) {
	words := map[string]string{}
	for line := range strings.Lines(text) {
		if line = strings.TrimSuffix(line, "\n"); strings.HasPrefix(line, "#") {
			continue
		}
		cells := strings.Split(line, "\t")
		if len(cells) != 4 || cells[1] != "reads" && cells[1] != "writes" {
			return nil, fmt.Errorf("meanings.tsv: not a role, reads or writes, a kind, and words: %q", line)
		}
		k := key(cells[0], cells[2], cells[1] == "writes")
		if words[k] != "" {
			return nil, fmt.Errorf("meanings.tsv: two rows of %s", k)
		}
		words[k] = cells[3]
	}
	return words, nil
}

func key(role, on string, writes bool) string {
	return fmt.Sprintf("%s %s %s", role, map[bool]string{true: "writes", false: "reads"}[writes], on)
}

// policies says what each admission policy is for.
var policies = map[string]string{
	"drover-agent-status": "An agent writes the status of its own node's NodeModulesConfig, and of no other.",
	"drover-kubelets": "A kubelet leaves the labels and annotations that Drover reads from its Node as they are, but for those " +
		"that a node is born with: `baked.drover.dev/…`, and which version it wants when it registers.",
	"drover-carriers": "Only the operator makes carriers, it makes no other pods by itself, and no one changes them, " +
		"runs anything in them or connects to them.",
	"drover-carrier-image": "A carrier's program is the agent's image, and no other.",
	"drover-modules": "A Module that makes no sense is refused: unknown variables, files outside of its folder, " +
		"volumes that are ours, host paths beyond five folders.",
	"drover-module-annotations":    "Times in annotations are times.",
	"drover-module-policies":       "A Module that a ModulePolicy does not allow is refused, as far as the Module alone tells.",
	"drover-module-policies-audit": "The same as a warning, for ModulePolicies that are only tried.",
	"drover-operator-workloads": "What the operator makes has the labels and the shape of a device plugin's or DRA driver's DaemonSet, of " +
		"an image's Job, or of a ServiceAccount without Secrets; it changes no others.",
	"drover-operator-configmaps": "In its namespace, the operator writes the ConfigMap of a spoke's kernels, and not the one of images.",
	"drover-operator-deletes": "Of pods, DaemonSets, Jobs and ServiceAccounts, the operator deletes what was made for a Module, " +
		"and an agent's pod that is being deleted.",
	"drover-operator-modules": "The operator writes its finalizer into Modules, and nothing else, but for those that it keeps for " +
		"`ooto.sigs.k8s.io`.",
	"drover-operator-nodes": "The operator writes its own labels, its cordons and one condition of nodes, and takes off taints that are not " +
		"the cluster's own.",
	"drover-namespaces-of-modules": "The operator makes pods, DaemonSets, Jobs and ServiceAccounts only in namespaces that hold a Module.",
	"drover-daemonsets-of-modules": "A DaemonSet that the operator writes under a Module's name runs that Module's images, commands, " +
		"ServiceAccount, volumes and privileges.",
	"drover-operator-pods": "The operator takes KMM's finalizer off pods that are being deleted, and changes nothing else of pods.",
	"drover-namespaces":    "A namespace that holds Modules is not deleted.",
	"drover-ooto":          "Warns of fields that have no meaning here.",
}
