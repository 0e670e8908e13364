// SPDX-License-Identifier: Apache-2.0

package signature

import (
	"crypto"
	"encoding/asn1"
	"fmt"

	_ "crypto/sha256" // the hashes below
	_ "crypto/sha512" // the hashes below
)

// Object identifiers of a PKCS#7 message.
var (
	oidData       = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 7, 1}
	oidSignedData = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 7, 2}
	oidRSA        = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 1}
	oidDigest     = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 4}
)

// hashing is a hash and its names.
type hashing struct {
	name string
	hash crypto.Hash
	// digest names the hash; ecdsa and rsa name a signature over it. (sign-file just says RSA.)
	digest, ecdsa, rsa asn1.ObjectIdentifier
}

// hashings that kernels take and sign-file makes. Newer kernels refuse SHA-1, which is broken.
var hashings = []hashing{
	{
		name: "sha256", hash: crypto.SHA256, digest: asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 2, 1},
		ecdsa: asn1.ObjectIdentifier{1, 2, 840, 10045, 4, 3, 2}, rsa: asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 11},
	},
	{
		name: "sha384", hash: crypto.SHA384, digest: asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 2, 2},
		ecdsa: asn1.ObjectIdentifier{1, 2, 840, 10045, 4, 3, 3}, rsa: asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 12},
	},
	{
		name: "sha512", hash: crypto.SHA512, digest: asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 2, 3},
		ecdsa: asn1.ObjectIdentifier{1, 2, 840, 10045, 4, 3, 4}, rsa: asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 13},
	},
}

// hashName is sign-file's name of a digest algorithm, or else its object identifier.
func hashName(oid string) string {
	for _, h := range hashings {
		if h.digest.String() == oid {
			return h.name
		}
	}
	return oid
}

func hashingOf(hash crypto.Hash) (hashing, error) {
	for _, h := range hashings {
		if h.hash == hash {
			return h, nil
		}
	}
	return hashing{}, fmt.Errorf("%w: modules are not signed with hash %v", errSignature, hash)
}
