// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/execute"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/agent/modprobe"
	"github.com/drover-project/drover/internal/agent/orders"
	"github.com/drover-project/drover/internal/agent/report"
	"github.com/drover-project/drover/internal/agent/statefile"
	"github.com/drover-project/drover/internal/shared/kernel"
)

// Boot loads what the record orders, without an API server, and unloads nothing. It returns when
// nothing is left to do, to try again or to watch, or after the step it is in when ctx ends. It
// reports to nobody but the log.
func (a *Agent) Boot(ctx context.Context) error {
	a.o.Host = loadsOnly{a.o.Host}
	if a.o.Modprobe != nil {
		a.o.Modprobe = probesOnly{program: a.o.Modprobe}
	}
	a.logDistrusted(ctx)
	if a.recorded == nil {
		klog.FromContext(ctx).Info("There is no record to work from")
		return nil
	}
	spec := a.recorded.forBoot(a.o.Host.Release())
	for {
		next, err := a.bootOnce(ctx, spec)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			klog.FromContext(ctx).Error(err, "Cannot bring in all that is recorded")
			next = a.o.Clock.Now().Add(brokenPause)
		case next.IsZero():
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-a.o.Clock.After(max(next.Sub(a.o.Clock.Now()), minimalPause)):
		}
	}
}

// bootOnce takes each order as far as it goes, and returns when there is more to do; zero: never.
func (a *Agent) bootOnce(ctx context.Context, spec v1beta1.NodeModulesConfigSpec) (time.Time, error) {
	defer a.o.Watchdog.Rest()
	a.o.Watchdog.Step("the begin of a pass")
	p, err := a.newPass(spec)
	if err != nil {
		return time.Time{}, err
	}
	outcomes, err := p.settle(ctx)
	if err != nil || ctx.Err() != nil {
		return time.Time{}, err
	}
	logOutcomes(ctx, outcomes)
	settled, err := p.exec.SettleFuse(a.o.Clock.Now()) // a load has to stay live for a while: somebody must see that it did
	p.wakeAt(settled)
	return p.wake, err
}

func logOutcomes(ctx context.Context, outcomes map[orders.Key]report.Outcome) {
	for k, o := range outcomes {
		logger := klog.FromContext(ctx).WithValues("module", k.String())
		switch {
		case o.Unusable:
			logger.Info("Loaded", "name", o.Loaded.Main, "reason", v1beta1.ReasonNotUsable, "message", o.Attempt.Message)
		case o.Attempt != nil:
			logger.Info("Not loaded", "state", o.Attempt.State, "reason", o.Attempt.Reason, "message", o.Attempt.Message)
		case o.Live:
			logger.Info("Loaded", "name", o.Loaded.Main)
		default:
			logger.Info("Not loaded", "reason", v1beta1.ReasonAwaitingDelivery)
		}
	}
}

var errLoadsOnly = errors.New("an agent without an API server unloads nothing; the DaemonSet's will")

// loadsOnly is a host on which nothing is unloaded, whatever for.
type loadsOnly struct{ host.Host }

// Unload refuses.
func (loadsOnly) Unload(_ context.Context, r host.UnloadRequest) error {
	return fmt.Errorf("%s: %w", r.Name, errLoadsOnly)
}

// probesOnly is modprobe, but for command lines that remove.
type probesOnly struct{ program execute.Modprobe }

// ModprobeRunning is the program's answer.
func (p probesOnly) ModprobeRunning() bool { return p.program.ModprobeRunning() }

// Modprobe refuses to remove.
func (p probesOnly) Modprobe(ctx context.Context, r host.ModprobeRequest) error {
	if modprobe.Parse(r.Args).Remove {
		return fmt.Errorf("modprobe: %w", errLoadsOnly)
	}
	return p.program.Modprobe(ctx, r)
}

const (
	recordFile   = "record.json"
	recordSchema = 2
)

// record is the last spec that was accepted, for times when the API server cannot be reached.
type record struct {
	ClusterUID types.UID                     `json:"clusterUID"`
	NodeName   string                        `json:"nodeName"`
	Spec       v1beta1.NodeModulesConfigSpec `json:"spec"`
}

