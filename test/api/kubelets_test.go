// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/testkit/env"
)

// marks are the labels and annotations of a Node that Drover and its administrators have marked.
type marks struct{ labels, annotations map[string]string }

// kubeletCase is what a kubelet writes to its own Node, which has the marks of before. A nil value
// takes one off.
type kubeletCase struct {
	before              marks
	labels, annotations map[string]any
	// then are parts of the refusal; none: accepted.
	then []string
	// registered is about a Node that exists, unregistered about one that the kubelet creates.
	registered, unregistered bool
}

func kubeletCases() map[string]kubeletCase {
	ready, version := v1beta1.ReadyLabel("apps", "nic"), v1beta1.VersionReadyLabel("apps", "nic")
	asked := v1beta1.VersionModulePrefix + "apps.nic"
	had := marks{map[string]string{ready: "", version: "1", asked: "1"},
		map[string]string{v1beta1.PausedAnnotation: "", v1beta1.CordonedAnnotation: "apps/nic"}}
	return map[string]kubeletCase{
		"no ready label": {labels: map[string]any{ready: ""}, then: []string{ready, "--node-labels"}, registered: true, unregistered: true},
		"no other value": {before: had, labels: map[string]any{version: "2"}, then: []string{version}, registered: true},
		"takes none off": {before: had, labels: map[string]any{ready: nil}, then: []string{ready}, registered: true},
		"no ready label among those that it may set": {
			labels: map[string]any{"example.com/a": "", ready: "", "node.kubernetes.io/instance-type": "m"}, then: []string{ready},
			registered: true, unregistered: true,
		},
		"its version once":            {labels: map[string]any{asked: "1"}, unregistered: true},
		"no version later":            {labels: map[string]any{asked: "1"}, then: []string{asked}, registered: true},
		"no other version later":      {before: had, labels: map[string]any{asked: "2"}, then: []string{asked}, registered: true},
		"what its image holds":        {labels: map[string]any{v1beta1.BakedLabel("86ad"): ""}, registered: true, unregistered: true},
		"labels of its own":           {before: had, labels: map[string]any{"example.com/a": "b"}, registered: true},
		"labels that look like ours":  {labels: map[string]any{"example.com/kmm.ready": ""}, registered: true, unregistered: true},
		"Drover's labels as they are": {before: had, labels: map[string]any{ready: "", version: "1", asked: "1"}, registered: true},
		"annotations of its own": {
			annotations: map[string]any{"volumes.kubernetes.io/controller-managed-attach-detach": "true"}, registered: true, unregistered: true,
		},
		"no pause": {annotations: map[string]any{v1beta1.PausedAnnotation: ""}, then: []string{v1beta1.PausedAnnotation},
			registered: true, unregistered: true},
		"no end of a pause": {before: had, annotations: map[string]any{v1beta1.PausedAnnotation: nil},
			then: []string{v1beta1.PausedAnnotation}, registered: true},
		"no other cordon": {before: had, annotations: map[string]any{v1beta1.CordonedAnnotation: "apps/gpu"},
			then: []string{v1beta1.CordonedAnnotation}, registered: true},
	}
}

// TestKubeletsLeaveDroversLabels: what a kubelet may write about its node, by each way on which
// labels reach a Node.
func TestKubeletsLeaveDroversLabels(t *testing.T) {
	e := env.Get(t)
	for name, tc := range kubeletCases() {
		t.Run(name, func(t *testing.T) {
			if tc.unregistered {
				checkRefusal(t, registers(t, e, tc), tc.then)
			}
			if tc.registered {
				for _, subresource := range []string{"", "status"} {
					checkRefusal(t, relabels(t, e, tc, subresource), tc.then)
				}
			}
		})
	}
}

