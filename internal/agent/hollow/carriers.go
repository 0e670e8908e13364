// SPDX-License-Identifier: Apache-2.0

package hollow

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/export"
	"github.com/drover-project/drover/internal/agent/store"
)

const (
	// carrierWorkers is how many carriers are worked on at a time, on all nodes together.
	carrierWorkers = 16
	// pullBackOff is the time between a failed pull and the status that says so.
	pullBackOff = 2 * time.Second
	// killing is how long containers take to end. The API server removes a pod without a grace period
	// meanwhile, and a kubelet has nothing to say any more.
	killing = time.Second
)

// carriers plays the kubelets' part for carrier pods, with one watch for all nodes. Other pods are
// somebody else's.
type carriers struct {
	api    *api
	nodes  map[string]*node
	images *images
	clock  clock.PassiveClock
	pods   cache.Store
	watch  cache.Controller
	queue  workqueue.TypedRateLimitingInterface[string]

	mu      sync.Mutex
	known   map[string]*carrier // by the pod's key
	refused atomic.Int64        // pulls
}

// carrier is one carrier pod. The queue never hands one key to two workers, so its fields need no
// lock.
type carrier struct {
	uid    types.UID
	state  pullState
	failed time.Time // when the pull failed
	dir    string    // the pod's directory below the kubelet's; empty until there is one
}

// pullState is how far a pod has come; the watch may lag behind it.
type pullState int

const (
	pulling pullState = iota
	pullFailed
	backingOff
	exported
	running
	terminating
	finalised
)

func newCarriers(a *api, nodes map[string]*node, pulled *images, now clock.PassiveClock) *carriers {
	c := &carriers{
		api: a, nodes: nodes, images: pulled, clock: now, known: map[string]*carrier{},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]()),
	}
	enqueue := func(o any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(o); err == nil {
			c.queue.Add(key)
		}
	}
	c.pods, c.watch = cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: a.watchPods(v1beta1.CarrierLabel), ObjectType: &corev1.Pod{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc: enqueue, UpdateFunc: func(_, o any) { enqueue(o) }, DeleteFunc: enqueue,
		},
		Transform: func(o any) (any, error) {
			if pod, ok := o.(*corev1.Pod); ok {
				pod.ManagedFields = nil
			}
			return o, nil
		},
	})
	return c
}

// run works until ctx ends.
func (c *carriers) run(ctx context.Context) error {
	var all sync.WaitGroup
	all.Go(func() { c.watch.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), c.watch.HasSynced) {
		all.Wait()
		return nil // ended before it began
	}
	for range carrierWorkers {
		all.Go(func() { wait.UntilWithContext(ctx, c.work, time.Second) })
	}
	<-ctx.Done()
	c.queue.ShutDown()
	all.Wait()
	return nil
}

func (c *carriers) work(ctx context.Context) {
	for {
		key, end := c.queue.Get()
		if end {
			return
		}
		if err := c.sync(ctx, key); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Carrier pod", "pod", key)
			c.queue.AddRateLimited(key)
		} else {
			c.queue.Forget(key)
		}
		c.queue.Done(key)
	}
}

// revive looks again at the carriers of a node that has come back.
func (c *carriers) revive(name string) {
	c.again(func(pod *corev1.Pod) bool { return pod.Spec.NodeName == name })
}

// again looks at carriers without a change in the API.
func (c *carriers) again(which func(*corev1.Pod) bool) {
	for _, o := range c.pods.List() {
		if pod, ok := o.(*corev1.Pod); ok && which(pod) {
			c.queue.Add(pod.Namespace + "/" + pod.Name)
		}
	}
}

// serve says which images exist from now on. Pulls that failed are tried again at once: a registry
// that is back.
func (c *carriers) serve(pattern string) error {
	if err := c.images.serve(pattern); err != nil {
		return err
	}
	c.again(func(*corev1.Pod) bool { return true })
	return nil
}

// cook makes other images, see images.cook, and tries pulls that failed again at once.
func (c *carriers) cook(r recipe) {
	c.images.cook(r)
	c.again(func(*corev1.Pod) bool { return true })
}

func (c *carriers) sync(ctx context.Context, key string) error {
	o, exists, err := c.pods.GetByKey(key)
	if err != nil {
		return fmt.Errorf("find pod: %w", err)
	}
	if !exists {
		return c.forget(key)
	}
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return fmt.Errorf("watch delivered a %T", o)
	}
	n := c.nodes[pod.Spec.NodeName]
	if n == nil || n.vanished() {
		return nil
	}
	if pod.DeletionTimestamp != nil {
		return c.finalise(ctx, key, pod)
	}
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return nil
	}
	now, err := c.enter(key, pod.UID)
	if err != nil {
		return err
	}
	return ignoreGone(c.advance(ctx, now, n, pod))
}

