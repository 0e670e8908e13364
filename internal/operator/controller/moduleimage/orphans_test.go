// SPDX-License-Identifier: Apache-2.0

package moduleimage_test

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-project/drover/internal/build/pipeline"
)

// TestImagesOfAGoneModuleGo: those of a Module that was deleted with "orphan" have no owner that
// the garbage collector follows.
func TestImagesOfAGoneModuleGo(t *testing.T) {
	w := newWorld(t)
	w.pass()
	mine, shared := w.wanted(), w.wanted().DeepCopy()
	shared.Name, shared.UID, shared.ResourceVersion, shared.OwnerReferences = "shared", "", "", nil
	shared.Spec.WantedBy = append([]string{}, pipeline.WantedByPreflight("next"))
	w.must(w.admin.Create(t.Context(), shared))
	mine.OwnerReferences = nil
	w.must(w.admin.Update(t.Context(), mine))
	w.must(w.admin.Delete(t.Context(), w.module))

	_, err := w.control.Module(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(w.module)})
	w.must(err)

	if left := w.images(); len(left) != 1 || left[0].Name != shared.Name {
		t.Errorf("left: %+v", left)
	}
}