// TestKubeletsLeaveEveryLabelOfThePage: the page lists what Drover reads from nodes.
func TestKubeletsLeaveEveryLabelOfThePage(t *testing.T) {
	e := env.Get(t)
	labels, annotations := nodeWordsOfPage(t)
	labels = slices.DeleteFunc(labels, func(label string) bool { return strings.HasPrefix(label, v1beta1.BakedPrefix) })
	if len(labels) < 7 || len(annotations) < 4 {
		t.Fatalf("the page has %d labels and %d annotations of nodes", len(labels), len(annotations))
	}
	for _, label := range labels {
		tc := kubeletCase{labels: map[string]any{label: "1"}}
		checkRefusal(t, relabels(t, e, tc, ""), []string{label})
	}
	for _, annotation := range annotations {
		tc := kubeletCase{annotations: map[string]any{annotation: "1"}}
		checkRefusal(t, relabels(t, e, tc, ""), []string{annotation})
	}
}

// TestKubeletsReport: a heartbeat passes, whatever labels the node has.
func TestKubeletsReport(t *testing.T) {
	e := env.Get(t)
	labels := map[string]string{v1beta1.ReadyLabel("apps", "nic"): ""}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "kubelet-", Labels: labels}}
	if err := e.Admin(t).Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	kubelet := e.Client(t, e.KubeletConfig(t, node.Name))
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	check(t, kubelet.Status().Update(t.Context(), node))
}

// registers has a new kubelet create its Node.
func registers(t *testing.T, e *env.Env, tc kubeletCase) error {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: e.Namespace(t)}}
	node.Labels, node.Annotations = map[string]string{}, map[string]string{}
	for label, value := range tc.labels {
		node.Labels[label] = fmt.Sprint(value)
	}
	for annotation, value := range tc.annotations {
		node.Annotations[annotation] = fmt.Sprint(value)
	}
	return e.Client(t, e.KubeletConfig(t, node.Name)).Create(t.Context(), node)
}

// relabels has a kubelet patch its Node, or the status of it.
func relabels(t *testing.T, e *env.Env, tc kubeletCase, subresource string) error {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "kubelet-", Labels: maps.Clone(tc.before.labels),
		Annotations: maps.Clone(tc.before.annotations)}}
	if err := e.Admin(t).Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	change := map[string]any{}
	if tc.labels != nil {
		change["labels"] = tc.labels
	}
	if tc.annotations != nil {
		change["annotations"] = tc.annotations
	}
	text, err := json.Marshal(map[string]any{"metadata": change})
	if err != nil {
		t.Fatal(err)
	}
	kubelet, patch := e.Client(t, e.KubeletConfig(t, node.Name)), client.RawPatch(types.StrategicMergePatchType, text)
	before := node.DeepCopy()
	if subresource == "" {
		err = kubelet.Patch(t.Context(), node, patch)
	} else {
		err = kubelet.SubResource(subresource).Patch(t.Context(), node, patch)
	}
	same := maps.Equal(before.Labels, node.Labels) && maps.Equal(before.Annotations, node.Annotations)
	if err == nil && tc.before.labels == nil && same {
		t.Errorf("the patch of %q changed nothing", subresource)
	}
	return err
}

func checkRefusal(t *testing.T, err error, then []string) {
	t.Helper()
	check(t, err, then...)
	if err != nil && !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
		t.Errorf("got %v, want Forbidden", err)
	}
}

// nodeWordsOfPage are the labels and annotations of nodes that docs/reference/labels.md names.
func nodeWordsOfPage(t *testing.T) (labels, annotations []string) {
	t.Helper()
	content, err := os.ReadFile("../../docs/reference/labels.md")
	if err != nil {
		t.Fatal(err)
	}
	section := ""
	for line := range strings.Lines(string(content)) {
		if title, found := strings.CutPrefix(line, "## "); found {
			section = strings.TrimSpace(title)
		}
		cells := strings.Split(line, "|")
		if len(cells) < 4 || !strings.HasPrefix(cells[1], " `") {
			continue
		}
		word := strings.NewReplacer("NAMESPACE", "apps", "NAME", "nic", "DELIVERY", "86ad").Replace(strings.Split(cells[1], "`")[1])
		switch {
		case section == "Labels of nodes":
			labels = append(labels, word)
		case section == "Annotations" && strings.Contains(cells[2], "Node") && !strings.Contains(cells[2], "NodeModulesConfig"):
			annotations = append(annotations, word)
		}
	}
	return labels, annotations
}
