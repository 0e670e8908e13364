// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"slices"
	"testing"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/api/resource"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// TestOverlayForOpenShift renders: all of config/default, constraints for each of our kinds of
// pods, and who may use them.
func TestOverlayForOpenShift(t *testing.T) {
	render := func(path string) resmap.ResMap {
		all, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), config+"/"+path)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	plain, overlay := render("default"), render("openshift")
	users := map[string]int{}
	for _, r := range overlay.Resources() {
		if r.GetKind() != "SecurityContextConstraints" {
			continue
		}
		who, err := r.GetSlice("users")
		if err != nil {
			t.Fatal(err)
		}
		users[r.GetName()] = len(who)
	}
	if len(users) != 5 || users["drover-build"]+users["drover-build-native"] != 0 || users["drover-agent"] != 1 ||
		users["drover-carrier"] != 1 || users["drover-workload"] != 0 {
		t.Errorf("constraints and how many users they name: %v", users)
	}
	for _, name := range []string{"drover-workload", "drover-operator-openshift", "drover-build", "drover-build-native"} {
		if !slices.ContainsFunc(overlay.Resources(),
			func(r *resource.Resource) bool { return r.GetKind() == "ClusterRole" && r.GetName() == name }) {
			t.Errorf("no ClusterRole %s", name)
		}
	}
	if more := overlay.Size() - plain.Size(); more != 10 {
		t.Errorf("%d objects more than config/default, want 10", more)
	}
	labels := map[string]string{}
	for _, r := range plain.Resources() {
		if r.GetKind() == "Namespace" {
			labels = r.GetLabels()
		}
	}
	if labels["pod-security.kubernetes.io/enforce"] != "privileged" {
		t.Errorf("the namespace of the agent would not let it in: %v", labels)
	}
}
