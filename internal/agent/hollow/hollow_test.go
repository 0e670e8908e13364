// SPDX-License-Identifier: Apache-2.0

package hollow_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/hollow"
	"github.com/drover-project/drover/internal/shared/delivery"
	"github.com/drover-project/drover/internal/shared/reasons"
	"github.com/drover-project/drover/internal/testkit/env"
)

const (
	patience = 15 * time.Second
	kernelA  = "6.1.0-51-amd64"
	kernelB  = "6.12.1+deb12-amd64"
	image    = "registry.example/simple:6.1"
)

func TestMain(m *testing.M) { os.Exit(env.Main(m)) }

// running is a hollow fleet of a test.
type running struct {
	t     *testing.T
	env   *env.Env
	admin client.WithWatch
	dir   string
	debug string
	ns    string
}

func start(t *testing.T, o hollow.Options) *running {
	t.Helper()
	e := env.Get(t)
	config := e.AdminConfig()
	config.QPS = -1
	r := &running{t: t, env: e, admin: e.Client(t, config), dir: t.TempDir(), debug: freeAddress(t), ns: e.ModuleNamespace(t)}
	o.Prefix, o.Dir, o.DebugAddress = r.ns+"-", r.dir, r.debug
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := hollow.Run(ctx, e.AdminConfig(), o, in)
		ended <- errors.Join(err, in.Close())
	}()
	ready := make(chan bool, 1)
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if lines.Text() == fmt.Sprintf("HOLLOW READY nodes=%d", o.Nodes) {
				ready <- true
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("hollow nodes ended with %v", err)
		}
		if _, err := os.Stat(filepath.Join(r.dir, "images")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("images were left behind: %v", err)
		}
	})
	select {
	case <-ready:
	case err := <-ended:
		ended <- nil
		t.Fatalf("hollow nodes ended early: %v", err)
	case <-time.After(patience):
		t.Fatal("hollow nodes are not ready in time")
	}
	return r
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func (r *running) node(i int) string { return fmt.Sprintf("%s-%d", r.ns, i) }

// eventually waits until ask says nothing more is missing.
func (r *running) eventually(what string, ask func(ctx context.Context) (missing string, err error)) {
	r.t.Helper()
	var last string
	err := wait.PollUntilContextTimeout(r.t.Context(), 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		missing, err := ask(ctx)
		if err != nil && ctx.Err() != nil {
			return false, nil // the time is up; what was missing before says more
		}
		if err != nil {
			missing = err.Error()
		}
		last = missing
		return missing == "", nil
	})
	if err != nil {
		r.t.Fatalf("%s: %v: %s", what, err, last)
	}
}

type truth struct {
	Name     string
	Kernel   string
	BootID   string
	Vanished bool
	Loaded   []struct {
		Name    string
		BuildID string
		Params  map[string]string
	}
	Loads, Unloads, Refused, ByHand int
}

func (r *running) truth(ctx context.Context, node string) (truth, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.debug+"/nodes", nil)
	if err != nil {
		return truth{}, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return truth{}, err
	}
	defer func() { _ = answer.Body.Close() }()
	var all []truth
	if err := json.NewDecoder(answer.Body).Decode(&all); err != nil {
		return truth{}, err
	}
	for _, n := range all {
		if n.Name == node {
			return n, nil
		}
	}
	return truth{}, fmt.Errorf("no node %s", node)
}

func (r *running) do(verb string) {
	r.t.Helper()
	answer, err := http.Post("http://"+r.debug+verb, "", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(answer.Body)
		r.t.Fatalf("%s: %s: %s", verb, answer.Status, body)
	}
}

// deliver does what the operator does: a carrier, and an entry that names its UID.
func (r *running) deliver(node, kernel, image string, mode delivery.Mode) *corev1.Pod {
	r.t.Helper()
	ctx := r.t.Context()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: r.ns, Name: "default"}}
	if err := r.admin.Create(ctx, account); err != nil && !apierrors.IsAlreadyExists(err) {
		r.t.Fatal(err)
	}
	config := &v1beta1.ModuleConfig{
		KernelVersion: kernel, ContainerImage: image, ImagePullPolicy: corev1.PullIfNotPresent,
		Modprobe: v1beta1.ModprobeSpec{ModuleName: "drover-simple", DirName: "/opt"},
	}
	id := "0123456789abcdef"
	pod := delivery.Carrier(&delivery.Request{
		Module: &v1beta1.Module{ObjectMeta: metav1.ObjectMeta{Namespace: r.ns, Name: "simple", UID: "4c7d2d5e-0000-4000-8000-000000000001"}},
		Config: config, ID: id, Node: node, Mode: mode, AgentImage: env.AgentImage,
	})
	if err := r.env.Client(r.t, r.env.Config(r.t, env.Operator)).Create(ctx, pod); err != nil {
		r.t.Fatal(err)
	}
	object := &corev1.Node{}
	if err := r.admin.Get(ctx, client.ObjectKey{Name: node}, object); err != nil {
		r.t.Fatal(err)
	}
	entry := v1beta1.NodeModuleSpec{
		ModuleItem: v1beta1.ModuleItem{Namespace: r.ns, Name: "simple", ServiceAccountName: "default"},
		Config:     *config, Delivery: &v1beta1.Delivery{ID: id, CarrierUID: pod.UID},
	}
	err := r.admin.Create(ctx, &v1beta1.NodeModulesConfig{
		ObjectMeta: metav1.ObjectMeta{Name: node,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node, UID: object.UID}}},
		Spec: v1beta1.NodeModulesConfigSpec{Modules: []v1beta1.NodeModuleSpec{entry}},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return pod
}

