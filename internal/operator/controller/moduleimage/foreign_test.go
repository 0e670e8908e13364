// SPDX-License-Identifier: Apache-2.0

package moduleimage_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/drover/v1alpha1"
)

// TestNoImageForWhatIsNoKernel: whatever a kubelet says that its node runs, nothing is built for it
// unless a kernel can have that name, and the definition of ModuleImages refuses it, too.
func TestNoImageForWhatIsNoKernel(t *testing.T) {
	w := newWorld(t)
	runs := func(info corev1.NodeSystemInfo) {
		t.Helper()
		node := &corev1.Node{}
		w.must(w.admin.Get(t.Context(), client.ObjectKey{Name: w.namespace}, node))
		node.Status.NodeInfo = info
		w.must(w.admin.Status().Update(t.Context(), node))
	}
	for _, info := range []corev1.NodeSystemInfo{
		{KernelVersion: "6.1.0-44$(touch /tmp/pwned)-amd64", Architecture: "amd64"},
		{KernelVersion: "6.1.0-44`id`-amd64", Architecture: "amd64"},
		{KernelVersion: "--build-context=x=/", Architecture: "amd64"},
		{KernelVersion: strings.Repeat("6", 65), Architecture: "amd64"},
		{KernelVersion: "6.1.0-44-amd64", Architecture: "amd64,linux/$(id)"},
	} {
		runs(info)
		w.pass()
		if images := w.images(); len(images) != 0 {
			t.Errorf("%+v: an image for kernel %q is to be made", info, images[0].Spec.KernelVersion)
		}
		image := &v1alpha1.ModuleImage{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "drover-image-foreign"},
			Spec: v1alpha1.ModuleImageSpec{Module: "m", KernelVersion: info.KernelVersion, Architecture: info.Architecture, Image: "r.example/m:1",
				ServiceAccountName: "default"}}
		if err := w.admin.Create(t.Context(), image); !apierrors.IsInvalid(err) {
			t.Errorf("a ModuleImage for %+v: %v", info, err)
		}
	}
	runs(corev1.NodeSystemInfo{KernelVersion: "5.10.147+", Architecture: "arm64"})
	w.pass()
	if image := w.wanted(); image == nil || image.Spec.KernelVersion != "5.10.147+" {
		t.Errorf("a real kernel gets %+v", image)
	}
}
