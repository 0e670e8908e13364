// SPDX-License-Identifier: Apache-2.0

package hub_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	workv1 "open-cluster-management.io/api/work/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	hubv1beta1 "github.com/drover-project/drover/api/hub/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/hub"
	"github.com/drover-project/drover/internal/operator"
	"github.com/drover-project/drover/internal/testkit/env"
)

// TestTwoClustersGetTheirModules: one image for each kernel, a Module without a build when they are
// there, and what the clusters say.
func TestTwoClustersGetTheirModules(t *testing.T) {
	w := newWorld(t)
	a, b := w.cluster("a", kernel), w.cluster("b", another, kernel)
	m := w.module()
	w.pass(m)
	if images := w.images(); len(images) != 2 {
		t.Fatalf("%d images for two kernels", len(images))
	}
	if w.work(a) != nil || w.work(b) != nil {
		t.Fatal("a Module left before its images were there")
	}
	w.ready(m, metav1.ConditionFalse, v1beta1.ReasonBuilding, "0 of 2 clusters")
	w.make()
	w.pass(m)
	for cluster, kernels := range map[string]int{a: 1, b: 2} {
		work := w.work(cluster)
		if work == nil {
			t.Fatalf("cluster %s has nothing", cluster)
		}
		text := string(work.Spec.Workload.Manifests[0].Raw)
		if n := strings.Count(text, `"literal"`); n != kernels {
			t.Errorf("cluster %s has %d kernels: %s", cluster, n, text)
		}
		if strings.Contains(text, `"build"`) || strings.Contains(text, w.name+`"}`) && strings.Contains(text, "dockerfileConfigMap") {
			t.Errorf("a build leaves the hub: %s", text)
		}
	}
	w.answer(a, metav1.ConditionTrue, v1beta1.ReasonReady, "")
	w.answer(b, metav1.ConditionFalse, v1beta1.ReasonUnknownSymbol, "node-7: no symbol")
	w.pass(m)
	w.ready(m, metav1.ConditionFalse, v1beta1.ReasonUnknownSymbol, "cluster "+b+": node-7")
	if s := m.Status; s.NumberDesired != 2 || s.NumberApplied != 2 || s.NumberReady != 1 || s.ModuleLoader.AvailableNumber != 4 ||
		len(s.Clusters) != 2 || s.Clusters[0].Name != b ||
		s.Clusters[0].Ready || s.Clusters[0].Message == "" || !s.Clusters[1].Ready || s.Clusters[1].AvailableNumber != 2 {
		text, _ := json.Marshal(s)
		t.Errorf("status %s", text)
	}
	w.answer(b, metav1.ConditionTrue, v1beta1.ReasonReady, "")
	w.pass(m)
	w.ready(m, metav1.ConditionTrue, v1beta1.ReasonReady, "2 clusters")
}

// TestASecondPassWritesNothing, and neither does one of another process: not even what changes
// nothing.
func TestASecondPassWritesNothing(t *testing.T) {
	w := newWorld(t)
	a := w.cluster("a", kernel)
	m := w.module()
	w.pass(m)
	w.make()
	w.pass(m)
	w.answer(a, metav1.ConditionTrue, v1beta1.ReasonReady, "")
	w.pass(m)
	for _, process := range []string{"the same", "another"} {
		mark := env.Get(t).Mark(t)
		w.pass(m)
		for _, r := range env.Get(t).Requests(t, mark) {
			if r.IsWrite() && strings.HasSuffix(r.User.Username, ":"+operator.HubName) {
				t.Errorf("%s process: %s %s %s/%s", process, r.Verb, r.Resource(), r.ObjectRef.Namespace, r.ObjectRef.Name)
			}
		}
		w.begin()
	}
}

