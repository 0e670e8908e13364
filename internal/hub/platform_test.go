// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPlatforms(t *testing.T) {
	for name, tc := range map[string]struct {
		claims map[string]string
		want   []Platform
		left   int
	}{
		"none": {},
		"upstream's": {claims: map[string]string{KernelsClaim: "6.1.0-37-amd64\n6.12.9+deb12-amd64"},
			want: []Platform{{Kernel: "6.1.0-37-amd64", Architecture: "amd64"}, {Kernel: "6.12.9+deb12-amd64", Architecture: "amd64"}}},
		"ours wins": {claims: map[string]string{KernelsClaim: "6.1.0", PlatformsClaim: "arm64/6.1.0\namd64/6.1.0"},
			want: []Platform{{Kernel: "6.1.0", Architecture: "amd64"}, {Kernel: "6.1.0", Architecture: "arm64"}}},
		"twice": {claims: map[string]string{KernelsClaim: "6.1.0\n6.1.0\n"}, want: []Platform{{Kernel: "6.1.0", Architecture: "amd64"}}},
		"ours, broken": {claims: map[string]string{PlatformsClaim: "6.1.0\n/6.1.0\namd64/\nAMD 64/6.1.0\namd64/6.1.0"},
			want: []Platform{{Kernel: "6.1.0", Architecture: "amd64"}}, left: 4},
		"what is no kernel": {
			claims: map[string]string{KernelsClaim: "6.1.0 $(reboot)\n../../etc\n" + strings.Repeat("6", 65) + "\n-6.1\n6.1.0"},
			want:   []Platform{{Kernel: "6.1.0", Architecture: "amd64"}}, left: 4,
		},
		"longer than a claim may be": {claims: map[string]string{KernelsClaim: "6.1.0\n" + strings.Repeat("x", MaxClaim)},
			want: []Platform{{Kernel: "6.1.0", Architecture: "amd64"}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, left := Platforms(tc.claims)
			if diff := cmp.Diff(tc.want, got); diff != "" || left != tc.left {
				t.Errorf("%d left out, want %d (-want +got):\n%s", left, tc.left, diff)
			}
		})
	}
}

func TestPlatformsAreBounded(t *testing.T) {
	var text []string
	for i := range 2 * MaxPlatforms {
		text = append(text, fmt.Sprint(i))
	}
	got, left := Platforms(map[string]string{KernelsClaim: strings.Join(text, "\n")})
	if len(got) != MaxPlatforms || left != MaxPlatforms {
		t.Errorf("%d platforms, %d left out", len(got), left)
	}
}

// TestClaimsAreRead: what a spoke writes, a hub reads.
func TestClaimsAreRead(t *testing.T) {
	given := map[Platform]int{
		{Kernel: "6.1.0-37-amd64", Architecture: "amd64"}:     3,
		{Kernel: "6.12.9+deb12-arm64", Architecture: "arm64"}: 1,
		{Kernel: "6.1.0-37-amd64", Architecture: "arm64"}:     2,
	}
	claims, left := ClaimsOf(given)
	if claims[KernelsClaim] != "6.1.0-37-amd64\n6.12.9+deb12-arm64" || left != 0 {
		t.Errorf("%q, %d left out", claims[KernelsClaim], left)
	}
	got, left := Platforms(claims)
	if len(got) != len(given) || left != 0 {
		t.Errorf("read are %v, %d left out", got, left)
	}
	for _, p := range got {
		if given[p] == 0 {
			t.Errorf("%v was not written", p)
		}
	}
}

// TestClaimsHoldTheKernelsOfMostNodes, as a claim has an end.
func TestClaimsHoldTheKernelsOfMostNodes(t *testing.T) {
	given := map[Platform]int{}
	for i := range 100 {
		given[Platform{Kernel: fmt.Sprintf("6.1.0-%d-amd64", i), Architecture: "amd64"}] = 1
	}
	most := Platform{Kernel: "6.1.0-999-amd64", Architecture: "amd64"}
	given[most] = 2
	claims, left := ClaimsOf(given)
	again, _ := ClaimsOf(given)
	if diff := cmp.Diff(claims, again); diff != "" {
		t.Errorf("a second time gives other claims: %s", diff)
	}
	got, _ := Platforms(claims)
	if left == 0 || len(got)+left != len(given) {
		t.Errorf("%d are there, %d left out", len(got), left)
	}
	for name, value := range claims {
		if len(value) > MaxClaim {
			t.Errorf("claim %s has %d bytes", name, len(value))
		}
	}
	if !strings.Contains(claims[PlatformsClaim], most.Kernel) {
		t.Error("the kernel of most nodes is left out")
	}
}
