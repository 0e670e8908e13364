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
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta2"
	"github.com/drover-project/drover/internal/build/pipeline"
	"github.com/drover-project/drover/internal/operator/controller/moduleimage"
	"github.com/drover-project/drover/internal/operator/controller/preflight"
	"github.com/drover-project/drover/internal/operator/gate"
	"github.com/drover-project/drover/internal/testkit/env"
)

func TestMain(m *testing.M) { os.Exit(env.Main(m)) }

const (
	digest = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	next   = "6.1.0-99-amd64"
)

// world is a namespace with Modules, under the two controllers with the operator's own rights. The
// test plays the Job controller.
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
	e.InstallBuild(t)
	operator := e.Client(t, e.Config(t, env.Operator))
	const buildah = "q/buildah@" + digest
	// The time stands still: on a slow machine, a failure would be tried again in between.
	w.images = moduleimage.New(operator, operator, moduleimage.Options{Gate: &gate.Gate{}, Pipeline: pipeline.Options{
		SignerImage: "registry.invalid/drover/drover-signer:dev", BuildahImage: buildah, Deadline: time.Hour,
	}, Clock: clocktesting.NewFakePassiveClock(time.Now())})
	w.control = preflight.New(operator, operator, preflight.Options{BuildahImage: buildah, Examines: true, Makes: true, Gate: &gate.Gate{}})
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
	source := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "source"},
		Data: map[string]string{"dockerfile": "FROM a"}}
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

// end plays a Job to its end: its pod tells what the steps say, and the last container has the exit
// code.
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
		job.Status.Conditions = append(job.Status.Conditions,
			batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: at})
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