// live waits until kernel and status agree that the module is in the kernel, and returns its build
// ID and boot.
func (r *running) live(node string) (buildID, boot string) {
	r.t.Helper()
	r.eventually("module on "+node, func(ctx context.Context) (string, error) {
		var config v1beta1.NodeModulesConfig
		if err := r.admin.Get(ctx, client.ObjectKey{Name: node}, &config); err != nil {
			return "", err
		}
		t, err := r.truth(ctx, node)
		if err != nil || len(t.Loaded) != 1 || t.Loaded[0].Name != "drover_simple" {
			return fmt.Sprintf("kernel has %+v, status is %+v", t, config.Status), err
		}
		if len(config.Status.Modules) != 1 || config.Status.Modules[0].BootID != t.BootID ||
			config.Status.Modules[0].Observed.BuildID != t.Loaded[0].BuildID {
			return fmt.Sprintf("status is %+v", config.Status), nil
		}
		buildID, boot = t.Loaded[0].BuildID, t.BootID
		return "", nil
	})
	return buildID, boot
}

func TestNodesAreWhatKubeletsRegister(t *testing.T) {
	r := start(t, hollow.Options{Nodes: 3, Kernels: []string{kernelA, kernelB}, Labels: map[string]string{"pool": "gpu"},
		OSImages: []string{"Ubuntu 24.04", ""}})
	for i, kernel := range []string{kernelA, kernelB, kernelA} {
		var node corev1.Node
		if err := r.admin.Get(t.Context(), client.ObjectKey{Name: r.node(i)}, &node); err != nil {
			t.Fatal(err)
		}
		known, err := r.truth(t.Context(), node.Name)
		if err != nil {
			t.Fatal(err)
		}
		info := node.Status.NodeInfo
		if info.KernelVersion != kernel || known.Kernel != kernel || info.BootID == "" || info.BootID != known.BootID {
			t.Errorf("%s: node says %s in boot %s, kernel says %s in boot %s, want %s", node.Name, info.KernelVersion, info.BootID, known.Kernel,
				known.BootID, kernel)
		}
		if want := []string{"Ubuntu 24.04", "Hollow Linux", "Ubuntu 24.04"}[i]; info.OSImage != want {
			t.Errorf("%s: it says that it runs %q, want %q", node.Name, info.OSImage, want)
		}
		if node.Labels[hollow.HollowLabel] != "true" || node.Labels[corev1.LabelHostname] != node.Name || node.Labels["pool"] != "gpu" {
			t.Errorf("%s: labels %v", node.Name, node.Labels)
		}
		if node.Status.Conditions[0].Type != corev1.NodeReady || node.Status.Conditions[0].Status != corev1.ConditionTrue {
			t.Errorf("%s: conditions %v", node.Name, node.Status.Conditions)
		}
		var lease coordinationv1.Lease
		if err := r.admin.Get(t.Context(), client.ObjectKey{Namespace: corev1.NamespaceNodeLease, Name: node.Name}, &lease); err != nil {
			t.Fatal(err)
		}
		if *lease.Spec.LeaseDurationSeconds != 40 || lease.OwnerReferences[0].UID != node.UID {
			t.Errorf("%s: lease %+v", node.Name, lease)
		}
	}
}

