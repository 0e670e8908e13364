// SPDX-License-Identifier: Apache-2.0

// Package hub decides what the clusters of a ManagedClusterModule get. It is pure.
//
// A cluster reports which kernels its nodes run. From these and the ManagedClusterModule follow the
// images that the hub has to make, and the Module that the cluster gets when they exist:
//
//	claims ──► platforms ──► images to make (internal/build/pipeline)
//	                   └───► the cluster's Module, without builds and signatures
package hub

import (
	"maps"
	"slices"
	"strings"

	"github.com/drover-project/drover/internal/shared/kernel"
)

// Claims in which a cluster reports what its nodes run, one per line, sorted: upstream's with
// kernel versions alone, ours with ARCHITECTURE/VERSION.
const (
	KernelsClaim   = "kernel-versions.kmm.node.kubernetes.io"
	PlatformsClaim = "platforms.drover.dev"
)

// MaxClaim is how many bytes the value of a claim may have (ClusterClaim's schema).
const MaxClaim = 1024

// MaxPlatforms bounds a cluster's platforms, and the new ones of an hour: each may be a build.
const MaxPlatforms = 64

// defaultArchitecture is that of kernels in upstream's claim.
const defaultArchitecture = "amd64"

// Platform is a kernel and a processor.
type Platform = kernel.Platform

// Platforms reads a cluster's claims. left is how many lines it left out as impossible or too many:
// a cluster may report anything, and each platform may be a build.
func Platforms(claims map[string]string) (found []Platform, left int) {
	known := map[Platform]bool{}
	add := func(p Platform) {
		switch {
		case known[p]:
		case p.Architecture == "" || p.Check() != nil || len(found) == MaxPlatforms:
			left++
		default:
			known[p] = true
			found = append(found, p)
		}
	}
	if text, ours := claims[PlatformsClaim]; ours {
		for _, line := range lines(text) {
			arch, version, _ := strings.Cut(line, "/")
			add(Platform{Kernel: version, Architecture: arch})
		}
	} else {
		for _, line := range lines(claims[KernelsClaim]) {
			add(Platform{Kernel: line, Architecture: defaultArchitecture})
		}
	}
	slices.SortFunc(found, compare)
	return found, left
}

func lines(text string) []string {
	if len(text) > MaxClaim {
		text = text[:strings.LastIndexByte(text[:MaxClaim+1], '\n')+1]
	}
	return strings.FieldsFunc(text, func(r rune) bool { return r == '\n' })
}

func compare(a, b Platform) int {
	return slices.Compare([]string{a.Kernel, a.Architecture}, []string{b.Kernel, b.Architecture})
}

// ClaimsOf are the claims of a cluster, from the number of its nodes by platform. left is how many
// platforms, those of the fewest nodes, a claim has no room for.
func ClaimsOf(nodes map[Platform]int) (claims map[string]string, left int) {
	byNumber := make([]Platform, 0, len(nodes))
	for p := range nodes {
		byNumber = append(byNumber, p)
	}
	slices.SortFunc(byNumber, func(a, b Platform) int {
		if n := nodes[b] - nodes[a]; n != 0 {
			return n
		}
		return compare(a, b)
	})
	kernels, platforms, size := map[string]bool{}, []string{}, 0
	for _, p := range byNumber {
		line := p.Architecture + "/" + p.Kernel
		if size += len(line) + 1; size > MaxClaim+1 {
			left = len(byNumber) - len(platforms)
			break
		}
		platforms = append(platforms, line)
		kernels[p.Kernel] = true
	}
	slices.Sort(platforms)
	return map[string]string{
		KernelsClaim: strings.Join(slices.Sorted(maps.Keys(kernels)), "\n"), PlatformsClaim: strings.Join(platforms, "\n"),
	}, left
}
