// SPDX-License-Identifier: Apache-2.0

package modulepolicy

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// TestTaintsThatModulesMayName: those of their namespace, and those that are listed for it.
func TestTaintsThatModulesMayName(t *testing.T) {
	const autoscaler = "startup-taint.cluster-autoscaler.kubernetes.io/"
	for name, tc := range map[string]struct {
		list, namespace, key string
		then                 bool
	}{
		"none":                              {namespace: "a", key: "", then: true},
		"not listed":                        {namespace: "a", key: "security.example.com/quarantine"},
		"without a domain":                  {namespace: "a", key: "dedicated"},
		"the autoscaler's":                  {namespace: "a", key: autoscaler + "nic"},
		"the namespace's":                   {namespace: "a", key: "a.startup.drover.dev/nic", then: true},
		"another namespace's":               {namespace: "a", key: "b.startup.drover.dev/nic"},
		"of a namespace that ends the same": {namespace: "a", key: "b-a.startup.drover.dev/nic"},
		"the domain alone":                  {namespace: "a", key: "startup.drover.dev/nic"},
		"a domain that goes on":             {namespace: "a", key: "a.startup.drover.dev.example.com/nic"},
		"listed":                            {list: "x/y, example.com/nic", namespace: "a", key: "example.com/nic", then: true},
		"longer than what is listed":        {list: "example.com/nic", namespace: "a", key: "example.com/nic2"},
		"a beginning":                       {list: autoscaler + "*", namespace: "a", key: autoscaler + "nic", then: true},
		"another beginning":                 {list: autoscaler + "*", namespace: "a", key: "example.com/nic"},
		"any":                               {list: "*", namespace: "a", key: "dedicated", then: true},
		"for the namespace":                 {list: "a:example.com/nic", namespace: "a", key: "example.com/nic", then: true},
		"for another namespace":             {list: "b:example.com/*", namespace: "a", key: "example.com/nic"},
	} {
		t.Run(name, func(t *testing.T) {
			list, err := ParseTaints(tc.list)
			if err != nil {
				t.Fatal(err)
			}
			m := &v1beta1.Module{ObjectMeta: metav1.ObjectMeta{Namespace: tc.namespace}, Spec: v1beta1.ModuleSpec{StartupTaint: tc.key}}
			p := list.Denied(m)
			if (p == nil) != tc.then {
				t.Fatalf("denied: %+v", p)
			}
			if p != nil && (p.Reason != v1beta1.ReasonStartupTaintDenied || !strings.Contains(p.Message, tc.key)) {
				t.Errorf("says %+v", p)
			}
		})
	}
}

func TestListsOfTaintsThatAreWrong(t *testing.T) {
	for list, then := range map[string]string{
		"a b":                `"a b": not the key of a taint`,
		"x/y/z":              "not the key of a taint",
		"Team:example.com/x": `"Team" is not the name of a namespace`,
		":example.com/x":     `"" is not the name of a namespace`,
		"a:":                 "not the key of a taint",
		"x=y:NoSchedule":     `"x=y" is not the name of a namespace`,
		"exam*ple/x":         "not the key of a taint",
	} {
		if _, err := ParseTaints(list); err == nil || !strings.Contains(err.Error(), then) {
			t.Errorf("%q: %v, want %s", list, err, then)
		}
	}
}
