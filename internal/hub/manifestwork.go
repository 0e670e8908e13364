// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"cmp"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// feedback are the fields of a spoke's Module that its work agent reports. The revision and the two
// generations tell whether the condition is about the Module as the hub sent it.
var feedback = []workv1.JsonPath{
	{Name: "revision", Path: `.metadata.annotations.drover\.dev/hub-revision`},
	{Name: "generation", Path: ".metadata.generation"},
	{Name: "observedGeneration", Path: ".status.observedGeneration"},
	{Name: "ready", Path: `.status.conditions[?(@.type=="Ready")].status`},
	{Name: "reason", Path: `.status.conditions[?(@.type=="Ready")].reason`},
	{Name: "message", Path: `.status.conditions[?(@.type=="Ready")].message`},
	{Name: "desired", Path: ".status.moduleLoader.desiredNumber"},
	{Name: "available", Path: ".status.moduleLoader.availableNumber"},
}

// WorkOf is the ManifestWork that brings a Module to a cluster. The work agent applies the Module
// server-side, so that others' fields stay, and deletes it with the work.
func WorkOf(cluster string, m *v1beta1.Module) (*workv1.ManifestWork, error) {
	manifest := map[string]any{
		"apiVersion": m.APIVersion, "kind": m.Kind,
		"metadata": map[string]any{"namespace": m.Namespace, "name": m.Name, "labels": m.Labels, "annotations": m.Annotations},
		"spec":     m.Spec,
	}
	raw, err := json.Marshal(manifest)
	if err != nil {
		return nil, fmt.Errorf("encode the Module: %w", err)
	}
	return &workv1.ManifestWork{
		TypeMeta: metav1.TypeMeta{APIVersion: workv1.GroupVersion.String(), Kind: "ManifestWork"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cluster, Name: m.Name, Labels: map[string]string{NameLabel: m.Name},
		},
		Spec: workv1.ManifestWorkSpec{
			Workload: workv1.ManifestsTemplate{Manifests: []workv1.Manifest{{RawExtension: runtime.RawExtension{Raw: raw}}}},
			ManifestConfigs: []workv1.ManifestConfigOption{{
				ResourceIdentifier: workv1.ResourceIdentifier{Group: v1beta1.GroupVersion.Group, Resource: "modules", Namespace: m.Namespace,
					Name: m.Name},
				UpdateStrategy: &workv1.UpdateStrategy{
					Type:            workv1.UpdateStrategyTypeServerSideApply,
					ServerSideApply: &workv1.ServerSideApplyConfig{Force: true, FieldManager: "work-agent-drover"},
				},
				FeedbackRules: []workv1.FeedbackRule{{Type: workv1.JSONPathsType, JsonPaths: feedback}},
			}},
		},
	}, nil
}

// ModuleOf is the Module that a work brings; nil if it brings something else.
func ModuleOf(work *workv1.ManifestWork) *v1beta1.Module {
	if len(work.Spec.Workload.Manifests) == 0 {
		return nil
	}
	m := &v1beta1.Module{}
	if err := json.Unmarshal(work.Spec.Workload.Manifests[0].Raw, m); err != nil || m.Name != work.Name {
		return nil
	}
	return m
}

// ReportOfWork reads what a cluster's work agent reports.
func ReportOfWork(work *workv1.ManifestWork) Report {
	r := Report{}
	applied := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkApplied)
	if applied != nil && applied.ObservedGeneration == work.Generation {
		r.Applied = applied.Status == metav1.ConditionTrue
		if !r.Applied {
			r.Refused = cmp.Or(applied.Message, applied.Reason)
		}
	}
	for i := range work.Status.ResourceStatus.Manifests {
		manifest := &work.Status.ResourceStatus.Manifests[i]
		if manifest.ResourceMeta.Ordinal == 0 {
			r.read(manifest)
		}
	}
	r.bound()
	return r
}

func (r *Report) read(manifest *workv1.ManifestCondition) {
	if c := meta.FindStatusCondition(manifest.Conditions, workv1.ManifestApplied); c != nil && r.Refused != "" &&
		c.Status == metav1.ConditionFalse {
		r.Refused = c.Message // says more than the work's
	}
	text, number := map[string]string{}, map[string]int64{}
	for _, v := range manifest.StatusFeedbacks.Values {
		switch {
		case v.Value.String != nil:
			text[v.Name] = *v.Value.String
		case v.Value.Integer != nil:
			number[v.Name] = *v.Value.Integer
		}
	}
	r.Revision = text["revision"]
	r.Current = number["generation"] > 0 && number["generation"] == number["observedGeneration"]
	r.Ready, r.Reason, r.Message = metav1.ConditionStatus(text["ready"]), text["reason"], text["message"]
	r.Desired, r.Available = number32(number["desired"]), number32(number["available"])
}

func number32(n int64) int32 { return int32(min(max(n, 0), maxNodes)) }
