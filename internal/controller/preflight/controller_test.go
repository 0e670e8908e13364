// SPDX-License-Identifier: Apache-2.0

package preflight_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta2"
	"github.com/drover-project/drover/internal/controller/moduleimage"
	"github.com/drover-project/drover/internal/controller/preflight"
	"github.com/drover-project/drover/internal/delivery"
	"github.com/drover-project/drover/internal/gate"
	"github.com/drover-project/drover/internal/pipeline"
	"github.com/drover-project/drover/internal/testkit/env"
)

func TestMain(m *testing.M) { os.Exit(env.Main(m)) }

const (
	digest = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	next   = "6.1.0-99-amd64"
)

// world is a namespace with Modules, under the two controllers with the operator's own rights. The test plays the Job controller.
type world struct {
	*testing.T
	env       *env.Env
	admin     client.Client
	images    *moduleimage.Controller
	control   *preflight.Controller
	namespace string
	asked     []string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	e := env.Get(t)
	w := &world{T: t, env: e, admin: e.Admin(t), namespace: e.Namespace(t)}
	operator := e.Client(t, e.Config(t, env.Operator))
	const buildah = "q/buildah@" + digest
	w.images = moduleimage.New(operator, operator, moduleimage.Options{Gate: &gate.Gate{}, Problems: &delivery.Board{}, Pipeline: pipeline.Options{
		SignerImage: "drover/drover-signer:dev", BuildahImage: buildah, Deadline: time.Hour,
	}})
	w.control = preflight.New(operator, operator, preflight.Options{BuildahImage: buildah, Makes: true, Gate: &gate.Gate{}})
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// module makes a Module that takes an image as it is.
func (w *world) module(name string, change func(*v1beta1.ModuleLoaderContainerSpec)) *v1beta1.Module {
	w.Helper()
	m := &v1beta1.Module{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec: v1beta1.ModuleSpec{Selector: map[string]string{"test": w.namespace}, ModuleLoader: &v1beta1.ModuleLoaderSpec{
			Container: v1beta1.ModuleLoaderContainerSpec{
				Modprobe:       v1beta1.ModprobeSpec{ModuleName: name},
				KernelMappings: []v1beta1.KernelMapping{{Regexp: "^6", ContainerImage: "r.example/" + name + ":$KERNEL_FULL_VERSION"}},
			},
		}},
	}
	if change != nil {
		change(&m.Spec.ModuleLoader.Container)
	}
	w.must(w.admin.Create(w.Context(), m))
	return m
}

// builds makes a Module's image be built from a Dockerfile.
func (w *world) builds(c *v1beta1.ModuleLoaderContainerSpec) {
	c.Build = &v1beta1.Build{DockerfileConfigMap: &corev1.LocalObjectReference{Name: "source"}}
}

func (w *world) source() *corev1.ConfigMap {
	w.Helper()
	source := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "source"}, Data: map[string]string{"dockerfile": "FROM a"}}
	w.must(w.admin.Create(w.Context(), source))
	return source
}

// ask makes a PreflightValidation for this test's Modules.
func (w *world) ask(name string, push bool) *v1beta2.PreflightValidation {
	w.Helper()
	p := &v1beta2.PreflightValidation{
		ObjectMeta: metav1.ObjectMeta{Name: w.namespace + "-" + name},
		Spec:       v1beta2.PreflightValidationSpec{KernelVersion: next, PushBuiltImage: push, Labels: map[string]string{"test": w.namespace}},
	}
	w.must(w.admin.Create(w.Context(), p))
	w.asked = append(w.asked, p.Name)
	return p
}

// pass runs both controllers until what one has written, the other has seen.
func (w *world) pass() {
	w.Helper()
	for range 3 {
		for _, name := range w.asked {
			_, err := w.control.Reconcile(w.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: name}})
			w.must(err)
		}
		for _, image := range w.made() {
			_, err := w.images.Image(w.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&image)})
			w.must(err)
		}
	}
}

// quiet fails the test when another pass writes anything.
func (w *world) quiet() {
	w.Helper()
	mark := w.env.Mark(w)
	w.pass()
	if writes := w.env.Writes(w, mark); len(writes) != 0 {
		w.Errorf("a pass with nothing to do wrote %v", writes)
	}
}

