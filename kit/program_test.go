// SPDX-License-Identifier: Apache-2.0

package kit_test

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2/ktesting"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/kit"
)

func program(op kit.Operator[*Gadget]) kit.Program {
	return kit.Program{
		Name:        operatorName,
		AddToScheme: []func(*runtime.Scheme) error{v1beta1.AddToScheme, addGadgets},
		Requires: []kit.Requirement{
			{Object: &Gadget{}},
			{Object: &v1beta1.Module{}, Fields: []string{"spec.selector", "spec.moduleLoader.container.kernelMappings.regexp"}},
		},
		Setup: func(mgr ctrl.Manager) error { return kit.Add(mgr, op) },
	}
}

// freeAddress is one that nobody listens at.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // nothing was sent
	return l.Addr().String()
}

// start runs the operator as a program until the end of the test.
func (r *rig) start(o *kit.Options) {
	r.Helper()
	o.Log = ktesting.NewLogger(r.T, ktesting.NewConfig())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- program(r.op).Run(ctx, r.env.Config(r, operatorName), o) }()
	r.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			r.Errorf("the operator ended: %v", err)
		}
	})
}

// TestAProgramRuns: with a cache, a manager and watches, an object comes to its children, drift is
// put right, others' namespaces are left alone, a metric is there for those who may read it and
// goes with its object, and nothing is written when nothing changes.
func TestAProgramRuns(t *testing.T) {
	r := newRig(t)
	gauge := kit.NewGauge("gadget_failed", "1 if a gadget is not ready because somebody has to do something.", "namespace", "name")
	r.op.Ended = func(key types.NamespacedName, p *kit.Problem) {
		failed := 0.0
		if p != nil && p.Errored {
			failed = 1
		}
		gauge.Set(failed, key.Namespace, key.Name)
	}
	r.op.Forget = func(key types.NamespacedName) { gauge.Forget(key.Namespace, key.Name) }
	address := freeAddress(t)
	r.start(&kit.Options{MetricsAddress: address, MetricsSecure: true, ProbeAddress: "0", Namespaces: []string{r.namespace}})

	other := r.env.Namespace(t)
	r.must(r.admin.Create(t.Context(), &Gadget{ObjectMeta: metav1.ObjectMeta{Namespace: other, Name: "elsewhere"},
		Spec: GadgetSpec{Image: "r/g:1"}}))
	mark := r.env.Mark(t)
	r.create("g", func(g *Gadget) { g.Spec.Account = true })
	r.await("the children", func() bool { return strings.HasPrefix(r.says("g", "Ready"), "False Progressing") })
	r.ready("g")
	r.await("readiness", func() bool { return strings.HasPrefix(r.says("g", "Ready"), "True Reconciled") })
	want := []string{patchAccount, patchConfig, patchModule, patchStatus, patchStatus}
	got := r.writes(mark)
	for i := range got {
		if got[i] == "create events" {
			continue
		}
		if len(want) == 0 || got[i] != want[0] {
			t.Errorf("writes %q", got)
			break
		}
		want = want[1:]
	}
	r.must(r.admin.Delete(t.Context(), r.module("g")))
	r.await("the Module again", func() bool { return r.module("g") != nil })
	series := fmt.Sprintf("gadget_failed{name=%q,namespace=%q}", "g", r.namespace)
	r.await("the metric", func() bool { return strings.Contains(r.metrics(address, true), series+" 0") })
	if got := r.metrics(address, false); strings.Contains(got, "gadget_failed") {
		t.Error("anybody can read the metrics")
	}
	r.must(r.admin.Delete(t.Context(), r.gadget("g")))
	r.await("the end of the metric", func() bool {
		text := r.metrics(address, true)
		return text != "" && !strings.Contains(text, series)
	})
	elsewhere := &Gadget{}
	r.must(r.admin.Get(t.Context(), client.ObjectKey{Namespace: other, Name: "elsewhere"}, elsewhere))
	if len(elsewhere.Status.Conditions) > 0 {
		t.Errorf("a namespace that is not watched: %+v", elsewhere.Status)
	}
}

