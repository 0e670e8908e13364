// SPDX-License-Identifier: Apache-2.0

// Package reference gives programs the reference pages that they quote.
package reference

import _ "embed" // for the pages

// Reasons is the page of all reasons, with what each means and the next step.
//
//go:embed reasons.md
var Reasons string
