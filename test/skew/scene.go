// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/version"
	"github.com/drover-project/drover/internal/testkit/audit"
	"github.com/drover-project/drover/internal/testkit/fleet"
)

// ours is what this version calls itself.
var ours = version.Version

// imagePath is the image's in a Module.
const imagePath = "/spec/moduleLoader/container/kernelMappings/0/containerImage"

// scene is a fleet of which parts change their version.
type scene struct {
	f          *fleet.Fleet
	say        func(string, ...any)
	log        *audit.Log
	directions []*direction
	broke      bool
	// before are the fields as they were before a version changed, without what nodes do about moving.
	before map[string]string
	moving types.NamespacedName
	result result
}

// direction is one side ahead of the other, with a namespace and kernel modules of its own.
type direction struct {
	namespace string
	// begin puts the newer version of one side beside the older of the other. back makes both alike,
	// the older ones, and forth takes that back. Config: so do definitions, roles and policies.
	begin       func(ctx context.Context) error
	back, forth func(ctx context.Context, config bool) error
	newerAgents bool
	outcome     *outcome
	plugins     map[types.UID]bool // pods of the device plugin
	deleted     time.Time          // when the Modules were
}

func newScene(f *fleet.Fleet, older fleet.Release, say func(string, ...any)) *scene {
	s := &scene{f: f, say: say, log: audit.Whole(f.Cluster.AuditLog)}
	s.result.UnaskedUnloads = -1 // until it is judged
	operator := &direction{namespace: "operator-ahead", outcome: &s.result.OperatorAhead}
	operator.forth = func(ctx context.Context, config bool) error {
		if config {
			if err := f.Apply(ctx, f.Ours()); err != nil {
				return err
			}
		}
		return f.ReplaceOperator(ctx, f.Ours())
	}
	operator.begin = func(ctx context.Context) error { return operator.forth(ctx, true) }
	operator.back = func(ctx context.Context, config bool) error {
		if err := f.ReplaceOperator(ctx, older); err != nil || !config {
			return err
		}
		return f.Apply(ctx, older)
	}
	agents := &direction{namespace: "agents-ahead", newerAgents: true, outcome: &s.result.AgentsAhead}
	agents.begin = func(ctx context.Context) error {
		if err := operator.back(ctx, true); err != nil {
			return err
		}
		return f.ReplaceAgents(ctx, f.Ours())
	}
	agents.back = func(ctx context.Context, _ bool) error { return f.ReplaceAgents(ctx, older) }
	agents.forth = func(ctx context.Context, _ bool) error { return f.ReplaceAgents(ctx, f.Ours()) }
	s.directions = []*direction{operator, agents}
	if os.Getenv("BREAK") != "" {
		s.directions = s.directions[:1] // what is broken shows without the rest
	}
	return s
}

// play is everything that happens.
func (s *scene) play(ctx context.Context) error {
	for _, d := range s.directions {
		acts := []struct {
			name string
			kept *bool
			play func(context.Context, *direction) error
		}{
			{"loads", &d.outcome.Loads, s.loads}, {"upgrades", &d.outcome.Upgrades, s.upgrades},
			{"versions", &d.outcome.Versions, s.versions}, {"unloads", &d.outcome.Unloads, s.unloads},
		}
		if os.Getenv("BREAK") != "" {
			acts = acts[:1]
		}
		s.say("%s", d.namespace)
		if err := d.begin(ctx); err != nil {
			return err
		}
		for _, act := range acts {
			if err := act.play(ctx, d); err != nil {
				return fmt.Errorf("%s, %s: %w", d.namespace, act.name, err)
			}
			*act.kept = true
		}
	}
	return nil
}

// loads makes all Modules. The image of one comes to half of the nodes' kernels when both sides are
// of the older version, and to the others afterwards.
func (s *scene) loads(ctx context.Context, d *direction) error {
	const there = "/skew/"
	if err := s.prepare(ctx, d, there); err != nil {
		return err
	}
	for _, name := range names {
		if err := s.f.Admin.Create(ctx, d.object(name)); err != nil {
			return fmt.Errorf("create the Module: %w", err)
		}
	}
	rest := without(names, late)
	if err := s.until(ctx, "all but one are loaded", s.all(d, rest, "1"), s.ready(d, without(rest, lacking, sharing))); err != nil {
		return err
	}
	if err := errors.Join(s.reasons(ctx, d), s.remember(ctx, d)); err != nil {
		return err
	}
	d.outcome.Reasons = true
	if err := s.across(ctx, d, late, "back", func() error { return d.back(ctx, true) }); err != nil {
		return err
	}
	if err := s.f.ServeImages(ctx, there+"|-6_1_0|-6\\.1\\.0-"); err != nil {
		return err
	}
	if err := s.until(ctx, "the last is loaded on half of the nodes", s.on(d, late, "1", 0, 2), s.ready(d, without(names, late))); err != nil {
		return err
	}
	if err := s.across(ctx, d, late, "forth", func() error { return d.forth(ctx, true) }); err != nil {
		return err
	}
	if err := s.f.ServeImages(ctx, ""); err != nil {
		return err
	}
	return s.until(ctx, "all are loaded", s.all(d, names, "1"), s.ready(d, without(names, lacking, sharing)))
}

// prepare is what is there before the Modules: what the host loads itself, and node labels.
func (s *scene) prepare(ctx context.Context, d *direction, images string) error {
	if err := s.f.CreateNamespace(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: d.namespace}}); err != nil {
		return err
	}
	if err := s.f.ServeImages(ctx, images); err != nil {
		return err
	}
	for i := range nodes {
		if err := s.f.Debug(ctx, "/insmod?node="+node(i)+"&module="+d.kernelName("host")); err != nil {
			return err
		}
		if err := s.label(ctx, d, i, "1"); err != nil {
			return err
		}
	}
	return s.f.Debug(ctx, "/insmod?node="+node(hosts)+"&module="+d.kernelName("needed"))
}

