// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

const (
	// patience is for each level, on a machine that is busy with other work.
	patience = 3 * time.Minute
	interval = 250 * time.Millisecond
	// fieldPatience is for fields that are written anew.
	fieldPatience = 20 * time.Second
)

// level objects until something lasting is so.
type level func(ctx context.Context) error

// everywhere is all nodes.
var everywhere = []int{0, 1, 2, 3}

func node(i int) string { return fmt.Sprintf("hollow-%d", i) }

// others are all nodes but one.
func others(one int) []int {
	return slices.DeleteFunc(slices.Clone(everywhere), func(i int) bool { return i == one })
}

func without(all []string, some ...string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(name string) bool { return slices.Contains(some, name) })
}

// until waits for levels that are reached at one time, and looks for fields that went with a
// version before.
func (s *scene) until(ctx context.Context, what string, levels ...level) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, interval, patience, true, func(ctx context.Context) (bool, error) {
		for _, l := range levels {
			if err := l(ctx); err != nil {
				if ctx.Err() == nil { // when the time is over, what was said before says more
					last = err
				}
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("wait until %s: %w", what, errors.Join(err, last))
	}
	s.say("%s", what)
	return s.compare(ctx)
}

// all: every kernel holds that version of the Modules; "" is none.
func (s *scene) all(d *direction, names []string, version string) level {
	return func(ctx context.Context) error {
		truth, err := s.f.Truth(ctx)
		for _, n := range truth {
			for _, name := range names {
				if found := d.holds(n, name); found != version {
					err = errors.Join(err, fmt.Errorf("%s holds %q of %s, not %q", n.Name, found, name, version))
				}
			}
		}
		return err
	}
}

// on: the kernels of those nodes hold that version of a Module, and no other node's does.
func (s *scene) on(d *direction, name, version string, where ...int) level {
	return func(ctx context.Context) error {
		truth, err := s.f.Truth(ctx)
		for i, n := range truth {
			if found := d.holds(n, name); (found == version) != slices.Contains(where, i) {
				err = errors.Join(err, fmt.Errorf("%s holds %q of %s", n.Name, found, name))
			}
		}
		return err
	}
}

// ready: the Modules are, and all nodes are labelled.
func (s *scene) ready(d *direction, names []string) level {
	return func(ctx context.Context) error {
		var err error
		for _, name := range names {
			err = errors.Join(err, s.oneReady(ctx, d.key(name)))
		}
		return err
	}
}

func (s *scene) oneReady(ctx context.Context, key types.NamespacedName) error {
	m := &v1beta1.Module{}
	if err := s.f.Admin.Get(ctx, key, m); err != nil {
		return fmt.Errorf("get the Module: %w", err)
	}
	c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionReady)
	if c == nil || c.Status != metav1.ConditionTrue || c.ObservedGeneration != m.Generation {
		return fmt.Errorf("the Module %s says %s", key, said(m))
	}
	return s.labelled(ctx, key)
}

// labelled objects unless all nodes have a Module's ready label.
func (s *scene) labelled(ctx context.Context, key types.NamespacedName) error {
	var list corev1.NodeList
	if err := s.f.Admin.List(ctx, &list, client.HasLabels{v1beta1.ReadyLabel(key.Namespace, key.Name)}); err != nil {
		return fmt.Errorf("count ready nodes: %w", err)
	}
	if len(list.Items) != nodes {
		return fmt.Errorf("%d of %d nodes are labelled for Module %s", len(list.Items), nodes, key)
	}
	return nil
}

