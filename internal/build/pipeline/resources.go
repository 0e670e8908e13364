// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// Requests and limits of containers that compile, where neither operator nor Module says them.
const (
	DefaultBuildRequests = "cpu=500m,memory=512Mi,ephemeral-storage=0"
	DefaultBuildLimits   = "cpu=8,memory=4Gi,ephemeral-storage=32Gi"
)

// Everything is set, because a ResourceQuota may refuse a pod otherwise. A pod may use as much disk
// as its largest container may, volumes between the steps included. It requests none explicitly: a
// limit alone would be a request, and kubelets with localStorageCapacityIsolation: false take no
// pod that requests disk.
//
// The memory limit of our steps fits the largest module (256 MiB), which is signed and examined in
// memory beside its compressed file; `make bench-sign` measures it.
var (
	stepRequests  = known("cpu=50m,memory=64Mi,ephemeral-storage=0")
	stepLimits    = known("cpu=8,memory=1Gi,ephemeral-storage=32Gi")
	buildRequests = known(DefaultBuildRequests)
	buildLimits   = known(DefaultBuildLimits)
)

// countless finds an exponent of so many digits, or so many digits, that resource.ParseQuantity
// counts for seconds to hours. CRDs refuse such quantities, too: see the Makefile.
var countless = regexp.MustCompile(`[eE][-+]?[0-9]{3}|[0-9]{65}`)

// ParseResources reads a list like "cpu=2,memory=4Gi" of what a build may be given.
func ParseResources(text string) (corev1.ResourceList, error) {
	list := corev1.ResourceList{}
	for _, item := range strings.Split(text, ",") {
		if item == "" {
			continue
		}
		key, value, _ := strings.Cut(item, "=")
		name := corev1.ResourceName(strings.TrimSpace(key))
		if name != corev1.ResourceCPU && name != corev1.ResourceMemory && name != corev1.ResourceEphemeralStorage {
			return nil, fmt.Errorf("%q is not cpu, memory or ephemeral-storage", name)
		}
		var quantity resource.Quantity
		err := resource.ErrNumeric
		if !countless.MatchString(value) {
			quantity, err = resource.ParseQuantity(strings.TrimSpace(value))
		}
		if err != nil || quantity.Sign() < 0 {
			return nil, fmt.Errorf("%s: %q is not a quantity like 500m or 4Gi", name, value)
		}
		list[name] = quantity
	}
	return list, nil
}

func known(text string) corev1.ResourceList {
	list, err := ParseResources(text)
	if err != nil {
		panic(err) // a constant
	}
	return list
}

// stepResources are those of a step of ours.
func stepResources() corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: maps.Clone(stepRequests), Limits: maps.Clone(stepLimits)}
}

// goMemory keeps the heap of a step below nine tenths of the memory limit.
func goMemory(r *corev1.ResourceRequirements) corev1.EnvVar {
	return corev1.EnvVar{Name: "GOMEMLIMIT", Value: strconv.FormatInt(r.Limits.Memory().Value()/10*9, 10)}
}

// buildResources are the Module's over the operator's over the defaults, each by name. A request
// that the Module does not name is at most its limit.
func buildResources(b *v1alpha1.ImageBuild, o *Options) corev1.ResourceRequirements {
	own := b.Resources
	if own == nil {
		own = &v1beta1.BuildResources{}
	}
	r := corev1.ResourceRequirements{Requests: over(buildRequests, o.BuildRequests, own.Requests),
		Limits: over(buildLimits, o.BuildLimits, own.Limits)}
	for name, request := range r.Requests {
		limit, limited := r.Limits[name]
		if _, named := own.Requests[name]; limited && !named && request.Cmp(limit) > 0 {
			r.Requests[name] = limit
		}
	}
	return r
}

// over merges lists: the last that has a name wins.
func over(lists ...corev1.ResourceList) corev1.ResourceList {
	all := corev1.ResourceList{}
	for _, l := range lists {
		maps.Copy(all, l)
	}
	return all
}

// mergeResources puts a mapping's over the container's, by name.
func mergeResources(container, mapping *v1beta1.BuildResources) *v1beta1.BuildResources {
	if container == nil || mapping == nil {
		return cmp.Or(container, mapping)
	}
	return &v1beta1.BuildResources{Requests: over(container.Requests, mapping.Requests), Limits: over(container.Limits, mapping.Limits)}
}

// processors tells nproc and make the limit: a container sees all processors of the node.
func processors(r *corev1.ResourceRequirements) []corev1.EnvVar {
	limit, limited := r.Limits[corev1.ResourceCPU]
	if !limited {
		return nil
	}
	number := strconv.FormatInt(max(limit.Value(), 1), 10) // rounded up
	// GNU's nproc reads the first.
	return []corev1.EnvVar{{Name: "OMP_NUM_THREADS", Value: number}, {Name: "DROVER_PROCESSORS", Value: number}}
}
