// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta2"
	"github.com/drover-project/drover/internal/build/pipeline"
	"github.com/drover-project/drover/internal/testkit/audit"
)

// TestPreflightGoodImageIsReady: an image that the registry has is pulled and examined by one Job
// of one step.
func TestPreflightGoodImageIsReady(t *testing.T) {
	a := givenAhead(t, "good")
	a.push("good", kernelNext, kernelNext)
	a.future("good")
	p := a.ask(kernelNext, false)
	a.answer(p, metav1.ConditionTrue, v1beta1.ReasonKernelReady, 1)
	a.found(p, "good", v1beta2.VerificationSuccess, "")
	_, jobs, err := a.made(t.Context(), "good")
	a.must(err)
	if len(jobs) != 1 || !slices.Equal(steps(&jobs[0]), []string{pipeline.StepExamine}) {
		t.Errorf("there are %d Jobs, of one's steps %v", len(jobs), steps(&jobs[0]))
	}
}

// TestPreflightFailuresHaveReasons: each Module that is not ready says why, and the condition names
// it. What is mended is looked at again when asked.
func TestPreflightFailuresHaveReasons(t *testing.T) {
	a := givenAhead(t, "bad")
	a.push("good", kernelNext, kernelNext)
	a.push("bad", kernelNext, kernelAfter)
	for _, name := range []string{"good", "bad", "absent"} {
		a.future(name)
	}
	a.future("broken", a.building(`echo "broken.c:3:1: error: expected ';'" >&2; exit 1`))
	p := a.ask(kernelNext, false)
	a.answer(p, metav1.ConditionFalse, v1beta1.ReasonPreflightFailed, 4)
	a.found(p, "good", v1beta2.VerificationSuccess, "")
	a.found(p, "bad", v1beta2.VerificationFailure, v1beta1.ReasonVermagicMismatch, kernelAfter)
	a.found(p, "absent", v1beta2.VerificationFailure, v1beta1.ReasonImageNotFound)
	a.found(p, "broken", v1beta2.VerificationFailure, v1beta1.ReasonBuildFailed, "broken.c:3:1: error: expected ';'")
	message := meta.FindStatusCondition(p.Status.Conditions, v1beta1.ConditionReady).Message
	for _, words := range []string{"3 of 4 Modules are not ready for kernel " + kernelNext, a.key.Namespace + "/bad (VermagicMismatch)",
		"/absent (ImageNotFound)", "/broken (BuildFailed)"} {
		if !strings.Contains(message, words) {
			t.Errorf("the condition does not say %q: %s", words, message)
		}
	}
	a.push("bad", kernelNext, kernelNext)
	if out, code := buildTool(t)(t.Context(), "retry", "bad", "-n="+a.key.Namespace); code != 0 {
		t.Fatalf("drover retry ends with %d: %s", code, out)
	}
	a.eventually("what was mended is ready", func(ctx context.Context) error {
		if err := shared.Admin.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		for _, m := range p.Status.Modules {
			if m.Name == "bad" && m.VerificationStatus != v1beta2.VerificationSuccess {
				return fmt.Errorf("it is %s: %s", m.VerificationStatus, m.StatusReason)
			}
		}
		return nil
	})
}

// TestPreflightPushesNothingUnasked: what is missing is built, signed and examined, and the
// registry gets nothing of it.
func TestPreflightPushesNothingUnasked(t *testing.T) {
	a := givenAhead(t, "trial")
	a.future("built", a.building(compiles("built")), a.signed())
	p := a.ask(kernelNext, false)
	a.answer(p, metav1.ConditionTrue, v1beta1.ReasonKernelReady, 1)
	a.found(p, "built", v1beta2.VerificationSuccess, "", "not pushed")
	if sent := a.registry.Pushes(); len(sent) != 0 {
		t.Errorf("the registry was sent %+v", sent)
	}
	_, jobs, err := a.made(t.Context(), "built")
	a.must(err)
	want := []string{pipeline.StepCheck, pipeline.StepSource, pipeline.StepBuild, pipeline.StepPack, pipeline.StepSign, pipeline.StepExamine}
	if len(jobs) != 1 || !slices.Equal(steps(&jobs[0]), want) {
		t.Errorf("there are %d Jobs, of one's steps %v", len(jobs), steps(&jobs[0]))
	}
}