// TestADeselectedClusterLosesItsModule, and one that comes back gets it again.
func TestADeselectedClusterLosesItsModule(t *testing.T) {
	w := newWorld(t)
	a, b := w.cluster("a", kernel), w.cluster("b", kernel)
	m := w.module()
	w.pass(m)
	w.make()
	w.pass(m)
	c := &clusterv1.ManagedCluster{}
	w.must(w.admin.Get(t.Context(), client.ObjectKey{Name: b}, c))
	c.Labels["world"] = "another"
	w.must(w.admin.Update(t.Context(), c))
	w.pass(m)
	if w.work(b) != nil || w.work(a) == nil {
		t.Error("the wrong cluster lost its Module, or none")
	}
	if m.Status.NumberDesired != 1 {
		t.Errorf("%d clusters", m.Status.NumberDesired)
	}
}

// TestAWorkOfSomebodyElseStays: a ManifestWork that only has the name is neither written nor
// deleted, and the ManagedClusterModule says so.
func TestAWorkOfSomebodyElseStays(t *testing.T) {
	w := newWorld(t)
	a, b := w.cluster("a", kernel), w.cluster("b", kernel)
	theirs := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: a, Name: w.name, Annotations: map[string]string{"by": "others"}}}
	w.must(w.admin.Create(t.Context(), theirs))
	m := w.module()
	w.pass(m)
	w.make()
	if err := w.fails(m); err == nil { // and is tried again
		t.Error("nothing tells of it")
	}
	if got := w.work(a); got == nil || got.ResourceVersion != theirs.ResourceVersion {
		t.Errorf("it is written: %+v", got)
	}
	if w.work(b) == nil {
		t.Error("another cluster gets nothing")
	}
	w.ready(m, metav1.ConditionFalse, v1beta1.ReasonDeliveryRefused, "cluster "+a+": ManifestWork "+a+"/"+w.name+": one of this name exists")

	w.must(w.admin.Delete(t.Context(), m))
	w.pass(m)
	w.pass(m)
	if got := w.work(a); got == nil || got.DeletionTimestamp != nil {
		t.Error("it is deleted")
	}
}

// TestADeletedOneLeavesNothing: works and images go, then it does.
func TestADeletedOneLeavesNothing(t *testing.T) {
	w := newWorld(t)
	a := w.cluster("a", kernel)
	m := w.module()
	w.pass(m)
	w.make()
	w.pass(m)
	w.must(w.admin.Delete(t.Context(), m))
	w.pass(m)
	w.pass(m)
	if w.work(a) != nil || len(w.images()) > 0 {
		t.Errorf("what is left: %v, %d images", w.work(a), len(w.images()))
	}
	if err := w.admin.Get(t.Context(), client.ObjectKeyFromObject(m), &hubv1beta1.ManagedClusterModule{}); client.IgnoreNotFound(err) != nil ||
		err == nil {
		t.Errorf("the ManagedClusterModule: %v", err)
	}
}

// TestWhatOneClusterRefusesIsToldOfIt: neither an image that cannot be asked for nor a cluster that
// takes nothing keeps others from their Modules.
func TestWhatOneClusterRefusesIsToldOfIt(t *testing.T) {
	w := newWorld(t)
	a := w.cluster("a", kernel)
	bare := w.name + "-bare" // it has no namespace
	c := &clusterv1.ManagedCluster{
		ObjectMeta: metav1.ObjectMeta{Name: bare, Labels: map[string]string{"world": w.name}},
		Spec:       clusterv1.ManagedClusterSpec{HubAcceptsClient: true},
	}
	w.must(w.admin.Create(t.Context(), c))
	c.Status.ClusterClaims = []clusterv1.ManagedClusterClaim{{Name: hub.KernelsClaim, Value: kernel}}
	c.Status.Conditions = []metav1.Condition{}
	w.must(w.admin.Status().Update(t.Context(), c))
	m := w.prebuilt()
	if err := w.fails(m); !strings.Contains(err.Error(), "send to cluster "+bare) {
		t.Errorf("it failed with %v", err)
	}
	if w.work(a) == nil {
		t.Error("the other cluster got nothing")
	}
	w.ready(m, metav1.ConditionFalse, v1beta1.ReasonDeliveryRefused, "cluster "+bare+": ")
	if m.Status.NumberDegraded != 1 || !strings.Contains(m.Status.Clusters[0].Message, `namespaces "`+bare+`" not found`) {
		t.Errorf("status %+v", m.Status)
	}
}

