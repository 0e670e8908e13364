// SPDX-License-Identifier: Apache-2.0

package moduleimage_test

import (
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/build/pipeline"
)

func (w *world) change(f func(c *v1beta1.ModuleLoaderContainerSpec)) {
	w.Helper()
	base := w.module.DeepCopy()
	f(&w.module.Spec.ModuleLoader.Container)
	w.must(w.admin.Patch(w.Context(), w.module, client.MergeFrom(base)))
}

func signature() *v1beta1.Sign {
	return &v1beta1.Sign{
		KeySecret: &corev1.LocalObjectReference{Name: "key"}, CertSecret: &corev1.LocalObjectReference{Name: "cert"},
		FilesToSign: []string{"/opt/m.ko"},
	}
}

func stepsOf(job *batchv1.Job) []string {
	var names []string
	for _, c := range slices.Concat(job.Spec.Template.Spec.InitContainers, job.Spec.Template.Spec.Containers) {
		names = append(names, c.Name)
	}
	return names
}

// TestOneJobPerSignature: signing alone has one Job, whose failure is told as such and tried again;
// the same files again make none.
func TestOneJobPerSignature(t *testing.T) {
	w := newWorld(t)
	w.change(func(c *v1beta1.ModuleLoaderContainerSpec) {
		c.Build, c.Sign = nil, signature()
		c.Sign.UnsignedImage = "r.example/vendor:1"
	})
	mark := w.env.Mark(t)
	w.pass()
	job := w.active()
	if got := stepsOf(job); !slices.Equal(got, []string{"check", "pull", "sign", "push"}) {
		t.Errorf("steps %v", got)
	}
	w.quiet()
	w.end(job, batchv1.JobFailed, map[string]string{"check": `{"step":"check","state":"Missing"}`,
		"sign": `{"step":"sign","error":"the key does not belong to the certificate"}`})
	again := w.pass()
	w.available(metav1.ConditionFalse, v1beta1.ReasonSignFailed, "the key does not belong to the certificate", "step sign")
	w.clock.SetTime(w.clock.Now().Add(again))
	w.pass()
	w.succeed()
	w.pass()
	w.available(metav1.ConditionTrue, v1beta1.ReasonImagesAvailable)
	for range 3 {
		w.change(func(c *v1beta1.ModuleLoaderContainerSpec) { c.Sign.FilesToSign = []string{"/opt/other.ko"} })
		w.pass()
		w.change(func(c *v1beta1.ModuleLoaderContainerSpec) { c.Sign.FilesToSign = []string{"/opt/m.ko"} })
		w.pass()
	}
	if n := w.created(mark); n != 3 {
		t.Errorf("%d Jobs were made for two tries of one signature and one of another", n)
	}
}

// TestBuildThenSignOfAMapping: a mapping that builds as the container says, with an empty build of
// its own, and signs, has one Job in the Module's namespace that does all of it, owned by the
// image; the unsigned image goes where the build pushes to.
func TestBuildThenSignOfAMapping(t *testing.T) {
	w := newWorld(t)
	w.change(func(c *v1beta1.ModuleLoaderContainerSpec) {
		c.Build.Push = &v1beta1.BuildPush{Name: "r.example/m:$KERNEL_VERSION-unsigned"}
		c.KernelMappings[0].Build, c.KernelMappings[0].Sign = &v1beta1.Build{}, signature()
	})
	stored := &v1beta1.Module{}
	w.must(w.admin.Get(t.Context(), client.ObjectKeyFromObject(w.module), stored))
	if b := stored.Spec.ModuleLoader.Container.KernelMappings[0].Build; b == nil || b.DockerfileConfigMap != nil {
		t.Fatalf("the mapping's build is stored as %+v", b)
	}
	w.pass()
	job := w.active()
	if got := stepsOf(job); !slices.Equal(got, []string{"check", "build", "push-unsigned", "sign", "push"}) {
		t.Errorf("steps %v", got)
	}
	if args := job.Spec.Template.Spec.InitContainers[2].Args; !slices.Contains(args, "r.example/m:6.1.0-56-amd64-unsigned") {
		t.Errorf("the unsigned image goes elsewhere: %v", args)
	}
	owner := metav1.GetControllerOf(job)
	if image := w.wanted(); owner == nil || owner.UID != image.UID || job.Namespace != w.module.Namespace || len(w.jobs()) != 1 {
		t.Errorf("the Job in %s is owned by %+v", job.Namespace, owner)
	}
	w.quiet()
}

// TestNoInputTwice: 20 toggles over inputs of every kind make one Job for each that is distinct.
func TestNoInputTwice(t *testing.T) {
	w := newWorld(t)
	kinds := []func(c *v1beta1.ModuleLoaderContainerSpec){
		func(*v1beta1.ModuleLoaderContainerSpec) {},
		func(c *v1beta1.ModuleLoaderContainerSpec) {
			c.Build.BuildArgs = []v1beta1.BuildArg{{Name: "A", Value: "1"}}
		},
		func(c *v1beta1.ModuleLoaderContainerSpec) {
			c.Build.Secrets = []corev1.LocalObjectReference{{Name: "s"}}
		},
		func(c *v1beta1.ModuleLoaderContainerSpec) { c.Sign = signature() },
		func(c *v1beta1.ModuleLoaderContainerSpec) {
			c.KernelMappings[0].ContainerImage = "r.example/n:$KERNEL_XYZ"
		},
		func(c *v1beta1.ModuleLoaderContainerSpec) {
			c.Build.Native = &v1beta1.NativeBuild{ToolchainImage: "r.example/gcc:1", SourceImage: "r.example/s:1"}
			c.Build.DockerfileConfigMap = nil
		},
	}
	plain := w.module.Spec.ModuleLoader.Container.DeepCopy()
	mark := w.env.Mark(t)
	for i := range 20 {
		w.change(func(c *v1beta1.ModuleLoaderContainerSpec) {
			plain.DeepCopyInto(c)
			kinds[i*5%len(kinds)](c)
		})
		w.pass()
		if i == 7 || i == 11 {
			w.succeed()
			w.pass()
		}
	}
	w.quiet()
	if n := w.created(mark); n != len(kinds) {
		t.Errorf("%d Jobs were made for %d distinct inputs", n, len(kinds))
	}
}

