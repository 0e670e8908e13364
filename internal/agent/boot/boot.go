// SPDX-License-Identifier: Apache-2.0

// Package boot loads at boot while the API server is away. Of a node's two agents, one works at a
// time.
//
// The DaemonSet's pod starts only after the kubelet has reached the API server, a static pod at
// once. So, by option, the DaemonSet's agent writes a static pod, which works from the record. They
// share:
//
//	agent.lock         locked by the agent that works
//	agent.lock.wanted  locked by one that waits for it: the static pod's agent then gives way, after its step
//	boot.json          exists while the static pod is wanted; without it, that loads nothing and removes itself
//
// boot.json turns the option off: by then, the DaemonSet's agent cannot write manifests.
package boot

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/drover-project/drover/internal/agent/statefile"
)

const (
	consentFile   = "boot.json"
	consentSchema = 1
	consentPoll   = 15 * time.Second       // how often the static pod looks whether it is wanted
	wantedPoll    = 100 * time.Millisecond // how often it looks whether the DaemonSet's agent waits
)

type consent struct {
	Manifests string `json:"manifests"` // the directory on the host with the static pod's manifest
}

// Enable makes the static pod load at the next boot. It writes only what changed.
func Enable(ctx context.Context, o PodOptions) error {
	data, err := Render(o)
	if err != nil {
		return err
	}
	var now consent
	if found, err := statefile.Read(o.StateDir, consentFile, consentSchema, &now); !found || err != nil || now.Manifests != o.ManifestDir {
		if err := statefile.Write(o.StateDir, consentFile, consentSchema, consent{Manifests: o.ManifestDir}, nil); err != nil {
			return err
		}
	}
	wrote, err := put(o.ManifestDir, data)
	if wrote && err == nil {
		klog.FromContext(ctx).Info("Wrote the static pod that loads at boot", "directory", o.ManifestDir)
	}
	return err
}

// Disable makes the static pod, if there is one, load nothing more and remove itself.
func Disable(stateDir string) error { return statefile.Remove(stateDir, consentFile) }

// wanted tells whether the static pod is to work; not if there is an error.
func wanted(stateDir string) (bool, error) {
	return statefile.Read(stateDir, consentFile, consentSchema, &consent{})
}

// Options are what the static pod's agent needs.
type Options struct {
	StateDir    string
	ManifestDir string // the kubelet's staticPodPath, as the agent sees it
	Work        func(ctx context.Context) error
	Stopped     func() error     // records that the agent is to stop: an orderly end of the node may follow
	Clock       clock.WithTicker // the real one unless set
}

// Run is the static pod's agent: it works if no other agent does, and then sleeps until ctx ends,
// so that the node keeps its image.
func Run(ctx context.Context, o Options) error {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	logger := klog.FromContext(ctx)
	yes, err := wanted(o.StateDir)
	if yes {
		err = o.workAlone(ctx)
	}
	if err != nil {
		logger.Error(err, "Cannot load from the record; the DaemonSet's agent will")
	}
	logger.Info("Sleeping")
	o.sleep(ctx)
	return o.stopped()
}

// workAlone works if no other agent does, until one waits.
func (o Options) workAlone(ctx context.Context) error {
	lock, err := TryTake(o.StateDir, "the static pod's agent")
	if err != nil {
		return err
	}
	if lock == nil {
		klog.FromContext(ctx).Info("Another agent works on this node; there is nothing to do")
		return nil
	}
	working, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer stop()
		o.watch(working, lock)
	}()
	err = o.Work(working)
	stop()
	<-done
	return errors.Join(err, lock.Release())
}

func (o Options) watch(ctx context.Context, lock *Lock) {
	ticker := o.Clock.NewTicker(wantedPoll)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		wanted, err := lock.Wanted()
		if err != nil {
			klog.FromContext(ctx).Error(err, "Cannot tell whether another agent waits; giving way")
			return
		}
		if wanted {
			klog.FromContext(ctx).Info("Giving way to the DaemonSet's agent")
			return
		}
	}
}

// sleep returns when ctx ends. It removes the manifest of a static pod that is no longer wanted.
func (o Options) sleep(ctx context.Context) {
	logger := klog.FromContext(ctx)
	ticker := o.Clock.NewTicker(consentPoll)
	defer ticker.Stop()
	for {
		yes, err := wanted(o.StateDir)
		gone := false
		if !yes && err == nil {
			gone, err = withdraw(o.ManifestDir)
		}
		if gone {
			logger.Info("Removed the static pod's manifest: the option is off")
		}
		if err != nil {
			logger.Error(err, "Cannot remove the static pod's manifest")
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

// stopped records the stop, unless another agent works: that records its own.
func (o Options) stopped() error {
	lock, err := TryTake(o.StateDir, "the static pod's agent")
	if err != nil || lock == nil {
		return err
	}
	err = o.Stopped()
	if err != nil {
		err = fmt.Errorf("note the stop: %w", err)
	}
	return errors.Join(err, lock.Release())
}
