// SPDX-License-Identifier: Apache-2.0

package moduleimage_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/build/pipeline"
	"github.com/drover-project/drover/internal/operator/controller/moduleimage"
	"github.com/drover-project/drover/internal/operator/gate"
	"github.com/drover-project/drover/internal/shared/facts"
	"github.com/drover-project/drover/internal/testkit/env"
)

func TestMain(m *testing.M) { os.Exit(env.Main(m)) }

const digest = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

// world is a namespace with a Module that builds, on one node. The test plays the Job controller
// and the kubelet.
type world struct {
	*testing.T
	env       *env.Env
	admin     client.Client
	control   *moduleimage.Controller
	clock     *clocktesting.FakePassiveClock
	module    *v1beta1.Module
	source    *corev1.ConfigMap
	namespace string
	// mine chooses the images that the controller makes; nil: all.
	mine func(*v1alpha1.ModuleImage) bool
}

func newWorld(t *testing.T) *world {
	t.Helper()
	e := env.Get(t)
	w := &world{T: t, env: e, admin: e.Admin(t), namespace: e.Namespace(t),
		clock: clocktesting.NewFakePassiveClock(time.Now().Truncate(time.Second))}
	e.InstallBuild(t)
	operator := e.Client(t, e.Config(t, env.Operator))
	w.control = moduleimage.New(operator, operator,
		moduleimage.Options{Gate: &gate.Gate{}, Clock: w.clock, Mine: func(image *v1alpha1.ModuleImage) bool {
			return w.mine == nil || w.mine(image)
		}, Pipeline: pipeline.Options{
			SignerImage: "registry.invalid/drover/drover-signer:dev", BuildahImage: "q/buildah@" + digest, Deadline: time.Hour,
		}})
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.namespace, Labels: map[string]string{"test": w.namespace}}}
	w.must(w.admin.Create(t.Context(), node))
	node.Status.NodeInfo = corev1.NodeSystemInfo{KernelVersion: "6.1.0-56-amd64", Architecture: "amd64"}
	w.must(w.admin.Status().Update(t.Context(), node))
	w.source = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "source"},
		Data: map[string]string{"dockerfile": "FROM a"}}
	w.must(w.admin.Create(t.Context(), w.source))
	w.module = &v1beta1.Module{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "m"},
		Spec: v1beta1.ModuleSpec{Selector: map[string]string{"test": w.namespace}, ModuleLoader: &v1beta1.ModuleLoaderSpec{
			Container: v1beta1.ModuleLoaderContainerSpec{
				Build:          &v1beta1.Build{DockerfileConfigMap: &corev1.LocalObjectReference{Name: "source"}},
				Modprobe:       v1beta1.ModprobeSpec{ModuleName: "m"},
				KernelMappings: []v1beta1.KernelMapping{{Regexp: "^.+$", ContainerImage: "r.example/m:$KERNEL_FULL_VERSION"}},
			},
		}},
	}
	w.must(w.admin.Create(t.Context(), w.module))
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// pass runs both reconcilers over everything, and returns when the images are due again.
func (w *world) pass() (again time.Duration) {
	w.Helper()
	_, err := w.control.Module(w.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(w.module)})
	w.must(err)
	for _, image := range w.images() {
		result, err := w.control.Image(w.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&image)})
		w.must(err)
		again = max(again, result.RequeueAfter)
	}
	return again
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

func (w *world) images() []v1alpha1.ModuleImage {
	w.Helper()
	var list v1alpha1.ModuleImageList
	w.must(w.admin.List(w.Context(), &list, client.InNamespace(w.namespace)))
	return list.Items
}

// wanted is the one image that the Module wants.
func (w *world) wanted() *v1alpha1.ModuleImage {
	w.Helper()
	for _, image := range w.images() {
		if slices.Contains(image.Spec.WantedBy, "Module/m") {
			return &image
		}
	}
	w.Fatal("no image is wanted")
	return nil
}

func (w *world) jobs() []batchv1.Job {
	w.Helper()
	var list batchv1.JobList
	w.must(w.admin.List(w.Context(), &list, client.InNamespace(w.namespace)))
	return list.Items
}

// write changes the Dockerfile.
func (w *world) write(content string) {
	w.Helper()
	w.source.Data["dockerfile"] = content
	w.must(w.admin.Update(w.Context(), w.source))
}

