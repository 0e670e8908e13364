// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/kmod"
)

// vermagic compares as the kernel's same_magic does (kernel/module/version.c): the whole strings,
// or with symbol CRCs, on a kernel that has them, everything but the release.
func (c *checker) vermagic(m Module) *Finding {
	info := m.Details.Info
	rebuild := fmt.Sprintf("build it against the headers of kernel %s", c.Release)
	f := &Finding{Reason: v1beta1.ReasonVermagicMismatch}
	if info.Vermagic == "" {
		f.Message = fmt.Sprintf("Module %s has no vermagic, and kernel %s needs one unless it has CONFIG_MODULE_FORCE_LOAD; %s, and do not "+
			"strip .modinfo.",
			m.Name, c.Release, rebuild)
		return f
	}
	theirs, ours := kmod.ParseVermagic(info.Vermagic), kmod.ParseVermagic(c.Vermagic)
	if c.Vermagic == "" {
		if info.HasCRCs || c.Release == "" || theirs.Release == c.Release {
			return nil
		}
		f.Message = fmt.Sprintf("Module %s was built for kernel %s, and the node runs %s; without symbol CRCs (CONFIG_MODVERSIONS) both must "+
			"be equal; %s.",
			m.Name, theirs.Release, c.Release, rebuild)
		return f
	}
	crcs := info.HasCRCs && c.modversions()
	if kmod.CompatibleVermagic(info.Vermagic, c.Vermagic, crcs) {
		return nil
	}
	// A sample of a kernel that does not run proves nothing.
	f.Certain = ours.Release == c.Release
	f.Message = fmt.Sprintf("Module %s was built for another kernel: its vermagic is %q, that of the running kernel's own modules %q "+
		"(%s); %s.",
		m.Name, strings.TrimRight(info.Vermagic, " "), strings.TrimRight(c.Vermagic, " "), differences(theirs, ours, crcs), rebuild)
	return f
}

// differences names what differs between two vermagics.
func differences(theirs, ours kmod.Vermagic, crcs bool) string {
	var parts []string
	if !crcs && theirs.Release != ours.Release {
		parts = append(parts, "the releases differ")
	}
	extra, lacking := without(theirs.Flags, ours.Flags), without(ours.Flags, theirs.Flags)
	if len(extra) > 0 {
		parts = append(parts, "only the module has "+strings.Join(extra, " "))
	}
	if len(lacking) > 0 {
		parts = append(parts, "only the kernel has "+strings.Join(lacking, " "))
	}
	if len(parts) == 0 {
		return "the order of the flags differs"
	}
	return strings.Join(parts, ", ")
}

func without(all, these []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(these, s) })
}

// versions finds modules without the table of symbol CRCs that the kernel reads. Kernels with
// CONFIG_MODULE_FORCE_LOAD load them all the same.
func (c *checker) versions(m Module) *Finding {
	if !c.modversions() || m.Details.Info.HasCRCs {
		return nil
	}
	return &Finding{
		Reason: v1beta1.ReasonVermagicMismatch,
		Message: fmt.Sprintf("Module %s has no symbol CRCs, and kernel %s compares them (CONFIG_MODVERSIONS); "+
			"build it with the Module.symvers of that kernel, and do not strip __versions.", m.Name, c.Release),
	}
}
