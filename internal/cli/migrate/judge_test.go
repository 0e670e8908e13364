// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"

	"github.com/drover-project/drover/internal/shared/definition"
)

func TestWhatIsInTheWay(t *testing.T) {
	operator := Deployment{Role: roleOperator, Namespace: "kmm", Name: "controller"}
	running := operator
	running.Replicas, running.Pods = 1, 1
	ending := operator
	ending.Pods = 1
	bundled := running
	bundled.Release = "gpu/amd"
	ours := func(change func(*Definition)) Found {
		d := Definition{Name: "modules.kmm.sigs.x-k8s.io", Ours: true, Served: []string{"v1beta1"}, Stored: []string{"v1beta1"}}
		change(&d)
		return Found{Definitions: []Definition{d}}
	}
	runs := func(d Deployment) Found { return Found{Deployments: []Deployment{d}} }
	release := func(r Release) Found { return Found{Releases: []Release{r}} }
	unread := Release{Name: "b", Records: []string{"s"}, Problem: "bad"}
	hook := func(served bool) Found { return Found{Webhooks: []Webhook{{"V", "w", "kmm/s", served}}} }
	cases := map[string]struct {
		given Found
		clear bool
		state State  // of the first thing
		then  string // is part of the answer, the next step, or what is said of the first thing
	}{
		"nothing":                   {Found{}, true, "", "There is nothing of KMM"},
		"a stopped operator":        {runs(operator), true, Fine, "stopped"},
		"a running operator":        {runs(running), false, Apply, "wants 1 pod, of which there are 1"},
		"an operator that ends":     {runs(ending), false, Apply, "wants 0 pods, of which there are 1"},
		"an operator that is part":  {runs(bundled), false, Apply, "`helm upgrade` of the release starts it again"},
		"OLM":                       {Found{OLM: []Managed{{"subscriptions", "a", "b"}}}, false, You, "kubectl delete subscriptions b -n a"},
		"a Lease of nobody":         {Found{Leases: []Lease{{"kmm", ""}}}, true, Fine, "no pod holds it"},
		"a Lease of a stranger":     {Found{Leases: []Lease{{"kmm", "p"}}}, false, You, "kubectl delete pod p -n kmm"},
		"a pod at work":             {Found{Working: []string{"a/b"}}, false, Apply, "KMM loads or unloads now, in 1 pod: a/b"},
		"a pod that was at work":    {Found{Ended: []string{"a/b"}}, false, Apply, "KMM has not collected 1 pod, which ended: a/b"},
		"a dead webhook":            {hook(false), false, Apply, "every write of a Module fails"},
		"a webhook":                 {hook(true), false, Apply, "judges Modules by KMM's rules"},
		"a definition as Drover's":  {ours(func(*Definition) {}), true, Fine, "has stored v1beta1"},
		"a conversion":              {ours(func(d *Definition) { d.Converts = true }), false, Apply, "conversion to None"},
		"a definition with owners":  {ours(func(d *Definition) { d.Owners = []string{"helm", "olm"} }), false, Apply, "belong to helm, olm"},
		"Helm may delete one":       {ours(func(d *Definition) { d.Release = "a/b" }), false, Apply, "has Helm keep it"},
		"Helm keeps it":             {ours(func(d *Definition) { d.Release, d.Kept = "a/b", true }), true, Fine, ""},
		"a definition of KMM alone": {Found{Definitions: []Definition{{Name: "x", Converts: true}}}, true, Later, "Drover does not use it"},
		"an uninstall deletes":      {release(Release{Namespace: "a", Name: "b", Deletes: []string{"x"}}), false, Apply, "would delete x"},
		"an uninstall keeps":        {release(Release{Namespace: "a", Name: "b"}), true, Fine, "keeps the definitions"},
		"a record of who knows":     {release(unread), false, You, "never run `helm uninstall b`"},
		"no record":                 {release(Release{Name: "b", Problem: "none"}), true, Later, "never run `helm uninstall b`"},
		"a Driver Toolkit":          {Found{Toolkit: []string{"a/b"}}, true, Later, "DTK_AUTO"},
		"what the operator does":    {Found{DaemonSets: 1, Classes: 1}, true, Later, "Drover's operator takes them over"},
		"preflights are unreadable": {Found{Unread: []string{"v1beta1"}}, false, Apply, "cannot be read: v1beta1"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := judge(&tc.given)
			said := got.Answer + "\n" + got.Next
			var state State
			if len(got.Items) > 0 {
				state = got.Items[0].State
				said += "\n" + got.Items[0].Says + "\n" + got.Items[0].Next
			}
			if got.Clear != tc.clear || state != tc.state || !strings.Contains(said, tc.then) {
				t.Errorf("clear %t, the first is %q:\n%s", got.Clear, state, said)
			}
		})
	}
	// An operator's Lease ends with its Deployment.
	both := judge(&Found{Deployments: []Deployment{running}, Leases: []Lease{{"kmm", "p"}}})
	if s := both.Items[1].State; s != Apply {
		t.Errorf("the Lease of an operator that --apply stops: %s", s)
	}
	// What a person must do comes before what the command does.
	first := judge(&Found{Deployments: []Deployment{running}, Leases: []Lease{{"other", "p"}}})
	if first.Next != "stop what runs it, such as `kubectl delete pod p -n other`" {
		t.Errorf("next step: %s", first.Next)
	}
}

