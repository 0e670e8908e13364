// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"fmt"
	"maps"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/build/pipeline"
	"github.com/drover-project/drover/internal/hub/direct"
	"github.com/drover-project/drover/internal/operator/controller/module"
	"github.com/drover-project/drover/internal/shared/placement"
	"github.com/drover-project/drover/internal/shared/reported"
)

// CacheOptions keep the cache small: of a large cluster, the operator needs little of each node and
// few of the pods. Secrets are never read, and of ConfigMaps only that they changed. dra: the API
// server serves claims and DeviceClasses. sources: the operator may look at all ConfigMaps, and not
// only at those with the environment of Jobs.
func CacheOptions(dra, sources bool) (cache.Options, error) {
	made, err := labels.Parse(v1beta1.ModuleNameLabel)
	if err != nil {
		return cache.Options{}, fmt.Errorf("select what is made for Modules: %w", err)
	}
	// By name, so that the rights to these can be by name, too.
	seal := cache.ByObject{Field: fields.OneTermEqualSelector(metav1.ObjectNameField, module.SealPolicy)}
	configMaps := cache.ByObject{Transform: slimMetadata}
	if !sources {
		configMaps.Field = fields.OneTermEqualSelector(metav1.ObjectNameField, pipeline.EnvironmentConfigMap)
	}
	kinds := map[client.Object]cache.ByObject{
		&corev1.Node{}:               {Transform: slimNode},
		&corev1.Pod{}:                {Label: made, Transform: slimPod},
		&v1beta1.NodeModulesConfig{}: {Transform: slimConfig},
		&appsv1.DaemonSet{}:          {Label: made},
		&batchv1.Job{}:               {Label: made},
		&corev1.ConfigMap{}:          configMaps,
		&corev1.ServiceAccount{}:     {Label: made},

		&admissionv1.ValidatingAdmissionPolicy{}:        seal,
		&admissionv1.ValidatingAdmissionPolicyBinding{}: seal,
	}
	if dra {
		kinds[&resourcev1.ResourceClaim{}] = cache.ByObject{Transform: slimClaim}
		// Who wrote it tells whether it was made here.
		kinds[&resourcev1.DeviceClass{}] = cache.ByObject{Label: made, Transform: whole}
	}
	return cache.Options{DefaultTransform: slim, ByObject: kinds}, nil
}

// spokeCache leaves of ConfigMaps the one that a spoke writes: it may not look at others.
func spokeCache(options *cache.Options, namespace string) {
	for kind := range options.ByObject {
		if _, ok := kind.(*corev1.ConfigMap); ok {
			delete(options.ByObject, kind)
		}
	}
	only := fields.OneTermEqualSelector(metav1.ObjectNameField, direct.Platforms)
	options.ByObject[&corev1.ConfigMap{}] = cache.ByObject{Namespaces: map[string]cache.Config{namespace: {FieldSelector: only}}}
}

// hubCache keeps of a hub's own cluster what images are made with, and of Secrets only those that
// stand for clusters, which are in the operator's namespace.
func hubCache(namespace string) (cache.Options, error) {
	made, err := labels.Parse(v1beta1.ModuleNameLabel)
	if err != nil {
		return cache.Options{}, fmt.Errorf("select what is made for Modules: %w", err)
	}
	cluster, err := labels.Parse(direct.ClusterLabel)
	if err != nil {
		return cache.Options{}, fmt.Errorf("select clusters: %w", err)
	}
	return cache.Options{DefaultTransform: slim, ByObject: map[client.Object]cache.ByObject{
		&corev1.Node{}:      {Transform: slimNode},
		&corev1.Pod{}:       {Label: made, Transform: slimPod},
		&batchv1.Job{}:      {Label: made},
		&corev1.ConfigMap{}: {Transform: slimMetadata},
		&corev1.Secret{}:    {Namespaces: map[string]cache.Config{namespace: {LabelSelector: cluster}}},
	}}, nil
}

// slim drops what is only there for other writers. Managed fields can be half of an object.
func slim(object any) (any, error) {
	if meta, ok := object.(metav1.Object); ok {
		meta.SetManagedFields(nil)
	}
	return object, nil
}

// slimMetadata keeps which object it is, and which version of it.
func slimMetadata(object any) (any, error) {
	if meta, ok := object.(metav1.Object); ok {
		meta.SetManagedFields(nil)
		meta.SetAnnotations(nil)
		meta.SetLabels(nil)
	}
	return object, nil
}

// slimClaim keeps where a claim's devices are and whether pods have them.
func slimClaim(object any) (any, error) {
	claim, ok := object.(*resourcev1.ResourceClaim)
	if !ok {
		return slim(object)
	}
	kept := &resourcev1.ResourceClaim{
		TypeMeta: claim.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			ResourceVersion: claim.ResourceVersion, DeletionTimestamp: claim.DeletionTimestamp,
		},
	}
	kept.Status.Allocation, kept.Status.ReservedFor = claim.Status.Allocation, claim.Status.ReservedFor
	return kept, nil
}

