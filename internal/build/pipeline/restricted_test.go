// SPDX-License-Identifier: Apache-2.0

package pipeline_test

import (
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/build/pipeline"
	"github.com/drover-project/drover/internal/testkit/env"
)

func TestMain(m *testing.M) { os.Exit(env.Main(m)) }

// TestPodSecurity: the API server admits native builds, and signing alone, where Pod Security
// enforces "restricted"; builds from Dockerfiles where it enforces "baseline", unless they mount
// the node's modules.
func TestPodSecurity(t *testing.T) {
	e := env.Get(t)
	admin := e.Admin(t)
	for _, level := range []string{"restricted", "baseline", "privileged"} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: "pipeline-" + level, Labels: map[string]string{"pod-security.kubernetes.io/enforce": level},
		}}
		if err := admin.Create(t.Context(), namespace); err != nil {
			t.Fatal(err)
		}
	}
	signed := func(m *v1beta1.Module) {
		signing(m)
		container(m).Build, container(m).Sign.UnsignedImage = nil, "r/u:1"
	}
	for name, tc := range map[string]struct {
		given  []func(*v1beta1.Module)
		host   bool
		fetch  bool
		strict string
	}{
		"native":                     {given: []func(*v1beta1.Module){compiling, signing}, strict: "restricted", host: true},
		"native, no image volumes":   {given: []func(*v1beta1.Module){compiling, signing}, strict: "restricted", host: true, fetch: true},
		"sign only":                  {given: []func(*v1beta1.Module){signed}, strict: "restricted", host: true},
		"Dockerfile":                 {given: []func(*v1beta1.Module){signing}, strict: "baseline"},
		"Dockerfile, host's modules": {given: []func(*v1beta1.Module){signing}, strict: "privileged", host: true},
	} {
		t.Run(name, func(t *testing.T) {
			admitted := false
			for _, level := range []string{"restricted", "baseline", "privileged"} {
				admitted = admitted || level == tc.strict
				o := options()
				o.HostModules, o.MountImages, o.Hub = tc.host, !tc.fetch, true // a hub needs no Module in the namespace
				j := pipeline.Job(image(t, module(tc.given...), configMap("FROM a"), o.BuildahImage), 1, "New", o)
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "pipeline-" + level, Name: "p"}, Spec: j.Spec.Template.Spec}
				err := admin.Create(t.Context(), pod, client.DryRunAll)
				if admitted != (err == nil) || err != nil && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "violates PodSecurity")) {
					t.Errorf("%s: %v", level, err)
				}
				// The Job itself must be sound as well, for the pod is made from it by somebody else.
				j.Namespace, j.OwnerReferences = pod.Namespace, nil
				if err := admin.Create(t.Context(), j, client.DryRunAll); err != nil {
					t.Errorf("%s: the Job: %v", level, err)
				}
			}
		})
	}
}