// end plays a Job's pod to its end: the steps' termination messages, then the Job's own condition.
func (w *world) end(job *batchv1.Job, kind batchv1.JobConditionType, steps map[string]string) {
	w.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: job.Name + "-pod", Labels: job.Spec.Template.Labels},
		Spec:       *job.Spec.Template.Spec.DeepCopy(),
	}
	pod.Labels[batchv1.JobNameLabel] = job.Name
	w.must(w.admin.Create(w.Context(), pod))
	pod.Status.Phase = corev1.PodSucceeded
	code := int32(0)
	if kind == batchv1.JobFailed {
		pod.Status.Phase, code = corev1.PodFailed, 1
	}
	status := func(name string) (corev1.ContainerStatus, bool) {
		message, ok := steps[name]
		ended := &corev1.ContainerStateTerminated{Message: message}
		if name != "check" {
			ended.ExitCode = code
		}
		return corev1.ContainerStatus{Name: name, State: corev1.ContainerState{Terminated: ended}}, ok
	}
	for _, c := range pod.Spec.InitContainers {
		if s, ok := status(c.Name); ok {
			pod.Status.InitContainerStatuses = append(pod.Status.InitContainerStatuses, s)
		}
	}
	if s, ok := status("push"); ok {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, s)
	}
	w.must(w.admin.Status().Update(w.Context(), pod))
	at := metav1.NewTime(w.clock.Now())
	job.Status.StartTime = &at
	before := batchv1.JobSuccessCriteriaMet
	if kind == batchv1.JobFailed {
		before, job.Status.Failed = batchv1.JobFailureTarget, 1
	} else {
		job.Status.CompletionTime, job.Status.Succeeded = &at, 1
	}
	for _, c := range []batchv1.JobConditionType{before, kind} {
		job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{Type: c, Status: corev1.ConditionTrue, LastTransitionTime: at})
	}
	job.Status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{}
	w.must(w.admin.Status().Update(w.Context(), job))
}

// succeed ends the one active Job well.
func (w *world) succeed() {
	w.Helper()
	w.end(w.active(), batchv1.JobComplete, map[string]string{"check": `{"step":"check","state":"Missing"}`,
		"push": `{"step":"push","digest":"` + digest + `"}`})
}

func (w *world) fail() {
	w.Helper()
	w.end(w.active(), batchv1.JobFailed, map[string]string{"check": `{"step":"check","state":"Missing"}`,
		"build": "m.c:3:1: error: expected ';'\nmake: *** [m.o] Error 1"})
}

func (w *world) active() *batchv1.Job {
	w.Helper()
	for _, job := range w.jobs() {
		if len(job.Status.Conditions) == 0 && !ptr.Deref(job.Spec.Suspend, false) {
			return &job
		}
	}
	w.Fatal("no Job is at work")
	return nil
}

// available is the condition of the wanted image.
func (w *world) available(status metav1.ConditionStatus, reason string, says ...string) {
	w.Helper()
	image := w.wanted()
	c := meta.FindStatusCondition(image.Status.Conditions, v1alpha1.ConditionAvailable)
	if c == nil || c.Status != status || c.Reason != reason {
		w.Fatalf("Available is %+v, want %s %s", c, status, reason)
	}
	for _, text := range says {
		if !strings.Contains(c.Message, text) {
			w.Errorf("the message %q does not say %q", c.Message, text)
		}
	}
}

// created counts the Jobs that were ever made since a mark, from the audit log.
func (w *world) created(since env.Mark) int {
	w.Helper()
	return w.env.Writes(w, since)[env.Write{Agent: "drover-operator", Verb: "create", Resource: "jobs"}]
}

// TestOneJobPerInput: 20 toggles between three Dockerfiles, some while a Job is at work, make
// exactly three Jobs.
func TestOneJobPerInput(t *testing.T) {
	w := newWorld(t)
	mark := w.env.Mark(t)
	done := map[string]bool{}
	for i := range 20 {
		content := fmt.Sprintf("FROM image-%d", i%3)
		w.write(content)
		w.pass()
		if i >= 6 && !done[content] {
			w.succeed()
			w.pass()
			done[content] = true
			w.available(metav1.ConditionTrue, v1beta1.ReasonImagesAvailable)
		}
		if i%5 == 0 {
			w.quiet()
		}
	}
	if n := w.created(mark); n != 3 {
		t.Errorf("%d Jobs were made for 3 distinct inputs", n)
	}
	if got := w.wanted().Status.Image; got != "r.example/m:6.1.0-56-amd64@"+digest {
		t.Errorf("the image is %q", got)
	}
}