// TestWhichDefinitionsStay: with a definition go all its objects, so only what is of use to nobody
// but KMM may be deleted.
func TestWhichDefinitionsStay(t *testing.T) {
	const deletes, keeps = "delete it when you are sure", "has Helm keep it"
	for name, tc := range map[string]struct {
		state State
		next  string // is part of it
		kept  bool   // by Helm, after --apply
	}{
		"modules.kmm.sigs.x-k8s.io":                   {Apply, keeps, true},
		"nodemodulesconfigs.kmm.sigs.x-k8s.io":        {Apply, keeps, true},
		"preflightvalidations.kmm.sigs.x-k8s.io":      {Apply, keeps, true},
		"managedclustermodules.hub.kmm.sigs.x-k8s.io": {Apply, keeps, true},
		"moduleimagesconfigs.kmm.sigs.x-k8s.io":       {Later, deletes, false},
		"modulebuildsignconfigs.kmm.sigs.x-k8s.io":    {Later, deletes, false},
		"preflightvalidationsocp.kmm.sigs.x-k8s.io":   {Later, "leave it", false},
		"others.hub.kmm.sigs.x-k8s.io":                {Later, "leave it", false},
	} {
		t.Run(name, func(t *testing.T) {
			crd := &unstructured.Unstructured{Object: map[string]any{}}
			crd.SetGroupVersionKind(definition.Kind)
			crd.SetName(name)
			crd.SetAnnotations(map[string]string{releaseAnnotation: "kmm", releaseNamespaceAnnotation: "kmm"})
			a := &api{client: fake.NewSimpleDynamicClient(scheme.Scheme, crd)}
			o := &options{api: a, IOStreams: genericiooptions.NewTestIOStreamsDiscard()}
			found := &Found{Definitions: []Definition{describe(crd)}}
			item := judge(found).Items[0]
			if item.State != tc.state || !strings.Contains(item.Next, tc.next) || strings.Contains(item.Next, "delete") != (tc.next == deletes) {
				t.Errorf("%+v", item)
			}
			if err := o.freeDefinitions(t.Context(), found); err != nil {
				t.Fatal(err)
			}
			live, err := a.get(t.Context(), definitions, "", name)
			if err != nil || describe(live).Kept != tc.kept {
				t.Errorf("after --apply, Helm keeps it: %t, %v", !tc.kept, err)
			}
		})
	}
}

func TestWhatHindersTheWayBack(t *testing.T) {
	now := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	lease := func(holder string, ago time.Duration) *coordinationv1.Lease {
		return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, LeaseDurationSeconds: ptr.To[int32](15), RenewTime: &metav1.MicroTime{Time: now.Add(-ago)},
		}}
	}
	for name, tc := range map[string]struct {
		given *coordinationv1.Lease
		then  bool
	}{
		"renewed in time":    {lease("a", 14*time.Second), true},
		"not renewed":        {lease("a", 15*time.Second), false},
		"released":           {lease("", time.Second), false},
		"never held by any":  {&coordinationv1.Lease{}, false},
		"by a clock that is": {lease("a", -time.Hour), true},
	} {
		if got := leads(tc.given, now); got != tc.then {
			t.Errorf("%s: leads: %t", name, got)
		}
	}
	for why, given := range map[string]remains{
		"":                             {},
		"Drover's operator is at work": {Leader: true, Workloads: []string{"x"}},
		"Drover is still installed: d": {Workloads: []string{"d"}},
	} {
		if got := given.hinders(); got != why {
			t.Errorf("%+v: %q", given, got)
		}
	}
}
