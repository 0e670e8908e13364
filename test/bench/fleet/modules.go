// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/testkit/audit"
	"github.com/drover-project/drover/test/bench/measure"
)

// several applies many Modules at once, each a kernel module without a device plugin, and measures
// until the last is Ready on all nodes. There is no floor: what a Module costs a node is measured
// with one.
func (b *bench) several(ctx context.Context) error {
	modules, err := copies(sampleFile, b.result.Modules)
	if err != nil {
		return err
	}
	w, err := b.Begin(ctx)
	if err != nil {
		return err
	}
	for _, m := range modules {
		if err := b.Admin.Create(ctx, m); err != nil {
			return fmt.Errorf("create Module %s: %w", m.Name, err)
		}
	}
	if err := b.awaitModules(ctx); err != nil {
		return fmt.Errorf("wait until %d Modules are ready on %d nodes: %w", len(modules), b.Nodes, err)
	}
	if b.result.Load, _, err = w.End(); err != nil {
		return err
	}
	b.result.Seconds = b.result.Load.Seconds
	b.Say("%d Modules Ready on %d nodes after %.1f s", len(modules), b.Nodes, b.result.Seconds)
	writes, err := b.UntilQuiet(ctx)
	if err != nil {
		return err
	}
	b.count(writes)
	if b.result.EtcdMiB, err = b.EtcdMiB(ctx); err != nil {
		return err
	}
	return b.stopOperator()
}

// awaitModules returns when all Modules are Ready on all nodes.
func (b *bench) awaitModules(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, b.Timeout)
	defer cancel()
	ready := map[string]bool{}
	return measure.Follow(ctx, measure.Lister(b.Watcher, &v1beta1.ModuleList{}), &v1beta1.Module{}, func(m *v1beta1.Module, _ bool) bool {
		if m.Status.ModuleLoader.AvailableNumber == int32(b.Nodes) && meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionReady) {
			ready[m.Name] = true
		} else {
			delete(ready, m.Name)
		}
		return len(ready) == b.result.Modules
	})
}

// copies reads a Module and makes several of it, each with a kernel module and images of its own.
func copies(path string, n int) ([]*v1beta1.Module, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the Module to copy: %w", err)
	}
	sample := &v1beta1.Module{}
	if err := yaml.UnmarshalStrict(content, sample); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	sample.Spec.DevicePlugin = nil
	var all []*v1beta1.Module
	for i := range n {
		m := sample.DeepCopy()
		m.ObjectMeta = metav1.ObjectMeta{Namespace: sample.Namespace, Name: fmt.Sprintf("%s-%d", sample.Name, i)}
		container := &m.Spec.ModuleLoader.Container
		container.Modprobe.ModuleName = fmt.Sprintf("%s_%d", container.Modprobe.ModuleName, i)
		for j := range container.KernelMappings {
			image := &container.KernelMappings[j].ContainerImage
			*image = strings.Replace(*image, ":", fmt.Sprintf("-%d:", i), 1)
		}
		all = append(all, m)
	}
	return all, nil
}

// count sorts writes into those of nodes, and those of Modules.
func (b *bench) count(writes []audit.Request) {
	b.result.Writes = audit.Count(writes)
	perNode := 0
	for _, w := range writes {
		switch w.ObjectRef.Resource {
		case "pods", "nodes", "nodemodulesconfigs":
			perNode++
		}
	}
	b.result.WritesPerNode = float64(perNode) / float64(b.Nodes)
	b.result.ModuleWrites = len(writes) - perNode
}

// stopOperator ends the operator and reads what it has cost.
func (b *bench) stopOperator() error {
	operator := b.Operator
	var err error
	if b.result.OperatorRSSMiB, err = operator.PeakMiB(); err != nil {
		return err
	}
	if err := b.StopOperator(); err != nil {
		return err
	}
	b.result.OperatorCPUSeconds = operator.CPUSeconds()
	log, err := os.ReadFile(operator.Log())
	if err != nil {
		return fmt.Errorf("read the operator's log: %w", err)
	}
	b.result.OperatorLogLines = bytes.Count(log, []byte("\n"))
	return nil
}
