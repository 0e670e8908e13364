// SPDX-License-Identifier: Apache-2.0

// Package delivery describes how the content of a kernel module image reaches a node: the identity
// of a delivery, the shape of the carrier pod that makes it, and what a carrier pod's status means.
// Nothing here talks to the API server.
package delivery

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

const (
	idDigits   = 32
	nameDigits = 16
)

// identity is everything that decides what a delivery brings. Its JSON form is hashed, so field
// names and order are part of the identity: changing them delivers every image of a cluster again.
type identity struct {
	Image      string   `json:"image"`
	Rebuild    *int     `json:"rebuild,omitempty"`
	Kernel     string   `json:"kernel"`
	Module     string   `json:"module,omitempty"`
	Dir        string   `json:"dir,omitempty"`
	Order      []string `json:"order,omitempty"`
	Firmware   string   `json:"firmware,omitempty"`
	WholeTree  bool     `json:"wholeTree,omitempty"`
	LoaderHash string   `json:"loader,omitempty"`
	Made       string   `json:"made,omitempty"`
}

// ID is the identity of what config's image brings to a node: hex digits that are equal exactly
// when a node that holds the one delivery needs no other. The Module's generation is not part of
// it, so that a change of the device plugin never touches a node's orders; with imagePullPolicy
// Always any change of spec.moduleLoader is. made is the hash of the inputs of an image that is
// built or signed in the cluster, and empty for all others: other inputs are other content, also
// under the same reference, and the same are the same, also when the registry forgot the image and
// it was made again.
func ID(m *v1beta1.Module, config *v1beta1.ModuleConfig, made string) (string, error) {
	what := identity{
		Image:     config.ContainerImage,
		Rebuild:   m.Spec.ImageRebuildTriggerGeneration,
		Kernel:    config.KernelVersion,
		Module:    config.Modprobe.ModuleName,
		Dir:       config.Modprobe.DirName,
		Order:     config.Modprobe.ModulesLoadingOrder,
		Firmware:  config.Modprobe.FirmwarePath,
		WholeTree: NeedsWholeTree(&config.Modprobe),
		Made:      made,
	}
	if config.ImagePullPolicy == corev1.PullAlways {
		loader, err := json.Marshal(m.Spec.ModuleLoader)
		if err != nil {
			return "", fmt.Errorf("encode spec.moduleLoader of %s/%s: %w", m.Namespace, m.Name, err)
		}
		what.LoaderHash = digest(string(loader), idDigits)
	}
	text, err := json.Marshal(what)
	if err != nil {
		return "", fmt.Errorf("encode the delivery of %s/%s: %w", m.Namespace, m.Name, err)
	}
	return digest(string(text), idDigits), nil
}

// NeedsWholeTree reports whether modprobe itself will run, which may ask for any file of the
// image's module tree. Empty arguments count as unset: clients written in Go send them.
func NeedsWholeTree(modprobe *v1beta1.ModprobeSpec) bool {
	return hasArgs(modprobe.Args) || hasArgs(modprobe.RawArgs)
}

func hasArgs(args *v1beta1.ModprobeArgs) bool {
	return args != nil && (len(args.Load) > 0 || len(args.Unload) > 0)
}

// CarrierName is the name of the pod that makes delivery id of the Module namespace/name on a node.
// It is the same for the same delivery, so that two tries can never run side by side.
func CarrierName(namespace, name, node, id string) string {
	return v1beta1.CarrierPrefix + digest(namespace+"/"+name+"/"+node+"/"+id, nameDigits)
}

// IsCarrier reports whether a pod is a carrier. Its name says so, which only the operator can give;
// labels and annotations anybody can put on a pod of their own.
func IsCarrier(pod metav1.Object) bool {
	_, labelled := pod.GetLabels()[v1beta1.CarrierLabel]
	return labelled && strings.HasPrefix(pod.GetName(), v1beta1.CarrierPrefix)
}

func digest(text string, digits int) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])[:digits]
}
