// SPDX-License-Identifier: Apache-2.0

package preflight_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	droverac "github.com/drover-project/drover/api/drover/v1alpha1/applyconfiguration/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta2"
	"github.com/drover-project/drover/internal/build/pipeline"
	"github.com/drover-project/drover/internal/operator"
	"github.com/drover-project/drover/internal/operator/controller/moduleimage"
	"github.com/drover-project/drover/internal/operator/controller/preflight"
	"github.com/drover-project/drover/internal/operator/gate"
	"github.com/drover-project/drover/internal/shared/reasons"
	"github.com/drover-project/drover/internal/testkit/env"
)

// TestPreflightOutcomes: each Module has its own answer, and nothing but images is asked for.
func TestPreflightOutcomes(t *testing.T) {
	w := newWorld(t)
	mark := w.env.Mark(t)
	source := w.source()
	w.module("good", func(c *v1beta1.ModuleLoaderContainerSpec) {
		c.KernelMappings[0].ContainerImage = "r.example/good:$KERNEL_X-$KERNEL_DEBIAN_RELEASE"
	})
	w.module("unfit", nil)
	absent := w.module("absent", nil)
	w.module("unmapped", func(c *v1beta1.ModuleLoaderContainerSpec) { c.KernelMappings[0].Regexp = "^5" })
	w.module("variable", func(c *v1beta1.ModuleLoaderContainerSpec) {
		c.KernelMappings[0].ContainerImage = "r.example/v:$KERNEL_RHEL_RELEASE"
	})
	w.module("built", w.builds)
	w.module("broken", w.builds)
	w.module("sourceless", func(c *v1beta1.ModuleLoaderContainerSpec) {
		c.Build = &v1beta1.Build{DockerfileConfigMap: &corev1.LocalObjectReference{Name: "no-such"}}
	})
	plugin := &v1beta1.Module{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "plugin"}}
	plugin.Spec.Selector = map[string]string{"test": w.namespace}
	plugin.Spec.DevicePlugin = &v1beta1.DevicePluginSpec{Container: v1beta1.WorkloadContainer{Image: "r.example/plugin:1"}}
	w.must(w.admin.Create(t.Context(), plugin))
	elsewhere := w.module("elsewhere", nil)
	elsewhere.Spec.Selector = map[string]string{"test": "elsewhere"}
	w.must(w.admin.Update(t.Context(), elsewhere))
	p := w.ask("all", false)
	w.pass()
	w.found(p, "good", v1beta2.VerificationInProgress, v1beta1.ReasonBuilding)
	w.ready(p, metav1.ConditionFalse, v1beta1.ReasonPreflightFailed)
	w.quiet()

	w.end(w.job("good"), 0, map[string]string{"examine": fits})
	w.end(w.job("unfit"), 1, map[string]string{
		"examine": `{"step":"examine","unfit":"VermagicMismatch","reason":"Unfit","error":"kernel module unfit, vermagic: 5.10"}`})
	w.end(w.job("absent"), 1, map[string]string{"examine": `{"step":"examine","reason":"NotFound","error":"the registry has no such image"}`})
	w.end(w.job("built"), 0, map[string]string{"check": `{"step":"check","state":"Missing"}`, "examine": fits})
	w.end(w.job("broken"), 1, map[string]string{"check": `{"step":"check","state":"Missing"}`, "build": "m.c:3:1: error: expected ';'"})
	w.pass()
	w.found(p, "good", v1beta2.VerificationSuccess, "", "r.example/good:6-99")
	w.found(p, "unfit", v1beta2.VerificationFailure, v1beta1.ReasonVermagicMismatch, "kernel module unfit", "5.10")
	w.found(p, "absent", v1beta2.VerificationFailure, v1beta1.ReasonImageNotFound, "no such image")
	w.found(p, "unmapped", v1beta2.VerificationFailure, v1beta1.ReasonNoKernelMapping, next)
	w.found(p, "variable", v1beta2.VerificationFailure, v1beta1.ReasonNoKernelMapping, "KERNEL_RHEL_RELEASE")
	w.found(p, "built", v1beta2.VerificationSuccess, "", "not pushed")
	w.found(p, "broken", v1beta2.VerificationFailure, v1beta1.ReasonBuildFailed, "m.c:3:1: error: expected ';'")
	w.found(p, "sourceless", v1beta2.VerificationFailure, v1beta1.ReasonBuildInputMissing, "no-such")
	w.found(p, "plugin", v1beta2.VerificationSuccess, "", "no kernel module")
	if len(p.Status.Modules) != 9 {
		t.Errorf("%d Modules instead of 9", len(p.Status.Modules))
	}
	w.ready(p, metav1.ConditionFalse, v1beta1.ReasonPreflightFailed)
	w.quiet()

	// A change of the Module is a reason to look again, though the image's name is the same.
	absent.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	w.must(w.admin.Update(t.Context(), absent))
	w.pass()
	w.found(p, "absent", v1beta2.VerificationInProgress, v1beta1.ReasonBuilding)
	w.end(w.job("absent"), 0, map[string]string{"examine": fits})
	w.pass()
	w.found(p, "absent", v1beta2.VerificationSuccess, "")

	for _, name := range []string{"unfit", "unmapped", "variable", "sourceless"} {
		w.must(w.admin.Delete(t.Context(), &v1beta1.Module{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}}))
	}
	source.Data["dockerfile"] = "FROM b"
	w.must(w.admin.Update(t.Context(), source))
	w.pass()
	for _, name := range []string{"built", "broken"} {
		w.end(w.job(name), 0, map[string]string{"check": `{"step":"check","state":"Missing"}`, "examine": fits})
	}
	w.pass()
	w.ready(p, metav1.ConditionTrue, v1beta1.ReasonKernelReady)
	w.quiet()
	for write := range w.env.Writes(t, mark) {
		if write.Agent == env.Operator && !slices.Contains([]string{"moduleimages", "moduleimages/status", "jobs", "preflightvalidations/status"},
			write.Resource) {
			t.Errorf("the operator wrote %+v", write)
		}
	}
}

