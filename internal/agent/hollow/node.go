// SPDX-License-Identifier: Apache-2.0

package hollow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/drover-project/drover/internal/agent"
	"github.com/drover-project/drover/internal/agent/execute"
	"github.com/drover-project/drover/internal/agent/fuse"
	"github.com/drover-project/drover/internal/agent/hollow/upset"
	"github.com/drover-project/drover/internal/agent/host/fake"
	"github.com/drover-project/drover/internal/agent/statefile"
	"github.com/drover-project/drover/internal/agent/store"
)

// HollowLabel is on every hollow node.
const HollowLabel = "drover.dev/hollow"

// What a hollow node says it runs: a runtime new enough for image volumes.
const (
	runtimeVersion = "containerd://2.4.2"
	defaultOSImage = "Hollow Linux"
)

// restartDelay is how long a failed agent waits for its next start, as after a kubelet's first
// back-off.
const restartDelay = time.Second

var errKilled = errors.New("killed")

// node is one hollow node.
type node struct {
	name    string
	osImage string
	dir     string
	labels  map[string]string
	api     *api
	clock   clock.WithTicker
	period  time.Duration // of its lease; 0: leasePeriod
	kernel  *upset.Kernel
	// wall is the agent's clock, which may be wrong; disk has the agent's files, and may be nil.
	wall *upset.Clock
	disk *upset.Disk
	// config is how this node's agent reaches the API server.
	config *rest.Config
	token  *boundToken
	off    bool // fault agent-off
	since  metav1.Time

	// life serialises reboot, vanish and comeBack; mu guards the fields below.
	life   sync.Mutex
	mu     sync.Mutex
	uid    types.UID
	silent bool      // reports fail
	gone   bool      // vanished
	broken string    // why the kubelet calls the node not ready
	beat   time.Time // last renewal of the lease that succeeded
	wrote  time.Time // last write of the status
	// doubtedAt is when the cluster may last have taken the node for lost.
	doubtedAt time.Time
	end       context.CancelFunc
	ended     chan struct{}
}

func newNode(a *api, config *rest.Config, o Options, i int) (*node, error) {
	name := o.Prefix + strconv.Itoa(i)
	n := &node{
		name: name, dir: filepath.Join(o.Dir, "nodes", name), api: a, clock: o.Clock, period: o.LeasePeriod, since: metav1.NewTime(o.Clock.Now()),
		kernel: &upset.Kernel{Host: fake.New(fake.Options{Release: o.Kernels[i%len(o.Kernels)], Clock: o.Clock, Deadline: o.CallDeadline})},
		wall:   upset.NewClock(o.Clock),
		labels: map[string]string{
			HollowLabel: "true", corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
		},
	}
	if len(o.OSImages) > 0 {
		n.osImage = o.OSImages[i%len(o.OSImages)]
	}
	maps.Copy(n.labels, o.Labels)
	// Volumes of an earlier run are of no use: carriers that still live are exported again.
	if err := errors.Join(os.RemoveAll(n.podsDir()), os.MkdirAll(n.podsDir(), 0o755)); err != nil {
		return nil, fmt.Errorf("make node %s: %w", name, err)
	}
	if o.DiskSize > 0 {
		var err error
		if n.disk, err = upset.Mount(n.stateDir(), o.DiskSize); err != nil {
			return nil, fmt.Errorf("make node %s: %w", name, err)
		}
	}
	n.token = &boundToken{node: n}
	n.config = n.token.config(config)
	if o.KeepKernels {
		return n, n.resume()
	}
	return n, nil
}

// kernelFile has what the kernel held when the process that played it ended.
func (n *node) kernelFile() string { return filepath.Join(n.dir, "kernel.json") }

// keep notes what the kernel holds, for resume.
func (n *node) keep() error {
	data, err := n.kernel.Keep()
	if err == nil {
		err = os.WriteFile(n.kernelFile(), data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("node %s: %w", n.name, err)
	}
	return nil
}

// resume goes on with the kernel that an earlier process has kept, once: one that dies later takes
// the kernel with it.
func (n *node) resume() error {
	data, err := os.ReadFile(n.kernelFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = errors.Join(n.kernel.Resume(data), os.Remove(n.kernelFile()))
	}
	if err != nil {
		return fmt.Errorf("node %s: %w", n.name, err)
	}
	return nil
}

// podsDir is the node's /var/lib/kubelet/pods.
func (n *node) podsDir() string { return filepath.Join(n.dir, "pods") }

// stateDir is the agent's own directory.
func (n *node) stateDir() string { return filepath.Join(n.dir, "state") }

// register creates the Node, or brings one that is there already up to date.
func (n *node) register(ctx context.Context) error {
	status, err := n.status()
	if err != nil {
		return err
	}
	object, err := n.api.createNode(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name, Labels: n.labels}, Status: status})
	if apierrors.IsAlreadyExists(err) {
		meta := map[string]any{"metadata": map[string]any{"labels": n.labels}}
		if _, err = n.api.patchNode(ctx, n.name, "", meta); err == nil {
			object, err = n.api.patchNode(ctx, n.name, "status", map[string]any{"status": status})
		}
	}
	if err != nil {
		return err
	}
	n.mu.Lock()
	n.uid, n.wrote = object.UID, n.clock.Now()
	n.mu.Unlock()
	n.token.reset()
	return n.renew(ctx)
}

