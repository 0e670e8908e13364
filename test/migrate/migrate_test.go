// SPDX-License-Identifier: Apache-2.0

//go:build migrate

package migrate

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// leftBehind is the webhook configuration that BREAK=report leaves, until it has been counted.
const leftBehind = "kmm-left-behind"

// result is what became of the take-over.
type result struct {
	Adopted        int     `json:"adopted"` // Modules that are Ready
	Modules        int     `json:"modules"`
	Unloads        int     `json:"unloads"`
	Loads          int     `json:"loads"`
	PluginRestarts int     `json:"pluginRestarts"`
	Leftovers      int     `json:"leftovers"`
	BackUnloads    int     `json:"backUnloads"` // what KMM would reload when it comes back
	T1             bool    `json:"t1"`          // plugin pods with KMM's finalizer end
	T2             bool    `json:"t2"`          // no conversion webhook is left, both versions are readable
	T3             bool    `json:"t3"`          // a definition that goes stops nothing else, and its return is seen
	T4             bool    `json:"t4"`          // the deprecated field does not stop a Module, or a later change
	T5             bool    `json:"t5"`          // a dead webhook is named by a Module
	T6             bool    `json:"t6"`          // Drover is installed over what Helm owns, without force
	T7             bool    `json:"t7"`          // ready labels, plugins, classes and preflights outlive the take-over
	Back           bool    `json:"back"`        // KMM is back, and may report
	Seconds        float64 `json:"seconds"`
	Break          string  `json:"break,omitempty"`
}

// TestMigrate takes a cluster over from KMM, and gives it back. BREAK=report leaves a webhook of
// KMM behind, which must be counted.
func TestMigrate(t *testing.T) {
	began, r := time.Now(), &result{Break: os.Getenv("BREAK")}
	w := start(t)
	w.kmm()
	r.Modules = len(w.modules)
	w.forward(r)
	w.adopted(r)
	if r.Break == "report" {
		w.hooks(leftBehind)
	}
	w.count(r)
	if r.Break == "report" {
		w.unhook(leftBehind)
	}
	w.within(soon, "no webhook converts", w.conversions)
	r.T2 = w.readable()
	r.T1 = w.pluginEnds()
	r.T4 = w.laterChange()
	w.backEntries(r)
	r.T5 = w.deadWebhook()
	r.T3 = w.definitionGoes()
	r.Back = w.backward()
	r.Seconds = time.Since(began).Round(100 * time.Millisecond).Seconds()
	line, err := json.Marshal(r)
	w.must(err)
	fmt.Printf("RESULT %s\n", line)
	if r.Adopted != r.Modules || r.Unloads+r.Loads+r.PluginRestarts+r.Leftovers+r.BackUnloads > 0 ||
		slices.Contains([]bool{r.T1, r.T2, r.T3, r.T4, r.T5, r.T6, r.T7, r.Back}, false) {
		t.Error("the take-over is not what it must be")
	}
}

// forward is the way over, as docs/guide/kmm.md says it.
func (w *world) forward(r *result) {
	w.Helper()
	out, code := w.page("drover migrate kmm")
	if code != 1 || !strings.Contains(out, "Next step: drover migrate kmm --apply") || strings.Contains(out, "\n  you ") {
		w.Errorf("the first look: exit code %d", code)
	}
	for _, words := range []string{
		"kmm-operator-controller: wants 1 pod, of which there are 1", "every write of a Module fails", "KMM's webhook converts",
		"its fields belong to helm", "`helm uninstall` would delete " + preflights, "4 Modules to take over", "4 pods with KMM's finalizer",
		"2 nodes with KMM's labels .device-plugin-target", "1 DeviceClass of KMM", "cannot be read",
	} {
		if !strings.Contains(out, words) {
			w.Errorf("the first look does not say %q", words)
		}
	}
	w.transcript(out)
	_, conflict := w.Kubectl(w.Context(), "apply", "--server-side", "--dry-run=server", "-k", "config/crd")
	if _, code = w.page("drover migrate kmm --apply"); code != 0 {
		w.Errorf("--apply: exit code %d", code)
	}
	err := w.Install(w.Context())
	if err != nil {
		w.Fatalf("install: %v", err)
	}
	r.T6 = conflict != nil && strings.Contains(conflict.Error(), "conflict") && err == nil
	if !r.T6 {
		w.Errorf("before --apply, an apply of our definitions: %v", conflict)
	}
}

// adopted waits until every node's agent has looked at every module, and every Module is Ready.
func (w *world) adopted(r *result) {
	w.Helper()
	w.level("agents have looked at all that KMM reported", func(ctx context.Context) (string, error) {
		var list v1beta1.NodeModulesConfigList
		err := w.List(ctx, &list)
		seen := 0
		for i := range list.Items {
			for j := range list.Items[i].Status.Modules {
				if list.Items[i].Status.Modules[j].Observed != nil {
					seen++
				}
			}
		}
		if seen != nodes*len(w.modules) {
			return fmt.Sprintf("at %d of %d", seen, nodes*len(w.modules)), err
		}
		return "", err
	})
	w.level("every Module is Ready", func(ctx context.Context) (string, error) {
		var list v1beta1.ModuleList
		if err := w.List(ctx, &list, client.InNamespace(drivers)); err != nil {
			return "", err
		}
		r.Adopted = 0
		var waits []string
		for i := range list.Items {
			m := &list.Items[i]
			c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionReady)
			if c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == m.Generation {
				r.Adopted++
				continue
			}
			waits = append(waits, m.Name+": "+said(c))
		}
		return strings.Join(waits, "\n"), nil
	})
	w.page("drover status -A")
}

