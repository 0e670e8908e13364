// SPDX-License-Identifier: Apache-2.0

// Package signer holds the steps of drover-signer that make a kernel module image: check asks the
// registry, fetch and source bring what is compiled, pull and pack fill an OCI layout, sign changes
// it, push sends it. Only sign sees the key, and it needs no network.
package signer

import (
	"errors"

	"github.com/drover-project/drover/internal/build/pipeline/result"
	"github.com/drover-project/drover/internal/build/step"
)

var (
	errPrebuilt = step.WithReason(errors.New("the registry has an image that Drover did not make and does not overwrite; "+
		"use another tag, or remove that image"), result.ReasonPrebuilt)
	errNothing = step.WithReason(errors.New("nothing to sign"), result.ReasonNothingToSign)
	errKey     = step.WithReason(errors.New("the key cannot be used"), result.ReasonKey)
)