// metrics reads them as somebody who may, or as nobody.
func (r *rig) metrics(address string, allowed bool) string {
	r.Helper()
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // its certificate is its own
	defer c.CloseIdleConnections()
	request, err := http.NewRequestWithContext(r.Context(), http.MethodGet, "https://"+address+"/metrics", nil)
	r.must(err)
	if allowed {
		request.Header.Set("Authorization", "Bearer "+r.env.Config(r, "metrics-reader").BearerToken)
	}
	response, err := c.Do(request)
	if err != nil {
		return ""
	}
	defer response.Body.Close() //nolint:errcheck // read to the end
	text, err := io.ReadAll(response.Body)
	r.must(err)
	return string(text)
}

func TestFlags(t *testing.T) {
	cases := map[string]struct {
		args []string
		env  string
		then string
		want []string
	}{
		"none":                     {},
		"all":                      {args: []string{"-v=3", "--metrics-bind-address=:9000", "--health-probe-bind-address=0", "--leader-elect"}},
		"a namespace":              {env: "devices", want: []string{"devices"}},
		"several, with blanks":     {env: "a, b", want: []string{"a", "b"}},
		"no name of a namespace":   {env: "a,B_", then: `WATCH_NAMESPACE: "B_" is not a namespace's name`},
		"a comma too many":         {env: "a,", then: `WATCH_NAMESPACE: "" is not a namespace's name`},
		"a flag that there is not": {args: []string{"--magic"}, then: "flag provided but not defined: -magic"},
		"a stray word":             {args: []string{"run"}, then: `unexpected argument "run"`},
		"no address": {args: []string{"--metrics-bind-address=nowhere"},
			then: `--metrics-bind-address: "nowhere" is neither HOST:PORT nor 0`},
		"no port": {args: []string{"--health-probe-bind-address=:http"}, then: `--health-probe-bind-address: ":http" is neither HOST:PORT nor 0`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o, err := kit.Program{Name: "x"}.ParseFlags(tc.args, func(name string) string {
				if name == "WATCH_NAMESPACE" {
					return tc.env
				}
				return ""
			})
			switch {
			case tc.then == "" && err != nil:
				t.Error(err)
			case tc.then != "" && (err == nil || !strings.Contains(err.Error(), tc.then)):
				t.Errorf("error %v, want %q in it", err, tc.then)
			case tc.then == "" && fmt.Sprint(o.Namespaces) != fmt.Sprint(tc.want):
				t.Errorf("namespaces %q", o.Namespaces)
			}
		})
	}
}

// TestFlagsOfTheProgramsOwn are read with the kit's.
func TestFlagsOfTheProgramsOwn(t *testing.T) {
	var registry string
	p := kit.Program{Name: "x", Flags: func(set *flag.FlagSet) { set.StringVar(&registry, "registry", "r.example.com", "where images are") }}
	for want, args := range map[string][]string{"r.example.com": {"--leader-elect"},
		"other:5000": {"--leader-elect", "--registry=other:5000"}} {
		o, err := p.ParseFlags(args, func(string) string { return "" })
		if err != nil {
			t.Fatal(err)
		}
		if registry != want || !o.LeaderElect {
			t.Errorf("%v: registry %q, %+v", args, registry, o)
		}
	}
}

