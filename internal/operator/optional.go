// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// again is the pause between two looks at a kind that cannot be read.
const again = 10 * time.Second

// Optional is a controller of a kind that the cluster may lack. A manager ends the process when the
// cache of any of its kinds does not fill: without one definition, no controller would work. This
// one waits until objects of its kind can be listed, for which all is an empty list, and begins
// anew when it has failed. A definition that goes later ends nothing: its watch is taken up again.
func Optional(c Controller, all client.ObjectList) Controller { return supervised{c, all} }

type supervised struct {
	controller Controller
	all        client.ObjectList
}

// SetupWithManager has the manager run the controller whenever its kind is there.
func (o supervised) SetupWithManager(mgr ctrl.Manager) error {
	if err := mgr.Add(&attempts{supervised: o, manager: mgr}); err != nil {
		return fmt.Errorf("add an optional controller: %w", err)
	}
	return nil
}

// attempts runs the controller again and again until it ends with its context.
type attempts struct {
	supervised
	manager ctrl.Manager
}

// Start never fails: nothing about this kind is a reason to end the operator.
func (a *attempts) Start(ctx context.Context) error {
	logger := a.manager.GetLogger().WithValues("kind", fmt.Sprintf("%T", a.all))
	for told := false; ; {
		err := a.readable(ctx)
		if err == nil {
			told = false
			err = a.run(ctx)
		}
		if ctx.Err() != nil {
			return nil
		}
		if !told {
			logger.Error(err, "Objects of this kind are left alone until they can be read; apply config/crd if their definition is missing")
			told = true
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(again):
		}
	}
}

// readable asks the API server itself: objects may be served and still not be read, for one that is
// stored in another version needs a conversion webhook that may be gone.
func (a *attempts) readable(ctx context.Context) error {
	all, ok := a.all.DeepCopyObject().(client.ObjectList)
	if !ok {
		return fmt.Errorf("%T is not a list", a.all)
	}
	if err := a.manager.GetAPIReader().List(ctx, all); err != nil {
		return fmt.Errorf("list all objects: %w", err)
	}
	return nil
}

func (a *attempts) run(ctx context.Context) error {
	parts := &collector{Manager: a.manager}
	if err := a.controller.SetupWithManager(parts); err != nil {
		return fmt.Errorf("set up an optional controller: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, part := range parts.added {
		group.Go(func() error { return part.Start(ctx) })
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("run an optional controller: %w", err)
	}
	return nil
}

// collector is a manager that leaves it to its user to start what is added.
type collector struct {
	ctrl.Manager
	added []manager.Runnable
}

// Add notes what is to be started.
func (c *collector) Add(r manager.Runnable) error {
	c.added = append(c.added, r)
	return nil
}

// GetControllerOptions lets a controller have the name of an earlier attempt.
func (c *collector) GetControllerOptions() config.Controller {
	options := c.Manager.GetControllerOptions()
	options.SkipNameValidation = ptr.To(true)
	return options
}