// readRecord returns nil when there is no record. One that is damaged, or of another node, is moved
// aside: an *statefile.UntrustedError.
func readRecord(dir, nodeName string) (*record, error) {
	r := &record{}
	found, err := statefile.Read(dir, recordFile, recordSchema, r)
	switch {
	case err != nil || !found:
		return nil, err
	case r.NodeName != nodeName:
		return nil, statefile.SetAside(dir, recordFile, fmt.Errorf("it is of node %q", r.NodeName))
	case r.ClusterUID == "":
		return nil, statefile.SetAside(dir, recordFile, errors.New("it names no cluster"))
	}
	return r, nil
}

// belongsTo moves a record of another cluster aside: that shows only when this one is known.
func (r *record) belongsTo(dir string, cluster types.UID) error {
	if r == nil || r.ClusterUID == cluster {
		return nil
	}
	return statefile.SetAside(dir, recordFile, fmt.Errorf("it is of the cluster %s, and this is %s", r.ClusterUID, cluster))
}

// forBoot are the orders for a boot without an API server: loads, for the running kernel, from what
// is held. The rest is left to the agent that can ask whether it is still wanted.
func (r *record) forBoot(release string) v1beta1.NodeModulesConfigSpec {
	var spec v1beta1.NodeModulesConfigSpec
	for _, m := range r.Spec.Modules {
		if orders.Absent(&m) || m.Paused || !kernel.SameVersion(m.Config.KernelVersion, release) {
			continue
		}
		if m.Delivery != nil {
			m.Delivery = &v1beta1.Delivery{ID: m.Delivery.ID}
		}
		if m.Next != nil {
			m.Next = &v1beta1.Delivery{ID: m.Next.ID}
		}
		spec.Modules = append(spec.Modules, m)
	}
	return spec
}

// recordIsForeign asks the API server, which has not listed the orders, whose the record is: it may
// answer that, as to a node that is slow to start. If it does not, the record counts.
func (a *Agent) recordIsForeign(ctx context.Context) bool {
	a.o.Watchdog.Step("the cluster's identity")
	if a.identify(ctx); a.cluster == "" {
		return false
	}
	err := a.recorded.belongsTo(a.o.StateDir, a.cluster)
	if err == nil {
		return false
	}
	a.recorded, a.foreign = nil, err
	a.logDistrusted(ctx)
	return true
}

// accept records what is ordered, as soon as the cluster's identity is known. Orders that are not
// recorded must not be carried out: an agent that starts without the API server works from the
// record, and would go back to older ones.
func (a *Agent) accept(ctx context.Context, spec v1beta1.NodeModulesConfigSpec) error {
	a.o.Watchdog.Step("the cluster's identity")
	a.identify(ctx)
	a.o.Watchdog.Step("the record of the orders")
	if a.cluster == "" {
		if a.recorded != nil && equality.Semantic.DeepEqual(a.recorded.Spec, spec) {
			return nil // as without an answer of the API server: they are what would be worked from then
		}
		// The cause is in the second line, whose changes are not reported: it may differ each time.
		return fmt.Errorf("the agent does not know which cluster this is, so that the orders cannot be recorded\n%w", a.nameless)
	}
	if err := a.recorded.belongsTo(a.o.StateDir, a.cluster); err != nil {
		a.foreign = err
		a.logDistrusted(ctx)
	}
	forgot, err := a.memory.Journal.Join(a.cluster)
	if err != nil {
		return fmt.Errorf("the cluster cannot be recorded: %w", err)
	}
	if forgot {
		klog.FromContext(ctx).Info("What worked in another cluster is not gone back to", "cluster", a.cluster)
	}
	a.recorded = nil // from now on the API server's word counts
	if err := a.record.write(record{ClusterUID: a.cluster, NodeName: a.o.NodeName, Spec: spec}); err != nil {
		return fmt.Errorf("the orders cannot be recorded: %w", err)
	}
	return nil
}

type recorder struct {
	dir  string
	sync statefile.Sync
	last []byte
}

func (w *recorder) write(r record) error {
	data, err := statefile.Encode(recordSchema, r)
	if err != nil {
		return fmt.Errorf("encode record: %w", err)
	}
	if bytes.Equal(data, w.last) {
		return nil
	}
	w.last = nil // a failure may come after the file is in place
	if err := statefile.Replace(w.dir, recordFile, data, 0o600, w.sync); err != nil {
		return err
	}
	w.last = data
	return nil
}
