// SPDX-License-Identifier: Apache-2.0

// Package kube holds the thin mechanics of writing to the API server: names of field owners, apply, exact deletes,
// finalizers, and events on a condition's change. It knows no Drover type.
package kube

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Field owners. Each is one writer of one kind of field; the names are contract, because a cluster's managedFields
// outlive the operator's version.
const (
	// OwnerStartup takes taints off Nodes.
	OwnerStartup = client.FieldOwner("drover-startup")
	// OwnerDrain cordons and uncordons Nodes.
	OwnerDrain = client.FieldOwner("drover-drain")
	// OwnerTaint makes DeviceTaintRules.
	OwnerTaint = client.FieldOwner("drover-taint")
	// OwnerNode writes labels of Nodes.
	OwnerNode = client.FieldOwner("drover-node")
	// OwnerStatus writes Module.status.
	OwnerStatus = client.FieldOwner("drover-status")
	// OwnerOoto writes the KMM Modules that Modules of ooto.sigs.k8s.io own, and the status of these.
	OwnerOoto = client.FieldOwner("drover-ooto")
	// OwnerPlugin writes DaemonSets and ServiceAccounts of device plugins.
	OwnerPlugin = client.FieldOwner("drover-plugin")
	// OwnerFinalizer writes finalizers.
	OwnerFinalizer = client.FieldOwner("drover-finalizer")
	// OwnerImage runs the Jobs of ModuleImages, and writes their status.
	OwnerImage = client.FieldOwner("drover-image")
	// OwnerCarrier creates carrier pods.
	OwnerCarrier = client.FieldOwner("drover-carrier")
)

// ModuleAnnotation is the UID of the Module that an object beside its kernel module, such as a device plugin's DaemonSet, was made for. It takes the place of
// an owner reference, by which the garbage collector would act while the Module's finalizer still needs the object.
const ModuleAnnotation = "drover.dev/module-uid"

// MadeFor reports whether an object was made for the Module with a UID. An owner reference is what earlier releases and KMM made.
func MadeFor(object client.Object, module types.UID) bool {
	if object.GetAnnotations()[ModuleAnnotation] == string(module) {
		return true
	}
	owner := metav1.GetControllerOfNoCopy(object)
	return owner != nil && owner.UID == module
}

const (
	ownerPrefix     = "drover/"
	preflightPrefix = "drover-preflight/"
	hubPrefix       = "drover-hub/"
	// maxOwner is the API server's limit for a field manager's name, in bytes.
	maxOwner    = 128
	ownerDigits = 32
)

// WrittenBy reports whether an object has fields of the owner.
func WrittenBy(object client.Object, owner client.FieldOwner) bool {
	return slices.ContainsFunc(object.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool { return f.Manager == string(owner) })
}

// ModuleOwner is the field owner of what is written for one Module into an object that several Modules share:
// drover/<namespace>/<name>, with a digest in place of a name that is too long for the API server.
func ModuleOwner(namespace, name string) client.FieldOwner {
	if owner := ownerPrefix + namespace + "/" + name; len(owner) <= maxOwner {
		return client.FieldOwner(owner)
	}
	sum := sha256.Sum256([]byte(namespace + "/" + name))
	return client.FieldOwner(ownerPrefix + hex.EncodeToString(sum[:])[:ownerDigits])
}

// PreflightOwner is the field owner of what is written for one PreflightValidation into an image that others may want, too.
func PreflightOwner(name string) client.FieldOwner {
	if owner := preflightPrefix + name; len(owner) <= maxOwner {
		return client.FieldOwner(owner)
	}
	sum := sha256.Sum256([]byte(name))
	return client.FieldOwner(preflightPrefix + hex.EncodeToString(sum[:])[:ownerDigits])
}

// HubOwner is the field owner of what is written for one ManagedClusterModule into an image that others may want, too.
func HubOwner(name string) client.FieldOwner {
	if owner := hubPrefix + name; len(owner) <= maxOwner {
		return client.FieldOwner(owner)
	}
	sum := sha256.Sum256([]byte(name))
	return client.FieldOwner(hubPrefix + hex.EncodeToString(sum[:])[:ownerDigits])
}
