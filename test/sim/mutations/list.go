// SPDX-License-Identifier: Apache-2.0

package main

import "slices"

// mutation is a fault that is put into the product.
type mutation struct {
	Name string
	// File of the product, from the repository's folder.
	File string
	// Old is text that the file has once, in a function if possible, and New what stands in its place.
	Old, New string
	// Within so many histories it has to be found: about three times as many as it took when it was
	// written, since each new verb changes them all.
	Within int
	// Why says which fault this is, in a sentence.
	Why string
	// Crashes says why a panic, or a hang, counts as found; empty: it does not.
	Crashes string
}

// mutations are all. What the simulation cannot find is not among them: ADR 0046 says what it does
// not show.
var mutations = slices.Concat(ofOrders, ofWakes, ofReports, ofRollouts, ofAgents, ofDisks, ofPlugins)

const (
	moduleDir = "internal/operator/controller/module/"
	nodeDir   = "internal/operator/controller/node/"
	planDir   = "internal/operator/nodeplan/"
	sharedDir = "internal/shared/"
	agentDir  = "internal/agent/"
)