// TestAMendedEnvironmentIsTried: proxies, mirrors and authorities come from a ConfigMap that a Job
// only names; failures with another content of it say nothing.
func TestAMendedEnvironmentIsTried(t *testing.T) {
	w := newWorld(t)
	environment := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: pipeline.EnvironmentConfigMap}}
	w.must(w.admin.Create(t.Context(), environment))
	w.pass()
	for _, mend := range []func() error{
		func() error {
			environment.Data = map[string]string{"HTTPS_PROXY": "http://proxy.example:3128"}
			return w.admin.Update(t.Context(), environment)
		},
		func() error { return w.admin.Delete(t.Context(), environment) },
	} {
		w.fail()
		if again := w.pass(); again != 30*time.Second {
			t.Errorf("the next try is in %v", again)
		}
		w.quiet()
		w.must(mend())
		w.pass()
		w.active()
		w.quiet()
	}
}

// TestMendedCredentialsAreTried: after five failures, a Module that names another Secret is tried
// at once; nothing else is needed.
func TestMendedCredentialsAreTried(t *testing.T) {
	w := newWorld(t)
	w.pass()
	for i := range 5 {
		w.end(w.active(), batchv1.JobFailed, map[string]string{"check": `{"step":"check","state":"Missing"}`,
			"push": `{"step":"push","error":"401"}`})
		if pause := w.pass(); i < 4 {
			w.clock.SetTime(w.clock.Now().Add(pause))
			w.pass()
		}
	}
	w.quiet()
	base := w.module.DeepCopy()
	w.module.Spec.ImageRepoSecret = &corev1.LocalObjectReference{Name: "mended"}
	w.must(w.admin.Patch(t.Context(), w.module, client.MergeFrom(base)))
	w.pass()
	if job := w.active(); len(job.Spec.Template.Spec.ImagePullSecrets) != 1 {
		t.Errorf("Job %s pulls with %v", job.Name, job.Spec.Template.Spec.ImagePullSecrets)
	}
	w.quiet()
	w.succeed()
	w.pass()
	w.available(metav1.ConditionTrue, v1beta1.ReasonImagesAvailable)
}

// TestSecretsOfTheServiceAccount: a Module that names an account for its pull secrets, as a
// DeviceConfig's does, needs no other; a Secret that the account gets later counts at once. The API
// server takes a volume with both forms of credentials.
func TestSecretsOfTheServiceAccount(t *testing.T) {
	w := newWorld(t)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "driver"}}
	w.must(w.admin.Create(t.Context(), account))
	base := w.module.DeepCopy()
	w.module.Spec.ModuleLoader.ServiceAccountName = "driver"
	w.must(w.admin.Patch(t.Context(), w.module, client.MergeFrom(base)))
	w.pass()
	w.fail()
	if again := w.pass(); again != 30*time.Second {
		t.Errorf("the next try is in %v", again)
	}
	w.quiet()
	account.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
	w.must(w.admin.Update(t.Context(), account))
	w.pass()
	if pod := w.active().Spec.Template.Spec; len(pod.ImagePullSecrets) != 1 || pod.ImagePullSecrets[0].Name != "registry" ||
		!slices.Contains(pod.InitContainers[0].Args, "--account-auth") {
		t.Errorf("pulls with %v, checks with %v", pod.ImagePullSecrets, pod.InitContainers[0].Args)
	}
	w.quiet()
}

// TestTheKeyStaysOnNodesThatAreNamed: a Job that signs waits for a node of the Module's and says
// which; sign.selector replaces the waiting Job by one for its nodes.
func TestTheKeyStaysOnNodesThatAreNamed(t *testing.T) {
	w := newWorld(t)
	w.change(func(c *v1beta1.ModuleLoaderContainerSpec) {
		c.Build, c.Sign = nil, signature()
		c.Sign.UnsignedImage = "r.example/vendor:1"
	})
	w.pass()
	job := w.active()
	if got := job.Spec.Template.Spec.NodeSelector; got["test"] != w.namespace || len(got) != 3 {
		t.Errorf("the Job may run on nodes with %v", got)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "waits", Labels: job.Spec.Template.Labels},
		Spec: *job.Spec.Template.Spec.DeepCopy()}
	pod.Labels[batchv1.JobNameLabel] = job.Name
	w.must(w.admin.Create(t.Context(), pod))
	pod.Status.Phase = corev1.PodPending
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
		Reason: corev1.PodReasonUnschedulable, LastTransitionTime: metav1.Now()}}
	w.must(w.admin.Status().Update(t.Context(), pod))
	w.pass()
	w.available(metav1.ConditionFalse, v1beta1.ReasonBuilding, "no node takes its pod", "test="+w.namespace, "sign.selector")
	w.change(func(c *v1beta1.ModuleLoaderContainerSpec) { c.Sign.Selector = map[string]string{"signs": "yes"} })
	w.pass()
	w.pass()
	again := w.active()
	if got := again.Spec.Template.Spec.NodeSelector; again.Name == job.Name || got["signs"] != "yes" || got["test"] != "" {
		t.Errorf("then Job %s may run on nodes with %v", again.Name, got)
	}
}
