// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Reasons of the condition Ready, besides those of package kit and of the Module.
const (
	// ReasonConflictingNodeSelector: nodes that the selector chooses are managed by other
	// DeviceConfigs.
	ReasonConflictingNodeSelector = "ConflictingNodeSelector"
	// ReasonServiceAccountNotFound: the ServiceAccount that is named is not there.
	ReasonServiceAccountNotFound = "ServiceAccountNotFound"
)
