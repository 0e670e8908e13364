// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/operator"
	"github.com/drover-project/drover/internal/operator/controller/node"
	"github.com/drover-project/drover/internal/operator/metrics"
	"github.com/drover-project/drover/internal/shared/kube"
	"github.com/drover-project/drover/internal/testkit/env"
)

// TestMetricsAreServed scrapes an operator that has become the leader: a Module's series come and
// go with it.
func TestMetricsAreServed(t *testing.T) {
	e := env.Get(t)
	f := &fleet{T: t, env: e, admin: e.Admin(t), namespace: e.Namespace(t)}
	address, profiles := f.startServing()

	m := &v1beta1.Module{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "nic"},
		Spec: v1beta1.ModuleSpec{
			Selector: map[string]string{"test": f.namespace},
			ModuleLoader: &v1beta1.ModuleLoaderSpec{Container: v1beta1.ModuleLoaderContainerSpec{
				Modprobe:       v1beta1.ModprobeSpec{RawArgs: &v1beta1.ModprobeArgs{Load: []string{"nic"}, Unload: []string{"-r", "nic"}}},
				KernelMappings: []v1beta1.KernelMapping{{Regexp: "^6", ContainerImage: "registry.example/nic:1"}},
			}},
		},
	}
	f.must(f.admin.Create(t.Context(), m))
	f.node("covered", "6.1.0-37-amd64")
	f.node("uncovered", "5.4.0")
	own := fmt.Sprintf(`name="nic",namespace=%q`, f.namespace)
	f.scrape(address, "the Module's numbers", func(text string) bool {
		return has(text, "drover_module_nodes{"+own+`,state="loading"} 1`, "drover_module_nodes{"+own+`,state="uncovered"} 1`,
			"drover_module_nodes{"+own+`,state="ready"} 0`, "drover_module_failing_nodes{"+own+`,reason="NoKernelMapping"} 1`,
			"drover_module_uncovered_kernels{"+own+"} 1", `kmm_modprobe_raw_args{modprobeRawArgs="nic",`+own+"} 1", "kmm_module_num 1",
			"drover_load_duration_seconds_count 0")
	})
	if heap := f.get("http://" + profiles + "/debug/pprof/heap"); !strings.HasPrefix(heap, "\x1f\x8b") {
		t.Errorf("the heap's profile is %.80q", heap)
	}
	f.must(f.admin.Delete(t.Context(), m))
	f.scrape(address, "an end of the Module's numbers",
		func(text string) bool { return !strings.Contains(text, own) && has(text, "kmm_module_num 0") })

	f.await("an event that tells of the leader", func(ctx context.Context) (bool, error) {
		var list corev1.EventList
		err := f.admin.List(ctx, &list, client.InNamespace(env.OperatorNamespace))
		for i := range list.Items {
			if list.Items[i].Reason == "LeaderElection" {
				return true, err
			}
		}
		return false, err
	})
}

func has(text string, lines ...string) bool {
	for _, line := range lines {
		if !strings.Contains(text, "\n"+line+"\n") {
			return false
		}
	}
	return true
}

// freeAddress is one on which nothing listens.
func (f *fleet) freeAddress() string {
	f.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	f.must(err)
	f.must(l.Close())
	return l.Addr().String()
}

// startServing runs an operator with the part that reports, until the end of the test.
func (f *fleet) startServing() (address, profiles string) {
	f.Helper()
	address, profiles = f.freeAddress(), f.freeAddress()
	options := &operator.Options{
		Namespace: env.OperatorNamespace, MetricsAddress: address, ProbeAddress: "0", ProfileAddress: profiles, Controllers: []string{"*"},
		LeaderElect: true,
	}
	mgr, err := operator.NewManager(f.env.Config(f, env.Operator), options)
	f.must(err)
	board := metrics.NewBoard()
	f.must(ctrlmetrics.Registry.Register(board))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- operator.Run(ctx, mgr, options, map[string]operator.Controller{"node": node.New(mgr.GetClient(), node.Options{
			Recorder: kube.NewRecorder(mgr.GetEventRecorder(operator.Name)), Metrics: board,
		})})
	}()
	f.Cleanup(func() {
		cancel()
		ctrlmetrics.Registry.Unregister(board)
		if err := <-ended; err != nil {
			f.Error(err)
		}
	})
	return address, profiles
}

func (f *fleet) node(name, kernel string) {
	f.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: f.namespace + "-" + name, Labels: map[string]string{"test": f.namespace}}}
	f.must(f.admin.Create(f.Context(), n))
	n.Status.NodeInfo.KernelVersion = kernel
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	f.must(f.admin.Status().Update(f.Context(), n))
}

func (f *fleet) scrape(address, what string, good func(text string) bool) {
	f.Helper()
	last := ""
	f.Cleanup(func() {
		if f.Failed() {
			f.Logf("the last scrape for %s:\n%s", what, last)
		}
	})
	f.await(what, func(ctx context.Context) (bool, error) {
		content, err := get(ctx, "http://"+address+"/metrics")
		last = content
		return err == nil && good(content), nil // until it serves
	})
}

func (f *fleet) get(url string) string {
	f.Helper()
	content, err := get(f.Context(), url)
	f.must(err)
	return content
}

func get(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	return string(content), err
}
