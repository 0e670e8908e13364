// SPDX-License-Identifier: Apache-2.0

// Command operator runs package widget as a process.
package main

import (
	"github.com/drover-project/drover/kit"
	"github.com/drover-project/drover/kit/kittest/internal/widget"
)

func main() { kit.Main(widget.Program) }