// TestPreflightMissingImageIsMadeAsForANode: with pushBuiltImage the registry has a signed image
// before the kernel comes, and when a node comes with the kernel, the very ModuleImage that it
// wants is there, and no Job is made any more.
func TestPreflightMissingImageIsMadeAsForANode(t *testing.T) {
	a := givenAhead(t, "pushed")
	a.future("built", a.building(compiles("built")), a.signed())
	p := a.ask(kernelNext, true)
	a.answer(p, metav1.ConditionTrue, v1beta1.ReasonKernelReady, 1)
	sent := a.pushed("built")
	signed := map[string]bool{"/opt/lib/modules/" + kernelNext + "/extra/built.ko": true}
	if len(sent) != 1 || sent[0].Reference != kernelNext || !cmp.Equal(sent[0].Modules, signed) {
		t.Errorf("the registry was sent %+v", sent)
	}
	images, jobs, err := a.made(t.Context(), "built")
	a.must(err)
	chain := []string{pipeline.StepCheck, pipeline.StepSource, pipeline.StepBuild, pipeline.StepPack, pipeline.StepSign, pipeline.StepPush}
	if !slices.ContainsFunc(jobs, func(j batchv1.Job) bool { return slices.Equal(steps(&j), chain) }) {
		t.Errorf("none of %d Jobs has the steps %v", len(jobs), chain)
	}
	before := len(jobs)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "e2e-next", Labels: map[string]string{
		a.selector(): "yes", corev1.LabelOSStable: "linux", corev1.LabelArchStable: builderArch,
	}}}
	a.must(shared.Admin.Create(t.Context(), node))
	t.Cleanup(func() { a.must(client.IgnoreNotFound(shared.Admin.Delete(context.WithoutCancel(t.Context()), node))) })
	bare := node.DeepCopy()
	node.Status.NodeInfo = corev1.NodeSystemInfo{KernelVersion: kernelNext, BootID: "next", OperatingSystem: "linux",
		Architecture: builderArch}
	a.must(shared.Admin.Status().Patch(t.Context(), node, client.MergeFrom(bare)))
	known := map[string]bool{}
	for i := range images {
		known[string(images[i].UID)] = true
	}
	a.eventually("the node's Module wants the image that is there", func(ctx context.Context) error {
		now, _, err := a.made(ctx, "built")
		if err != nil {
			return err
		}
		wanted := 0
		for i := range now {
			if slices.Contains(now[i].Spec.WantedBy, pipeline.WantedByModule("built")) {
				wanted++
				if !known[string(now[i].UID)] {
					return fmt.Errorf("ModuleImage %s is another one", now[i].Name)
				}
			}
		}
		if wanted != 1 {
			return fmt.Errorf("the Module wants %d images", wanted)
		}
		return nil
	})
	a.quiet()
	if _, jobs, err = a.made(t.Context(), "built"); err != nil || len(jobs) != before || len(a.pushed("built")) != 1 {
		t.Errorf("the node's coming made %d Jobs of %d, and %d pushes; %v", len(jobs), before, len(a.pushed("built")), err)
	}
}

// TestPreflightTwoKernelsDoNotCollide: two at once, for the same Modules, each with the answer for
// its own kernel.
func TestPreflightTwoKernelsDoNotCollide(t *testing.T) {
	a := givenAhead(t, "two")
	a.future("built", a.building(compiles("built")))
	a.future("prebuilt")
	a.push("prebuilt", kernelNext, kernelNext)
	a.push("prebuilt", kernelAfter, kernelNext) // which is wrong
	next, after := a.ask(kernelNext, true), a.ask(kernelAfter, true)
	a.answer(next, metav1.ConditionTrue, v1beta1.ReasonKernelReady, 2)
	a.answer(after, metav1.ConditionFalse, v1beta1.ReasonPreflightFailed, 2)
	a.found(after, "built", v1beta2.VerificationSuccess, "")
	a.found(after, "prebuilt", v1beta2.VerificationFailure, v1beta1.ReasonVermagicMismatch)
	got := map[string]map[string]bool{}
	for _, p := range a.pushed("built") {
		got[p.Reference] = p.Modules
	}
	want := map[string]map[string]bool{
		kernelNext:  {"/opt/lib/modules/" + kernelNext + "/extra/built.ko": false},
		kernelAfter: {"/opt/lib/modules/" + kernelAfter + "/extra/built.ko": false},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what was pushed (-want +got):\n%s", diff)
	}
	of := map[string]string{pipeline.WantedByPreflight(next.Name): kernelNext, pipeline.WantedByPreflight(after.Name): kernelAfter}
	for _, module := range []string{"built", "prebuilt"} {
		images, _, err := a.made(t.Context(), module)
		a.must(err)
		for i := range images {
			if s := &images[i].Spec; len(s.WantedBy) != 1 || of[s.WantedBy[0]] != s.KernelVersion {
				t.Errorf("%s is for kernel %s, and wanted by %v", images[i].Name, s.KernelVersion, s.WantedBy)
			}
		}
	}
}

