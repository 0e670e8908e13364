// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/scheme"
)

// manifest of a release as Helm writes it, with a definition of Drover's, one that Helm keeps
// anyhow, and things of no interest.
const manifest = `---
# Source: kmm/templates/serviceaccount.yaml
apiVersion: v1
kind: ServiceAccount
metadata:
  name: kmm-operator-controller
---
# Source: kmm/templates/preflightvalidations-crd.yaml
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: preflightvalidations.kmm.sigs.x-k8s.io
  annotations: {cert-manager.io/inject-ca-from: kmm/cert}
spec: {group: kmm.sigs.x-k8s.io}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: modules.kmm.sigs.x-k8s.io
  annotations: {helm.sh/resource-policy: keep}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: moduleimagesconfigs.kmm.sigs.x-k8s.io
`

func packed(t testing.TB, release map[string]any) []byte {
	t.Helper()
	data, err := pack(release)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestHelmKeepsDefinitions(t *testing.T) {
	given := packed(t, map[string]any{"name": "kmm", "version": 7, "manifest": manifest, "config": map[string]any{"big": 12345678901234567}})
	changed, names, err := keepDefinitions(given)
	if err != nil || !slices.Equal(names, []string{"preflightvalidations.kmm.sigs.x-k8s.io"}) {
		t.Fatalf("%v, %v", names, err)
	}
	release, err := unpack(changed)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := release["manifest"].(string)
	documents, before := strings.Split(text, "\n---"), strings.Split(manifest, "\n---")
	if len(documents) != len(before) {
		t.Fatalf("%d documents became %d:\n%s", len(before), len(documents), text)
	}
	for i := range documents {
		if i == 1 {
			if !strings.Contains(documents[i], "helm.sh/resource-policy: keep") || !strings.Contains(documents[i], "inject-ca-from: kmm/cert") ||
				!strings.Contains(documents[i], "group: kmm.sigs.x-k8s.io") {
				t.Errorf("the definition is now:\n%s", documents[i])
			}
		} else if documents[i] != before[i] {
			t.Errorf("document %d became:\n%s", i, documents[i])
		}
	}
	if again, _ := pack(release); !strings.Contains(mustUnpackText(t, again), "12345678901234567") {
		t.Error("a number was rounded")
	}
	same, names, err := keepDefinitions(changed)
	if err != nil || len(names) > 0 || string(same) != string(changed) {
		t.Errorf("a second time: %v, %v", names, err)
	}
}

func mustUnpackText(t *testing.T, data []byte) string {
	t.Helper()
	release, err := unpack(data)
	if err != nil {
		t.Fatal(err)
	}
	config, _ := release["config"].(map[string]any)
	number, _ := config["big"].(interface{ String() string })
	if number == nil {
		t.Fatalf("config: %v", config)
	}
	return number.String()
}

// TestEachRevisionCounts: `helm uninstall` goes by the highest revision, whatever became of it, and
// `helm rollback` makes a new one of any.
func TestEachRevisionCounts(t *testing.T) {
	const preflight, module = "preflightvalidations.kmm.sigs.x-k8s.io", "modules.kmm.sigs.x-k8s.io"
	const managed = "managedclustermodules.hub.kmm.sigs.x-k8s.io"
	with := func(names ...string) string {
		text := "---\nkind: ServiceAccount\nmetadata: {name: kmm}\n"
		for _, name := range names {
			text += "---\nkind: CustomResourceDefinition\nmetadata: {name: " + name + "}\n"
		}
		return text
	}
	type revision struct{ status, manifest string }
	for name, tc := range map[string]struct {
		given   []revision
		deletes []string
		problem string
	}{
		"no record":                 {nil, nil, "there is no record"},
		"it is deployed":            {[]revision{{"deployed", with(preflight)}}, []string{preflight}, ""},
		"an upgrade failed":         {[]revision{{"deployed", with(preflight)}, {"failed", with(preflight)}}, []string{preflight}, ""},
		"the failed one has more":   {[]revision{{"deployed", with()}, {"failed", with(preflight)}}, []string{preflight}, ""},
		"the first one failed":      {[]revision{{"failed", with(preflight)}}, []string{preflight}, ""},
		"the first one is pending":  {[]revision{{"pending-install", with(preflight)}}, []string{preflight}, ""},
		"an upgrade is pending":     {[]revision{{"deployed", with()}, {"pending-upgrade", with(preflight)}}, []string{preflight}, ""},
		"a rollback would bring it": {[]revision{{"superseded", with(preflight)}, {"deployed", with()}}, []string{preflight}, ""},
		"the history was kept":      {[]revision{{"uninstalled", with(preflight)}}, []string{preflight}, ""},
		"each has another":          {[]revision{{"deployed", with(preflight)}, {"failed", with(module)}}, []string{module, preflight}, ""},
		"a hub":                     {[]revision{{"failed", with(managed)}}, []string{managed}, ""},
		"none has one":              {[]revision{{"superseded", with()}, {"deployed", with()}}, nil, ""},
		"KMM's alone":               {[]revision{{"failed", with("modulebuildsignconfigs.kmm.sigs.x-k8s.io")}}, nil, ""},
		"one is bad":                {[]revision{{"deployed", with(preflight)}, {"failed", ""}}, []string{preflight}, "v1.kmm.v2: "},
		"an older one is bad":       {[]revision{{"superseded", ""}, {"deployed", with()}}, nil, "v1.kmm.v1: "},
	} {
		t.Run(name, func(t *testing.T) {
			var stored []runtime.Object
			for i, r := range tc.given {
				version := strconv.Itoa(i + 1)
				data := map[string]any{"name": "kmm", "version": i + 1}
				if r.manifest != "" {
					data["manifest"] = r.manifest
				}
				stored = append(stored, &corev1.Secret{
					TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
					ObjectMeta: metav1.ObjectMeta{Namespace: "kmm", Name: "sh.helm.release.v1.kmm.v" + version, Labels: map[string]string{
						"owner": "helm", "name": "kmm", "status": r.status, "version": version,
					}},
					Data: map[string][]byte{"release": packed(t, data)},
				})
			}
			a := &api{client: fake.NewSimpleDynamicClient(scheme.Scheme, stored...)}
			given, err := a.release(t.Context(), "kmm", "kmm")
			if err != nil || !slices.Equal(given.Deletes, tc.deletes) || !strings.Contains(given.Problem, tc.problem) ||
				(given.Problem == "") != (tc.problem == "") {
				t.Fatalf("%+v, %v", given, err)
			}
			blocks := len(tc.deletes) > 0 || tc.problem != "" && tc.given != nil
			if report := judge(&Found{Releases: []Release{given.Release}}); report.Clear == blocks {
				t.Errorf("the report is clear: %t", report.Clear)
			}
			if err := a.keepInRecord(t.Context(), given); err != nil {
				t.Fatal(err)
			}
			if then, err := a.release(t.Context(), "kmm", "kmm"); err != nil || len(then.Deletes) > 0 || then.Problem != given.Problem {
				t.Errorf("marked, it is %+v, %v", then, err)
			}
		})
	}
}

func TestRecordsThatAreNone(t *testing.T) {
	for name, given := range map[string][]byte{
		"nothing": nil, "no base64": []byte("%"), "no gzip": []byte("aGVsbG8="), "no manifest": packed(t, map[string]any{"name": "x"}),
		"no object": packed(t, nil),
	} {
		if _, _, err := keepDefinitions(given); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// FuzzKeepDefinitions: a record is what Helm, or anybody who may write Secrets, has written.
func FuzzKeepDefinitions(f *testing.F) {
	f.Add(manifest)
	f.Add("kind: CustomResourceDefinition\nmetadata: {name: modules.kmm.sigs.x-k8s.io, annotations: [1]}")
	f.Add("\n---\n---\n")
	f.Fuzz(func(t *testing.T, manifest string) {
		changed, names, err := keepDefinitions(packed(t, map[string]any{"manifest": manifest}))
		if err != nil {
			t.Fatalf("a record that we made: %v", err)
		}
		if _, left, err := keepDefinitions(changed); err != nil || len(left) > 0 {
			t.Errorf("%v were kept, and then %v were not: %v", names, left, err)
		}
	})
}
