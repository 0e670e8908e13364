// SPDX-License-Identifier: Apache-2.0

// Package reasons knows what each reason of the closed set means, which step towards a node's
// kernel it is about, and what to do. The page docs/reference/reasons.md is made of its rows.
package reasons

import (
	"slices"
	"strings"
)

// Reason is one of the closed set.
type Reason struct {
	Name  string
	Class Class
	// Step of the way that it is about; empty: the load itself, or no node's.
	Step string
	Rank int // how far it yields to other reasons in a list; see [Rank]
	// Meaning and Next are Markdown of one line; Next is empty when there is nothing to do.
	Meaning, Next string
}

// Class says what a reason asks of people.
type Class int

const (
	// ClassFine asks for nothing.
	ClassFine Class = iota
	// ClassTurn asks for patience until a turn comes that others decide.
	ClassTurn
	// ClassUnderway asks for patience: it goes on by itself.
	ClassUnderway
	// ClassAwaited asks for patience, and for a look at the message if it takes long.
	ClassAwaited
	// ClassAsAsked asks for patience: it was asked for, or the agent sees to it.
	ClassAsAsked
	// ClassAttention asks for attention, and ends when what is missing comes.
	ClassAttention
	// ClassFinal asks for a change of the Module, the image or the node: it does not end by itself.
	ClassFinal
)

// Steps from a Module to a node's kernel, in their order.
const (
	StepSelected  = "selected"
	StepTolerated = "tolerated"
	StepMapping   = "mapping"
	StepImage     = "image"
	StepAllowed   = "allowed"
	StepNode      = "node ready"
	StepOrdered   = "ordered"
	StepDelivered = "delivered"
	StepChecks    = "checks"
	StepTrusted   = "trusted"
	StepHolders   = "released"
	StepLoaded    = "loaded"
	StepReady     = "ready"
	StepPlugin    = "plugin"
)

// Ranks of what needs nothing but patience.
const (
	RankUnderway = 4
	RankTurn     = 5
)

// byName has nothing to say of a reason that is unknown.
var byName = func() map[string]Reason {
	found := map[string]Reason{}
	for _, r := range slices.Concat(well, attention) {
		found[r.Name] = r
	}
	return found
}()

// Known reports whether a reason belongs to the set.
func Known(name string) bool { return byName[name].Name != "" }

// Next is what to do about a reason, as plain text; empty: nothing, or the reason is unknown.
func Next(name string) string { return strings.ReplaceAll(byName[name].Next, "`", "") }

// Step is the step that a reason is about; empty: the load itself, or no step of a node.
func Step(name string) string { return byName[name].Step }

// Patience reports whether a reason asks only for patience.
func Patience(name string) bool {
	return is(name, ClassTurn, ClassUnderway, ClassAwaited, ClassAsAsked)
}

// OnItsWay reports whether a reason says only that something goes on, or waits for its turn.
func OnItsWay(name string) bool { return is(name, ClassTurn, ClassUnderway) }

// Expected reports whether a condition is False for this reason when all goes well.
func Expected(name string) bool { return is(name, ClassTurn, ClassUnderway, ClassAwaited) }

// Final reports whether a reason does not end by itself; see [ClassFinal].
func Final(name string) bool { return is(name, ClassFinal) }

// Rank puts what needs attention, 0, before what needs patience only.
func Rank(name string) int {
	switch r := byName[name]; r.Class {
	case ClassTurn:
		return RankTurn
	case ClassUnderway:
		return RankUnderway
	default:
		return r.Rank
	}
}

func is(name string, classes ...Class) bool { return slices.Contains(classes, byName[name].Class) }

// Problem is why something is not as it should be.
type Problem struct {
	// Reason of the closed set.
	Reason string
	// Message for people: where something was refused, the words of the refusal.
	Message string
}