// TestPreflightTouchesNoNode: of a Module that is live on every node another kernel is asked, and
// nothing is written of nodes, nor asked of a kernel.
func TestPreflightTouchesNoNode(t *testing.T) {
	a := givenAhead(t, "live")
	a.push(a.kernelModule, kernelNext, kernelNext)
	a.create(func(m *v1beta1.Module) {
		c := &m.Spec.ModuleLoader.Container
		c.KernelMappings = append([]v1beta1.KernelMapping{{
			Literal: kernelNext, ContainerImage: a.reference(a.kernelModule, "${KERNEL_FULL_VERSION}"),
			RegistryTLS: &v1beta1.TLSOptions{Insecure: true},
		}}, c.KernelMappings...)
	})
	a.converged(each(everyNode, once))
	a.quiet()
	requests := a.requests()
	p := &v1beta2.PreflightValidation{ObjectMeta: metav1.ObjectMeta{Name: a.key.Namespace}, Spec: v1beta2.PreflightValidationSpec{
		KernelVersion: kernelNext, Labels: map[string]string{"drover.dev/hollow": "true", corev1.LabelArchStable: builderArch},
	}}
	a.must(shared.Admin.Create(t.Context(), p))
	t.Cleanup(func() { a.takeBack(p) })
	a.answer(p, metav1.ConditionTrue, v1beta1.ReasonKernelReady, 1)
	a.takeBack(p)
	a.quiet()
	written := map[string]bool{}
	for _, r := range audit.OurWrites(requests()) {
		written[r.Resource()] = true
	}
	for _, resource := range []string{"moduleimages", "moduleimages/status", "jobs", "preflightvalidations/status", "events"} {
		delete(written, resource)
	}
	if len(written) > 0 {
		t.Errorf("besides images, Jobs and answers, these were written: %v", written)
	}
	var daemons appsv1.DaemonSetList
	if a.must(shared.Admin.List(t.Context(), &daemons, client.InNamespace(a.key.Namespace))); len(daemons.Items) > 0 {
		t.Errorf("there is a DaemonSet %s", daemons.Items[0].Name)
	}
	a.journalIs(each(everyNode, once))
	a.must(a.ready(t.Context()))
}

// TestPreflightOldVersionIsAnswered: who speaks v1beta1 asks in it, and reads the answer in it.
func TestPreflightOldVersionIsAnswered(t *testing.T) {
	a := givenAhead(t, "old")
	a.push("good", kernelNext, kernelNext)
	a.future("good")
	p := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "kmm.sigs.x-k8s.io/v1beta1", "kind": "PreflightValidation", "metadata": map[string]any{"name": a.key.Namespace},
		"spec": map[string]any{"kernelVersion": kernelNext, "labels": map[string]any{a.selector(): "yes"}},
	}}
	a.must(shared.Admin.Create(t.Context(), p))
	t.Cleanup(func() { a.must(client.IgnoreNotFound(shared.Admin.Delete(context.WithoutCancel(t.Context()), p))) })
	out, err := shared.Kubectl(t.Context(), "wait", "--for=condition=Ready", "--timeout="+patience.String(),
		"preflightvalidations.v1beta1.kmm.sigs.x-k8s.io/"+p.GetName())
	if err != nil {
		t.Fatal(err, out)
	}
	a.must(shared.Admin.Get(t.Context(), client.ObjectKeyFromObject(p), p))
	one, found, err := unstructured.NestedMap(p.Object, "status", "crStatuses", a.key.Namespace+"/good")
	if err != nil || !found || p.GetAPIVersion() != "kmm.sigs.x-k8s.io/v1beta1" || one["verificationStatus"] != "Success" ||
		one["verificationStage"] != "Done" {
		t.Errorf("the answer in %s is %v (%v)", p.GetAPIVersion(), p.Object["status"], err)
	}
}

