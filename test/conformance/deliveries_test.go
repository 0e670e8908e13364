// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/testkit/audit"
)

// deliveries are the cases about how images come to nodes. The peer has a pull pod for each image;
// a carrier per node has the same purpose.
var deliveries = map[string]func(*testing.T){
	"20_no_image_no_load":          noImageNoLoad,
	"32_rebuild_trigger":           rebuildTrigger,
	"37_pulled_as_the_module_says": pulledAsTheModuleSays,
	"38_nothing_stays": func(t *testing.T) {
		c := given(t, kernelDebian)
		c.create()
		c.loaded()
		c.eventually("no carrier is left", c.noCarrier)
	},
	"40_unwanted_image":           corrected,
	"56_corrected_module_is_used": corrected,
	"65_no_pull_secret":           noPullSecret,
}

// missing is an image that does not exist.
func missing(m *v1beta1.Module) { mapping(m).ContainerImage = noRegistry + "/mod:1" }

func (c *corner) noCarrier(ctx context.Context) error {
	pods, err := c.carriers(ctx)
	if err == nil && len(pods) > 0 {
		err = fmt.Errorf("carrier %s is there", pods[0].Name)
	}
	return err
}

func (c *corner) imageNotFound(ctx context.Context) error {
	return c.says(ctx, v1beta1.ConditionLoaded, metav1.ConditionFalse, v1beta1.ReasonImageNotFound)
}

// carrier waits for a carrier that is there to stay, and returns its pod.
func (c *corner) carrier() *corev1.Pod {
	c.Helper()
	c.eventually("the image is not found", c.imageNotFound)
	pods, err := c.carriers(c.Context())
	c.must(err)
	if len(pods) != 1 {
		c.Fatalf("there are %d carriers", len(pods))
	}
	return &pods[0]
}

func noImageNoLoad(t *testing.T) {
	c := given(t, kernelDebian)
	c.create(missing)
	c.eventually("the image is not found", c.imageNotFound)
	c.must(c.kernels(t.Context(), tally{}))
	if live, err := c.live(t.Context(), c.nodes[0]); err == nil {
		t.Errorf("status.modules says %+v", live)
	}
	node, err := c.node(t.Context(), c.nodes[0])
	c.must(err)
	if _, ready := node.Labels[v1beta1.ReadyLabel(c.key.Namespace, c.key.Name)]; ready {
		t.Error("the node has the ready label")
	}
}

// rebuildTrigger delivers again what is the same build: nothing is reloaded.
func rebuildTrigger(t *testing.T) {
	c := given(t, kernelDebian)
	c.create()
	c.loaded()
	for _, trigger := range []int{1, 2} {
		c.change(func(m *v1beta1.Module) { m.Spec.ImageRebuildTriggerGeneration = ptr.To(trigger) })
		c.eventually("the image was delivered again", func(ctx context.Context) error {
			m, err := c.read(ctx)
			if err == nil && !ptr.Equal(m.Status.ImageRebuildTriggerGeneration, ptr.To(trigger)) {
				err = fmt.Errorf("status says %v", m.Status.ImageRebuildTriggerGeneration)
			}
			return errors.Join(err, c.delivered(1+trigger), c.ready(ctx))
		})
	}
	c.must(c.kernels(t.Context(), once))
}

// delivered objects unless so many carriers were made.
func (c *corner) delivered(want int) error {
	requests, err := audit.Whole(shared.Cluster.AuditLog).Next()
	if err != nil {
		return err
	}
	got := 0
	for _, r := range audit.OurWrites(requests) {
		if r.Verb == "create" && r.ObjectRef.Namespace == c.key.Namespace && r.ObjectRef.Resource == "pods" {
			got++
		}
	}
	if got != want {
		return fmt.Errorf("%d carriers were made", got)
	}
	return nil
}

func pulledAsTheModuleSays(t *testing.T) {
	c := given(t, kernelDebian)
	c.must(shared.Admin.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: c.key.Namespace, Name: "puller"}}))
	c.create(missing, func(m *v1beta1.Module) {
		m.Spec.ImageRepoSecret = &corev1.LocalObjectReference{Name: "registry"}
		m.Spec.ModuleLoader.ServiceAccountName = "puller"
		container(m).ImagePullPolicy = corev1.PullAlways
	})
	pod := c.carrier()
	if pod.Spec.NodeName != c.nodes[0] || pod.Spec.ServiceAccountName != "puller" ||
		!cmp.Equal(pod.Spec.ImagePullSecrets, []corev1.LocalObjectReference{{Name: "registry"}}) {
		t.Errorf("the carrier is %+v", pod.Spec)
	}
	for _, v := range pod.Spec.Volumes {
		if v.Image != nil && (v.Image.PullPolicy != corev1.PullAlways || v.Image.Reference != noRegistry+"/mod:1") {
			t.Errorf("its image volume is %+v", v.Image)
		}
	}
	c.must(c.kernels(t.Context(), tally{}))
}

// corrected gives a Module whose image does not exist one that does.
func corrected(t *testing.T) {
	c := given(t, kernelDebian)
	c.create(missing)
	before := c.carrier()
	c.change(func(m *v1beta1.Module) { mapping(m).ContainerImage = c.image("good") })
	c.loaded()
	c.eventually("no carrier is left", c.noCarrier)
	live, err := c.live(t.Context(), c.nodes[0])
	c.must(err)
	if live.Config.ContainerImage != c.image("good") {
		t.Errorf("loaded is %s; carrier %s was for another", live.Config.ContainerImage, before.Name)
	}
}

func noPullSecret(t *testing.T) {
	c := given(t, kernelDebian)
	c.create(missing)
	if pod := c.carrier(); len(pod.Spec.ImagePullSecrets) > 0 {
		t.Errorf("the carrier pulls with %v", pod.Spec.ImagePullSecrets)
	}
}
