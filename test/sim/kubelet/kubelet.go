// SPDX-License-Identifier: Apache-2.0

// Package kubelet is a node's kubelet as far as Drover needs one, a step at a time: it runs
// carriers, the pods of device plugins and those of people, fails at that as it is told to, and
// ends pods that are deleted.
package kubelet

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host/fake"
	"github.com/drover-project/drover/internal/agent/manifest"
	"github.com/drover-project/drover/internal/agent/store"
	"github.com/drover-project/drover/test/sim/cluster"
	"github.com/drover-project/drover/test/sim/images"
)

// Kubelet is one kubelet, and the containers that it runs.
type Kubelet struct {
	Cluster *cluster.Cluster
	Clock   clock.PassiveClock
	Kernel  *fake.Host
	Node    string
	Dir     string // for what pods put out
	Trace   func(format string, args ...any)

	pullless, crashing, stuck time.Time // until when what Fail says is so

	delivered map[types.UID]bool    // carriers that have delivered
	plugins   map[types.UID]*plugin // pods of device plugins that have begun
	users     map[types.UID]string  // which kernel modules pods of people have open
	kept      int64                 // the revision at which there was nothing to do
}

// IsReady says whether a Node's kubelet says that it is Ready.
func IsReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// Failure is what a kubelet, or what it runs, fails at.
type Failure int

// The failures.
const (
	Pulling Failure = iota // no image comes
	Running                // device plugins crash
	Ending                 // their pods do not end
)

// Fail has something fail for a while.
func (k *Kubelet) Fail(what Failure, span time.Duration) {
	*[]*time.Time{&k.pullless, &k.crashing, &k.stuck}[what] = k.Clock.Now().Add(span)
	k.kept = 0
}

// Mend ends all failures.
func (k *Kubelet) Mend() {
	k.pullless, k.crashing, k.stuck, k.kept = time.Time{}, time.Time{}, time.Time{}, 0
}

// Step does one thing for the node's pods; false: there was nothing to do.
func (k *Kubelet) Step(ctx context.Context) bool {
	now := k.Cluster.Revision()
	if k.kept == now {
		return false
	}
	left, waits := map[types.UID]bool{}, false
	for _, pod := range k.Pods() {
		left[pod.UID] = true
		step := k.carrier
		if IsPlugin(pod) {
			step = k.plugin
		} else if IsUser(pod) {
			step = k.user
		}
		did, more := step(ctx, pod.DeepCopy())
		if did {
			return true
		}
		waits = waits || more
	}
	if k.clean(left) {
		return true
	}
	if !waits {
		k.kept = now
	}
	return false
}

// clean forgets one pod that is no more.
func (k *Kubelet) clean(left map[types.UID]bool) bool {
	for _, uid := range slices.Sorted(maps.Keys(k.delivered)) {
		if !left[uid] {
			delete(k.delivered, uid)
			must(os.RemoveAll(filepath.Join(k.Dir, string(uid))))
			return true
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(k.plugins)) {
		if !left[uid] {
			k.stop(k.plugins[uid])
			delete(k.plugins, uid)
			return true
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(k.users)) {
		if !left[uid] {
			k.close(uid)
			return true
		}
	}
	return false
}

// Booted ends all containers: the node has booted.
func (k *Kubelet) Booted() { k.plugins, k.users, k.kept = nil, nil, 0 }

// Replaced ends all containers, and forgets all pods: the node is another machine.
func (k *Kubelet) Replaced() {
	k.Booted()
	k.delivered = nil
}

// Pods are the pods of the node. They are not for changes.
func (k *Kubelet) Pods() (all []*corev1.Pod) {
	for _, pod := range cluster.All[*corev1.Pod](k.Cluster, cluster.Pods) {
		if pod.Spec.NodeName == k.Node {
			all = append(all, pod)
		}
	}
	return all
}

// end removes a pod whose containers have ended.
func (k *Kubelet) end(ctx context.Context, pod *corev1.Pod) {
	must(client.IgnoreNotFound(k.Cluster.Admin.Delete(ctx, pod,
		&client.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0), Preconditions: &metav1.Preconditions{UID: &pod.UID}})))
}

// carrier does the next thing for a carrier; more: there will be another without an event.
func (k *Kubelet) carrier(ctx context.Context, pod *corev1.Pod) (did, more bool) {
	switch {
	case pod.DeletionTimestamp != nil:
		k.end(ctx, pod)
		return true, false
	case k.delivered[pod.UID]:
		return false, false
	case k.Clock.Now().Before(k.pullless):
		return k.cannotPull(ctx, pod), true
	}
	if k.delivered == nil {
		k.delivered = map[types.UID]bool{}
	}
	k.delivered[pod.UID] = true
	must(k.deliver(pod))
	pod.Status.Phase, pod.Status.ContainerStatuses = corev1.PodRunning, nil
	must(k.Cluster.Admin.Status().Update(ctx, pod))
	return true, false
}

// cannotPull says of a pod that its image cannot be pulled; false: that is said already.
func (k *Kubelet) cannotPull(ctx context.Context, pod *corev1.Pod) bool {
	if len(pod.Status.ContainerStatuses) > 0 {
		return false
	}
	pod.Status.Phase = corev1.PodPending
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: pod.Spec.Containers[0].Name, State: corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "the simulation's registry is away"}}}}
	must(k.Cluster.Admin.Status().Update(ctx, pod))
	return true
}

// Evict has another delete one of the node's pods: the first of those that are device plugins', or
// of the others.
func (k *Kubelet) Evict(ctx context.Context, plugin bool) {
	for _, pod := range k.Pods() {
		if IsPlugin(pod) == plugin {
			must(client.IgnoreNotFound(k.Cluster.Admin.Delete(ctx, pod.DeepCopy())))
			return
		}
	}
}

// Carries is the image of a carrier; empty: the pod is none.
func Carries(pod *corev1.Pod) string {
	if !strings.HasPrefix(pod.Name, v1beta1.CarrierPrefix) {
		return ""
	}
	for _, v := range pod.Spec.Volumes {
		if v.Image != nil {
			return v.Image.Reference
		}
	}
	return ""
}

// deliver writes what a carrier puts out.
func (k *Kubelet) deliver(pod *corev1.Pod) error {
	image, release := Carries(pod), k.Kernel.Release()
	for _, c := range pod.Spec.Containers {
		if i := slices.Index(c.Args, "--kernel"); i >= 0 {
			release = c.Args[i+1]
		}
	}
	content := images.Content(image, release)
	file := path.Join("lib/modules", release, "extra", images.Module(image)+".ko")
	sum := sha256.Sum256(content)
	list, err := json.Marshal(manifest.Manifest{Schema: manifest.Schema, Kernel: release,
		Files: []manifest.Entry{{Path: file, Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:])}}})
	if err != nil {
		return err
	}
	out, err := store.OutputDir(pod.UID)
	if err != nil {
		return err
	}
	for _, f := range []struct {
		name string
		data []byte
	}{{path.Join(manifest.TreeDir, file), content}, {manifest.File, list}} {
		full := filepath.Join(k.Dir, out, f.name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(full), 0o755), os.WriteFile(full, f.data, 0o644)); err != nil {
			return err
		}
	}
	return nil
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
