// SPDX-License-Identifier: Apache-2.0

package lolcow

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	api "github.com/drover-project/drover/api/lolcow/v1alpha1"
)

var update = flag.Bool("update", false, "write testdata")

// sample is the Lolcow of config/operators/lolcow/samples, as the API server would store it.
func sample(t *testing.T) *api.Lolcow {
	t.Helper()
	content, err := os.ReadFile("../../../config/operators/lolcow/samples/lolcow.yaml")
	if err != nil {
		t.Fatal(err)
	}
	l := &api.Lolcow{}
	if err := yaml.UnmarshalStrict(content, l); err != nil {
		t.Fatal(err)
	}
	l.Spec.Image = "ghcr.io/vsoch/lolcow-operator"
	return l
}

// TestDesired holds what becomes of the sample, and of the smallest Lolcow, to testdata. A changed
// line there is a change for every user.
func TestDesired(t *testing.T) {
	small := &api.Lolcow{}
	small.Name, small.Spec.Image = "small", "example.com/cow:1"
	for file, given := range map[string]*api.Lolcow{"sample.yaml": sample(t), "small.yaml": small} {
		t.Run(file, func(t *testing.T) {
			var got strings.Builder
			children, err := Desired(given)
			if err != nil {
				t.Fatal(err)
			}
			for _, child := range children {
				text, err := yaml.Marshal(child)
				if err != nil {
					t.Fatal(err)
				}
				got.WriteString("---\n" + string(text))
			}
			path := filepath.Join("testdata", file)
			if *update {
				if err := os.WriteFile(path, []byte(got.String()), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestGreetingIsTheOnlyArgument: the image's entry point stays, and gets the greeting as one
// argument, or none for no greeting. After the kubelet's substitution, it is the greeting,
// character for character.
func TestGreetingIsTheOnlyArgument(t *testing.T) {
	for given, want := range map[string][]string{
		"":                             nil,
		"HELLO":                        {"HELLO"},
		"Oh my gosh, I am a cow!":      {"Oh my gosh, I am a cow!"},
		` `:                            {" "},
		`"quoted" 'twice'`:             {`"quoted" 'twice'`},
		"-n":                           {"-n"},
		"* <b>moo</b> & 🐮":             {"* <b>moo</b> & 🐮"},
		"two\nlines":                   {"two\nlines"},
		"$(PORT) ${PORT} $PORT":        {"$(PORT) ${PORT} $PORT"},
		"$$(PORT) costs $$5 or $":      {"$$(PORT) costs $$5 or $"},
		"$$$(PORT)$$$$(PORT) $() $(( ": {"$$$(PORT)$$$$(PORT) $() $(( "},
	} {
		t.Run(given, func(t *testing.T) {
			l := sample(t)
			l.Spec.Greeting = given
			c := deployment(l).Spec.Template.Spec.Containers[0]
			if c.Command != nil {
				t.Errorf("the entry point is replaced by %q", c.Command)
			}
			var got []string
			for _, arg := range c.Args {
				got = append(got, substitute(arg, map[string]string{"PORT": "8080"}))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("arguments after substitution (-want +got):\n%s", diff)
			}
		})
	}
}

// substitute does what the API says of a container's args: $(NAME) becomes the variable's value, or
// stays if there is none, and $$ becomes $.
func substitute(arg string, env map[string]string) string {
	return regexp.MustCompile(`\$\$|\$\([^)]*\)`).ReplaceAllStringFunc(arg, func(found string) string {
		if found == "$$" {
			return "$"
		}
		if value, ok := env[strings.TrimSuffix(strings.TrimPrefix(found, "$("), ")")]; ok {
			return value
		}
		return found
	})
}
