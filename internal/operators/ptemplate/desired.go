// SPDX-License-Identifier: Apache-2.0

// Package ptemplate is the operator of Ptemplates (pt.example.com): a kernel module with a device
// plugin, and a pod on each node that uses the devices. Pure functions, a file for each child,
// decide what a Ptemplate becomes.
package ptemplate

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/ptemplate/v1alpha1"
)

const (
	// Name of the operator, its controller, its field manager and its events.
	Name = "ptemplate-operator"

	// Resource is the extended resource by which pods ask for devices.
	Resource = corev1.ResourceName("example.com/ptemplate")

	nameLabel      = "app.kubernetes.io/name"
	instanceLabel  = "app.kubernetes.io/instance"
	managedByLabel = "app.kubernetes.io/managed-by"
	uidLabel       = "pt.example.com/uid"
)

// Desired are a Ptemplate's children, in the order in which they are made.
func Desired(p *v1alpha1.Ptemplate) ([]client.Object, error) {
	return []client.Object{module(p), consumer(p)}, nil
}

// unconfined are the children where Modules have no security context for device plugins.
func unconfined(p *v1alpha1.Ptemplate) ([]client.Object, error) {
	m := module(p)
	m.Spec.DevicePlugin.Container.SecurityContext = nil
	return []client.Object{m, consumer(p)}, nil
}

// settings are a Ptemplate's fields with defaults, as tests and dry runs have no API server.
type settings struct {
	maxDev, required         int32
	message                  string
	driver, plugin, consumer string
	secret                   string
	selector                 map[string]string
}

func settingsOf(p *v1alpha1.Ptemplate) settings {
	return settings{
		maxDev:   cmp.Or(p.Spec.MaxDev, v1alpha1.DefaultMaxDev),
		required: cmp.Or(p.Spec.RequiredDevices, v1alpha1.DefaultRequiredDevices),
		message:  cmp.Or(p.Spec.DefaultMsg, v1alpha1.DefaultMessage),
		driver:   cmp.Or(p.Spec.DriverImage, v1alpha1.DefaultDriverImage),
		plugin:   cmp.Or(p.Spec.DevicePlugin, v1alpha1.DefaultDevicePluginImage),
		consumer: cmp.Or(p.Spec.Consumer, p.Spec.ConsumerImage, v1alpha1.DefaultConsumerImage),
		secret:   ptr.Deref(cmp.Or(p.Spec.ImageRepoSecret, p.Spec.ImagePullSecret), corev1.LocalObjectReference{}).Name,
		selector: p.Spec.Selector,
	}
}
