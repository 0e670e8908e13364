// SPDX-License-Identifier: Apache-2.0

// Package signature knows the signatures at the end of kernel modules: it lists, verifies and takes
// off what is there, and writes what the kernel's scripts/sign-file would write. It alone knows the
// format:
//
//	module | PKCS#7 message | struct module_signature (12 bytes) | "~Module signature appended~\n"
//
// A module that is signed again has a second signature behind the first, which signs the first as
// well. Kernels look at the last one only.
//
// All input is decompressed and may be hostile: the work is bounded by the input's length.
package signature

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// Signature is what a module's signature says about itself. Verify tells whether it is true.
type Signature struct {
	// Signers say whose keys made the signature; the kernel must trust one. Empty with a Problem.
	Signers []Signer
	// Problem says why a signature cannot be read; empty when it can.
	Problem string
}

// Signer names a certificate in one of PKCS#7's two ways.
type Signer struct {
	// KeyID is the certificate's subject key identifier in hex, from `sign-file -k`; or else empty.
	KeyID string
	// Serial is the certificate's serial number in hex, all its bytes; empty with a KeyID.
	Serial string
	// Issuer is the issuer's name as the kernel shows names of keys; empty with a KeyID.
	Issuer string
	// Hash is sign-file's name of the digest ("sha256"), or its object identifier.
	Hash string
}

// String names the signer in a sentence.
func (s Signer) String() string {
	if s.KeyID != "" {
		return "the key with identifier " + s.KeyID
	}
	return fmt.Sprintf("the key with serial number %s issued by %q", s.Serial, s.Issuer)
}

// mark ends a signed module.
const mark = "~Module signature appended~\n"

// struct module_signature: algorithm, hash, type of identifier, lengths of signer and key
// identifier, 3 bytes of padding, length of the message (big-endian). For PKCS#7 all but type and
// length are zero.
const (
	infoSize  = 12
	typeAt    = 2
	sizeAt    = 8
	typePKCS7 = 2
)

const (
	// maxMessage bounds a PKCS#7 message, in bytes; those of RSA have some 500.
	maxMessage = 256 << 10
	// maxListed bounds how many signatures of one module are listed.
	maxListed = 16
)

var (
	// ErrUnsigned is wrapped when there is no signature.
	ErrUnsigned = errors.New("no signature")

	errSignature = errors.New("signature")
)

// Signed reports whether a module ends in a signature, readable or not.
func Signed(module []byte) bool { return bytes.HasSuffix(module, []byte(mark)) }

// Split separates a module from its last signature's PKCS#7 message, by the rules of the kernel's
// mod_check_sig. Both are parts of the input. The error of an unsigned module wraps ErrUnsigned.
func Split(module []byte) (content, message []byte, err error) {
	body, ok := bytes.CutSuffix(module, []byte(mark))
	if !ok {
		return nil, nil, ErrUnsigned
	}
	if len(body) < infoSize {
		return nil, nil, fmt.Errorf("%w cut short", errSignature)
	}
	body, info := body[:len(body)-infoSize], body[len(body)-infoSize:]
	size := binary.BigEndian.Uint32(info[sizeAt:])
	if info[typeAt] != typePKCS7 {
		return nil, nil, fmt.Errorf("%w of type %d, kernels take PKCS#7 (%d) only", errSignature, info[typeAt], typePKCS7)
	}
	for at, b := range info[:sizeAt] {
		if at != typeAt && b != 0 {
			return nil, nil, fmt.Errorf("%w with a header that is not PKCS#7's", errSignature)
		}
	}
	if uint64(size) >= uint64(len(body)) {
		return nil, nil, fmt.Errorf("%w of %d bytes is longer than the file", errSignature, size)
	}
	if size > maxMessage {
		return nil, nil, fmt.Errorf("%w of %d bytes, limit %d", errSignature, size, maxMessage)
	}
	at := len(body) - int(size)
	return slices.Clip(body[:at]), slices.Clip(body[at:]), nil
}

// Trailer signs a module when appended: PKCS#7 message, the kernel's description, mark.
func Trailer(message []byte) []byte {
	info := [infoSize]byte{typeAt: typePKCS7}
	binary.BigEndian.PutUint32(info[sizeAt:], uint32(len(message)))
	return slices.Concat(message, info[:], []byte(mark))
}

// Parse reads the last signature of a module; nil when there is none.
func Parse(module []byte) *Signature {
	_, message, err := Split(module)
	if errors.Is(err, ErrUnsigned) {
		return nil
	}
	if err != nil {
		return &Signature{Problem: err.Error()}
	}
	signers, err := parsePKCS7(message)
	if err != nil {
		return &Signature{Problem: err.Error()}
	}
	s := &Signature{}
	for _, info := range signers {
		s.Signers = append(s.Signers, info.Signer)
	}
	return s
}

// List reads all signatures of a module, the last one first. It ends at one that cannot be read.
func List(module []byte) []Signature {
	var all []Signature
	for s := Parse(module); s != nil && len(all) < maxListed; s = Parse(module) {
		all = append(all, *s)
		content, _, err := Split(module)
		if err != nil {
			break // and s says so
		}
		module = content
	}
	return all
}
