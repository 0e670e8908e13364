// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/hack/monitoring"
)

// noticing is how long an alert is waited for: longer than it may take, so that a slow one is told
// from none.
const noticing = 2 * time.Minute

func all() map[string]fault {
	faults := map[string]fault{}
	for _, some := range []map[string]fault{imageFaults(), loadFaults(), changeFaults()} {
		maps.Copy(faults, some)
	}
	return faults
}

// faults makes those of Modules, each on nodes of its own, all at once; asks the dashboard while
// they are there; and undoes them.
func (s *scene) faults(ctx context.Context) error {
	made := all()
	var corners []*corner
	for _, a := range s.chosen() {
		if _, ok := made[a.Name]; !ok {
			if a.OfModule() {
				return fmt.Errorf("this proof cannot make the fault of %s", a.Name)
			}
			continue
		}
		namespace := "alerts-" + strings.ToLower(a.Name)
		corners = append(corners, &corner{
			scene: s, alert: a.Name, namespace: namespace, kernelModule: kernelModule(namespace), node: fmt.Sprintf("hollow-%d", len(corners)),
		})
	}
	s.Classes += len(corners)
	errs := s.each(corners, func(c *corner) error { return c.notice(ctx, made[c.alert]) })
	if len(s.only) == 0 {
		errs = append(errs, s.panels(ctx))
	}
	errs = append(errs, s.each(corners, func(c *corner) error { return c.undo(ctx, made[c.alert]) })...)
	return errors.Join(errs...)
}

// each does something in all corners at once.
func (s *scene) each(corners []*corner, do func(*corner) error) []error {
	errs := make([]error, len(corners))
	var wg sync.WaitGroup
	for i, c := range corners {
		wg.Go(func() {
			if errs[i] = do(c); errs[i] != nil {
				s.say("RED %s: %v", c.alert, errs[i])
			}
		})
	}
	wg.Wait()
	return errs
}

// notice makes the fault and takes the time until the alert fires.
func (c *corner) notice(ctx context.Context, f fault) error {
	if err := c.create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.namespace}}); err != nil {
		return err
	}
	mine := []string{c.node}
	if c.alert == "DroverRolloutStalled" {
		c.other = fmt.Sprintf("hollow-%d", nodes-1)
		mine = append(mine, c.other)
	}
	for _, node := range mine {
		if err := c.relabel(ctx, node, fmt.Sprintf("%q", c.namespace)); err != nil {
			return err
		}
	}
	if f.given != nil {
		if err := f.given(ctx, c); err != nil {
			return err
		}
	}
	begin := time.Now()
	if err := f.breaks(ctx, c); err != nil {
		return err
	}
	if err := c.prom.until(ctx, c.alert, c.namespace, "firing", noticing); err != nil {
		return err
	}
	c.noticed(c.alert, time.Since(begin))
	return nil
}

var counting sync.Mutex

func (s *scene) noticed(alert string, took time.Duration) {
	counting.Lock()
	defer counting.Unlock()
	s.say("%s fires after %.1f s", alert, took.Seconds())
	s.Noticed++
	s.SlowestSeconds = max(s.SlowestSeconds, round(took))
}

func (s *scene) relabel(ctx context.Context, node, value string) error {
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, label, value)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	if err := s.fleet.Admin.Patch(ctx, n, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		return fmt.Errorf("label a node: %w", err)
	}
	return nil
}

// undo ends the fault, and then the Module, and sees the alert end.
func (c *corner) undo(ctx context.Context, f fault) error {
	errs := []error{c.does(ctx, "mend", "module", c.kernelModule)}
	if c.other != "" {
		errs = append(errs, c.on(ctx, c.other, "mend", "module", c.kernelModule))
	}
	if f.mend != nil {
		errs = append(errs, f.mend(ctx, c))
	}
	m := c.module(moduleName)
	errs = append(errs, client.IgnoreNotFound(c.fleet.Admin.Delete(ctx, m)))
	if f.leave != nil {
		errs = append(errs, f.leave(ctx, c))
	}
	errs = append(errs, c.prom.until(ctx, c.alert, c.namespace, "", noticing))
	return errors.Join(errs...)
}

// panels asks for what the dashboard shows.
func (s *scene) panels(ctx context.Context) error {
	var errs []error
	for _, p := range monitoring.Panels() {
		expr := strings.NewReplacer("$namespace", ".*", "$name", ".*").Replace(p.Expr)
		found, err := s.prom.query(ctx, expr)
		switch {
		case err != nil:
			errs = append(errs, err)
		case len(found) > 0:
			s.Panels++
		case p.Empty == "":
			s.PanelsEmpty++
			s.say("RED the panel %q shows nothing: %s", p.Title, expr)
		}
	}
	return errors.Join(errs...)
}

// ofDrover makes the faults of Drover itself, one after another.
func (s *scene) ofDrover(ctx context.Context) error {
	var errs []error
	for _, a := range s.chosen() {
		if a.OfModule() {
			continue
		}
		s.Classes++
		var err error
		switch a.Name {
		case "DroverOperatorDown":
			err = s.operatorDown(ctx, a.Name)
		case "DroverWritesRefused":
			err = s.writesRefused(ctx, a.Name)
		default:
			err = fmt.Errorf("this proof cannot make the fault of %s", a.Name)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (s *scene) operatorDown(ctx context.Context, name string) error {
	begin := time.Now()
	if err := s.fleet.StopOperator(); err != nil {
		return err
	}
	if err := s.prom.until(ctx, name, "", "firing", noticing); err != nil {
		return err
	}
	s.noticed(name, time.Since(begin))
	if err := s.fleet.StartOperator(ctx); err != nil {
		return err
	}
	return s.prom.until(ctx, name, "", "", noticing)
}

// writesRefused takes the operator's right to give orders, and has it try.
func (s *scene) writesRefused(ctx context.Context, name string) error {
	role := &rbacv1.ClusterRole{}
	if err := s.fleet.Admin.Get(ctx, types.NamespacedName{Name: "drover-operator"}, role); err != nil {
		return fmt.Errorf("get the operator's role: %w", err)
	}
	for i := range role.Rules {
		if r := &role.Rules[i]; slices.Contains(r.Resources, "nodemodulesconfigs") {
			r.Verbs = slices.DeleteFunc(r.Verbs, func(v string) bool { return !slices.Contains([]string{"get", "list", "watch"}, v) })
		}
	}
	if err := s.fleet.Admin.Update(ctx, role); err != nil {
		return fmt.Errorf("change the operator's role: %w", err)
	}
	c := &corner{scene: s, namespace: "default", kernelModule: "alerts_refused"}
	if err := s.relabel(ctx, "hollow-28", `"default"`); err != nil {
		return err
	}
	begin := time.Now()
	if err := creates()(ctx, c); err != nil {
		return err
	}
	if err := s.prom.until(ctx, name, "", "firing", noticing); err != nil {
		return err
	}
	s.noticed(name, time.Since(begin))
	if _, err := s.fleet.Kubectl(ctx, "apply", "--server-side", "--force-conflicts", "-k", "config/rbac"); err != nil {
		return err
	}
	// What was refused counts for two minutes.
	return s.prom.until(ctx, name, "", "", 2*noticing)
}
