// SPDX-License-Identifier: Apache-2.0

// Command deviceconfig-operator makes Modules of DeviceConfigs.
package main

import (
	"github.com/drover-project/drover/internal/operators/deviceconfig"
	"github.com/drover-project/drover/kit"
)

func main() { kit.Main(deviceconfig.Program()) }