func (w *world) made() []v1alpha1.ModuleImage {
	w.Helper()
	var list v1alpha1.ModuleImageList
	w.must(w.admin.List(w.Context(), &list, client.InNamespace(w.namespace)))
	return list.Items
}

// job is the newest active Job of a Module's image.
func (w *world) job(module string) *batchv1.Job {
	w.Helper()
	var list batchv1.JobList
	w.must(w.admin.List(w.Context(), &list, client.InNamespace(w.namespace), client.MatchingLabels{v1beta1.ModuleNameLabel: module}))
	for i := range list.Items {
		if len(list.Items[i].Status.Conditions) == 0 {
			return &list.Items[i]
		}
	}
	w.Fatalf("no Job is at work for %s", module)
	return nil
}

// end plays a Job to its end: its pod tells what the steps say, and the last container has the exit code.
func (w *world) end(job *batchv1.Job, code int32, steps map[string]string) {
	w.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: job.Name + "-pod", Labels: job.Spec.Template.Labels},
		Spec:       *job.Spec.Template.Spec.DeepCopy(),
	}
	pod.Labels[batchv1.JobNameLabel] = job.Name
	w.must(w.admin.Create(w.Context(), pod))
	told := func(containers []corev1.Container, last bool) (all []corev1.ContainerStatus) {
		for _, c := range containers {
			message, ok := steps[c.Name]
			if !ok {
				continue
			}
			ended := &corev1.ContainerStateTerminated{Message: message}
			if last || c.Name == "build" {
				ended.ExitCode = code
			}
			all = append(all, corev1.ContainerStatus{Name: c.Name, State: corev1.ContainerState{Terminated: ended}})
		}
		return all
	}
	pod.Status.Phase = corev1.PodSucceeded
	pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses = told(pod.Spec.InitContainers, false), told(pod.Spec.Containers, true)
	w.must(w.admin.Status().Update(w.Context(), pod))
	at := metav1.NewTime(time.Now().Truncate(time.Second))
	kinds := []batchv1.JobConditionType{batchv1.JobSuccessCriteriaMet, batchv1.JobComplete}
	job.Status.StartTime = &at
	if code == 0 {
		job.Status.CompletionTime, job.Status.Succeeded = &at, 1
	} else {
		kinds, job.Status.Failed = []batchv1.JobConditionType{batchv1.JobFailureTarget, batchv1.JobFailed}, 1
	}
	for _, kind := range kinds {
		job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: at})
	}
	job.Status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{}
	w.must(w.admin.Status().Update(w.Context(), job))
}

const fits = `{"step":"examine","digest":"` + digest + `"}`

// found is what a preflight says of a Module.
func (w *world) found(p *v1beta2.PreflightValidation, module string, status v1beta2.VerificationStatus, reason string, says ...string) {
	w.Helper()
	w.must(w.admin.Get(w.Context(), client.ObjectKeyFromObject(p), p))
	at := slices.IndexFunc(p.Status.Modules, func(s v1beta2.PreflightValidationModuleStatus) bool { return s.Name == module })
	if at < 0 {
		w.Fatalf("nothing is said of %s: %+v", module, p.Status)
	}
	one := p.Status.Modules[at]
	if one.VerificationStatus != status || one.Reason != reason {
		w.Errorf("%s is %s %q: %s; want %s %q", module, one.VerificationStatus, one.Reason, one.StatusReason, status, reason)
	}
	for _, text := range says {
		if !strings.Contains(one.StatusReason, text) {
			w.Errorf("of %s, %q does not say %q", module, one.StatusReason, text)
		}
	}
	if p.Status.CRStatuses[w.namespace+"/"+module] != one.CRStatus {
		w.Errorf("the form of v1beta1 differs: %+v", p.Status.CRStatuses)
	}
}

