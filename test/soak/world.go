// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/hollow"
)

const (
	namespace = "default"
	// everyLabel is on every node, tierLabel too, with one of two values; otherLabel no Module asks
	// for.
	everyLabel, tierLabel, otherLabel = "drover.dev/soak", "drover.dev/soak-tier", "drover.dev/soak-other"
	parameter                         = "level"
)

// kernels are what nodes boot.
var kernels = []string{"6.1.0-44-amd64", "6.12.57+deb12-amd64"}

// world is what is wanted: of the Modules, and of the nodes' labels. The API has it a little later.
type world struct {
	mu      sync.Mutex // guards what is in modules and nodes, but for their writing
	modules []*wantedModule
	nodes   []*wantedNode
}

// wantedModule is a Module's part of the world.
type wantedModule struct {
	// writing is held by who writes it, from a look at what is wanted to the answer: a request that is
	// tried again must not undo a later one.
	writing         sync.Mutex
	number          int
	version, params int
	// label narrows the selector to nodes that have it, if it is not empty; narrow to one tier.
	label  string
	narrow bool
	// limit is spec.rollout.maxUnavailable, for the whole run.
	limit int
	// generation is the Module's, as the last write left it.
	generation int64
}

type wantedNode struct {
	writing sync.Mutex // as a Module's
	name    string
	labels  map[string]string // all that are ours, "" for none
}

func newWorld(nodes, modules int) *world {
	w := &world{}
	for i := range modules {
		m := &wantedModule{number: i, version: 1, limit: max(1, nodes*(10+5*i)/100)}
		if i%2 == 1 {
			m.label = fmt.Sprintf("%s-%d", everyLabel, i)
		}
		w.modules = append(w.modules, m)
	}
	for i := range nodes {
		n := &wantedNode{name: nodeName(i), labels: map[string]string{everyLabel: "true", tierLabel: "a"}}
		if i%5 == 0 {
			n.labels[tierLabel] = "b"
		}
		for _, m := range w.modules {
			if m.label != "" && i%4 != 0 {
				n.labels[m.label] = "true"
			}
		}
		w.nodes = append(w.nodes, n)
	}
	return w
}

func nodeName(i int) string { return "hollow-" + strconv.Itoa(i) }

// labelled is the number of a Module whose selector has a label of its own.
func (w *world) labelled(number int) int {
	for w.modules[number].label == "" {
		number = (number + 1) % len(w.modules)
	}
	return number
}

func (m *wantedModule) name() string { return "soak" + strconv.Itoa(m.number) }

func (m *wantedModule) key() types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: m.name()}
}

// repository of its images, which the registry may refuse.
func (m *wantedModule) repository() string { return "registry.example.com/soak/" + m.name() }

func (m *wantedModule) image() string {
	return fmt.Sprintf("%s:%d-${KERNEL_FULL_VERSION}", m.repository(), m.version)
}

// build is the build ID that a kernel must hold, and value that of the parameter.
func (m *wantedModule) build(kernel string) (id, value string) {
	reference := strings.ReplaceAll(m.image(), "${KERNEL_FULL_VERSION}", strings.ReplaceAll(kernel, "+", "_"))
	return hollow.BuildID(reference, kernel, m.name()), strconv.Itoa(m.params)
}

// selects says whether a node is to have the Module.
func (m *wantedModule) selects(n *wantedNode) bool {
	return (m.label == "" || n.labels[m.label] == "true") && (!m.narrow || n.labels[tierLabel] == "a")
}

// patch is a merge patch of what is wanted of the Module. Each confirms that many nodes may go.
func (m *wantedModule) patch() map[string]any {
	selector := map[string]any{everyLabel: "true", tierLabel: nil}
	if m.label != "" {
		selector[m.label] = "true"
	}
	if m.narrow {
		selector[tierLabel] = "a"
	}
	container := map[string]any{
		"modprobe":       map[string]any{"moduleName": m.name(), "parameters": []string{fmt.Sprintf("%s=%d", parameter, m.params)}},
		"kernelMappings": []any{map[string]any{"regexp": ".+", "containerImage": m.image()}},
	}
	return map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{v1beta1.ConfirmDeselectionAnnotation: time.Now().UTC().Format(time.RFC3339)}},
		"spec": map[string]any{
			"selector": selector, "moduleLoader": map[string]any{"container": container},
			"rollout": map[string]any{
				"maxUnavailable": m.limit, "pauseOnFailure": m.number%2 == 0,
				"deselectGracePeriod": strconv.Itoa(m.number%2) + "s",
			},
		},
	}
}

// write brings what is wanted of a Module to the API.
func (s *scene) write(ctx context.Context, number int) error {
	m := s.world.modules[number]
	m.writing.Lock()
	defer m.writing.Unlock()
	s.world.mu.Lock()
	content, err := json.Marshal(m.patch())
	s.world.mu.Unlock()
	if err != nil {
		return fmt.Errorf("encode Module %s: %w", m.name(), err)
	}
	object := &v1beta1.Module{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: m.name()}}
	if err := s.f.Admin.Patch(ctx, object, client.RawPatch(types.MergePatchType, content)); err != nil {
		return fmt.Errorf("change Module %s: %w", m.name(), err)
	}
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	m.generation = max(m.generation, object.Generation)
	return nil
}

// label brings a node's labels to the API.
func (s *scene) label(ctx context.Context, number int) error {
	n := s.world.nodes[number]
	n.writing.Lock()
	defer n.writing.Unlock()
	s.world.mu.Lock()
	labels := map[string]any{}
	for k, v := range n.labels {
		labels[k] = v
		if v == "" {
			labels[k] = nil
		}
	}
	s.world.mu.Unlock()
	content, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}})
	if err != nil {
		return fmt.Errorf("encode the labels of node %s: %w", n.name, err)
	}
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name}}
	if err := s.f.Admin.Patch(ctx, object, client.RawPatch(types.MergePatchType, content)); err != nil {
		return fmt.Errorf("label node %s: %w", n.name, err)
	}
	return nil
}

// create makes a Module.
func (s *scene) create(ctx context.Context, m *wantedModule) error {
	object := &v1beta1.Module{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: m.name()}}
	content, err := json.Marshal(m.patch())
	if err == nil {
		err = json.Unmarshal(content, object)
	}
	if err != nil {
		return fmt.Errorf("make Module %s: %w", m.name(), err)
	}
	delete(object.Spec.Selector, tierLabel) // null in a merge patch
	container := &object.Spec.ModuleLoader.Container
	if m.number == 2 { // one that brings another module and firmware
		container.Modprobe.ModulesLoadingOrder = []string{m.name(), m.name() + "_core"}
		container.Modprobe.FirmwarePath = "/firmware"
	}
	if err := s.f.Admin.Create(ctx, object); err != nil {
		return fmt.Errorf("create Module %s: %w", m.name(), err)
	}
	m.generation = object.Generation
	return nil
}