// TestARefusedImageIsTold: what a quota of one namespace keeps from being asked for is the answer
// about its Module, and the others have theirs.
func TestARefusedImageIsTold(t *testing.T) {
	w := newWorld(t)
	w.module("denied", nil)
	w.module("good", nil)
	operator := w.env.Client(t, w.env.Config(t, env.Operator))
	c := interceptor.NewClient(operator, interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, object runtime.ApplyConfiguration, options ...client.ApplyOption) error {
			if image, ok := object.(*droverac.ModuleImageApplyConfiguration); ok && image.Labels[v1beta1.ModuleNameLabel] == "denied" {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "moduleimages"}, *image.Name, errors.New("exceeded quota"))
			}
			return c.Apply(ctx, object, options...)
		},
	})
	w.control = preflight.New(c, c, preflight.Options{Examines: true, Makes: true, Gate: &gate.Gate{}})
	p := w.ask("quota", false)

	for range 2 {
		_, err := w.control.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(p)})
		if !apierrors.IsForbidden(err) {
			t.Errorf("it is not tried again: %v", err)
		}
	}

	w.found(p, "denied", v1beta2.VerificationFailure, v1beta1.ReasonCheckFailed, "exceeded quota")
	w.found(p, "good", v1beta2.VerificationInProgress, v1beta1.ReasonBuilding)
}

