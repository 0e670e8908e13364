// SPDX-License-Identifier: Apache-2.0

package lolcow_test

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	api "github.com/drover-project/drover/api/lolcow/v1alpha1"
	"github.com/drover-project/drover/kit"
)

// TestPortFollows: whatever is applied again, restarted or changed, it stays the same Service, and
// nothing is ever "already allocated".
func TestPortFollows(t *testing.T) {
	s := newScene(t)
	mark := s.env.Mark(t)
	stop := s.start()
	s.apply(nil)
	s.awaitReason("lolcow-sample", "!"+api.ReasonRollingOut)
	uid := s.service("backend-service").UID
	port := func(want int32) func() bool {
		return func() bool {
			return s.service("backend-service").Spec.Ports[0].NodePort == want && s.cow("lolcow-sample").Status.NodePort == want
		}
	}
	for i := range int32(10) {
		if i%4 == 3 {
			stop()
			stop = s.start()
		}
		want := 30685 + i/2 // each twice
		s.apply(func(o *unstructured.Unstructured) {
			s.must(unstructured.SetNestedField(o.Object, int64(want), "spec", "port"))
		})
		s.await(fmt.Sprintf("port %d", want), port(want))
	}
	s.change("lolcow-sample", func(spec *api.LolcowSpec) { spec.Port = 0 })
	s.awaitReason("lolcow-sample", "!"+api.ReasonRollingOut)
	s.await("the port to stay", port(30689))
	s.rollOut("lolcow-sample")
	s.awaitReason("lolcow-sample", kit.ReasonReconciled)
	s.quiet("lolcow-sample") // what the API server has chosen is not compared with 0
	if now := s.service("backend-service").UID; now != uid {
		t.Error("the Service was made again")
	}
	for _, write := range s.writes(mark) {
		if strings.Contains(write, "services 4") || strings.HasPrefix(write, "delete") {
			t.Errorf("write: %s", write)
		}
	}
}

// TestPortConflict: a port that another Service has is a condition, with what the API server says,
// one event, and no hot loop; the other Service stays.
func TestPortConflict(t *testing.T) {
	s := newScene(t)
	foreign := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "foreign"}, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Port: 80, NodePort: 31999}},
	}}
	s.must(s.admin.Create(t.Context(), foreign))
	mark := s.env.Mark(t)
	s.start()
	begin := time.Now()
	s.create("cow", api.LolcowSpec{Port: 31999})
	s.awaitReason("cow", "!"+api.ReasonPortConflict)
	l := s.cow("cow")
	ready := meta.FindStatusCondition(l.Status.Conditions, kit.ConditionReady)
	if !strings.Contains(ready.Message, "provided port is already allocated") || !strings.Contains(ready.Message, "choose another spec.port") {
		t.Errorf("the condition says %q", ready.Message)
	}
	if !meta.IsStatusConditionTrue(l.Status.Conditions, kit.ConditionErrored) {
		t.Error("Errored is not True")
	}
	s.await("its event", func() bool { return slices.Contains(s.events("cow"), "Warning "+api.ReasonPortConflict) })
	// A whole other Lolcow comes to life, during which a loop would have gone around often.
	s.ready("other", api.LolcowSpec{})
	tries := 0
	for _, write := range s.writes(mark) {
		if write == "patch services 422" {
			tries++
		}
	}
	// One for each pass that something that is watched has asked for, the Deployment's creation and
	// the status; and those after 1, 2, 4 seconds and so on.
	most := 4 + bits.Len(uint(time.Since(begin).Seconds()))
	if tries == 0 || tries > most {
		t.Errorf("%d tries, at most %d are due", tries, most)
	}
	if now := s.service("foreign"); now == nil || now.ResourceVersion != foreign.ResourceVersion {
		t.Error("the other Service was touched")
	}
	if events := s.events("cow"); len(events) != 1 {
		t.Errorf("events: %q", events)
	}
	s.change("cow", func(spec *api.LolcowSpec) { spec.Port = 31998 })
	s.awaitReason("cow", "!"+api.ReasonRollingOut)
}

// TestPortIsGivenBack: a port that its Service gives back is taken soon. The API server frees a
// port after it tells of the deletion, so this is also how a Service that somebody deletes by hand
// comes back.
func TestPortIsGivenBack(t *testing.T) {
	s := newScene(t)
	foreign := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "foreign"}, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Port: 80, NodePort: 31997}},
	}}
	s.must(s.admin.Create(t.Context(), foreign))
	s.start()
	s.create("cow", api.LolcowSpec{Port: 31997})
	s.awaitReason("cow", "!"+api.ReasonPortConflict)
	refused := time.Now()
	s.must(s.admin.Delete(t.Context(), foreign))
	freed := time.Now()
	s.awaitReason("cow", "!"+api.ReasonRollingOut)
	if took, most := time.Since(freed), freed.Sub(refused)+30*time.Second; took > most {
		t.Errorf("the port was taken %s after it was given back, want at most %s", took, most)
	}
}

// TestServiceComesBack: a Service that somebody deletes by hand is made again, and one that is
// renamed keeps its port.
func TestServiceComesBack(t *testing.T) {
	s := newScene(t)
	s.start()
	s.ready("cow", api.LolcowSpec{Port: 31500})
	first := s.service("cow")
	s.must(s.admin.Delete(t.Context(), first))
	s.await("the Service to come back", func() bool { now := s.service("cow"); return now != nil && now.UID != first.UID })
	if port := s.service("cow").Spec.Ports[0].NodePort; port != 31500 {
		t.Errorf("it has port %d", port)
	}
	s.awaitReason("cow", kit.ReasonReconciled)

	s.change("cow", func(spec *api.LolcowSpec) { spec.ServiceName = "backend-service" })
	s.await("the Service of the new name", func() bool {
		now := s.service("backend-service")
		return now != nil && now.Spec.Ports[0].NodePort == 31500 && s.service("cow") == nil
	})
	s.awaitReason("cow", kit.ReasonReconciled)
	if name := s.cow("cow").Status.ServiceName; name != "backend-service" {
		t.Errorf("status.serviceName is %q", name)
	}
	s.change("cow", func(spec *api.LolcowSpec) { spec.Port, spec.ServiceName = 0, "third" })
	s.await("the third", func() bool { return s.service("third") != nil && s.service("backend-service") == nil })
}
