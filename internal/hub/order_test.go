// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	hubv1beta1 "github.com/drover-project/drover/api/hub/v1beta1"
	"github.com/drover-project/drover/internal/shared/rollout"
)

func TestOrderOfClusters(t *testing.T) {
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	waves := []hubv1beta1.Wave{{Name: "canary", Selector: map[string]string{"tier": "canary"}},
		{Name: "east", Selector: map[string]string{"region": "east"}}}
	cluster := func(name, labels string, change func(*Cluster)) Cluster {
		c := Cluster{Name: name, Labels: map[string]string{}, Held: true}
		for _, label := range strings.Fields(labels) {
			key, value, _ := strings.Cut(label, "=")
			c.Labels[key] = value
		}
		if change != nil {
			change(&c)
		}
		return c
	}
	sent := func(c *Cluster) { c.Sent = true }
	done := func(c *Cluster) { c.Sent, c.Ready = true, true }
	away := func(c *Cluster) { c.Away = true }
	lost := func(c *Cluster) { c.Sent, c.Ready, c.Away = true, true, true }
	failed := func(c *Cluster) { c.Sent, c.Failed = true, "SymbolMismatch" }
	late := func(c *Cluster) { c.Held = false }
	unknown := func(c *Cluster) { c.Away, c.Unknown = true, true }

	for name, tc := range map[string]struct {
		given    *hubv1beta1.ClusterRollout
		clusters []Cluster
		send     string
		wave     string
		waiting  int
	}{
		"without a rollout all get it whose images are there": {
			clusters: []Cluster{cluster("a", "", nil), cluster("b", "", late), cluster("c", "", done)}, send: "a c",
		},
		"the canaries go first, also with their first Module": {
			given:    &hubv1beta1.ClusterRollout{Waves: waves},
			clusters: []Cluster{cluster("a", "tier=canary", nil), cluster("b", "region=east", nil), cluster("c", "", nil)}, send: "a",
			wave: "canary", waiting: 2,
		},
		"a wave waits until the one before is Ready": {
			given:    &hubv1beta1.ClusterRollout{Waves: waves},
			clusters: []Cluster{cluster("a", "tier=canary", sent), cluster("b", "region=east", nil)}, wave: "canary", waiting: 1,
		},
		"what a cluster has is not known: it may be in the middle of it": {
			given:    &hubv1beta1.ClusterRollout{MaxConcurrency: ptr.To(intstr.FromInt32(1))},
			clusters: []Cluster{cluster("a", "", unknown), cluster("b", "", nil), cluster("c", "", done)}, wave: "rest", waiting: 1,
		},
		"a place is left": {
			given:    &hubv1beta1.ClusterRollout{MaxConcurrency: ptr.To(intstr.FromInt32(2))},
			clusters: []Cluster{cluster("a", "", unknown), cluster("b", "", nil), cluster("c", "", nil)}, send: "b", wave: "rest", waiting: 1,
		},
		"the next wave": {
			given:    &hubv1beta1.ClusterRollout{Waves: waves},
			clusters: []Cluster{cluster("a", "tier=canary", done), cluster("b", "region=east", nil), cluster("c", "", nil)}, send: "b", wave: "east",
			waiting: 1,
		},
		"what no wave selects comes last": {
			given:    &hubv1beta1.ClusterRollout{Waves: waves},
			clusters: []Cluster{cluster("a", "tier=canary", done), cluster("b", "region=east", done), cluster("c", "", nil)}, send: "c",
			wave: "rest",
		},
		"all have it": {
			given: &hubv1beta1.ClusterRollout{Waves: waves}, clusters: []Cluster{cluster("a", "tier=canary", done), cluster("c", "", done)},
		},
		"a cluster belongs to the first wave that selects it": {
			given:    &hubv1beta1.ClusterRollout{Waves: waves},
			clusters: []Cluster{cluster("a", "tier=canary region=east", nil), cluster("b", "region=east", nil)}, send: "a", wave: "canary",
			waiting: 1,
		},
		"a failure stops its wave, and so all that follow": {
			given:    &hubv1beta1.ClusterRollout{Waves: waves},
			clusters: []Cluster{cluster("a", "tier=canary", failed), cluster("a2", "tier=canary", nil), cluster("b", "region=east", nil)},
			wave:     "canary", waiting: 2,
		},
		"a failure that does not stop leaves its wave undone all the same": {
			given:    &hubv1beta1.ClusterRollout{Waves: waves, PauseOnFailure: ptr.To(false)},
			clusters: []Cluster{cluster("a", "tier=canary", failed), cluster("a2", "tier=canary", nil), cluster("b", "region=east", nil)},
			send:     "a2", wave: "canary", waiting: 1,
		},
		"paused": {
			given:    &hubv1beta1.ClusterRollout{Paused: true},
			clusters: []Cluster{cluster("a", "", nil)}, wave: "rest", waiting: 1,
		},
		"so many at a time": {
			given:    &hubv1beta1.ClusterRollout{MaxConcurrency: ptr.To(intstr.FromInt32(2))},
			clusters: []Cluster{cluster("a", "", sent), cluster("b", "", nil), cluster("c", "", nil)}, send: "b", wave: "rest", waiting: 1,
		},
		"one that was Ready a minute ago soaks, and keeps its place": {
			given:    &hubv1beta1.ClusterRollout{MaxConcurrency: ptr.To(intstr.FromInt32(1)), Soak: &metav1.Duration{Duration: time.Hour}},
			clusters: []Cluster{cluster("a", "", done), cluster("b", "", nil)}, wave: "rest", waiting: 1,
		},
		"one that is away waits, and takes nobody's place": {
			given:    &hubv1beta1.ClusterRollout{MaxConcurrency: ptr.To(intstr.FromInt32(1))},
			clusters: []Cluster{cluster("a", "", away), cluster("b", "", nil)}, send: "b", wave: "rest", waiting: 1,
		},
		"and neither does one that was Ready": {
			given:    &hubv1beta1.ClusterRollout{MaxConcurrency: ptr.To(intstr.FromInt32(1))},
			clusters: []Cluster{cluster("a", "", lost), cluster("b", "", nil), cluster("c", "", nil)}, send: "b", wave: "rest", waiting: 1,
		},
		"a wave waits for one that is away": {
			given:    &hubv1beta1.ClusterRollout{Waves: waves},
			clusters: []Cluster{cluster("a", "tier=canary", lost), cluster("b", "region=east", nil)}, wave: "canary", waiting: 1,
		},
		"what has no image yet waits, and keeps nobody else": {
			given:    &hubv1beta1.ClusterRollout{},
			clusters: []Cluster{cluster("a", "", late), cluster("b", "", nil)}, send: "b", wave: "rest", waiting: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := OrderOf(&hubv1beta1.ManagedClusterModule{Spec: hubv1beta1.ManagedClusterModuleSpec{Rollout: tc.given}}, tc.clusters,
				&rollout.Sightings{}, now)
			var send []string
			for _, name := range slices.Sorted(maps.Keys(o.Send)) {
				if i := slices.IndexFunc(tc.clusters, func(c Cluster) bool { return c.Name == name }); !tc.clusters[i].Sent || tc.given == nil {
					send = append(send, name)
				}
			}
			if got := strings.Join(send, " "); got != tc.send || o.Wave != tc.wave || o.Waiting != tc.waiting {
				t.Errorf("sent to %q in wave %q, %d wait; want %q, %q, %d", got, o.Wave, o.Waiting, tc.send, tc.wave, tc.waiting)
			}
		})
	}
}
