// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"maps"
	"slices"
	"strings"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// Bounds of the NodeModulesConfig's schema. What is beyond them is cut: the API refuses a status as a whole.
const (
	maxModules    = 512
	maxAttempts   = 1024
	maxArtifacts  = 2048
	maxBuild      = 1024
	maxBuildID    = 128
	maxSrcVersion = 64
	maxTaint      = 64
	maxHolder     = 317
	// maxParameters and maxParameter are fewer than the schema takes: all of a module's parameters together are to leave room for others in
	// the object.
	maxParameters = 8 << 10
	maxParameter  = 1024
)

// bound cuts a sorted status to what the API takes.
func bound(s *v1beta1.NodeModulesConfigStatus) {
	s.Modules = first(s.Modules, maxModules)
	s.Attempts = first(s.Attempts, maxAttempts)
	s.Artifacts = first(s.Artifacts, maxArtifacts)
	for i := range s.Modules {
		if seen := s.Modules[i].Observed; seen != nil {
			seen.BuildID, seen.SrcVersion, seen.Taint = clip(seen.BuildID, maxBuildID), clip(seen.SrcVersion, maxSrcVersion), clip(seen.Taint, maxTaint)
			seen.Parameters = boundParameters(seen.Parameters)
		}
	}
	for i := range s.Attempts {
		a := &s.Attempts[i]
		// Half a name is another pod's.
		a.Holders = slices.DeleteFunc(slices.Clone(a.Holders), func(pod string) bool { return len(pod) > maxHolder })
		if a.Strike != nil {
			a.Strike.Build = clip(a.Strike.Build, maxBuild)
		}
	}
}

func first[T any](all []T, most int) []T { return all[:min(len(all), most)] }

// clip cuts words that may come from an image to so many bytes of UTF-8: the API replaces what is none, and would not show what was written.
func clip(words string, most int) string {
	words = strings.ToValidUTF8(words, "?")
	return strings.ToValidUTF8(words[:min(len(words), most)], "")
}

// boundParameters are the first by name that fit.
func boundParameters(all map[string]string) map[string]string {
	size, cut := 0, false
	for name, value := range all {
		size += len(name) + len(value)
		cut = cut || len(value) > maxParameter
	}
	if size <= maxParameters && !cut {
		return all
	}
	kept, left := map[string]string{}, maxParameters
	for _, name := range slices.Sorted(maps.Keys(all)) {
		value := clip(all[name], maxParameter)
		if left -= len(name) + len(value); left < 0 {
			break
		}
		kept[name] = value
	}
	return kept
}
