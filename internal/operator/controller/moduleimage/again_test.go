// SPDX-License-Identifier: Apache-2.0

package moduleimage_test

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/build/pipeline"
)

// TestLooksAgain: a day later and on the rebuild trigger the registry is asked again, by a Job that
// builds only what is missing.
func TestLooksAgain(t *testing.T) {
	w := newWorld(t)
	w.pass()
	w.succeed()
	if again := w.pass(); again != 24*time.Hour {
		t.Errorf("the next look is in %v", again)
	}
	w.clock.SetTime(w.clock.Now().Add(24 * time.Hour))
	w.pass()
	if cause := w.active().Annotations[pipeline.CauseAnnotation]; cause != "Daily" {
		t.Errorf("the cause is %s", cause)
	}
	w.available(metav1.ConditionTrue, v1beta1.ReasonImagesAvailable)
	current := `{"step":"check","state":"Current","digest":"` + digest + `","signer":{"fingerprint":"ab","notAfter":"2030-01-01T00:00:00Z"}}`
	w.end(w.active(), batchv1.JobComplete, map[string]string{"check": current})
	w.pass()
	if s := w.wanted().Status.Signer; s == nil || s.Fingerprint != "ab" || s.NotAfter.Year() != 2030 {
		t.Errorf("the signer is %+v", s)
	}
	w.quiet()
	base := w.module.DeepCopy()
	w.module.Spec.ImageRebuildTriggerGeneration = ptr.To(1)
	w.must(w.admin.Patch(t.Context(), w.module, client.MergeFrom(base)))
	w.pass()
	if cause := w.active().Annotations[pipeline.CauseAnnotation]; cause != "Trigger" {
		t.Errorf("the cause is %s", cause)
	}
	w.end(w.active(), batchv1.JobComplete, map[string]string{"check": `{"step":"check","state":"Prebuilt","digest":"` + digest + `"}`})
	w.pass()
	if s := w.wanted().Status; !s.Prebuilt || len(w.jobs()) != 1 {
		t.Errorf("prebuilt is %v, %d Jobs are left", s.Prebuilt, len(w.jobs()))
	}
	w.quiet()
}
