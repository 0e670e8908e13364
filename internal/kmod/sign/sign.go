// SPDX-License-Identifier: Apache-2.0

// Package sign signs kernel modules: what the kernel's scripts/sign-file does, with keys that need not be files, and for modules that are
// compressed. With RSA the result is sign-file's to the byte; with ECDSA only the signature value itself differs, which sign-file makes at
// random and we derive from key and module (RFC 6979).
//
// What is signed: a relocatable ELF object with a .modinfo section, plain or in one gzip, xz or zstd stream. Anything else is refused with its
// name (ErrNotModule), for a file that was named to be signed and cannot be is a mistake that nobody should find out about at load time.
//
// A module that is already signed by others gets a second signature behind the first, as with sign-file; kernels look at the last one. If the
// last one is what we would write, nothing changes. So signing twice is signing once.
//
// A compressed module is signed inside: kernels and modprobe decompress first. It is compressed again by the same method with fixed settings
// (see compress), so that the same module, key and version of Drover give the same bytes.
package sign

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/drover-project/drover/internal/kmod"
	"github.com/drover-project/drover/internal/kmod/signature"
)

// ErrNotModule is wrapped when a file is not a kernel module. The error names the file.
var ErrNotModule = errors.New("not a kernel module")

// Options are how to sign; see signature.Options. The zero value is SHA-256 and issuer with serial number, as KMM signs.
type Options = signature.Options

// File signs a module's file, which may be compressed, and writes the signed one. Changed is false if the file has just this signature already; then
// nothing is written. One module's worth of memory is taken, and given back at once. The name is for errors only.
func File(name string, from fs.File, to io.Writer, key Key, o Options) (changed bool, err error) {
	content, err := kmod.Load(from)
	if err != nil {
		return false, fmt.Errorf("%s: %w", name, notModule(err))
	}
	defer content.Release()
	if _, err := kmod.Read(content.Raw); err != nil {
		return false, fmt.Errorf("%s: %w", name, notModule(err))
	}
	trailer, err := Trailer(content.Raw, key, o)
	if err != nil {
		return false, fmt.Errorf("sign %s: %w", name, err)
	}
	if len(trailer) == 0 {
		return false, nil
	}
	if err := compress(content.Compression, to, content.Raw, trailer); err != nil {
		return false, fmt.Errorf("write %s: %w", name, err)
	}
	return true, nil
}

// notModule marks what is wrong with the file, and not with reading it.
func notModule(err error) error {
	if errors.Is(err, kmod.ErrMalformed) || errors.Is(err, kmod.ErrTooLarge) {
		return fmt.Errorf("%w: %w", ErrNotModule, err)
	}
	return err
}

// Trailer makes the bytes that have to follow a plain module for it to be signed: none if it ends in them already. The module is not looked
// into; sign-file signs anything.
func Trailer(module []byte, key Key, o Options) ([]byte, error) {
	if has, err := isSigned(module, key, o); has || err != nil {
		return nil, err
	}
	digest, hash, err := o.Digest(module)
	if err != nil {
		return nil, err
	}
	value, err := key.Sign(rand.Reader, digest, hash)
	if err != nil {
		return nil, fmt.Errorf("ask the key: %w", err)
	}
	message, err := signature.Message(key.Certificate(), value, o)
	if err != nil {
		return nil, err
	}
	return signature.Trailer(message), nil
}

// isSigned tells whether the last signature is one that we would write: by this certificate, with these options, and valid. The value may
// be another than ours, because others make ECDSA signatures at random.
func isSigned(module []byte, key Key, o Options) (bool, error) {
	_, message, err := signature.Split(module)
	if err != nil || !names(message, key.Certificate(), o) {
		return false, nil // none, a damaged one, or another's
	}
	value, err := signature.Value(message)
	if err != nil {
		return false, nil // a damaged one
	}
	ours, err := signature.Message(key.Certificate(), value, o)
	if err != nil {
		return false, err
	}
	return bytes.Equal(ours, message) && signature.Verify(module, key.Certificate()) == nil, nil
}

// names is a quick look at whether a message can be by a certificate: with other keys there is no need to make ours to compare.
func names(message []byte, certificate *x509.Certificate, o Options) bool {
	if o.BySubjectKeyID {
		return bytes.Contains(message, certificate.SubjectKeyId)
	}
	return bytes.Contains(message, certificate.RawIssuer)
}