// said is what a Module's conditions say.
func said(m *v1beta1.Module) string {
	var b strings.Builder
	for _, c := range m.Status.Conditions {
		fmt.Fprintf(&b, "\n  %s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message)
	}
	return b.String()
}

// attempt is what a node says of a Module that it is not done with; nil: nothing.
func attempt(c *v1beta1.NodeModulesConfig, key types.NamespacedName) *v1beta1.NodeModuleAttempt {
	for i := range c.Status.Attempts {
		if a := &c.Status.Attempts[i]; a.Namespace == key.Namespace && a.Name == key.Name {
			return a
		}
	}
	return nil
}

// inUse: one of those nodes says that it waits for who uses a Module's kernel module; which one is
// noted.
func (s *scene) inUse(d *direction, name string, where []int, which *int) level {
	return func(ctx context.Context) error {
		for _, i := range where {
			c := &v1beta1.NodeModulesConfig{}
			if err := s.f.Admin.Get(ctx, types.NamespacedName{Name: node(i)}, c); err != nil {
				return fmt.Errorf("get what %s says: %w", node(i), err)
			}
			if a := attempt(c, d.key(name)); a != nil && a.Reason == v1beta1.ReasonInUse {
				*which = i
				return nil
			}
		}
		return fmt.Errorf("no node waits for who uses %s", d.kernelName(name))
	}
}

// goneModules: the Modules are, with their finalizers, and their labels on nodes.
func (s *scene) goneModules(d *direction, names []string) level {
	return func(ctx context.Context) error {
		var list v1beta1.ModuleList
		if err := s.f.Admin.List(ctx, &list, client.InNamespace(d.namespace)); err != nil {
			return fmt.Errorf("list Modules: %w", err)
		}
		for i := range list.Items {
			if m := &list.Items[i]; slices.Contains(names, m.Name) {
				return fmt.Errorf("the Module %s is there, with finalizers %v: %s", m.Name, m.Finalizers, said(m))
			}
		}
		var all corev1.NodeList
		if err := s.f.Admin.List(ctx, &all); err != nil {
			return fmt.Errorf("list nodes: %w", err)
		}
		for i := range all.Items {
			for label := range all.Items[i].Labels {
				for _, name := range names {
					user := strings.HasPrefix(label, v1beta1.VersionModulePrefix)
					if !user && strings.Contains(label+".", "/"+d.namespace+"."+name+".") {
						return fmt.Errorf("node %s has the label %s", all.Items[i].Name, label)
					}
				}
			}
		}
		return nil
	}
}

// nothingLeft: no NodeModulesConfig, DaemonSet or pod is.
func (s *scene) nothingLeft(d *direction) level {
	return func(ctx context.Context) error {
		var configs v1beta1.NodeModulesConfigList
		var pods corev1.PodList
		err := errors.Join(s.f.Admin.List(ctx, &configs), s.f.Admin.List(ctx, &pods, client.InNamespace(d.namespace)))
		if err != nil {
			return fmt.Errorf("list what is left: %w", err)
		}
		for i := range configs.Items {
			c := &configs.Items[i]
			return fmt.Errorf("NodeModulesConfig %s is left, with %d orders, %d modules and attempts %+v", c.Name, len(c.Spec.Modules),
				len(c.Status.Modules), c.Status.Attempts)
		}
		if len(pods.Items) > 0 {
			return fmt.Errorf("%d pods are left, %s among them", len(pods.Items), pods.Items[0].Name)
		}
		return nil
	}
}

// use holds a reference on a kernel module on nodes ("hold"), or releases it ("unhold").
func (s *scene) use(ctx context.Context, d *direction, verb string, where ...int) error {
	for _, i := range where {
		if err := s.f.Debug(ctx, "/"+verb+"?node="+node(i)+"&module="+d.kernelName(params)); err != nil {
			return err
		}
	}
	return nil
}

// label says which version a node is to have, as a user does.
func (s *scene) label(ctx context.Context, d *direction, i int, version string) error {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node(i)}}
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, v1beta1.VersionModulePrefix+d.namespace+"."+versioned, version)
	if err := s.f.Admin.Patch(ctx, n, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		return fmt.Errorf("label the node: %w", err)
	}
	return nil
}

// patch sets fields of a Module: paths and values by turns.
func (s *scene) patch(ctx context.Context, d *direction, name string, fields ...string) error {
	var patch []map[string]string
	for pair := range slices.Chunk(fields, 2) {
		patch = append(patch, map[string]string{"op": "replace", "path": pair[0], "value": pair[1]})
	}
	return s.change(ctx, d, name, patch)
}

// remove removes a field of a Module.
func (s *scene) remove(ctx context.Context, d *direction, name, path string) error {
	return s.change(ctx, d, name, []map[string]string{{"op": "remove", "path": path}})
}

func (s *scene) change(ctx context.Context, d *direction, name string, patch []map[string]string) error {
	body, err := json.Marshal(patch)
	if err == nil {
		err = s.f.Admin.Patch(ctx, d.object(name), client.RawPatch(types.JSONPatchType, body))
	}
	if err != nil {
		return fmt.Errorf("change the Module: %w", err)
	}
	return nil
}

// pluginPods are the pods of a direction's device plugin.
func (s *scene) pluginPods(ctx context.Context, d *direction) (map[types.UID]bool, error) {
	var pods corev1.PodList
	err := s.f.Admin.List(ctx, &pods, client.InNamespace(d.namespace), client.MatchingLabels{v1beta1.RoleLabel: "device-plugin"})
	if err != nil {
		return nil, fmt.Errorf("list the device plugin's pods: %w", err)
	}
	found := map[types.UID]bool{}
	for i := range pods.Items {
		found[pods.Items[i].UID] = pods.Items[i].DeletionTimestamp == nil
	}
	return found, nil
}

// remember notes the pods of the device plugin.
func (s *scene) remember(ctx context.Context, d *direction) (err error) {
	if d.plugins, err = s.pluginPods(ctx, d); err == nil && len(d.plugins) != nodes {
		err = fmt.Errorf("the device plugin has %d pods on %d nodes", len(d.plugins), nodes)
	}
	return err
}

// forget counts the pods of the device plugin that are others than were remembered.
func (s *scene) forget(ctx context.Context, d *direction) error {
	now, err := s.pluginPods(ctx, d)
	if !maps.Equal(d.plugins, now) {
		s.say("pods of the device plugin: %v, now %v", d.plugins, now)
		for uid := range d.plugins {
			if !now[uid] {
				s.result.PluginRestarts++
			}
		}
	}
	return err
}

// countLeft counts the kernels that still hold what was loaded for another module. That of the host
// is the host's, and must be there.
func (s *scene) countLeft(ctx context.Context, d *direction) error {
	truth, err := s.f.Truth(ctx)
	for i, n := range truth {
		if has := n.Has(d.kernelName("needed")); has && i != hosts {
			s.say("%s still holds %s", n.Name, d.kernelName("needed"))
			s.result.DependenciesLeft++
		} else if i == hosts && !has {
			err = errors.Join(err, fmt.Errorf("%s has lost %s, which its host had loaded", n.Name, d.kernelName("needed")))
		}
	}
	return err
}
