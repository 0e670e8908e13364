// SPDX-License-Identifier: Apache-2.0

// Package boot loads at boot while the API server is away, and sees to it that of a node's two agents one works at a time.
//
// The DaemonSet's pod starts only after the kubelet has reached the API server, a static pod at once. So the DaemonSet's agent, if it is told
// to, writes a static pod whose agent works from the record. They share:
//
//	agent.lock         locked by the one that works, for as long as it does
//	agent.lock.wanted  locked by one that waits for that: the static pod's agent then gives way, after the step it is in
//	boot.json          exists while the static pod is wanted: without it, it loads nothing and removes its own manifest
//
// The last makes turning the option off work without anybody who can write manifests: the DaemonSet's agent has that directory only while the
// option is on.
package boot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/drover-project/drover/internal/agent/statefile"
)

const (
	consentFile   = "boot.json"
	consentSchema = 1
	// consentPoll is how soon the static pod leaves after the option was turned off.
	consentPoll = 15 * time.Second
	// wantedPoll is how soon it notices that the DaemonSet's agent waits.
	wantedPoll = 100 * time.Millisecond
)

// consent is what boot.json says.
type consent struct {
	// Manifests is the directory on the host with the static pod's manifest.
	Manifests string `json:"manifests"`
}

// Enable makes the static pod load at the next boot. It writes the manifest only if it changed.
func Enable(ctx context.Context, o PodOptions) error {
	data, err := Render(o)
	if err != nil {
		return err
	}
	said, err := statefile.Encode(consentSchema, consent{Manifests: o.ManifestDir})
	if err != nil {
		return err
	}
	var now consent
	if err := statefile.Read(o.StateDir, consentFile, consentSchema, &now); err != nil || now.Manifests != o.ManifestDir {
		if err := statefile.Replace(o.StateDir, consentFile, said, 0o600, true); err != nil {
			return err
		}
	}
	wrote, err := put(o.ManifestDir, data)
	if wrote && err == nil {
		klog.FromContext(ctx).Info("Wrote the static pod that loads at boot", "directory", o.ManifestDir)
	}
	return err
}

// Disable lets the static pod, if there is one, load nothing more and remove itself.
func Disable(stateDir string) error { return statefile.Remove(stateDir, consentFile) }

// wanted tells whether the static pod shall work. In doubt it shall not; with an error it is not known.
func wanted(stateDir string) (bool, error) {
	err := statefile.Read(stateDir, consentFile, consentSchema, &consent{})
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Options are what the static pod's agent needs.
type Options struct {
	// StateDir is the state directory.
	StateDir string
	// ManifestDir is the kubelet's staticPodPath, as the agent sees it.
	ManifestDir string
	// Work does what is to be done until that is done or ctx ends.
	Work func(ctx context.Context) error
	// Stopped notes that the agent was told to stop, and not because another takes over: an orderly end of the node may follow.
	Stopped func() error
	// Clock is the real one unless set.
	Clock clock.WithTicker
}

// Run is the life of the static pod's agent: it works if nobody else does, and then sleeps until ctx ends, so that the node keeps its image.
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
		logger.Error(err, "Cannot load what is recorded; the DaemonSet's agent will")
	}
	logger.Info("Sleeping")
	o.sleep(ctx)
	return o.stopped()
}

// workAlone works if no other agent does, and not longer than until one waits.
func (o Options) workAlone(ctx context.Context) error {
	lock, err := TryTake(o.StateDir, "the static pod's agent")
	if err != nil {
		return err
	}
	if lock == nil {
		klog.FromContext(ctx).Info("Another agent works on this node: nothing to do")
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

// watch returns when another agent waits, or ctx ends.
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
			klog.FromContext(ctx).Error(err, "Cannot see whether another agent waits; giving way")
			return
		}
		if wanted {
			klog.FromContext(ctx).Info("Giving way to the DaemonSet's agent")
			return
		}
	}
}

// sleep ends with ctx. A static pod that is not wanted any more removes its manifest, and the kubelet ends it.
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
			logger.Error(err, "The static pod cannot leave")
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

// stopped leaves the note to the agent that works, if there is one.
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
