// SPDX-License-Identifier: Apache-2.0

//go:build migrate

package migrate

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/testkit/fleet"
	"github.com/drover-project/drover/test/docs/page"
)

const (
	root = "../.."
	// peer is where KMM runs, drivers where the Modules are.
	peer, drivers = "kmm-operator-system", "drivers"
	preflights    = "preflightvalidations.kmm.sigs.x-k8s.io"
	nodes         = 2
	// patience is for each level, on a machine that is busy with other builds.
	patience = 4 * time.Minute
	// soon is for levels that an operator at work reaches within seconds.
	soon = 75 * time.Second

	// upstreamVariable names a folder with the definitions of upstream's Kernel Module Management; the
	// default is beside the repository.
	upstreamVariable = "DROVER_UPSTREAM_CRDS"
	upstreamDefault  = "../../../shared/upstream-crds"
)

var kernels = []string{"6.1.0-44-amd64", "6.12.57+deb12-amd64"}

// world is the cluster.
type world struct {
	*testing.T
	*fleet.Fleet
	client.Client
	drover  string // the command line tool
	modules []*v1beta1.Module
	nodes   map[string]*corev1.Node
	plugins map[string]bool // UIDs of the plugins' pods as KMM left them
	watch   *watcher
}

func start(t *testing.T) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	f, err := fleet.Start(ctx, fleet.Options{
		Nodes: nodes, Kernels: kernels, NodeLabels: map[string]string{"example.com/card": "true"}, Later: true,
		Say: func(format string, args ...any) { t.Logf(format, args...) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			if log, err := os.ReadFile(filepath.Join(f.Dir(), "operator.log")); err == nil {
				t.Logf("the operator's log ends with:\n%s", log[max(len(log)-4000, 0):])
			}
		}
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
	w := &world{T: t, Fleet: f, Client: f.Admin, nodes: map[string]*corev1.Node{}, plugins: map[string]bool{}}
	w.drover = filepath.Join(f.Dir(), "drover")
	w.must(fleet.BuildProgram(ctx, root, "./cmd/drover", w.drover))
	w.watch = watchReadyLabels(t, f)
	var list corev1.NodeList
	w.must(w.List(t.Context(), &list))
	for i := range list.Items {
		w.nodes[list.Items[i].Name] = &list.Items[i]
	}
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// make creates objects.
func (w *world) make(objects ...client.Object) {
	w.Helper()
	for _, o := range objects {
		if err := w.Create(w.Context(), o); err != nil && !apierrors.IsAlreadyExists(err) {
			w.Fatalf("create %T %s: %v", o, o.GetName(), err)
		}
	}
}

// level waits until problem finds nothing any more, and says what it found last.
func (w *world) level(what string, problem func(ctx context.Context) (string, error)) bool {
	w.Helper()
	return w.within(patience, what, problem)
}

// within is a level with a time of its own.
func (w *world) within(patience time.Duration, what string, problem func(ctx context.Context) (string, error)) bool {
	w.Helper()
	last, began := "", time.Now()
	err := wait.PollUntilContextTimeout(w.Context(), 500*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		text, err := problem(ctx)
		if err != nil {
			text = err.Error()
		}
		if ctx.Err() == nil { // when the time is over, what was said before says more
			last = text
		}
		return text == "" && ctx.Err() == nil, nil
	})
	if err != nil {
		w.Errorf("%s: %s", what, last)
		return false
	}
	w.Logf("%s after %.0f s", what, time.Since(began).Seconds())
	return true
}

// tool runs drover as the administrator.
func (w *world) tool(args ...string) (string, int) {
	w.Helper()
	cmd := exec.CommandContext(w.Context(), w.drover, append(args, "--kubeconfig", w.Cluster.Kubeconfig)...)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		w.Fatal(err)
	}
	w.Logf("$ drover %s\n%s", strings.Join(args, " "), out)
	return string(out), cmd.ProcessState.ExitCode()
}

// page runs a command of docs/guide/kmm.md: it must be there.
func (w *world) page(command string) (string, int) {
	w.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs/guide/kmm.md"))
	w.must(err)
	if !strings.Contains(string(text), "\n"+command+"\n") {
		w.Fatalf("docs/guide/kmm.md does not say %q", command)
	}
	return w.tool(strings.Fields(command)[1:]...)
}

// transcript compares what the command said with what docs/guide/kmm.md says that it says.
func (w *world) transcript(out string) {
	w.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs/guide/kmm.md"))
	w.must(err)
	for _, b := range page.Parse("docs/guide/kmm.md", string(text)).Blocks {
		if b.Lang == "text" {
			if err := page.CheckOutput(b.Text, out); err != nil {
				w.Errorf("%s: %v", b.Where(), err)
			}
			return
		}
	}
	w.Error("docs/guide/kmm.md has no transcript")
}

