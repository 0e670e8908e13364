// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"fmt"
	"runtime/debug"
	"strconv"
)

const (
	// MemoryVariable holds the container's memory limit in bytes. The Deployment sets it.
	MemoryVariable = "MEMORY_LIMIT"
	// goMemoryVariable is Go's own, which wins.
	goMemoryVariable = "GOMEMLIMIT"
	// heapPercent of the container's limit is for Go; the rest is for what Go does not count.
	heapPercent = 90
)

// LimitMemory has Go collect garbage more often before the container's limit is reached, rather
// than be killed there. It returns Go's limit in bytes; 0: none was set.
func LimitMemory(getenv func(string) string) (int64, error) {
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