func TestDeliveryLoadRebootAndEnd(t *testing.T) {
	r := start(t, hollow.Options{Nodes: 2, Kernels: []string{kernelA, kernelB}})
	a := r.deliver(r.node(0), kernelA, image, delivery.ModeImageVolume)
	r.deliver(r.node(1), kernelB, image, delivery.ModeInitContainer)
	id, boot := r.live(r.node(0))
	if other, _ := r.live(r.node(1)); other == id {
		t.Errorf("two kernels have one build ID %s", id)
	}
	r.eventually("carrier runs", func(ctx context.Context) (string, error) {
		var pod corev1.Pod
		err := r.admin.Get(ctx, client.ObjectKeyFromObject(a), &pod)
		if pod.Status.Phase != corev1.PodRunning || len(pod.Status.ContainerStatuses) != 1 || !pod.Status.ContainerStatuses[0].Ready {
			return fmt.Sprintf("status %+v", pod.Status), err
		}
		return "", err
	})
	volume := filepath.Join(r.dir, "nodes", r.node(0), "pods", string(a.UID))
	if _, err := os.Stat(volume); err != nil {
		t.Error(err)
	}
	if err := r.admin.Delete(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	r.eventually("carrier is gone", func(ctx context.Context) (string, error) {
		err := r.admin.Get(ctx, client.ObjectKeyFromObject(a), &corev1.Pod{})
		if apierrors.IsNotFound(err) {
			return "", nil
		}
		return "it is there", err
	})
	// A kubelet learns of it afterwards.
	r.eventually("the carrier's volume is gone", func(context.Context) (string, error) {
		if _, err := os.Stat(volume); !errors.Is(err, fs.ErrNotExist) {
			return "it is there", err
		}
		return "", nil
	})

	r.do("/reboot?node=" + r.node(0))
	again, next := r.live(r.node(0))
	if again != id || next == boot {
		t.Errorf("after a reboot: build %s in boot %s, before: %s in %s", again, next, id, boot)
	}
	var node corev1.Node
	if err := r.admin.Get(t.Context(), client.ObjectKey{Name: r.node(0)}, &node); err != nil || node.Status.NodeInfo.BootID != next {
		t.Errorf("node says boot %s, want %s (%v)", node.Status.NodeInfo.BootID, next, err)
	}
	known, err := r.truth(t.Context(), r.node(0))
	if err != nil || known.Loads != 2 || known.Unloads != 0 || known.ByHand != 0 {
		t.Errorf("kernel saw %+v, %v; want 2 loads and nothing else", known, err)
	}
}

func TestImagesThatDoNotExist(t *testing.T) {
	r := start(t, hollow.Options{Nodes: 2, Kernels: []string{kernelA}, ImagePattern: `simple:6\.1$`})
	for i, mode := range []delivery.Mode{delivery.ModeImageVolume, delivery.ModeInitContainer} {
		pod := r.deliver(r.node(i), kernelA, "registry.example/wrong:1", mode)
		seen := map[string]bool{}
		r.eventually("pull fails", func(ctx context.Context) (string, error) {
			var now corev1.Pod
			err := r.admin.Get(ctx, client.ObjectKeyFromObject(pod), &now)
			for _, s := range append(now.Status.ContainerStatuses, now.Status.InitContainerStatuses...) {
				if w := s.State.Waiting; w != nil && strings.Contains(w.Message, "registry.example/wrong:1") {
					seen[w.Reason] = true
				}
			}
			if !seen["ErrImagePull"] || !seen["ImagePullBackOff"] {
				return fmt.Sprintf("seen %v", seen), err
			}
			return "", err
		})
		problem := problemOf(t, r, pod)
		if problem == nil || problem.Reason != "ImageNotFound" {
			t.Errorf("%s: the operator reads %+v", mode, problem)
		}
	}
}

func problemOf(t *testing.T, r *running, pod *corev1.Pod) *reasons.Problem {
	t.Helper()
	var now corev1.Pod
	if err := r.admin.Get(t.Context(), client.ObjectKeyFromObject(pod), &now); err != nil {
		t.Fatal(err)
	}
	return delivery.ProblemOf(&now)
}

func TestVanishAndReturn(t *testing.T) {
	r := start(t, hollow.Options{Nodes: 1, Kernels: []string{kernelA}})
	r.do("/vanish?node=" + r.node(0))
	pod := r.deliver(r.node(0), kernelA, image, delivery.ModeImageVolume)
	if err := r.admin.Delete(t.Context(), pod, client.GracePeriodSeconds(30)); err != nil {
		t.Fatal(err)
	}
	known, err := r.truth(t.Context(), r.node(0))
	if err != nil || !known.Vanished || known.Loads != 0 {
		t.Errorf("kernel of a node that vanished: %+v, %v", known, err)
	}
	if err := r.admin.Get(t.Context(), client.ObjectKeyFromObject(pod), &corev1.Pod{}); err != nil {
		t.Errorf("a kubelet that is away finalised a pod: %v", err)
	}
	r.do("/return?node=" + r.node(0))
	r.eventually("carrier is gone", func(ctx context.Context) (string, error) {
		err := r.admin.Get(ctx, client.ObjectKeyFromObject(pod), &corev1.Pod{})
		if apierrors.IsNotFound(err) {
			return "", nil
		}
		return "it is there", err
	})
	if now, err := r.truth(t.Context(), r.node(0)); err != nil || now.BootID == known.BootID || now.Vanished {
		t.Errorf("after its return: %+v, %v", now, err)
	}
}
