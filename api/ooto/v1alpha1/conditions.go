// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Condition types of a Module of this group. All have positive polarity; none is transient.
const (
	// ConditionReady repeats the KMM Module's, with reason and message. Unknown: not looked at yet.
	ConditionReady = "Ready"
	// ConditionTranslated is True while the KMM Module is what this one asks for.
	ConditionTranslated = "Translated"
	// ConditionAllFieldsUsed is True when no field that is set is without a meaning here.
	ConditionAllFieldsUsed = "AllFieldsUsed"
)

// Reasons of these conditions, besides the KMM Module's; docs/reference/ooto.md explains them.
const (
	// ReasonTranslated: the KMM Module is what this one asks for.
	ReasonTranslated = "Translated"
	// ReasonNameTaken: something of the wanted name is not this Module's, and is left alone.
	ReasonNameTaken = "NameTaken"
	// ReasonRefused: the API server refuses what this Module is translated to.
	ReasonRefused = "Refused"
	// ReasonTerminating: the KMM Module is being deleted; it is made again when it has gone.
	ReasonTerminating = "Terminating"
	// ReasonNoStatus: the KMM Module has not been looked at yet.
	ReasonNoStatus = "NoStatus"
	// ReasonAllFieldsUsed: every field that is set has a meaning.
	ReasonAllFieldsUsed = "AllFieldsUsed"
	// ReasonFieldIgnored: fields are set that have no meaning, because there is no driver pod.
	ReasonFieldIgnored = "FieldIgnored"
)