func whole(object any) (any, error) { return object, nil }

// slimNode keeps what placement and delivery look at.
func slimNode(object any) (any, error) {
	node, ok := object.(*corev1.Node)
	if !ok {
		return slim(object)
	}
	kept := &corev1.Node{
		TypeMeta: node.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Name:              node.Name,
			UID:               node.UID,
			ResourceVersion:   node.ResourceVersion,
			CreationTimestamp: node.CreationTimestamp,
			DeletionTimestamp: node.DeletionTimestamp,
			Labels:            internLabels(node.Labels),
			Annotations:       maps.Clone(node.Annotations),
		},
		Spec:   corev1.NodeSpec{Taints: node.Spec.Taints},
		Status: corev1.NodeStatus{NodeInfo: node.Status.NodeInfo},
	}
	reported.Node(kept)
	info := &kept.Status.NodeInfo
	info.MachineID, info.SystemUUID = "", ""
	share(&info.KernelVersion, &info.OSImage, &info.ContainerRuntimeVersion, &info.KubeletVersion, &info.OperatingSystem, &info.Architecture)
	maps.DeleteFunc(kept.Annotations, func(key, _ string) bool {
		return key != v1beta1.CordonedAnnotation && !slices.Contains(placement.WishAnnotations, key)
	})
	for _, condition := range node.Status.Conditions {
		switch condition.Type {
		case corev1.NodeReady:
			// The heartbeat in it changes all the time, the rest does not.
			kept.Status.Conditions = append(kept.Status.Conditions, corev1.NodeCondition{
				Type: condition.Type, Status: condition.Status, LastTransitionTime: condition.LastTransitionTime,
			})
		case v1beta1.NodeConditionKernelModules:
			kept.Status.Conditions = append(kept.Status.Conditions, condition)
		}
	}
	return kept, nil
}

// slimPod keeps a pod's identity, its node, what its containers do, the names of its init
// containers, which tell how a carrier delivers, and a carrier's images, of which the agent's may
// be outdated; the rest of what it runs is known from what it was made for.
func slimPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return slim(object)
	}
	reported.Pod(pod)
	kept := &corev1.Pod{
		TypeMeta: pod.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Namespace: shared(pod.Namespace), Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
			CreationTimestamp: pod.CreationTimestamp, DeletionTimestamp: pod.DeletionTimestamp,
			Labels: internLabels(pod.Labels), OwnerReferences: pod.OwnerReferences, Finalizers: pod.Finalizers,
		},
		Spec: corev1.PodSpec{NodeName: shared(pod.Spec.NodeName)},
		Status: corev1.PodStatus{
			Phase: pod.Status.Phase, Reason: shared(pod.Status.Reason), Message: pod.Status.Message,
			InitContainerStatuses: slimStatuses(pod.Status.InitContainerStatuses), ContainerStatuses: slimStatuses(pod.Status.ContainerStatuses),
		},
	}
	for _, key := range podAnnotations {
		if value, ok := pod.Annotations[key]; ok {
			metav1.SetMetaDataAnnotation(&kept.ObjectMeta, key, shared(value))
		}
	}
	for i := range pod.Spec.InitContainers {
		kept.Spec.InitContainers = append(kept.Spec.InitContainers, corev1.Container{Name: shared(pod.Spec.InitContainers[i].Name)})
	}
	if _, carrier := pod.Labels[v1beta1.CarrierLabel]; carrier {
		for i := range pod.Spec.Containers {
			c := &pod.Spec.Containers[i]
			kept.Spec.Containers = append(kept.Spec.Containers, corev1.Container{Name: shared(c.Name), Image: shared(c.Image)})
		}
	}
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady || c.Type == corev1.PodScheduled {
			kept.Status.Conditions = append(kept.Status.Conditions, corev1.PodCondition{Type: c.Type, Status: c.Status, Reason: shared(c.Reason)})
		}
	}
	return kept, nil
}

// podAnnotations say what a carrier delivers.
var podAnnotations = []string{
	v1beta1.ModuleNamespaceAnnotation, v1beta1.ModuleNameAnnotation, v1beta1.DeliveryAnnotation, v1beta1.PullsAsAnnotation,
}

// slimStatuses keep what containers do and did, and of which image.
func slimStatuses(all []corev1.ContainerStatus) []corev1.ContainerStatus {
	var kept []corev1.ContainerStatus
	for i := range all {
		s := &all[i]
		kept = append(kept, corev1.ContainerStatus{
			Name: shared(s.Name), Image: shared(s.Image), State: s.State, LastTerminationState: s.LastTerminationState,
		})
	}
	return kept
}
