// SPDX-License-Identifier: Apache-2.0

// Package orderhash identifies orders: operator and agent can tell what an attempt is about.
package orderhash

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/shared/kernel"
)

// Of identifies what was ordered: the same hash, the same expected outcome. It is 32 hex digits.
func Of(o *v1beta1.NodeModuleSpec) string {
	delivery := ""
	if o.Delivery != nil {
		delivery = o.Delivery.ID
	}
	return Digest(o.State, kernel.Canonical(o.Config), delivery)
}

// WithPolicy identifies what was ordered and when it is to be carried out: at once, or at a boot.
func WithPolicy(o *v1beta1.NodeModuleSpec) string { return Digest(Of(o), o.UnloadPolicy) }

// Digest identifies values: strings, numbers, booleans, lists and structs of them.
func Digest(values ...any) string {
	h := sha256.New()
	_ = json.NewEncoder(h).Encode(values) // cannot fail for these
	return hex.EncodeToString(h.Sum(nil)[:16])
}
