// SPDX-License-Identifier: Apache-2.0

// Package kit is what an operator for devices stands on: a custom resource says what somebody wants, and becomes a Module and whatever else belongs
// to it. The author writes what is particular to the device, [Operator]: what the children are, and when they are ready. The kit does the rest.
//
//   - One child is written per pass, by server-side apply; what somebody changes or deletes is put right; what is no longer wanted is removed.
//     Objects that belong to somebody else are never touched.
//   - Two conditions, Ready and Errored, say what is the matter; an event is sent when one of them changes. Status is an observation: it is computed
//     from the world each time, and what stood there before decides nothing.
//   - An object with a finalizer goes when its children are gone.
//   - [Main] is a whole program: flags, logs, probes, metrics behind the API server's own authorization, leader election.
//
// [NewModule] builds a Module, [ModuleReady] says whether one is ready, [Overlap] whose nodes are whose, [Once] makes something outside of the
// cluster happen exactly once, [Requires] finds an outdated CustomResourceDefinition, and [NewGauge] makes metrics that go with their object.
// Package labels names the labels that Drover puts on nodes, and package kittest runs an operator against a real cluster in a test.
package kit