// finalise ends a terminating pod, once.
func (c *carriers) finalise(ctx context.Context, key string, pod *corev1.Pod) error {
	now, err := c.enter(key, pod.UID)
	if err != nil || now.state == finalised {
		return err
	}
	if grace := pod.DeletionGracePeriodSeconds; grace != nil && *grace == 0 && now.state != terminating {
		now.state = terminating
		c.queue.AddAfter(key, killing)
		return nil
	}
	if err := errors.Join(now.removeDir(), c.api.finalisePod(ctx, pod)); err != nil {
		return err
	}
	now.state = finalised
	return nil
}

// ignoreGone drops errors about a pod that has been deleted or replaced meanwhile: the watch will
// say so.
func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// advance pulls the image, runs the export and reports.
func (c *carriers) advance(ctx context.Context, now *carrier, n *node, pod *corev1.Pod) error {
	switch {
	case now.state >= running:
		return nil
	case now.state < exported:
		if image, why := c.images.refusal(reference(pod), pod.Spec.Containers[0].Image); why != "" {
			return c.fail(ctx, now, pod, image, why)
		}
		if err := c.export(ctx, now, n, pod); err != nil {
			return err
		}
		now.state = exported // the API server may be away; the volume is written all the same
	}
	if pod.Status.Phase != corev1.PodRunning { // else this process was started again
		if err := c.api.patchPodStatus(ctx, pod, runningStatus(pod, metav1.NewTime(c.clock.Now()))); err != nil {
			return err
		}
	}
	now.state = running
	return nil
}

// fail reports a pull that failed, and a little later that the kubelet backs off. It is tried again
// when other images exist.
func (c *carriers) fail(ctx context.Context, now *carrier, pod *corev1.Pod, image, why string) error {
	reason, next := "ErrImagePull", pullFailed
	switch now.state {
	case backingOff:
		return nil
	case pullFailed:
		if c.clock.Since(now.failed) < pullBackOff {
			return nil // the watch shows our own write; the queue has the pod for later
		}
		reason, next = "ImagePullBackOff", backingOff
	}
	if err := c.api.patchPodStatus(ctx, pod, waitingStatus(pod, image, reason, why, metav1.NewTime(c.clock.Now()))); err != nil {
		return err
	}
	now.state = next
	if next == pullFailed {
		c.refused.Add(1)
		now.failed = c.clock.Now()
		c.queue.AddAfter(pod.Namespace+"/"+pod.Name, pullBackOff)
	}
	return nil
}

// parseExport reads a carrier's arguments, without the command's name.
func parseExport(args []string) (export.Options, error) {
	var o export.Options
	flags := pflag.NewFlagSet("export", pflag.ContinueOnError)
	o.AddFlags(flags)
	if err := flags.Parse(args); err != nil {
		return o, fmt.Errorf("parse arguments of export: %w", err)
	}
	return o, o.Validate()
}

// export runs the real export from the pulled image into the pod's output volume.
func (c *carriers) export(ctx context.Context, now *carrier, n *node, pod *corev1.Pod) error {
	if len(pod.Spec.Containers) == 0 || len(pod.Spec.Containers[0].Args) == 0 || pod.Spec.Containers[0].Args[0] != "export" {
		return errors.New("the pod does not run export")
	}
	o, err := parseExport(pod.Spec.Containers[0].Args[1:])
	if err != nil {
		return err
	}
	if o.From, err = c.images.pull(reference(pod), o); err != nil {
		return err
	}
	rel, err := store.OutputDir(pod.UID)
	if err != nil {
		return err
	}
	o.To = filepath.Join(n.podsDir(), rel)
	now.dir = filepath.Join(n.podsDir(), string(pod.UID))
	if err := os.MkdirAll(o.To, 0o755); err != nil {
		return fmt.Errorf("make volume: %w", err)
	}
	return export.Run(klog.NewContext(ctx, klog.FromContext(ctx).WithValues("node", n.name).V(1)), o)
}

// enter returns what is known about a pod; a predecessor of the same name is forgotten.
func (c *carriers) enter(key string, uid types.UID) (*carrier, error) {
	c.mu.Lock()
	now := c.known[key]
	c.mu.Unlock()
	if now != nil && now.uid == uid {
		return now, nil
	}
	if err := c.forget(key); err != nil {
		return nil, err
	}
	now = &carrier{uid: uid}
	c.mu.Lock()
	c.known[key] = now
	c.mu.Unlock()
	return now, nil
}

// forget removes a pod's directory.
func (c *carriers) forget(key string) error {
	c.mu.Lock()
	now := c.known[key]
	delete(c.known, key)
	c.mu.Unlock()
	if now == nil {
		return nil
	}
	return now.removeDir()
}

// removeDir removes what the kubelet keeps for a pod.
func (p *carrier) removeDir() error {
	if p.dir == "" {
		return nil
	}
	if err := os.RemoveAll(p.dir); err != nil {
		return fmt.Errorf("remove volumes: %w", err)
	}
	p.dir = ""
	return nil
}

// reference is the kernel module image: the image volume's, or the init container's where volumes
// are not used.
func reference(pod *corev1.Pod) string {
	for _, v := range pod.Spec.Volumes {
		if v.Image != nil {
			return v.Image.Reference
		}
	}
	for _, c := range pod.Spec.InitContainers {
		return c.Image
	}
	return ""
}