func said(c *metav1.Condition) string {
	if c == nil {
		return "nothing yet"
	}
	return c.Reason + ": " + c.Message
}

// count is about what the take-over has cost, and what of KMM is still there.
func (w *world) count(r *result) {
	w.Helper()
	truth, err := w.Truth(w.Context())
	w.must(err)
	for _, n := range truth {
		r.Loads, r.Unloads = r.Loads+n.Loads, r.Unloads+n.Unloads
		if len(n.Loaded) != len(w.modules) {
			w.Errorf("node %s holds %v", n.Name, n.Loaded)
		}
	}
	var pods corev1.PodList
	w.must(w.List(w.Context(), &pods, client.InNamespace(drivers), client.HasLabels{v1beta1.RoleLabel}))
	stayed := 0
	for i := range pods.Items {
		p := &pods.Items[i]
		if w.plugins[string(p.UID)] && p.DeletionTimestamp == nil {
			stayed++
		} else {
			w.Logf("plugin pod %s came, or goes", p.Name)
		}
	}
	r.PluginRestarts = max(len(w.plugins), len(pods.Items)) - stayed
	w.within(soon, "nothing of KMM is left", func(ctx context.Context) (string, error) {
		left, err := w.leftovers(ctx)
		r.Leftovers = len(left)
		if r.Break != "" { // it would wait for what never goes
			left = slices.DeleteFunc(left, func(what string) bool { return what == "webhook "+leftBehind })
		}
		return strings.Join(left, "; "), err
	})
	lost := w.watch.lost()
	classes := w.conflicts()
	if len(lost) > 0 || classes != "" {
		w.Errorf("labels that went: %v; classes: %s", lost, classes)
	}
	r.T7 = len(lost) == 0 && r.PluginRestarts == 0 && classes == ""
}

// conflicts is what a Module says of a DeviceClass that it does not get.
func (w *world) conflicts() string {
	w.Helper()
	m := &v1beta1.Module{}
	w.must(w.Get(w.Context(), client.ObjectKey{Namespace: drivers, Name: "gpu"}, m))
	for i := range m.Status.Conditions {
		if m.Status.Conditions[i].Reason == v1beta1.ReasonDeviceClassConflict {
			return said(&m.Status.Conditions[i])
		}
	}
	return ""
}

// backEntries counts the entries of nodes, ordered and reported, that KMM would change.
func (w *world) backEntries(r *result) {
	w.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(v1beta1.GroupVersion.WithKind("NodeModulesConfigList"))
	w.must(w.List(w.Context(), list))
	for i := range list.Items {
		node := w.nodes[list.Items[i].GetName()]
		for _, m := range w.modules {
			want := Entry(m, node.Status.NodeInfo.KernelVersion)
			for _, part := range []string{"spec", "status"} {
				found := Differences(want, entryOf(&list.Items[i], part, m.Name), "")
				if len(found) > 0 {
					r.BackUnloads++
					w.Logf("node %s, %s, Module %s: KMM would change %v", node.Name, part, m.Name, found)
				}
			}
		}
	}
}

func entryOf(nmc *unstructured.Unstructured, part, module string) map[string]any {
	entries, _, _ := unstructured.NestedSlice(nmc.Object, part, "modules") // what is missing differs
	for _, e := range entries {
		if entry, ok := e.(map[string]any); ok && entry["name"] == module {
			return entry
		}
	}
	return nil
}

// backward removes Drover and gives back to KMM.
func (w *world) backward() bool {
	w.Helper()
	w.must(w.StopOperator())
	w.must(w.Hollow.Stop())
	w.Hollow = nil
	w.undeploy()
	if _, code := w.page("drover migrate kmm --back"); code != 0 {
		w.Errorf("--back: exit code %d", code)
		return false
	}
	var list v1beta1.ModuleList
	w.must(w.List(w.Context(), &list))
	nmc := &unstructured.Unstructured{}
	nmc.SetGroupVersionKind(v1beta1.GroupVersion.WithKind("NodeModulesConfig"))
	w.must(w.Get(w.Context(), client.ObjectKey{Name: "hollow-0"}, nmc))
	err := w.asKMM().Status().Update(w.Context(), nmc)
	if err != nil {
		w.Errorf("KMM reports, and is refused: %v", err)
	}
	out, code := w.tool("migrate", "kmm")
	if code != 1 || !strings.Contains(out, "KMM's webhook converts") || !strings.Contains(out, "wants 1 pod") {
		w.Errorf("after --back: exit code %d", code)
	}
	// One was deleted on the way, with a webhook that nobody served.
	if len(list.Items) != len(w.modules) {
		w.Errorf("of %d Modules, %d are left", len(w.modules), len(list.Items))
	}
	return err == nil && code == 1 && len(list.Items) == len(w.modules)
}
