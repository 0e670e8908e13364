// SPDX-License-Identifier: Apache-2.0

// Package kernels has versions of real kernels, and what they give for the variables of templates.
package kernels

import (
	_ "embed" // for the table
	"strings"
)

// Kernel is one of a distribution.
type Kernel struct {
	// Distribution and Package say whose it is; Package is the source package.
	Distribution, Package string
	// Version is what `uname -r` prints.
	Version string
	// Variables are those that have a value with this kernel.
	Variables map[string]string
}

//go:embed kernels.tsv
var table string

// Real kernels. The values of the variables are from the table, not from the code that is tested
// with them.
func Real() []Kernel {
	var all []Kernel
	for line := range strings.Lines(table) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		columns := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		k := Kernel{Distribution: columns[0], Package: columns[1], Version: columns[2]}
		numbers := strings.Split(columns[4], ".")
		k.Variables = map[string]string{
			"KERNEL_FULL_VERSION": columns[3], "KERNEL_VERSION": columns[3], "KERNEL_XYZ": columns[4],
			"KERNEL_X": numbers[0], "KERNEL_Y": numbers[1], "KERNEL_Z": numbers[2],
		}
		switch parts := columns[5:]; len(parts) {
		case 2:
			for _, family := range []string{"DEBIAN", "UBUNTU"} {
				k.Variables["KERNEL_"+family+"_RELEASE"], k.Variables["KERNEL_"+family+"_FLAVOR"] = parts[0], parts[1]
			}
		case 3:
			k.Variables["KERNEL_RHEL_VERSION"], k.Variables["KERNEL_RHEL_RELEASE"], k.Variables["KERNEL_RHEL_ARCH"] = parts[0], parts[1], parts[2]
		}
		all = append(all, k)
	}
	return all
}
