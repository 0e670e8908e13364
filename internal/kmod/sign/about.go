// SPDX-License-Identifier: Apache-2.0

package sign

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"time"
)

// About is what is worth knowing of the certificate that modules were signed with.
type About struct {
	// Subject is its name.
	Subject string `json:"subject"`
	// Fingerprint is the SHA-256 of the certificate in hex, as `openssl x509 -fingerprint -sha256` prints it, without colons and in lower case.
	Fingerprint string `json:"fingerprint"`
	// KeyID is the subject key identifier in hex, by which /proc/keys shows a key that is enrolled; empty if it has none.
	KeyID string `json:"keyID,omitempty"`
	// NotBefore and NotAfter are its dates.
	NotBefore time.Time `json:"notBefore"`
	NotAfter  time.Time `json:"notAfter"`
}

// Describe a certificate.
func Describe(certificate *x509.Certificate) About {
	fingerprint := sha256.Sum256(certificate.Raw)
	return About{
		Subject: certificate.Subject.String(), Fingerprint: hex.EncodeToString(fingerprint[:]), KeyID: hex.EncodeToString(certificate.SubjectKeyId),
		NotBefore: certificate.NotBefore, NotAfter: certificate.NotAfter,
	}
}