// TestAMappingThatCannotBeReadIsTold, as that of a Module is.
func TestAMappingThatCannotBeReadIsTold(t *testing.T) {
	w := newWorld(t)
	a := w.cluster("a", kernel)
	m := w.module(func(m *hubv1beta1.ManagedClusterModule) {
		m.Spec.ModuleSpec.ModuleLoader.Container.KernelMappings[0].ContainerImage = "r.example/nic:${KERNEL_VERSON}"
	})
	w.pass(m)
	w.ready(m, metav1.ConditionFalse, v1beta1.ReasonNoKernelMapping, "cluster "+a+
		": spec.moduleLoader.container.kernelMappings[0].containerImage: unknown variable KERNEL_VERSON")
}

// TestOneClusterCannotHaveImagesMadeWithoutEnd: what it names for its kernels is a build each.
func TestOneClusterCannotHaveImagesMadeWithoutEnd(t *testing.T) {
	w := newWorld(t)
	a, b := w.cluster("a"), w.cluster("b", kernel)
	m := w.module()
	names := map[string]bool{}
	for round := range 3 {
		var kernels []string
		for i := range hub.MaxPlatforms / 2 {
			kernels = append(kernels, fmt.Sprintf("6.%d.%d", round, i))
		}
		w.claims(a, kernels...)
		w.pass(m)
		for _, image := range w.images() {
			names[image.Name] = true
		}
	}
	if most := hub.MaxPlatforms + 1; len(names) != most { // and one for b
		t.Errorf("%d images were made of, want %d", len(names), most)
	}
	w.make()
	w.pass(m)
	if w.work(b) == nil {
		t.Error("another cluster waits for it")
	}
	if work := w.work(a); work != nil {
		t.Errorf("it was sent a Module before its images were there: %s", work.Spec.Workload.Manifests[0].Raw)
	}
}

// TestUpstreamsFieldsApply: an object as upstream's users have it is taken as it is, with all
// fields known.
func TestUpstreamsFieldsApply(t *testing.T) {
	w := newWorld(t)
	const text = `
apiVersion: hub.kmm.sigs.x-k8s.io/v1beta1
kind: ManagedClusterModule
metadata: {name: NAME}
spec:
  spokeNamespace: kmm-tests
  selector: {wants-my-driver: "true"}
  moduleSpec:
    imageRepoSecret: {name: pull}
    selector: {node-role.kubernetes.io/worker: ""}
    devicePlugin:
      container: {image: registry.example.com/plugin:1}
    moduleLoader:
      serviceAccountName: loader
      container:
        imagePullPolicy: Always
        modprobe: {moduleName: my_driver, dirName: /opt, firmwarePath: /firmware, parameters: [debug=1]}
        kernelMappings:
        - regexp: '^.+$'
          containerImage: registry.example.com/my-driver:${KERNEL_FULL_VERSION}
          build:
            dockerfileConfigMap: {name: dockerfile}
            secrets: [{name: build}]
          sign:
            certSecret: {name: cert}
            keySecret: {name: key}
            filesToSign: ["/opt/lib/modules/${KERNEL_FULL_VERSION}/my_driver.ko"]
          registryTLS: {insecure: true}
`
	m := &unstructured.Unstructured{}
	w.must(yaml.Unmarshal([]byte(strings.Replace(text, "NAME", w.name, 1)), m))
	w.must(client.WithFieldValidation(w.admin, metav1.FieldValidationStrict).Create(t.Context(), m))
	t.Cleanup(func() { w.must(w.admin.Delete(context.Background(), m)) })
	m.SetName(strings.Repeat("a", 64))
	m.SetResourceVersion("")
	if err := w.admin.Create(t.Context(), m, client.DryRunAll); !apierrors.IsInvalid(err) ||
		!strings.Contains(err.Error(), "no more than 63 bytes") {
		t.Errorf("a name that can be no label's value: %v", err)
	}
	m.SetName(w.name)
}
