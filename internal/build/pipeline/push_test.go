// SPDX-License-Identifier: Apache-2.0

package pipeline_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/build/pipeline"
)

// step is a container of a Job by its name; nil where there is none.
func step(pod *corev1.PodSpec, name string) *corev1.Container {
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		if c.Name == name {
			return &c
		}
	}
	return nil
}

// argument is what follows a flag; "" where there is none.
func argument(c *corev1.Container, flag string) string {
	if c == nil {
		return ""
	}
	if i := slices.Index(c.Args, flag); i >= 0 && i+1 < len(c.Args) {
		return c.Args[i+1]
	}
	return ""
}

// TestWhereABuildIsPushedTo: to the mapping's image unless build.push says otherwise, which only
// what is signed later can.
func TestWhereABuildIsPushedTo(t *testing.T) {
	const delivered = "r.example/m:" + kernelVersion
	push := func(name string) func(*v1beta1.Module) {
		return func(m *v1beta1.Module) { container(m).Build.Push = &v1beta1.BuildPush{Name: name} }
	}
	plain := func(m *v1beta1.Module) { container(m).Build.Push.Insecure = true }
	for name, tc := range map[string]struct {
		given    []func(*v1beta1.Module)
		unsigned string
		insecure []string
		fails    string
	}{
		"unset":              {},
		"the default":        {given: []func(*v1beta1.Module){push("${CONTAINER_IMAGE}")}},
		"empty is unset":     {given: []func(*v1beta1.Module){push("")}},
		"plain HTTP":         {given: []func(*v1beta1.Module){push(""), plain}, insecure: []string{pipeline.StepCheck, pipeline.StepPush}},
		"another image":      {given: []func(*v1beta1.Module){push("r.example/n:1")}, fails: "r.example/n:1 must be " + delivered},
		"unknown":            {given: []func(*v1beta1.Module){push("r.example/n:$NOPE")}, fails: "unknown variable NOPE"},
		"before a signature": {given: []func(*v1beta1.Module){signing, push("$CONTAINER_IMAGE-unsigned")}, unsigned: delivered + "-unsigned"},
		"plain HTTP before a signature": {
			given: []func(*v1beta1.Module){signing, push("u.example/m:$KERNEL_XYZ"), plain}, unsigned: "u.example/m:6.1.0",
			insecure: []string{pipeline.StepPushUnsigned},
		},
		"the mapping's": {
			given: []func(*v1beta1.Module){signing, push("r.example/below:1"), func(m *v1beta1.Module) {
				mapping(m).Build = &v1beta1.Build{Push: &v1beta1.BuildPush{Name: "r.example/above:1"}}
			}}, unsigned: "r.example/above:1",
		},
		"the same in sign": {
			given: []func(*v1beta1.Module){signing, push("r.example/u:1"),
				func(m *v1beta1.Module) { container(m).Sign.UnsignedImage = "r.example/u:1" }},
			unsigned: "r.example/u:1",
		},
		"another in sign": {
			given: []func(*v1beta1.Module){signing, push("r.example/u:1"),
				func(m *v1beta1.Module) { container(m).Sign.UnsignedImage = "r.example/v:1" }},
			fails: "r.example/u:1 must equal sign.unsignedImage, r.example/v:1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := declare(t, module(tc.given...), kernelVersion); tc.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tc.fails) {
					t.Errorf("error %v, want %q", err, tc.fails)
				}
				return
			}
			pod := job(t, tc.given...).Spec.Template.Spec
			if got := argument(step(&pod, pipeline.StepPush), "--image"); got != delivered {
				t.Errorf("the image goes to %q", got)
			}
			if got := argument(step(&pod, pipeline.StepPushUnsigned), "--image"); got != tc.unsigned {
				t.Errorf("the unsigned image goes to %q, want %q", got, tc.unsigned)
			}
			for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
				if got := slices.Contains(c.Args, "--insecure"); got != slices.Contains(tc.insecure, c.Name) {
					t.Errorf("%s: plain HTTP is %t", c.Name, got)
				}
			}
		})
	}
}