// TestPreflightIsANodeThatRunsTheKernel: a preflight that pushes asks for the very image of a node
// that runs the kernel, which is made once; the Job that is only a try has the same steps but the
// last.
func TestPreflightIsANodeThatRunsTheKernel(t *testing.T) {
	w := newWorld(t)
	w.source()
	m := w.module("m", func(c *v1beta1.ModuleLoaderContainerSpec) {
		w.builds(c)
		c.Sign = &v1beta1.Sign{
			KeySecret: &corev1.LocalObjectReference{Name: "key"}, CertSecret: &corev1.LocalObjectReference{Name: "cert"},
			FilesToSign: []string{"/opt/lib/modules/*/m.ko"},
		}
	})
	steps := func() (names []string) {
		pod := &w.job("m").Spec.Template.Spec
		for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
			names = append(names, c.Name)
		}
		return names
	}
	try := w.ask("try", false)
	w.pass()
	if got, want := steps(), []string{"check", "build", "sign", "examine"}; !slices.Equal(got, want) {
		t.Errorf("the steps of a try are %v, want %v", got, want)
	}
	w.end(w.job("m"), 0, map[string]string{"check": `{"step":"check","state":"Missing"}`, "examine": fits})
	w.pass()
	w.found(try, "m", v1beta2.VerificationSuccess, "")

	mark := w.env.Mark(t)
	push := w.ask("push", true)
	w.pass()
	if got, want := steps(), []string{"check", "build", "sign", "push"}; !slices.Equal(got, want) {
		t.Errorf("the steps are %v, want %v", got, want)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.namespace, Labels: map[string]string{"test": w.namespace}}}
	w.must(w.admin.Create(t.Context(), node))
	node.Status.NodeInfo = corev1.NodeSystemInfo{KernelVersion: next, Architecture: "amd64"}
	w.must(w.admin.Status().Update(t.Context(), node))
	_, err := w.images.Module(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(m)})
	w.must(err)
	w.pass()
	shared := slices.DeleteFunc(w.made(), func(i v1alpha1.ModuleImage) bool { return !slices.Contains(i.Spec.WantedBy, "Module/m") })
	if len(shared) != 1 || !slices.Contains(shared[0].Spec.WantedBy, pipeline.WantedByPreflight(push.Name)) ||
		len(shared[0].OwnerReferences) != 2 {
		t.Fatalf("the node's image is not the preflight's: %+v", shared)
	}
	w.end(w.job("m"), 0, map[string]string{"check": `{"step":"check","state":"Missing"}`, "push": `{"step":"push","digest":"` + digest + `"}`})
	w.pass()
	w.found(push, "m", v1beta2.VerificationInProgress, v1beta1.ReasonBuilding)
	w.end(w.job("m"), 0, map[string]string{"examine": fits})
	w.pass()
	w.found(push, "m", v1beta2.VerificationSuccess, "", "@"+digest)
	if n := w.env.Writes(t, mark)[env.Write{Agent: env.Operator, Verb: "create", Resource: "jobs"}]; n != 2 {
		t.Errorf("%d Jobs were made, want one that makes the image and one that looks at it", n)
	}
	w.quiet()

	w.must(w.admin.Delete(t.Context(), push))
	w.must(w.admin.Delete(t.Context(), try))
	w.pass()
	if left := w.made(); len(left) != 1 || !slices.Equal(left[0].Spec.WantedBy, []string{"Module/m"}) || len(left[0].OwnerReferences) != 1 ||
		left[0].Spec.Hash == "" {
		t.Errorf("what is left is not the Module's image alone: %+v", left)
	}
	w.quiet()
}

// TestPreflightsShare: several at once for one kernel look once, and each goes without the others'
// leave.
func TestPreflightsShare(t *testing.T) {
	w := newWorld(t)
	w.module("m", nil)
	first, second := w.ask("first", false), w.ask("second", true)
	other := w.ask("other", false)
	other.Spec.KernelVersion = "6.6.0-1-arm64"
	w.must(w.admin.Update(t.Context(), other))
	w.pass()
	w.quiet()
	if n := len(w.made()); n != 2 {
		t.Fatalf("%d images for two kernels", n)
	}
	for range 2 {
		w.end(w.job("m"), 0, map[string]string{"examine": fits})
	}
	w.pass()
	for _, p := range []*v1beta2.PreflightValidation{first, second, other} {
		w.found(p, "m", v1beta2.VerificationSuccess, "")
		w.ready(p, metav1.ConditionTrue, v1beta1.ReasonKernelReady)
	}
	for _, p := range []*v1beta2.PreflightValidation{first, other} {
		w.must(w.admin.Delete(t.Context(), p))
		w.pass()
	}
	if left := w.made(); len(left) != 1 || left[0].Spec.KernelVersion != next {
		t.Errorf("the second preflight's image is not what is left: %+v", left)
	}
	w.found(second, "m", v1beta2.VerificationSuccess, "")
	w.must(w.admin.Delete(t.Context(), second))
	w.pass()
	if left := w.made(); len(left) != 0 {
		t.Errorf("images are left: %+v", left)
	}
	w.quiet()
}