// upgrades changes the image of Modules. A kernel module that is in use holds up one of the
// upgrades; one node has it under the older version, the others afterwards.
func (s *scene) upgrades(ctx context.Context, d *direction) error {
	if err := s.use(ctx, d, "hold", everywhere...); err != nil {
		return err
	}
	changed := []string{firmware, intree}
	for _, name := range append(changed, params) {
		if err := s.patch(ctx, d, name, imagePath, d.image(name, "2")); err != nil {
			return err
		}
	}
	first, second := 0, 0
	err := s.until(ctx, "one node waits for who uses the module", s.all(d, changed, "2"), s.ready(d, changed),
		s.inUse(d, params, everywhere, &first))
	if err != nil {
		return err
	}
	if err := s.across(ctx, d, params, "back", func() error { return d.back(ctx, false) }); err != nil {
		return err
	}
	if err := s.use(ctx, d, "unhold", first); err != nil {
		return err
	}
	err = s.until(ctx, "one node has the new build, and another waits", s.on(d, params, "2", first),
		s.inUse(d, params, others(first), &second))
	if err != nil {
		return err
	}
	if err := s.across(ctx, d, params, "forth", func() error { return d.forth(ctx, false) }); err != nil {
		return err
	}
	if err := s.use(ctx, d, "unhold", others(first)...); err != nil {
		return err
	}
	return s.until(ctx, "all nodes have the new builds", s.all(d, append(changed, params), "2"), s.ready(d, append(changed, params)))
}

// versions is an upgrade by node labels, from node to node.
func (s *scene) versions(ctx context.Context, d *direction) error {
	if err := s.patch(ctx, d, versioned, imagePath, d.image(versioned, "2"), "/spec/moduleLoader/container/version", "2"); err != nil {
		return err
	}
	steps := []struct {
		label  []int
		what   string
		before func(context.Context, bool) error
	}{
		{label: []int{0}}, {[]int{1}, "back", d.back}, {[]int{2, 3}, "forth", d.forth},
	}
	var upgraded []int
	for _, step := range steps {
		if step.before != nil {
			if err := s.across(ctx, d, versioned, step.what, func() error { return step.before(ctx, true) }); err != nil {
				return err
			}
		}
		for _, i := range step.label {
			if err := s.label(ctx, d, i, "2"); err != nil {
				return err
			}
		}
		upgraded = append(upgraded, step.label...)
		what := fmt.Sprintf("nodes %v have the version of their label", upgraded)
		if err := s.until(ctx, what, s.on(d, versioned, "2", upgraded...)); err != nil {
			return err
		}
	}
	return s.until(ctx, "the new version is ready", s.ready(d, []string{versioned}))
}

// unloads deletes all Modules. A kernel module that is in use stays at first.
func (s *scene) unloads(ctx context.Context, d *direction) error {
	if err := s.until(ctx, "all Modules are ready", s.ready(d, without(names, lacking, sharing))); err != nil {
		return err
	}
	if err := s.forget(ctx, d); err != nil {
		return err
	}
	if err := s.use(ctx, d, "hold", everywhere...); err != nil {
		return err
	}
	d.deleted = time.Now()
	if err := s.f.Admin.DeleteAllOf(ctx, &v1beta1.Module{}, client.InNamespace(d.namespace)); err != nil {
		return fmt.Errorf("delete the Modules: %w", err)
	}
	rest := without(names, params)
	waits := 0
	err := s.until(ctx, "all but one are unloaded", s.all(d, rest, ""), s.goneModules(d, rest), s.inUse(d, params, everywhere, &waits))
	if err != nil {
		return err
	}
	if err := s.across(ctx, d, params, "back", func() error { return d.back(ctx, true) }); err != nil {
		return err
	}
	if err := s.use(ctx, d, "unhold", 0, 1); err != nil {
		return err
	}
	if err := s.until(ctx, "it is unloaded where nobody uses it", s.on(d, params, "", 0, 1)); err != nil {
		return err
	}
	s.say("forth") // all fields are about to go
	if err := d.forth(ctx, true); err != nil {
		return err
	}
	if err := s.use(ctx, d, "unhold", 2, 3); err != nil {
		return err
	}
	err = s.until(ctx, "nothing is left", s.all(d, names, ""), s.goneModules(d, names), s.nothingLeft(d))
	return errors.Join(err, s.countLeft(ctx, d))
}

// across changes a version while what a Module has nodes do is under way. When the next level is
// reached, and so the other version has worked, no field may be gone. What is broken on purpose
// breaks meanwhile.
func (s *scene) across(ctx context.Context, d *direction, moving, what string, change func() error) (err error) {
	s.moving = d.key(moving)
	if s.before, err = s.fields(ctx, s.moving); err != nil {
		return err
	}
	s.say("%s: %d fields", what, len(s.before))
	if err := change(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return s.breaks(ctx, d)
}

func (s *scene) breaks(ctx context.Context, d *direction) error {
	broken := os.Getenv("BREAK")
	if s.broke || broken == "" {
		return nil
	}
	s.broke = true
	switch broken {
	case "unload":
		return s.f.Debug(ctx, "/rmmod?node="+node(0)+"&module="+d.kernelName(plugin))
	case "field":
		return s.remove(ctx, d, firmware, "/spec/deletionTimeout")
	}
	return fmt.Errorf("BREAK=%s: there are unload and field", broken)
}
