// SPDX-License-Identifier: Apache-2.0

// Package kube writes to the API server: field owners, apply, exact deletes, finalizers and events.
package kube

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Field owners, each the one writer of a kind of field. The names are contract: managedFields
// outlive the operator's version.
const (
	OwnerStartup   = client.FieldOwner("drover-startup")   // takes taints off Nodes
	OwnerDrain     = client.FieldOwner("drover-drain")     // cordons and uncordons Nodes
	OwnerTaint     = client.FieldOwner("drover-taint")     // makes DeviceTaintRules
	OwnerNode      = client.FieldOwner("drover-node")      // writes labels of Nodes
	OwnerCondition = client.FieldOwner("drover-condition") // writes a condition of Nodes
	OwnerStatus    = client.FieldOwner("drover-status")    // writes Module.status
	OwnerOoto      = client.FieldOwner("drover-ooto")      // translates Modules of ooto.sigs.k8s.io
	OwnerPlugin    = client.FieldOwner("drover-plugin")    // runs device plugins
	OwnerFinalizer = client.FieldOwner("drover-finalizer") // writes finalizers
	OwnerImage     = client.FieldOwner("drover-image")     // runs the Jobs of ModuleImages
	OwnerCarrier   = client.FieldOwner("drover-carrier")   // creates carrier pods
)

// ModuleAnnotation is the UID of the Module that an object was made for. It replaces an owner
// reference, by which the garbage collector would act while the Module's finalizer still needs the
// object.
const ModuleAnnotation = "drover.dev/module-uid"

// MadeFor reports whether an object was made for the Module with a UID. Earlier releases and KMM
// used owner references.
func MadeFor(object client.Object, module types.UID) bool {
	if object.GetAnnotations()[ModuleAnnotation] == string(module) {
		return true
	}
	owner := metav1.GetControllerOfNoCopy(object)
	return owner != nil && owner.UID == module
}

// Find reads an object that is not to be changed, and reports whether there is one.
func Find(ctx context.Context, c client.Reader, key types.NamespacedName, object client.Object) (bool, error) {
	err := c.Get(ctx, key, object, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency)
	if err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("get %T %s: %w", object, key, err)
	}
	return err == nil, nil
}

// DaemonSetOf is the DaemonSet that made a pod for the Module whose key and empty object are given;
// nil: none did. The pod's labels alone prove nothing: anybody who may create pods chooses them.
func DaemonSetOf(
	ctx context.Context, c client.Reader, pod *corev1.Pod, key types.NamespacedName, module client.Object,
) (*appsv1.DaemonSet, error) {
	owner, daemonSet := metav1.GetControllerOfNoCopy(pod), &appsv1.DaemonSet{}
	if owner == nil || owner.Kind != "DaemonSet" {
		return nil, nil
	}
	found, err := Find(ctx, c, types.NamespacedName{Namespace: pod.Namespace, Name: owner.Name}, daemonSet)
	if err != nil || !found || daemonSet.UID != owner.UID {
		return nil, err
	}
	if found, err = Find(ctx, c, key, module); err != nil || !found || !MadeFor(daemonSet, module.GetUID()) {
		return nil, err
	}
	return daemonSet, nil
}

const (
	// maxOwner is the API server's limit for a field manager's name, in bytes.
	maxOwner    = 128
	ownerDigits = 32
)

// WrittenBy reports whether an object has fields of the owner.
func WrittenBy(object client.Object, owner client.FieldOwner) bool {
	return slices.ContainsFunc(object.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool { return f.Manager == string(owner) })
}

// ModuleOwner owns what is written for one Module into an object that several Modules share.
func ModuleOwner(namespace, name string) client.FieldOwner {
	return ownerOf("drover/", namespace+"/"+name)
}

// PreflightOwner owns what is written for one PreflightValidation into a shared image.
func PreflightOwner(name string) client.FieldOwner { return ownerOf("drover-preflight/", name) }

// HubOwner owns what is written for one ManagedClusterModule into a shared image.
func HubOwner(name string) client.FieldOwner { return ownerOf("drover-hub/", name) }

// ownerOf puts a digest in place of a name that is too long for the API server.
func ownerOf(prefix, name string) client.FieldOwner {
	if len(prefix)+len(name) > maxOwner {
		name = Digest(name, ownerDigits)
	}
	return client.FieldOwner(prefix + name)
}

// Digest is the first digits of a text's SHA-256, in hex, for a name that would be too long or not
// allowed.
func Digest(text string, digits int) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])[:digits]
}
