// SPDX-License-Identifier: Apache-2.0

// Command ptemplate-operator serves Ptemplates (pt.example.com): a kernel module, its device
// plugin, and pods that use the devices.
package main

import (
	"github.com/drover-project/drover/internal/operators/ptemplate"
	"github.com/drover-project/drover/kit"
)

func main() { kit.Main(ptemplate.Program) }
