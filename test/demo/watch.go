// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/testkit/fleet"
)

var (
	readyLabel  = v1beta1.ReadyLabel(namespace, moduleName)
	pluginLabel = v1beta1.DevicePluginReadyLabel(namespace, moduleName)
)

// nodeView is one line of the table.
type nodeView struct {
	name, kernel string
	// live is what the node's kernel says, label and plugin what the API says.
	live, label, plugin bool
	// note says what the node waits for.
	note string
}

// view is everything the demo shows.
type view struct {
	nodes       []nodeView
	moduleReady bool
	message     string
}

func (v view) nodesReady() int {
	n := 0
	for _, node := range v.nodes {
		if node.live && node.label {
			n++
		}
	}
	return n
}

func (v view) kernels() int {
	seen := map[string]bool{}
	for _, node := range v.nodes {
		if node.live {
			seen[node.kernel] = true
		}
	}
	return len(seen)
}

func (v view) ready() bool {
	return v.moduleReady && len(v.nodes) > 0 && v.nodesReady() == len(v.nodes)
}

// watch shows the nodes until everything is ready or the deadline passes. It returns the last view.
func watch(ctx context.Context, f *fleet.Fleet, s *screen, deadline time.Time, fault string) (view, bool) {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	var last view
	err := wait.PollUntilContextCancel(ctx, 250*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		if fault == "unload" {
			for _, n := range last.nodes {
				if n.live {
					if err := f.Debug(ctx, "/rmmod?node="+n.name+"&module="+kernelName); err != nil {
						return false, err
					}
				}
			}
		}
		v, err := look(ctx, f)
		if err != nil {
			s.problem(err)
			return false, nil
		}
		last = v
		s.show(v)
		return v.ready(), nil
	})
	return last, err == nil
}

// look asks the fake kernels and the API.
func look(ctx context.Context, f *fleet.Fleet) (view, error) {
	truth, err := f.Truth(ctx)
	if err != nil {
		return view{}, err
	}
	var nodes corev1.NodeList
	var configs v1beta1.NodeModulesConfigList
	module := &v1beta1.Module{}
	for _, get := range []func() error{
		func() error { return f.Admin.List(ctx, &nodes) },
		func() error { return f.Admin.List(ctx, &configs) },
		func() error {
			return f.Admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: moduleName}, module)
		},
	} {
		if err := get(); err != nil {
			return view{}, fmt.Errorf("look at the cluster: %w", err)
		}
	}
	v := view{message: "no condition yet"}
	if c := meta.FindStatusCondition(module.Status.Conditions, v1beta1.ConditionReady); c != nil {
		v.moduleReady, v.message = c.Status == "True", c.Reason+": "+c.Message
	}
	for _, t := range truth {
		v.nodes = append(v.nodes, describe(t, nodes.Items, configs.Items))
	}
	slices.SortFunc(v.nodes, func(a, b nodeView) int { return strings.Compare(a.name, b.name) })
	return v, nil
}

func describe(t fleet.NodeTruth, nodes []corev1.Node, configs []v1beta1.NodeModulesConfig) nodeView {
	n := nodeView{name: t.Name, kernel: t.Kernel, live: t.Has(kernelName), note: "waiting for an order"}
	for _, node := range nodes {
		if node.Name == t.Name {
			_, n.label = node.Labels[readyLabel]
			_, n.plugin = node.Labels[pluginLabel]
		}
	}
	for _, config := range configs {
		if config.Name == t.Name {
			n.note = "image on its way"
			for _, a := range config.Status.Attempts {
				n.note = string(a.State) + " " + a.Reason
			}
		}
	}
	switch {
	case n.live && n.label && n.plugin:
		n.note = "device plugin ready"
	case n.live && n.label:
		n.note = "kernel module ready"
	case n.live:
		n.note = "loaded, label on its way"
	}
	return n
}