// TestPreflightWithoutASigner: without a signer image, Jobs run the operator's own, and what a
// registry holds is examined; of what it lacks, they say what would make it.
func TestPreflightWithoutASigner(t *testing.T) {
	w := newWorld(t)
	own := w.env.Client(t, w.env.Config(t, env.Operator))
	o := operator.Options{Mode: operator.ModeCluster, Controllers: []string{"*"},
		Build: pipeline.Options{ExaminerImage: "registry.invalid/drover/drover-operator:dev", Deadline: time.Hour}}
	w.images = moduleimage.New(own, own, o.Images(&gate.Gate{}))
	w.control = preflight.New(own, own, preflight.Options{Examines: o.Examines(), Makes: o.Makes(), Gate: &gate.Gate{}})
	w.module("m", nil)
	w.module("built", w.builds)
	p := w.ask("it", true)
	w.pass()
	for _, name := range []string{"m", "built"} {
		containers := w.job(name).Spec.Template.Spec.Containers
		if len(containers) != 1 || containers[0].Image != o.Build.ExaminerImage || containers[0].Args[0] != pipeline.StepExamine {
			t.Errorf("the Job of %s has containers %+v", name, containers)
		}
	}
	w.end(w.job("m"), 0, map[string]string{"examine": fits})
	w.end(w.job("built"), 1, map[string]string{"examine": `{"step":"examine","reason":"NotFound","error":"404"}`})
	w.pass()
	w.found(p, "m", v1beta2.VerificationSuccess, "")
	w.found(p, "built", v1beta2.VerificationFailure, v1beta1.ReasonImageNotFound, "run it with --signer-image")
	w.ready(p, metav1.ConditionFalse, v1beta1.ReasonPreflightFailed)
	if n := len(w.made()); n != 2 {
		t.Errorf("%d images, want one for each Module", n)
	}
}

// TestPreflightWithoutImages: an operator that can examine nothing says so.
func TestPreflightWithoutImages(t *testing.T) {
	w := newWorld(t)
	operator := w.env.Client(t, w.env.Config(t, env.Operator))
	count := 0
	w.control = preflight.New(operator, operator, preflight.Options{Gate: &gate.Gate{}, Count: func(n int) { count = n }})
	w.module("m", nil)
	p := w.ask("it", false)
	w.pass()
	w.found(p, "m", v1beta2.VerificationFailure, v1beta1.ReasonCheckFailed, "--examiner-image")
	if count == 0 {
		t.Error("no PreflightValidation was counted")
	}
	shut := &gate.Gate{}
	shut.Set(&reasons.Problem{Reason: v1beta1.ReasonPeerActive})
	w.control = preflight.New(operator, operator, preflight.Options{Gate: shut, Examines: true, Makes: true})
	w.quiet()
}

// TestAStatusOfKMMGoesOn: what KMM has written about a Module that is gone goes, and the rest is
// written once.
func TestAStatusOfKMMGoesOn(t *testing.T) {
	w := newWorld(t)
	w.module("nic", nil)
	p := w.ask("kmm", false)
	foreign := v1beta2.CRStatus{VerificationStatus: v1beta2.VerificationInProgress, VerificationStage: v1beta2.StageImage,
		LastTransitionTime: metav1.Now()}
	p.Status.Modules = []v1beta2.PreflightValidationModuleStatus{{CRStatus: foreign, Namespace: w.namespace, Name: "gone"}}
	p.Status.CRStatuses = map[string]v1beta2.CRStatus{"gone": foreign}
	w.must(w.admin.Status().Update(t.Context(), p, client.FieldOwner("manager")))
	w.pass()
	w.must(w.admin.Get(t.Context(), client.ObjectKeyFromObject(p), p))
	if len(p.Status.Modules) != 1 || p.Status.Modules[0].Name != "nic" {
		t.Errorf("modules: %+v", p.Status.Modules)
	}
	if _, stays := p.Status.CRStatuses["gone"]; stays || len(p.Status.CRStatuses) != 2 {
		t.Errorf("crStatuses: %+v", p.Status.CRStatuses)
	}
	w.quiet()
}