// TestABadConfigurationEndsTheProgram, by the exit code 1, with a line that names what is wrong.
// The test binary plays the program.
func TestABadConfigurationEndsTheProgram(t *testing.T) {
	const variable = "KIT_TEST_MAIN"
	if os.Getenv(variable) != "" {
		os.Args = []string{operatorName}
		kit.Main(program(operator()))
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct{ env, then string }{
		"no name of a namespace": {"WATCH_NAMESPACE=a,B_", `gadget-operator: WATCH_NAMESPACE: "B_" is not a namespace's name`},
		"no cluster":             {"KUBECONFIG=/nowhere", "gadget-operator: find the cluster: "},
	} {
		t.Run(name, func(t *testing.T) {
			command := exec.CommandContext(t.Context(), self, "-test.run=^TestABadConfigurationEndsTheProgram$")
			command.Env = append(os.Environ(), variable+"=1", tc.env)
			output, err := command.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 1 {
				t.Errorf("it ended with %v", err)
			}
			if !strings.Contains(string(output), tc.then) {
				t.Errorf("it said %q, want %q in it", output, tc.then)
			}
		})
	}
}

// TestAnOutdatedDefinitionIsFound: the operator does not start when a CustomResourceDefinition
// lacks a field that it writes, or is not there.
func TestAnOutdatedDefinitionIsFound(t *testing.T) {
	r := newRig(t)
	run := func(requirements ...kit.Requirement) string {
		p := program(r.op)
		p.Requires = requirements
		p.Setup = func(ctrl.Manager) error { return errors.New("it would run") }
		err := p.Run(t.Context(), r.env.Config(t, operatorName),
			&kit.Options{MetricsAddress: "0", ProbeAddress: "0", Log: ktesting.NewLogger(t, ktesting.NewConfig())})
		return fmt.Sprint(err)
	}
	cases := map[string]struct {
		given kit.Requirement
		then  []string
	}{
		"all fields are there": {given: kit.Requirement{Object: &Gadget{}}},
		"fields by name, through a list and a map": {given: kit.Requirement{Object: &v1beta1.Module{}, Fields: []string{
			"spec.moduleLoader.container.kernelMappings.sign.filesToSign", "spec.selector.anything",
		}}},
		"a field is missing": {
			given: kit.Requirement{Object: &Gadget{}, Fields: []string{"spec.size", "spec.colour", "status.consumers"}},
			then:  []string{"gadgets.kit.example.com lacks spec.colour, status.consumers", "make install"},
		},
		"the definition is missing": {
			given: kit.Requirement{Object: &Widget{}},
			then:  []string{`Widget of kit.example.com/v1`, "install its CustomResourceDefinition", `no matches for kind "Widget"`},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := run(tc.given)
			for _, word := range tc.then {
				if !strings.Contains(got, word) {
					t.Errorf("error %q, want %q in it", got, word)
				}
			}
			if len(tc.then) == 0 && got != "it would run" {
				t.Errorf("error %q", got)
			}
		})
	}
}

// TestADefinitionThatLacksAFieldLater: an apply with a field that the schema has lost is refused by
// the API server, and the condition says what to do.
func TestADefinitionThatLacksAFieldLater(t *testing.T) {
	r := newRig(t)
	admin := r.extensions()
	content, err := os.ReadFile("testdata/gadget/crd.yaml")
	r.must(err)
	crd := &apiextensionsv1.CustomResourceDefinition{}
	text := strings.NewReplacer("gadgets.kit.example.com", "widgets.kit.example.com", "Gadget", "Widget", "gadget", "widget").
		Replace(strings.Split(string(content), "\n---\n")[0])
	r.must(yaml.Unmarshal([]byte(strings.Replace(text, "size: {type: string}\n              account", "account", 1)), crd))
	r.must(client.IgnoreAlreadyExists(admin.Create(t.Context(), crd)))
	r.await("the older definition", func() bool {
		mapper := r.connect(r.env.AdminConfig()).RESTMapper()
		err := kit.Requires(t.Context(), admin, newScheme(), mapper, kit.Requirement{Object: &Widget{}})
		return err != nil && strings.Contains(err.Error(), "widgets.kit.example.com lacks spec.size: it is older than this program")
	})
	r.op.Children = []client.Object{&Widget{}}
	r.op.Observe = nil
	r.op.Desired = func(g *Gadget) ([]client.Object, error) {
		w := &Widget{ObjectMeta: metav1.ObjectMeta{Name: g.Name}}
		w.Spec.Size = "5"
		return []client.Object{w}, nil
	}
	r.create("g")
	r.client = r.connect(r.env.AdminConfig()) // no role speaks of Widgets
	r.await("the definition", func() bool {
		_, _ = r.try("g")
		r.reconciler = nil
		r.client = r.connect(r.env.AdminConfig())
		return strings.Contains(r.says("g", "Ready"), "CRDIncompatible")
	})
	r.wantSays("g", "Errored", "True CRDIncompatible", "spec.size", "make install")
}

func (r *rig) extensions() client.Client {
	r.Helper()
	scheme := newScheme()
	r.must(apiextensionsv1.AddToScheme(scheme))
	c, err := client.New(r.env.AdminConfig(), client.Options{Scheme: scheme})
	r.must(err)
	return c
}
