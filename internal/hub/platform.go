// SPDX-License-Identifier: Apache-2.0

// Package hub decides what the clusters of a ManagedClusterModule get. It is pure.
//
// A cluster says which kernels its nodes run. From these and the ManagedClusterModule follow the images that the hub has to make, and the Module that
// the cluster gets when they are there:
//
//	claims ──► platforms ──► images to make (internal/pipeline)
//	                   └───► the cluster's Module, without builds and signatures
package hub

import (
	"regexp"
	"slices"
	"strings"
)

// Claims are the names under which a cluster says what its nodes run, one to a line, sorted. Upstream's has kernel versions alone; ours has the
// processor before each, as Go spells it, and a slash.
const (
	KernelsClaim   = "kernel-versions.kmm.node.kubernetes.io"
	PlatformsClaim = "platforms.drover.dev"
)

// MaxClaim is how many bytes the value of a claim may have (ClusterClaim's schema).
const MaxClaim = 1024

// MaxPlatforms bounds what is believed of one cluster, and how many of it may be new within an hour: each one may be a build. A claim holds less than
// twice as many.
const MaxPlatforms = 64

// defaultArchitecture is taken for kernels of which nobody says the processor, as upstream takes it.
const defaultArchitecture = "amd64"

// Platform is a kernel's version, as `uname -r` prints it, and a processor, as Go spells it.
type Platform struct{ Kernel, Architecture string }

// kernelVersion is what utsname may hold and all kernels print: 64 bytes, without a blank or a slash.
var kernelVersion = regexp.MustCompile(`^[A-Za-z0-9][-A-Za-z0-9._+~]{0,63}$`)

var architecture = regexp.MustCompile(`^[a-z0-9]{1,16}$`)

// Platforms reads the claims of a cluster. What it cannot be is left out: a cluster says of itself what it likes, and each platform may be a build.
// Left is how many lines were left out.
func Platforms(claims map[string]string) (found []Platform, left int) {
	known := map[Platform]bool{}
	add := func(p Platform) {
		switch {
		case known[p]:
		case !kernelVersion.MatchString(p.Kernel) || !architecture.MatchString(p.Architecture) || len(found) == MaxPlatforms:
			left++
		default:
			known[p] = true
			found = append(found, p)
		}
	}
	if text, ours := claims[PlatformsClaim]; ours {
		for _, line := range lines(text) {
			arch, version, _ := strings.Cut(line, "/")
			add(Platform{version, arch})
		}
	} else {
		for _, line := range lines(claims[KernelsClaim]) {
			add(Platform{line, defaultArchitecture})
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

// ClaimsOf are the claims for what nodes run, with the number of nodes of each. Where a claim cannot hold all, those of the most nodes are in it, and
// left is how many are not.
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
	names := make([]string, 0, len(kernels))
	for name := range kernels {
		names = append(names, name)
	}
	slices.Sort(names)
	slices.Sort(platforms)
	return map[string]string{KernelsClaim: strings.Join(names, "\n"), PlatformsClaim: strings.Join(platforms, "\n")}, left
}