// TestAllRepoSecretsAreMounted: each Secret of the Module pulls the pod's images, and is a
// credential of every step that reaches a registry.
func TestAllRepoSecretsAreMounted(t *testing.T) {
	unsigned := func(m *v1beta1.Module) { container(m).Sign.UnsignedImage = "r.example/u:1" }
	more := func(m *v1beta1.Module) {
		m.Spec.ImageRepoSecrets = []corev1.LocalObjectReference{{Name: "mirror"}, {Name: "repo"}}
	}
	for name, given := range map[string][]func(*v1beta1.Module){
		"build and sign": {signing, unsigned, more},
		"sign":           {signing, unsigned, more, func(m *v1beta1.Module) { container(m).Build = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			pod := job(t, given...).Spec.Template.Spec
			if got := pod.ImagePullSecrets; len(got) != 2 || got[0].Name != "repo" || got[1].Name != "mirror" {
				t.Errorf("the pod pulls with %v", got)
			}
			for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
				if c.Name == pipeline.StepBuild {
					continue
				}
				files := 0
				for i, arg := range c.Args {
					if arg == "--auth" && strings.HasPrefix(c.Args[i+1], "/drover/auth/") {
						files++
					}
				}
				if reaches := slices.Contains(c.Args, "--image"); reaches && files != 2 || !reaches && files != 0 {
					t.Errorf("%s has %d credentials: %v", c.Name, files, c.Args)
				}
			}
		})
	}
}

// TestSecretsOfTheServiceAccountCount: they pull the pod's images and are credentials of each step
// beside the Module's, which come first. Unlike those they need not exist. Both forms of a Secret
// with credentials are mounted.
func TestSecretsOfTheServiceAccountCount(t *testing.T) {
	o := options()
	unsigned := func(m *v1beta1.Module) { container(m).Build, container(m).Sign.UnsignedImage = nil, "r.example/u:1" }
	o.AccountSecrets = []corev1.LocalObjectReference{{Name: "account"}, {Name: "repo"}, {}}
	for name, tc := range map[string]struct {
		given []func(*v1beta1.Module)
		own   int
	}{
		"beside the Module's":     {given: []func(*v1beta1.Module){signing}, own: 1},
		"the Module names none":   {given: []func(*v1beta1.Module){signing, func(m *v1beta1.Module) { m.Spec.ImageRepoSecret = nil }}},
		"an image that is signed": {given: []func(*v1beta1.Module){signing, unsigned}, own: 1},
	} {
		t.Run(name, func(t *testing.T) {
			img := image(t, module(tc.given...), configMap("FROM a"), options().BuildahImage)
			pod := pipeline.Job(img, 1, "New", o).Spec.Template.Spec
			if got := pod.ImagePullSecrets; len(got) != 2 || !slices.Contains(got, corev1.LocalObjectReference{Name: "account"}) {
				t.Errorf("the pod pulls with %v", got)
			}
			for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
				if !slices.Contains(c.Args, "--image") {
					continue
				}
				count := func(flag string) (n int) {
					for _, arg := range c.Args {
						if arg == flag {
							n++
						}
					}
					return n
				}
				if own, account := count("--auth"), count("--account-auth"); own != tc.own || account != 2-tc.own {
					t.Errorf("%s has %d credentials of the Module, %d of the account: %v", c.Name, own, account, c.Args)
				}
			}
			for _, v := range pod.Volumes {
				if !strings.HasPrefix(v.Name, "auth-") {
					continue
				}
				keys := map[string]string{}
				for _, item := range v.Secret.Items {
					keys[item.Key] = item.Path
				}
				if want := map[string]string{".dockercfg": ".dockercfg", ".dockerconfigjson": "config.json"}; !maps.Equal(keys, want) {
					t.Errorf("of Secret %s are mounted %v", v.Secret.SecretName, keys)
				}
			}
		})
	}
}

