// SPDX-License-Identifier: Apache-2.0

package lolcow

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	api "github.com/drover-project/drover/api/lolcow/v1alpha1"
)

// servicePort is the Service's port inside the cluster.
const servicePort = 80

func serviceName(l *api.Lolcow) string { return cmp.Or(l.Spec.ServiceName, l.Name) }

// service reaches the page by a port on every node: spec.port, or one that the API server keeps.
func service(l *api.Lolcow) *corev1.Service {
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Name: serviceName(l), Labels: labels(l)},
		Spec: corev1.ServiceSpec{
			Type:     corev1.ServiceTypeNodePort,
			Selector: selector(l),
			Ports: []corev1.ServicePort{{
				Name: portName, Protocol: corev1.ProtocolTCP, Port: servicePort, TargetPort: intstr.FromString(portName), NodePort: l.Spec.Port,
			}},
		},
	}
}
