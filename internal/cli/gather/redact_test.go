// SPDX-License-Identifier: Apache-2.0

package gather

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	var object map[string]any
	if err := yaml.Unmarshal([]byte(text), &object); err != nil {
		t.Fatal(err)
	}
	return object
}

func TestObjectsAreRedacted(t *testing.T) {
	for name, tc := range map[string]struct {
		given, want string
		ours        bool
	}{
		"an environment": {
			given: `{spec: {containers: [{env: [{name: A, value: tell-nobody}, {name: B, valueFrom: {secretKeyRef: {name: s, key: k}}}]}]}}`,
			want:  `{spec: {containers: [{env: [{name: A, value: "[removed]"}, {name: B, valueFrom: {secretKeyRef: {name: s, key: k}}}]}]}}`,
		},
		"build arguments": {
			given: `{spec: {moduleLoader: {container: {build: {buildArgs: [{name: TOKEN, value: tell-nobody}]}}}}}`,
			want:  `{spec: {moduleLoader: {container: {build: {buildArgs: [{name: TOKEN, value: "[removed]"}]}}}}}`,
		},
		"arguments of an image that is made": {
			given: `{spec: {build: {args: [{name: TOKEN, value: tell-nobody}]}}}`,
			want:  `{spec: {build: {args: [{name: TOKEN, value: "[removed]"}]}}}`,
		},
		"what tells kernels and images apart": {
			given: `{env: [{name: AGENT_IMAGE, value: "r.example/agent:1"}], spec: {build: {args: [{name: KERNEL_FULL_VERSION,
				value: 6.1.0-44-amd64}, {name: MOD_NAME, value: my-module}]}}}`,
			want: `{env: [{name: AGENT_IMAGE, value: "r.example/agent:1"}], spec: {build: {args: [{name: KERNEL_FULL_VERSION,
				value: 6.1.0-44-amd64}, {name: MOD_NAME, value: my-module}]}}}`,
		},
		"a command line": {
			given: `{spec: {containers: [{command: [/bin/sh, -c], args: [--build-arg, TOKEN=tell-nobody], image: i}]}}`,
			want:  `{spec: {containers: [{command: ["[removed]: 2"], args: ["[removed]: 2"], image: i}]}}`,
		},
		"a command line of ours": {
			given: `{spec: {containers: [{args: [run, --node-name=a], env: [{name: GOGC, value: "50"}]}]}}`, ours: true,
			want: `{spec: {containers: [{args: [run, --node-name=a], env: [{name: GOGC, value: "[removed]"}]}]}}`,
		},
		"arguments of modprobe are no command line": {
			given: `{spec: {modprobe: {args: {load: [-v]}, parameters: [debug=1]}}}`,
			want:  `{spec: {modprobe: {args: {load: [-v]}, parameters: [debug=1]}}}`,
		},
		"what kubectl and the API server keep": {
			given: `{metadata: {name: a, annotations: {a: b, kubectl.kubernetes.io/last-applied-configuration: tell-nobody},
				managedFields: [{manager: m, time: t, fieldsV1: {"f:spec": {}}}]}}`,
			want: `{metadata: {name: a, annotations: {a: b}, managedFields: [{manager: m, time: t}]}}`,
		},
		"copies of the object that other tools keep": {
			given: `{metadata: {annotations: {a: b, kapp.k14s.io/original: tell-nobody, objectset.rio.cattle.io/applied: tell-nobody,
				banzaicloud.com/last-applied: tell-nobody}}}`,
			want: `{metadata: {annotations: {a: b}}}`,
		},
		"headers of a probe": {
			given: `{livenessProbe: {httpGet: {path: /, httpHeaders: [{name: Authorization, value: tell-nobody}]}}}`,
			want:  `{livenessProbe: {httpGet: {path: /, httpHeaders: [{name: Authorization, value: "[removed]"}]}}}`,
		},
		"empty": {given: `{spec: {env: [], args: [], command: null}}`, want: `{spec: {env: [], args: [], command: null}}`},
	} {
		t.Run(name, func(t *testing.T) {
			got := parse(t, tc.given)
			newRedactor().object(&unstructured.Unstructured{Object: got}, tc.ours)
			if diff := cmp.Diff(parse(t, tc.want), got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// TestWhatWasRemovedIsRemovedEverywhere: a build that fails says its arguments in its log.
func TestWhatWasRemovedIsRemovedEverywhere(t *testing.T) {
	r := newRedactor()
	r.object(&unstructured.Unstructured{Object: parse(t, `{env: [{name: A, value: tell-nobody}, {name: B, value: tell-nobody-more},
		{name: C, value: short}], args: [--token=open-sesame]}`)}, false)
	for given, want := range map[string]string{
		"error: tell-nobody is wrong":                          "error: [removed] is wrong",
		"tell-nobody-more":                                     "[removed]",
		"short words stay":                                     "short words stay",
		"it said open-sesame":                                  "it said [removed]",
		"https://me:pass@registry.example/v":                   "https://[removed]@registry.example/v",
		"https://registry.example:5000/v":                      "https://registry.example:5000/v",
		"Authorization: Bearer abcdefgh1234":                   "Authorization: Bearer [removed]",
		"eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrIn0.c2ln is a token": "[removed] is a token",
		"password=letmein and more":                            "password=[removed] and more",
		`"token": "letmein"`:                                   `"token": "[removed]"`,
		"imageRepoSecret:\n  name: pull":                       "imageRepoSecret:\n  name: pull",
		"secret: {name: pull}":                                 "secret: {name: pull}",
		"secret:\n  secretName: signing-key":                   "secret:\n  secretName: signing-key",
		"a\n-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----\nb": "a\n[removed]\nb",
		"-----BEGIN PRIVATE KEY-----\nMII and cut":                                  "[removed]",
		"sha256:5ca1ab1e": "sha256:5ca1ab1e",
	} {
		if got := r.text(given); got != want {
			t.Errorf("text(%q) = %q, want %q", given, got, want)
		}
	}
}
