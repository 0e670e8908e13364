// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/kmod/signature"
)

// Key is one X.509 key in a keyring of the kernel, as /proc/keys describes it.
type Key struct {
	// Name is the subject: its common name, with the organization in front.
	Name string
	// ID is the certificate's subject key identifier in hex, or its serial number if it has no identifier.
	ID string
}

// ParseKeys reads the content of /proc/keys, and leaves out what is no X.509 key. The kernel shows only keys that the
// reader may view; those of its own keyrings (.builtin_trusted_keys, .secondary_trusted_keys, .machine, .platform) need
// uid 0 of the initial user namespace. The result is never nil.
func ParseKeys(procKeys string) []Key {
	keys := []Key{}
	for line := range strings.Lines(procKeys) {
		// Serial number, flags, usage, timeout, permissions, uid, gid, type (9 characters of it), description.
		fields := strings.Fields(line)
		const before = 8
		if len(fields) <= before || fields[before-1] != "asymmetri" {
			continue
		}
		_, description, _ := strings.Cut(line, " asymmetri ")
		// "<name>: <id>: X509.rsa <end of the id> []", and the name may have colons.
		description, _, ok := cutLast(description, ": X509.")
		if !ok {
			continue
		}
		if name, id, ok := cutLast(description, ": "); ok {
			keys = append(keys, Key{Name: strings.TrimSpace(name), ID: strings.ToLower(id)})
		}
	}
	return keys
}

func cutLast(s, separator string) (before, after string, ok bool) {
	at := strings.LastIndex(s, separator)
	if at < 0 {
		return s, "", false
	}
	return s[:at], s[at+len(separator):], true
}

// enforcement says why the kernel asks for a signature; empty when it does not.
func (c *checker) enforcement() string {
	switch {
	case c.SignatureEnforced:
		return "the kernel enforces signatures (module.sig_enforce is Y)"
	case c.Lockdown != "" && c.Lockdown != "none":
		return fmt.Sprintf("the kernel is locked down (%s) and asks for one", c.Lockdown)
	}
	return ""
}

func (c *checker) signature(m Module) *Finding {
	s, enforced := m.Details.Signature, c.enforcement()
	f := &Finding{Reason: v1beta1.ReasonSignatureRejected}
	switch {
	case s != nil && s.Problem != "":
		// Kernels that know signatures refuse a damaged one even when they ask for none.
		f.Message = fmt.Sprintf("Module %s ends in a signature that cannot be read (%s), and a kernel with CONFIG_MODULE_SIG takes a whole one or none; "+
			"sign the file again, and do not strip it afterwards.", m.Name, s.Problem)
	case enforced == "":
		return nil
	case s == nil:
		f.Message = fmt.Sprintf("Module %s has no signature, and %s; sign it with a key that the node trusts.", m.Name, enforced)
	case c.Keys == nil || s.Certificates || slices.ContainsFunc(s.Signers, c.mayKnow):
		return nil
	default:
		f.Message = fmt.Sprintf("Module %s is signed by %s, which is none of the %d keys in the kernel's keyrings, and %s; "+
			"sign it with a key that the node trusts, or enrol this one (UEFI db or MokList).", m.Name, signerNames(s.Signers), len(c.Keys), enforced)
	}
	return f
}

// mayKnow tells whether a keyring may have the signer's key. By subject key identifier that is exact. Keyrings do not
// show the serial numbers of certificates that have an identifier: then a key by the issuer's name is taken for it,
// which it is when the certificate signed itself, as keys for modules do.
func (c *checker) mayKnow(s signature.Signer) bool {
	return slices.ContainsFunc(c.Keys, func(k Key) bool {
		if s.KeyID != "" {
			return k.ID == s.KeyID
		}
		return k.ID == s.Serial || k.Name == s.Issuer
	})
}

func signerNames(signers []signature.Signer) string {
	var names []string
	for _, s := range signers {
		names = append(names, s.String())
	}
	return strings.Join(names, " and ")
}
