// SPDX-License-Identifier: Apache-2.0

package status

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"github.com/drover-project/drover/internal/cli/cluster"
	"github.com/drover-project/drover/internal/cli/paint"
)

func TestTables(t *testing.T) {
	fleet := Fleet{Modules: []Row{
		{Namespace: "drivers", Name: "nic", State: failed, Loaded: 7, Desired: 10, Failing: ptr.To(2), Reason: "SignatureRejected", Age: "3h",
			Message: "a\nb"},
		{Namespace: "drivers", Name: "zfs", State: waiting, Loaded: 1, Desired: 10, Failing: ptr.To(0), Reason: "Loading", Age: "5s",
			Plugin: "1/10"},
		{Namespace: "shop", Name: "gpu", State: ready, Loaded: 3, Desired: 3, Failing: ptr.To(0), Reason: "Ready", Age: "9d"},
	}}
	well := Fleet{Modules: fleet.Modules[2:]}
	blind := Fleet{Modules: []Row{{Namespace: "shop", Name: "gpu", State: ready, Loaded: 3, Desired: 3, Reason: "Ready", Age: "9d"}},
		Missing: []cluster.Missing{{Right: "get, list on nodes", Shows: "what", Role: cluster.ViewerRole}}}
	nodes := Nodes{Row: fleet.Modules[0], Nodes: []NodeRow{
		{Node: "hollow-7", State: failed, Reason: "SignatureRejected", Kernel: "6.1.0"},
		{Node: "hollow-1", State: ready, Reason: "Loaded", Kernel: "6.1.0", Build: "c0ffeec0ffeec0ffee", For: "3h", Image: "nic:1"},
	}}
	nodes.Next = "sign it"
	cases := map[string]struct {
		show func(*strings.Builder)
		want string
	}{
		"all": {func(b *strings.Builder) { fleet.render(b, paint.Painter{}, false) }, `
3 Modules: 1 failing, 1 on the way, 1 ready. Look at: drover explain nic -n drivers

NAMESPACE   NAME   STATE     LOADED   FAILING   REASON              AGE
drivers     nic    Failed    7/10     2         SignatureRejected   3h
drivers     zfs    Waiting   1/10     0         Loading             5s
shop        gpu    Ready     3/3      0         Ready               9d
`},
		"all, wide": {func(b *strings.Builder) { fleet.render(b, paint.Painter{}, true) }, `
3 Modules: 1 failing, 1 on the way, 1 ready. Look at: drover explain nic -n drivers

NAMESPACE   NAME   STATE     LOADED   FAILING   REASON              AGE   PLUGIN   MESSAGE
drivers     nic    Failed    7/10     2         SignatureRejected   3h    -        a b
drivers     zfs    Waiting   1/10     0         Loading             5s    1/10
shop        gpu    Ready     3/3      0         Ready               9d    -
`},
		"all well": {func(b *strings.Builder) { well.render(b, paint.Painter{}, false) }, `
All well: 1 Module ready.

NAMESPACE   NAME   STATE   LOADED   FAILING   REASON   AGE
shop        gpu    Ready   3/3      0         Ready    9d
`},
		"who may not see nodes": {func(b *strings.Builder) { blind.render(b, paint.Painter{}, false) }, `
All well: 1 Module ready.

NAMESPACE   NAME   STATE   LOADED   FAILING   REASON   AGE
shop        gpu    Ready   3/3      ?         Ready    9d

You may not see everything:
  get, list on nodes
    would show what; ClusterRole drover-module-viewer gives it
`},
		"none": {func(b *strings.Builder) { (&Fleet{}).render(b, paint.Painter{}, false) }, "\nThere are no Modules here.\n"},
		"one Module": {func(b *strings.Builder) { nodes.render(b, paint.Painter{}, true) }, `
Module drivers/nic: SignatureRejected, live on 7 of 10 nodes.
Next step: sign it
Why: drover explain nic -n drivers

NODE       STATE    REASON              KERNEL   BUILD          FOR   IMAGE
hollow-7   Failed   SignatureRejected   6.1.0    -              -     -
hollow-1   Ready    Loaded              6.1.0    c0ffeec0ffee   3h    nic:1
`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			tc.show(&b)
			if diff := cmp.Diff(strings.TrimPrefix(tc.want, "\n"), b.String()); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
	if fleet.state() != failed || well.state() != ready || (&Fleet{Modules: fleet.Modules[1:]}).state() != waiting {
		t.Error("the whole is not as the worst")
	}
}
