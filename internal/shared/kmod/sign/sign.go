// SPDX-License-Identifier: Apache-2.0

// Package sign signs kernel modules as the kernel's scripts/sign-file does, with keys that need not
// be files, and also modules that are compressed. With RSA the result is sign-file's to the byte;
// with ECDSA only the signature's value differs: sign-file makes it at random, we derive it (RFC
// 6979).
//
// It signs a relocatable ELF object with a .modinfo section, plain or in one gzip, xz or zstd
// stream. Anything else is an error with the file's name (ErrNotModule), so that it does not
// show at load time only.
//
// A module that others have signed gets a second signature behind the first, as with sign-file;
// kernels look at the last one. Signing twice is signing once.
//
// Compressed modules are signed inside: kernels and modprobe decompress first. They are compressed
// again by the same method with fixed settings (see compress).
package sign

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/drover-project/drover/internal/shared/kmod"
	"github.com/drover-project/drover/internal/shared/kmod/signature"
)

// ErrNotModule is wrapped when a file is not a kernel module. The error names the file.
var ErrNotModule = errors.New("not a kernel module")

// Options say how to sign. The zero value is SHA-256, issuer and serial number, as KMM signs.
type Options = signature.Options

// File signs a module's file, which may be compressed, and writes the signed one. Changed is false,
// and nothing is written, if the file has this signature already. The name is for errors only.
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

// notModule marks an error of the file's content; an error of reading stays as it is.
func notModule(err error) error {
	if errors.Is(err, kmod.ErrMalformed) || errors.Is(err, kmod.ErrTooLarge) {
		return fmt.Errorf("%w: %w", ErrNotModule, err)
	}
	return err
}

// Trailer makes the bytes that sign a plain module when they follow it: none if the module ends in
// them already. What the module holds does not matter; sign-file signs anything.
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

// isSigned reports whether the last signature is one that we would write: by this certificate, with
// these options, and valid. Its value may differ, because others make ECDSA signatures at random.
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

// names reports, at little cost, whether a message can be by a certificate.
func names(message []byte, certificate *x509.Certificate, o Options) bool {
	if o.BySubjectKeyID {
		return bytes.Contains(message, certificate.SubjectKeyId)
	}
	return bytes.Contains(message, certificate.RawIssuer)
}