// TestPreflightCommandExits: the built command line tool tells of its progress, and ends with a
// code for each outcome. It leaves nothing.
func TestPreflightCommandExits(t *testing.T) {
	a := givenAhead(t, "command")
	drover := buildTool(t)
	selected := func(name string) func(*v1beta1.Module) {
		return func(m *v1beta1.Module) { m.Spec.Selector = map[string]string{a.selector(): name} }
	}
	a.push("good", kernelNext, kernelNext)
	a.push("bad", kernelNext, kernelAfter)
	a.future("good", selected("good"))
	a.future("bad", selected("bad"))
	a.future("slow", a.building(compiles("slow")), selected("slow"), func(m *v1beta1.Module) {
		m.Spec.ModuleLoader.Container.Build.Selector = map[string]string{"e2e.drover.dev/no-such": "node"}
	})
	asks := []struct {
		kernel, modules string
		args            []string
		then            int
		says            []string
	}{
		{kernelNext, "good", nil, 0, []string{"waiting: ", "All 1 Modules are ready for kernel " + kernelNext, "ready", a.key.Namespace +
			"/good"}},
		{kernelNext, "bad", nil, 1, []string{"waiting: ", "FAILED", a.key.Namespace + "/bad", "VermagicMismatch", "Next step: "}},
		{kernelNext, "slow", []string{"--timeout=5s"}, 1,
			[]string{"waiting: 1 of 1 Modules are still being checked", "unknown", a.key.Namespace + "/slow"}},
		{"nonsense", "good", nil, 2, []string{"spec.kernelVersion"}},
	}
	for _, ask := range asks {
		args := append([]string{"preflight", ask.kernel, "-l", a.selector() + "=" + ask.modules}, ask.args...)
		out, code := drover(t.Context(), args...)
		t.Logf("$ drover %s\n%s(%d)", strings.Join(args, " "), out, code)
		if code != ask.then {
			t.Errorf("it ends with %d, want %d", code, ask.then)
		}
		for _, words := range ask.says {
			if !strings.Contains(out, words) {
				t.Errorf("it does not say %q", words)
			}
		}
	}
	var left v1beta2.PreflightValidationList
	if a.must(shared.Admin.List(t.Context(), &left)); len(left.Items) > 0 {
		t.Errorf("%s is left", left.Items[0].Name)
	}
	a.nothingMade()
}

// TestPreflightTakesBackWhatItMade: images that it asked for go with it, and their Jobs and pods;
// what another one wants stays, and so does the registry's.
func TestPreflightTakesBackWhatItMade(t *testing.T) {
	a := givenAhead(t, "gone")
	a.push("good", kernelNext, kernelNext)
	a.future("good")
	a.future("built", a.building(compiles("built")))
	first, second := a.ask(kernelNext, true), a.ask(kernelNext, false)
	for _, p := range []*v1beta2.PreflightValidation{first, second} {
		a.answer(p, metav1.ConditionTrue, v1beta1.ReasonKernelReady, 2)
	}
	a.takeBack(first)
	a.quiet()
	if images, jobs, err := a.made(t.Context(), "good"); err != nil || len(images) != 1 || len(jobs) != 1 {
		t.Errorf("of what the other one wants too, %d ModuleImages and %d Jobs are left, not 1 and 1; %v", len(images), len(jobs), err)
	}
	third := a.ask(kernelNext, false)
	for _, p := range []*v1beta2.PreflightValidation{second, third} {
		a.answer(p, metav1.ConditionTrue, v1beta1.ReasonKernelReady, 2)
	}
	a.must(shared.Admin.DeleteAllOf(t.Context(), &v1beta2.PreflightValidation{})) // at one moment, as far as it can be
	a.nothingMade()
	if sent := a.pushed("built"); len(sent) != 1 {
		t.Errorf("the registry was sent %d images", len(sent))
	}
}

// nothingMade waits until no ModuleImage, Job or pod is in the namespace.
func (a *ahead) nothingMade() {
	a.Helper()
	a.eventually("nothing stays of what was made", func(ctx context.Context) error {
		var images v1alpha1.ModuleImageList
		var jobs batchv1.JobList
		var pods corev1.PodList
		in := client.InNamespace(a.key.Namespace)
		if err := errors.Join(shared.Admin.List(ctx, &images, in), shared.Admin.List(ctx, &jobs, in),
			shared.Admin.List(ctx, &pods, in)); err != nil {
			return err
		}
		if len(images.Items)+len(jobs.Items)+len(pods.Items) > 0 {
			return fmt.Errorf("%d ModuleImages, %d Jobs and %d pods are there", len(images.Items), len(jobs.Items), len(pods.Items))
		}
		return nil
	})
}
