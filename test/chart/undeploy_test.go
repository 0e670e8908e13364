// SPDX-License-Identifier: Apache-2.0

//go:build helm

package main

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// TestUndeploy: what `make undeploy` does to a cluster with a Module keeps the Module and its
// definition and namespace, and lets it be deleted. A second run deletes the definition, which
// holds nothing.
func TestUndeploy(t *testing.T) {
	w := newWorld(t)
	program := compile(t)
	const kubectl = "bin/assets/kubectl"
	w.run(t.Context(), t, root, kubectl+" apply --server-side -k config/default")
	module := moduleOf("kept")
	module.Namespace = "drover-system"
	w.create(t, module)
	undeploy := "KUBECTL=" + kubectl + " hack/undeploy config/default " + program + " release"

	w.run(t.Context(), t, root, undeploy)
	now := &v1beta1.Module{}
	if !w.there(t, now, module.Namespace, module.Name) || now.DeletionTimestamp != nil || len(now.Finalizers) != 0 {
		t.Errorf("the Module was not kept, or has finalizers: %+v", now.ObjectMeta)
	}
	if space := (&corev1.Namespace{}); !w.there(t, space, "", module.Namespace) || space.DeletionTimestamp != nil {
		t.Error("the namespace goes with the Module")
	}
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if !w.there(t, definition, "", "modules.kmm.sigs.x-k8s.io") || definition.DeletionTimestamp != nil {
		t.Fatal("a definition goes that holds a Module")
	}
	if w.there(t, definition, "", "moduleimages.drover.dev") && definition.DeletionTimestamp == nil {
		t.Error("a definition stays that holds nothing")
	}
	if w.there(t, &appsv1.Deployment{}, "drover-system", "drover-operator") {
		t.Error("the operator is still there")
	}

	if err := w.Delete(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	w.run(t.Context(), t, root, undeploy)
	if w.there(t, definition, "", "modules.kmm.sigs.x-k8s.io") && definition.DeletionTimestamp == nil {
		t.Error("the definition stays, and no Module is left")
	}
}
