// SPDX-License-Identifier: Apache-2.0

// Package problems writes Module.status.problems: what a controller was refused, or refuses, and
// what no other object shows. The controller that computes conditions reads it there, after a
// restart of the operator, too, as do people.
package problems

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/facts"
	"github.com/drover-project/drover/internal/shared/reasons"
	"github.com/drover-project/drover/internal/shared/words"
)

const (
	// maxNodes is how many nodes are named. A Module's status is read by everybody who watches
	// Modules.
	maxNodes = 64
	// maxMessage is how much of a message is kept, in bytes.
	maxMessage = 2048
)

// Report makes the problems of one part of a Module what its controller found, by node
// ([v1beta1.AllNodes] for the Module as a whole). It writes only if the Module, as it was read,
// says something else. A Module that is gone is no error; what a namesake gets in its place goes
// with the next pass of that one, which follows in the same queue.
func Report(ctx context.Context, c client.Client, m *v1beta1.Module, part v1beta1.ProblemPart, found map[string]reasons.Problem) error {
	want := bounded(found)
	if maps.Equal(want, facts.Problems(m, part)) {
		return nil
	}
	list := []v1beta1.ModuleProblem{} // never null, which the API server refuses where nothing else is in a status
	for _, node := range slices.Sorted(maps.Keys(want)) {
		list = append(list, v1beta1.ModuleProblem{Part: part, Node: node, Reason: want[node].Reason, Message: want[node].Message})
	}
	text, err := json.Marshal(map[string]any{
		"apiVersion": v1beta1.GroupVersion.String(), "kind": "Module", "status": map[string]any{"problems": list},
	})
	if err != nil {
		return fmt.Errorf("encode problems: %w", err)
	}
	module := &v1beta1.Module{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name}}
	err = c.Status().Patch(ctx, module, client.RawPatch(types.ApplyPatchType, text), owner(part), client.ForceOwnership)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("report problems of Module %s/%s: %w", m.Namespace, m.Name, err)
	}
	return nil
}

// Whole is the problem of a Module as a whole, for [Report].
func Whole(p *reasons.Problem) map[string]reasons.Problem {
	if p == nil {
		return nil
	}
	return map[string]reasons.Problem{v1beta1.AllNodes: *p}
}

// owner is the field owner of a part's problems. The names are contract, as in package kube.
func owner(part v1beta1.ProblemPart) client.FieldOwner {
	return client.FieldOwner("drover-problems-" + strings.ToLower(string(part)))
}

// bounded names the first nodes, and lets the first of the others speak for all of them.
func bounded(found map[string]reasons.Problem) map[string]reasons.Problem {
	kept := map[string]reasons.Problem{}
	for _, node := range slices.Sorted(maps.Keys(found)) {
		p := found[node]
		p.Message = words.Clip(p.Message, maxMessage)
		if len(kept) == maxNodes {
			kept[v1beta1.OtherNodes] = p
			break
		}
		kept[node] = p
	}
	return kept
}
