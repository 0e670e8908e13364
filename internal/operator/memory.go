// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"fmt"
	"runtime/debug"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

const (
	// MemoryVariable holds the container's memory limit in bytes. The Deployment sets it.
	MemoryVariable = "MEMORY_LIMIT"
	// goMemoryVariable is Go's own, which wins.
	goMemoryVariable = "GOMEMLIMIT"
	// heapPercent of the container's limit is for Go; the rest is for what Go does not count.
	heapPercent = 90
	// garbageVariable is Go's own, which wins.
	garbageVariable = "GOGC"
	// garbagePercent of what lives may be garbage, between two collections. Go's 100 would let the
	// heap grow a seventh larger, for fewer collections.
	garbagePercent = 75
	// fillingPercent is as much while the caches are filled, when the operator takes the most: a whole
	// fleet is decoded at once.
	fillingPercent = 50
)

// LimitMemory has Go collect garbage a little earlier than it would, and more often before the
// container's limit is reached, rather than be killed there. It returns Go's limit in bytes; 0:
// none was set. Once the caches are full, it may collect less often.
func LimitMemory(getenv func(string) string) (int64, error) {
	if getenv(garbageVariable) == "" {
		debug.SetGCPercent(fillingPercent)
	}
	limit := getenv(MemoryVariable)
	if limit == "" || getenv(goMemoryVariable) != "" {
		return 0, nil
	}
	bytes, err := strconv.ParseInt(limit, 10, 64)
	if err != nil || bytes <= 0 {
		return 0, fmt.Errorf("%s=%q is not a number of bytes", MemoryVariable, limit)
	}
	heap := bytes / 100 * heapPercent
	debug.SetMemoryLimit(heap)
	return heap, nil
}

// grows are the kinds whose objects in the cache grow with the fleet.
func (o *Options) grows() []client.Object {
	if o.Mode == ModeHub {
		return nil
	}
	return []client.Object{&corev1.Node{}, &corev1.Pod{}, &v1beta1.NodeModulesConfig{}}
}

// filled waits until the caches hold all objects of these kinds, and lets Go collect garbage less
// often from then on. It tells of no error: the controllers need the same caches, and say what is
// wrong with them.
func filled(ctx context.Context, getenv func(string) string, informers cache.Informers, kinds ...client.Object) error {
	if getenv(garbageVariable) != "" {
		return nil
	}
	for _, kind := range kinds {
		err := wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
			_, err := informers.GetInformer(ctx, kind)
			return err == nil, nil // the kind's definition may come later
		})
		if err != nil {
			return nil //nolint:nilerr // the operator ends
		}
	}
	debug.SetGCPercent(garbagePercent)
	return nil
}
