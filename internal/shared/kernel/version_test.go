// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	type rhel struct{ version, release, arch string }
	type debian struct{ release, flavor string }
	for _, test := range []struct {
		given  string
		full   string // empty: as given
		xyz    [3]string
		rhel   rhel
		debian debian
	}{
		// RHEL and its rebuilds, Oracle, ELRepo.
		{given: "4.18.0-348.23.1.el8_5.x86_64", xyz: [3]string{"4", "18", "0"}, rhel: rhel{"el8_5", "348.23.1.el8_5", "x86_64"}},
		{given: "3.10.0-1160.el7.x86_64", xyz: [3]string{"3", "10", "0"}, rhel: rhel{"el7", "1160.el7", "x86_64"}},
		{given: "3.10.0-1160.el7.centos.plus.x86_64", xyz: [3]string{"3", "10", "0"}, rhel: rhel{"el7", "1160.el7.centos.plus", "x86_64"}},
		{given: "5.14.0-427.13.1.el9_4.aarch64", xyz: [3]string{"5", "14", "0"}, rhel: rhel{"el9_4", "427.13.1.el9_4", "aarch64"}},
		{given: "5.14.0-284.36.1.rt14.321.el9_2.x86_64", xyz: [3]string{"5", "14", "0"},
			rhel: rhel{"el9_2", "284.36.1.rt14.321.el9_2", "x86_64"}},
		{given: "5.14.0-503.11.1.el9_5.aarch64+64k", full: "5.14.0-503.11.1.el9_5.aarch64_64k", xyz: [3]string{"5", "14", "0"},
			rhel: rhel{"el9_5", "503.11.1.el9_5", "aarch64"}},
		{given: "5.15.0-200.131.27.el8uek.x86_64", xyz: [3]string{"5", "15", "0"}, rhel: rhel{"el8uek", "200.131.27.el8uek", "x86_64"}},
		{given: "6.7.1-1.el9.elrepo.x86_64", xyz: [3]string{"6", "7", "1"}, rhel: rhel{"el9", "1.el9.elrepo", "x86_64"}},
		// Debian: ABI numbers, backports, and the names without one.
		{given: "5.10.0-13-amd64", xyz: [3]string{"5", "10", "0"}, debian: debian{"13", "amd64"}},
		{given: "5.10.0-13-cloud-amd64", xyz: [3]string{"5", "10", "0"}, debian: debian{"13", "cloud-amd64"}},
		{given: "6.1.0-18-rt-arm64", xyz: [3]string{"6", "1", "0"}, debian: debian{"18", "rt-arm64"}},
		{given: "6.1.0-0.deb11.13-amd64", xyz: [3]string{"6", "1", "0"}, debian: debian{"0.deb11.13", "amd64"}},
		{given: "4.19.0-0.bpo.5-686-pae", xyz: [3]string{"4", "19", "0"}, debian: debian{"0.bpo.5", "686-pae"}},
		{given: "6.9.7+bpo-amd64", full: "6.9.7_bpo-amd64", xyz: [3]string{"6", "9", "7"}, debian: debian{"7_bpo", "amd64"}},
		{given: "6.12.115+deb12-amd64", full: "6.12.115_deb12-amd64", xyz: [3]string{"6", "12", "115"}, debian: debian{"115_deb12", "amd64"}},
		{given: "6.12.57+deb13-cloud-arm64", full: "6.12.57_deb13-cloud-arm64", xyz: [3]string{"6", "12", "57"},
			debian: debian{"57_deb13", "cloud-arm64"}},
		{given: "6.12.9-amd64", xyz: [3]string{"6", "12", "9"}, debian: debian{"9", "amd64"}},
		// Ubuntu and Proxmox.
		{given: "5.4.0-104-generic", xyz: [3]string{"5", "4", "0"}, debian: debian{"104", "generic"}},
		{given: "6.2.0-1018-aws", xyz: [3]string{"6", "2", "0"}, debian: debian{"1018", "aws"}},
		{given: "5.15.0-1053-gke", xyz: [3]string{"5", "15", "0"}, debian: debian{"1053", "gke"}},
		{given: "6.8.0-1009-nvidia-64k", xyz: [3]string{"6", "8", "0"}, debian: debian{"1009", "nvidia-64k"}},
		{given: "6.5.0-060500-generic", xyz: [3]string{"6", "5", "0"}, debian: debian{"060500", "generic"}},
		{given: "6.5.11-7-pve", xyz: [3]string{"6", "5", "11"}, debian: debian{"7", "pve"}},
		// Others: the numbers only.
		{given: "6.5.6-300.fc39.x86_64", xyz: [3]string{"6", "5", "6"}},
		{given: "5.8.18-100.fc31.x86_64", xyz: [3]string{"5", "8", "18"}},
		{given: "5.14.21-150500.55.39-default", xyz: [3]string{"5", "14", "21"}},
		{given: "6.1.66-91.160.amzn2023.x86_64", xyz: [3]string{"6", "1", "66"}},
		{given: "5.15.138.1-1.cm2", xyz: [3]string{"5", "15", "138"}},
		{given: "6.6.58-talos", xyz: [3]string{"6", "6", "58"}},
		{given: "6.6.60-flatcar", xyz: [3]string{"6", "6", "60"}},
		{given: "6.6.10-arch1-1", xyz: [3]string{"6", "6", "10"}},
		{given: "6.1.61", xyz: [3]string{"6", "1", "61"}},
		{given: "5.15.109+", full: "5.15.109", xyz: [3]string{"5", "15", "109"}},
		{given: "5.15.90.1-microsoft-standard-WSL2", xyz: [3]string{"5", "15", "90"}},
		// Not kernel versions: no parts, no crash.
		{given: ""},
		{given: "+"},
		{given: "6.1", full: "6.1"},
		{given: "6.1-rc3"},
		{given: "x.y.z"},
		{given: "6.1.0-", xyz: [3]string{"6", "1", "0"}},
		{given: "5.14.0-.el9.", xyz: [3]string{"5", "14", "0"}},
		{given: "5.14.0-1.el.x86_64", xyz: [3]string{"5", "14", "0"}},
		{given: "6.1.0 ünì", full: "6.1.0__n_", xyz: [3]string{"6", "1", "0"}},
	} {
		t.Run(test.given, func(t *testing.T) {
			want := Version{
				Full: test.full, X: test.xyz[0], Y: test.xyz[1], Z: test.xyz[2],
				RHELVersion: test.rhel.version, RHELRelease: test.rhel.release, RHELArch: test.rhel.arch,
				DebianRelease: test.debian.release, DebianFlavor: test.debian.flavor,
			}
			if want.X != "" {
				want.XYZ = want.X + "." + want.Y + "." + want.Z
			}
			if want.Full == "" {
				want.Full = Trim(test.given)
			}
			if diff := cmp.Diff(want, Parse(test.given).TagSafe()); diff != "" {
				t.Errorf("Parse (-want +got):\n%s", diff)
			}
			if got := Parse(test.given).Full; got != test.given {
				t.Errorf("the whole version is %q", got)
			}
		})
	}
}