// status is what the kubelet would say now.
func (n *node) status() (corev1.NodeStatus, error) {
	boot, err := n.kernel.BootID()
	if err != nil {
		return corev1.NodeStatus{}, fmt.Errorf("node %s: %w", n.name, err)
	}
	machine := strings.ReplaceAll(boot, "-", "")
	room := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("32Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("100Gi"), corev1.ResourcePods: resource.MustParse("110"),
	}
	return corev1.NodeStatus{
		Capacity: room, Allocatable: room, Conditions: n.conditions(),
		Addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: n.name}},
		NodeInfo: corev1.NodeSystemInfo{
			MachineID: machine, SystemUUID: boot, BootID: boot, KernelVersion: n.kernel.Release(), OSImage: cmp.Or(n.osImage, defaultOSImage),
			ContainerRuntimeVersion: runtimeVersion, KubeletVersion: n.api.release,
			OperatingSystem: "linux", Architecture: "amd64",
		},
	}, nil
}

// conditions of the node, which is healthy unless it was broken.
func (n *node) conditions() []corev1.NodeCondition {
	n.mu.Lock()
	broken := n.broken
	n.mu.Unlock()
	all := conditions(metav1.NewTime(n.clock.Now()), n.since)
	if broken != "" {
		all[0].Status, all[0].Reason, all[0].Message = corev1.ConditionFalse, "KubeletNotReady", broken
	}
	return all
}

// conditions of a healthy node, the one of readiness first.
func conditions(now, since metav1.Time) []corev1.NodeCondition {
	condition := func(kind corev1.NodeConditionType, status corev1.ConditionStatus, reason, message string) corev1.NodeCondition {
		return corev1.NodeCondition{
			Type: kind, Status: status, Reason: reason, Message: message, LastHeartbeatTime: now, LastTransitionTime: since,
		}
	}
	return []corev1.NodeCondition{
		condition(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady", "kubelet is posting ready status"),
		condition(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
		condition(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
		condition(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
	}
}

// startAgent runs the real agent until ctx ends or stop is called, and starts it again when it
// fails.
func (n *node) startAgent(ctx context.Context) error {
	if n.off {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	n.mu.Lock()
	n.end, n.ended = cancel, ended
	n.mu.Unlock()
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			if err := n.runAgent(ctx); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Agent ended, starting it again", "node", n.name)
			}
			select {
			case <-ctx.Done():
			case <-n.clock.After(restartDelay):
			}
		}
	}()
	return nil
}

// stop ends the agent and waits until it has.
func (n *node) stop() {
	n.mu.Lock()
	end, ended := n.end, n.ended
	n.end, n.ended = nil, nil
	n.mu.Unlock()
	if end != nil {
		end()
		<-ended
	}
}

// reboot ends the agent, empties the kernel and starts both again, with another kernel version if
// one is given.
func (n *node) reboot(ctx context.Context, release string) error {
	n.life.Lock()
	defer n.life.Unlock()
	n.stop()
	if err := n.boot(release); err != nil {
		return err
	}
	n.mu.Lock()
	n.wrote = time.Time{} // until the API server has taken the new boot ID, it is told again and again
	n.mu.Unlock()
	if n.vanished() {
		return nil // it comes up when it comes back
	}
	return n.comeUp(ctx)
}

// boot starts another kernel. What was told to the one before is forgotten.
func (n *node) boot(release string) error {
	n.kernel.Reboot(release)
	return n.searchPath().SetFirmwarePath("")
}

func (n *node) comeUp(ctx context.Context) error {
	return errors.Join(n.register(ctx), n.startAgent(ctx))
}

// vanish is a cut power cord: no agent, no lease, no kubelet.
func (n *node) vanish() {
	n.life.Lock()
	defer n.life.Unlock()
	n.mu.Lock()
	n.gone = true
	n.mu.Unlock()
	n.stop()
}

// comeBack ends vanish. The kernel is a new one, as after a power cut.
func (n *node) comeBack(ctx context.Context) error {
	n.life.Lock()
	defer n.life.Unlock()
	if !n.vanished() {
		return nil
	}
	if err := n.boot(""); err != nil {
		return err
	}
	n.mu.Lock()
	n.gone = false
	n.mu.Unlock()
	n.doubt()
	return n.comeUp(ctx)
}

func (n *node) vanished() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.gone
}

// runAgent runs the real agent over the fake kernel, with the parts that it has on a real node.
func (n *node) runAgent(ctx context.Context) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case upset.Death:
			err = errors.Join(err, errKilled)
		default:
			panic(r)
		}
	}()
	held, err := store.New(ctx, filepath.Join(n.stateDir(), "store"), store.Options{
		PodsDir: n.podsDir(), Sync: statefile.NoSync, Clock: n.wall})
	if err != nil {
		return fmt.Errorf("node %s: %w", n.name, err)
	}
	stage, err := n.openFirmware()
	if err != nil {
		return err
	}
	dir := filepath.Join(n.stateDir(), "fuse")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("node %s: %w", n.name, err)
	}
	burns, err := fuse.Open(dir, statefile.NoSync)
	if err != nil {
		return fmt.Errorf("node %s: %w", n.name, err)
	}
	defer func() { err = errors.Join(err, burns.Close()) }()
	a, err := agent.New(agent.Options{
		NodeName: n.name, StateDir: n.stateDir(), Config: n.config, Sync: statefile.NoSync,
		Parts: execute.Parts{Host: n.kernel, Modprobe: n.kernel, Store: held, Clock: n.wall, Firmware: stage, Fuse: burns},
	})
	if err != nil {
		return err
	}
	return a.Run(ctx)
}