// TestUnwantedJobsRest: a Job that nobody wants any more is suspended, and goes on when somebody
// does.
func TestUnwantedJobsRest(t *testing.T) {
	w := newWorld(t)
	w.pass()
	first := w.active().Name
	w.write("FROM b")
	w.pass()
	if second := w.active().Name; second == first {
		t.Fatal("the other input has the same Job")
	}
	w.write("FROM a")
	w.pass()
	if now := w.active().Name; now != first {
		t.Errorf("%s is at work, want %s", now, first)
	}
	w.must(w.admin.Delete(t.Context(), w.source))
	w.pass()
	w.must(w.admin.Get(t.Context(), client.ObjectKeyFromObject(w.module), w.module))
	if p := facts.Problem(w.module, v1beta1.ProblemImages); p == nil || p.Reason != v1beta1.ReasonBuildInputMissing ||
		!strings.Contains(p.Message, "ConfigMap source is missing") {
		t.Errorf("without the ConfigMap: %+v", p)
	}
	for _, job := range w.jobs() {
		if !ptr.Deref(job.Spec.Suspend, false) {
			t.Errorf("Job %s is at work for nobody", job.Name)
		}
	}
}

// TestFailuresBackOffAndStop: the compiler's line is in the condition, tries come later and later,
// five at most, until somebody asks.
func TestFailuresBackOffAndStop(t *testing.T) {
	w := newWorld(t)
	mark := w.env.Mark(t)
	w.pass()
	pauses := []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 0}
	for i, want := range pauses {
		w.fail()
		if again := w.pass(); again != want {
			t.Errorf("after failure %d the next try is in %v, want %v", i+1, again, want)
		}
		w.available(metav1.ConditionFalse, v1beta1.ReasonBuildFailed, "m.c:3:1: error: expected ';'", "step build",
			fmt.Sprintf("try %d of 5", i+1))
		w.quiet()
		w.clock.SetTime(w.clock.Now().Add(want))
		w.pass()
	}
	w.clock.SetTime(w.clock.Now().Add(240 * time.Hour))
	w.quiet()
	if n := w.created(mark); n != 5 {
		t.Errorf("%d Jobs were made, want 5", n)
	}
	base := w.module.DeepCopy()
	w.module.Annotations = map[string]string{v1beta1.RetryAnnotation: w.clock.Now().UTC().Format(time.RFC3339)}
	w.must(w.admin.Patch(t.Context(), w.module, client.MergeFrom(base)))
	w.pass()
	w.succeed()
	w.pass()
	w.available(metav1.ConditionTrue, v1beta1.ReasonImagesAvailable)
	w.quiet()
}

// TestARefusedJobIsTold: what the API server says of a Job that it does not take is on the image,
// and the Job is made when it takes it.
func TestARefusedJobIsTold(t *testing.T) {
	w := newWorld(t)
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "none"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/jobs.batch": resource.MustParse("0")}},
	}
	w.must(w.admin.Create(t.Context(), quota))
	quota.Status.Hard, quota.Status.Used = quota.Spec.Hard, quota.Spec.Hard // nobody counts here
	w.must(w.admin.Status().Update(t.Context(), quota))
	_, err := w.control.Module(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(w.module)})
	w.must(err)
	// The API server learns of quotas by a watch of its own.
	until := func(done func() bool) {
		t.Helper()
		err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true,
			func(context.Context) (bool, error) { return done(), nil })
		w.must(err)
	}
	until(func() bool {
		probe := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "probe"},
			Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{
				Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "a", Image: "a"}}},
			}}}
		return apierrors.IsForbidden(w.admin.Create(t.Context(), probe, client.DryRunAll))
	})
	ask := reconcile.Request{NamespacedName: client.ObjectKey{Namespace: w.namespace, Name: w.wanted().Name}}
	if _, err := w.control.Image(t.Context(), ask); !apierrors.IsForbidden(err) {
		t.Fatalf("the quota lets it through: %v", err)
	}
	w.available(metav1.ConditionFalse, v1beta1.ReasonBuildFailed, "refuses the Job", "exceeded quota: none")
	if c := meta.FindStatusCondition(w.wanted().Status.Conditions, v1alpha1.ConditionReconciling); c == nil ||
		c.Status != metav1.ConditionTrue {
		t.Errorf("Reconciling is %+v", c)
	}
	w.must(w.admin.Delete(t.Context(), quota))
	until(func() bool { _, err := w.control.Image(t.Context(), ask); return err == nil })
	w.available(metav1.ConditionFalse, v1beta1.ReasonBuilding)
}