// TestSignedAlone: what is pulled is the unsigned image, and the files go to the step as they stand
// in the Module, variables substituted.
func TestSignedAlone(t *testing.T) {
	pod := job(t, signing, func(m *v1beta1.Module) {
		container(m).Build = nil
		container(m).Sign.UnsignedImage = "r.example/u:$KERNEL_XYZ"
		container(m).Sign.FilesToSign = []string{"/opt/lib/modules/$KERNEL_FULL_VERSION/*/[ab].ko", "/opt/c d.ko"}
	}).Spec.Template.Spec
	if got := argument(step(&pod, pipeline.StepPull), "--image"); got != "r.example/u:6.1.0" {
		t.Errorf("pulled is %q", got)
	}
	args := strings.Join(step(&pod, pipeline.StepSign).Args, "\x00")
	if want := "--file\x00/opt/lib/modules/" + kernelVersion + "/*/[ab].ko\x00--file\x00/opt/c d.ko"; !strings.Contains(args, want) {
		t.Errorf("no %q in %q", want, args)
	}
	if step(&pod, pipeline.StepBuild) != nil || step(&pod, pipeline.StepPushUnsigned) != nil {
		t.Errorf("steps: %v", steps(&pod))
	}
}

// TestBaseImagesArePulledWithAllSecrets: Buildah takes one file of today's form, so check makes one
// of all Secrets, where nothing else sees it.
func TestBaseImagesArePulledWithAllSecrets(t *testing.T) {
	more := func(m *v1beta1.Module) { m.Spec.ImageRepoSecrets = []corev1.LocalObjectReference{{Name: "mirror"}} }
	mounts := func(pod *corev1.PodSpec, volume string) (names []string) {
		for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
			if slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == volume }) {
				names = append(names, c.Name)
			}
		}
		return names
	}
	file := func(pod *corev1.PodSpec) string {
		for _, e := range step(pod, pipeline.StepBuild).Env {
			if e.Name == "DROVER_AUTH" {
				return e.Value
			}
		}
		return ""
	}
	pod := job(t, more, signing).Spec.Template.Spec
	if got := mounts(&pod, "auth"); !slices.Equal(got, []string{pipeline.StepCheck, pipeline.StepBuild}) {
		t.Errorf("the credentials are in %v", got)
	}
	if merged := argument(step(&pod, pipeline.StepCheck), "--merge-auth"); merged == "" || merged != file(&pod) {
		t.Errorf("check writes %q, Buildah reads %q", merged, file(&pod))
	}
	none := func(m *v1beta1.Module) { m.Spec.ImageRepoSecret = nil }
	for name, given := range map[string][]func(*v1beta1.Module){"no Secret": {signing, none}, "native": {more, compiling}} {
		pod := job(t, given...).Spec.Template.Spec
		if got := mounts(&pod, "auth"); len(got) > 0 || argument(step(&pod, pipeline.StepCheck), "--merge-auth") != "" {
			t.Errorf("%s: the credentials are in %v", name, got)
		}
	}
}

// TestMissingSecretsAreSaid: a pod does not wait for a Secret of ours that is not there; the step
// that needs it fails, with its name.
func TestMissingSecretsAreSaid(t *testing.T) {
	pod := job(t, signing, func(m *v1beta1.Module) {
		container(m).Build.Secrets = []corev1.LocalObjectReference{{Name: "licence"}}
		container(m).Sign.KeySecret, container(m).Sign.CertSecret = ref("vendor-key"), ref("vendor-cert")
	}).Spec.Template.Spec
	optional := map[string]bool{}
	for _, v := range pod.Volumes {
		if v.Secret != nil {
			optional[v.Secret.SecretName] = v.Secret.Optional != nil && *v.Secret.Optional
		}
	}
	// A build without its licence might end well, and be wrong.
	if want := map[string]bool{"repo": true, "vendor-key": true, "vendor-cert": true, "licence": false}; !maps.Equal(optional, want) {
		t.Errorf("optional are %v", optional)
	}
	for flag, name := range map[string]string{"--key": "vendor-key", "--cert": "vendor-cert"} {
		if got := argument(step(&pod, pipeline.StepSign), flag); !strings.Contains(got, "/"+name+"/") {
			t.Errorf("%s %s does not name the Secret", flag, got)
		}
	}
}