func (w *world) ready(p *v1beta2.PreflightValidation, status metav1.ConditionStatus, reason string) {
	w.Helper()
	w.must(w.admin.Get(w.Context(), client.ObjectKeyFromObject(p), p))
	if c := meta.FindStatusCondition(p.Status.Conditions, "Ready"); c == nil || c.Status != status || c.Reason != reason {
		w.Errorf("Ready is %+v, want %s %s", c, status, reason)
	}
}

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
	w.end(w.job("unfit"), 1, map[string]string{"examine": `{"step":"examine","unfit":"VermagicMismatch","reason":"Unfit","error":"kernel module unfit, vermagic: 5.10"}`})
	w.end(w.job("absent"), 1, map[string]string{"examine": `{"step":"examine","reason":"NotFound","error":"the registry has no such image"}`})
	w.end(w.job("built"), 0, map[string]string{"check": `{"step":"check","state":"Missing"}`, "examine": fits})
	w.end(w.job("broken"), 1, map[string]string{"check": `{"step":"check","state":"Missing"}`, "build": "m.c:3:1: error: expected ';'"})
	w.pass()
	w.found(p, "good", v1beta2.VerificationSuccess, "", "r.example/good:6-99")
	w.found(p, "unfit", v1beta2.VerificationFailure, v1beta1.ReasonVermagicMismatch, "kernel module unfit", "5.10")
	w.found(p, "absent", v1beta2.VerificationFailure, v1beta1.ReasonImageNotFound, "no such image")
	w.found(p, "unmapped", v1beta2.VerificationFailure, v1beta1.ReasonNoKernelMapping, next)
	w.found(p, "variable", v1beta2.VerificationFailure, v1beta1.ReasonNoKernelMapping, "KERNEL_RHEL_RELEASE")
	w.found(p, "built", v1beta2.VerificationSuccess, "", "pushed nowhere")
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
		if write.Agent == env.Operator && !slices.Contains([]string{"moduleimages", "moduleimages/status", "jobs", "preflightvalidations/status"}, write.Resource) {
			t.Errorf("the operator wrote %+v", write)
		}
	}
}

// TestPreflightIsANodeThatRunsTheKernel: a preflight that pushes asks for the very image of a node that runs the kernel, which is made once; the
// Job that is only a try has the same steps but the last.
func TestPreflightIsANodeThatRunsTheKernel(t *testing.T) {
	w := newWorld(t)
	w.source()
	m := w.module("m", func(c *v1beta1.ModuleLoaderContainerSpec) {
		w.builds(c)
		c.Sign = &v1beta1.Sign{
			KeySecret: &corev1.LocalObjectReference{Name: "key"}, CertSecret: &corev1.LocalObjectReference{Name: "cert"}, FilesToSign: []string{"/opt/lib/modules/*/m.ko"},
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
	if len(shared) != 1 || !slices.Contains(shared[0].Spec.WantedBy, pipeline.WantedByPreflight(push.Name)) || len(shared[0].OwnerReferences) != 2 {
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
	if left := w.made(); len(left) != 1 || !slices.Equal(left[0].Spec.WantedBy, []string{"Module/m"}) || len(left[0].OwnerReferences) != 1 || left[0].Spec.Hash == "" {
		t.Errorf("what is left is not the Module's image alone: %+v", left)
	}
	w.quiet()
}

// TestPreflightsShare: several at once for one kernel look once, and each goes without the others' leave.
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

// TestPreflightWithoutImages: an operator that looks at no images says so.
func TestPreflightWithoutImages(t *testing.T) {
	w := newWorld(t)
	operator := w.env.Client(t, w.env.Config(t, env.Operator))
	count := 0
	w.control = preflight.New(operator, operator, preflight.Options{Gate: &gate.Gate{}, Count: func(n int) { count = n }})
	w.module("m", nil)
	p := w.ask("it", false)
	w.pass()
	w.found(p, "m", v1beta2.VerificationFailure, v1beta1.ReasonCheckFailed, "--signer-image")
	if count == 0 {
		t.Error("no PreflightValidation was counted")
	}
	shut := &gate.Gate{}
	shut.Set(&gate.Problem{Reason: v1beta1.ReasonPeerActive})
	w.control = preflight.New(operator, operator, preflight.Options{Gate: shut, Makes: true})
	w.quiet()
}