// upstream is a definition of KMM, as its chart has it.
func (w *world) upstream(name string) *unstructured.Unstructured {
	w.Helper()
	content, err := os.ReadFile(filepath.Join(cmp.Or(os.Getenv(upstreamVariable), upstreamDefault), "kmm.sigs.x-k8s.io_"+name+".yaml"))
	if err != nil {
		w.Fatalf("%s must name a folder with KMM's definitions: %v", upstreamVariable, err)
	}
	crd := &unstructured.Unstructured{}
	w.must(yaml.Unmarshal(content, &crd.Object))
	unstructured.RemoveNestedField(crd.Object, "status")
	return crd
}

// helm applies an object as Helm does.
func (w *world) helm(object *unstructured.Unstructured) {
	w.Helper()
	//nolint:staticcheck // of no type
	w.must(w.Patch(w.Context(), object.DeepCopy(), client.Apply, client.FieldOwner("helm"), client.ForceOwnership))
}

// definitions installs KMM's definitions. One PreflightValidation is stored in the older version,
// from before KMM had the newer one.
func (w *world) definitions() {
	w.Helper()
	for _, name := range []string{"modules", "nodemodulesconfigs", "moduleimagesconfigs", "modulebuildsignconfigs"} {
		w.helm(w.upstream(name))
	}
	crd := w.upstream("preflightvalidations")
	unstructured.RemoveNestedField(crd.Object, "spec", "conversion")
	crd.SetAnnotations(map[string]string{"meta.helm.sh/release-name": "kmm", "meta.helm.sh/release-namespace": peer})
	crd.SetLabels(map[string]string{"app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/name": "kmm"})
	w.store(crd, "v1beta1")
	w.helm(crd)
	older := unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"kernelVersion": kernels[0]}}}
	older.SetAPIVersion("kmm.sigs.x-k8s.io/v1beta1")
	older.SetKind("PreflightValidation")
	older.SetName("older")
	w.level("the older PreflightValidation is stored", func(ctx context.Context) (string, error) {
		if err := w.Create(ctx, older.DeepCopy()); err != nil && !apierrors.IsAlreadyExists(err) {
			return "", err
		}
		return "", nil
	})
	w.store(crd, "v1beta2")
	service := map[string]any{"namespace": peer, "name": "kmm-operator-webhook-service", "path": "/convert"}
	w.must(unstructured.SetNestedMap(crd.Object, map[string]any{"strategy": "Webhook", "webhook": map[string]any{
		"clientConfig": map[string]any{"service": service}, "conversionReviewVersions": []any{"v1beta2", "v1beta1"},
	}}, "spec", "conversion"))
	w.release(crd)
	w.level("the newer definition is served", func(context.Context) (string, error) {
		w.helm(crd)
		mapping, err := w.RESTMapper().RESTMapping(schema.GroupKind{Group: "kmm.sigs.x-k8s.io", Kind: "Module"}, "v1beta1")
		if meta.IsNoMatchError(err) || mapping == nil {
			return "Modules are not served", nil
		}
		return "", err
	})
}

// store says which version is stored.
func (w *world) store(crd *unstructured.Unstructured, version string) {
	w.Helper()
	versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	w.must(err)
	for _, v := range versions {
		one, ok := v.(map[string]any)
		if !ok {
			w.Fatalf("version %v", v)
		}
		one["storage"] = one["name"] == version
	}
	w.must(unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions"))
}

// release is Helm's record of KMM's release, of which that definition is a template.
func (w *world) release(crd *unstructured.Unstructured) {
	w.Helper()
	w.make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: peer}})
	text, err := yaml.Marshal(crd.Object)
	w.must(err)
	record, err := json.Marshal(map[string]any{
		"name": "kmm", "namespace": peer, "version": 1, "manifest": "---\n# Source: x\n" + string(text),
	})
	w.must(err)
	var packed bytes.Buffer
	writer := gzip.NewWriter(&packed)
	_, err = writer.Write(record)
	w.must(errors.Join(err, writer.Close()))
	w.make(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: peer, Name: "sh.helm.release.v1.kmm.v1", Labels: map[string]string{
			"owner": "helm", "name": "kmm", "status": "deployed", "version": "1",
		}},
		Type: "helm.sh/release.v1", Data: map[string][]byte{"release": []byte(base64.StdEncoding.EncodeToString(packed.Bytes()))},
	})
}

// load has a node's kernel hold a module, past any agent.
func (w *world) load(node, kernel string, m *v1beta1.Module) {
	w.Helper()
	w.must(w.Debug(w.Context(), fmt.Sprintf("/insmod?node=%s&module=%s&image=%s", node, m.Spec.ModuleLoader.Container.Modprobe.ModuleName,
		Image(m, kernel))))
}
