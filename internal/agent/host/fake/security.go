// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/shared/kmod"
	"github.com/drover-project/drover/internal/shared/kmod/signature"
)

// Security is what a kernel demands of a module's signature.
type Security struct {
	// Enforced: module.sig_enforce is Y, by the command line or by Secure Boot.
	Enforced bool
	// LockedDown: the kernel is in lockdown, integrity or confidentiality.
	LockedDown bool
	// Keyring holds the certificates whose keys are trusted. Signatures are taken at their word:
	// whoever names one of these as the signer has signed.
	Keyring []*x509.Certificate
}

// Secure changes what the kernel demands from the next boot on, as a kernel option or a key that is
// enrolled does.
func (h *Host) Secure(s Security) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.o.Security = s
}

// Taint are the letters of /proc/sys/kernel/tainted, in its order: the kernel's own, until the next
// boot.
func (h *Host) Taint() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return letters(h.taint)
}

// taintLetters in the order of the kernel's taint_flags, as far as they are modelled: proprietary
// module, died, out-of-tree module, unsigned.
const taintLetters = "PDOE"

func letters(taint map[byte]bool) string {
	var b strings.Builder
	for _, l := range []byte(taintLetters) {
		if taint[l] {
			b.WriteByte(l)
		}
	}
	return b.String()
}

// freeLicenses are those of the kernel's license_is_gpl_compatible.
var freeLicenses = []string{"GPL", "GPL v2", "GPL and additional rights", "Dual BSD/GPL", "Dual MIT/GPL", "Dual MPL/GPL"}

// taints of one module.
func (m *module) taints() string {
	return letters(map[byte]bool{'P': !slices.Contains(freeLicenses, m.info.License), 'O': !m.info.InTree, 'E': !m.signed})
}

func (h *Host) addTaint(m *module) {
	for _, l := range []byte(m.taints()) {
		h.taint[l] = true
	}
}

// signatureOf reads a module's signature; nil when it has none.
func signatureOf(info *kmod.Info, file []byte) (*signature.Signature, error) {
	if !info.Signed {
		return nil, nil
	}
	details, err := kmod.ReadDetails(file)
	if err != nil {
		return nil, fmt.Errorf("read the signature: %w", err)
	}
	return details.Signature, nil
}

// verify follows the kernel's module_sig_check: whether the signature is good, or why the module
// must not be loaded.
func (h *Host) verify(s *signature.Signature) (good bool, err error) {
	why := "unsigned module"
	switch {
	case s != nil && s.Problem != "":
		return false, &host.CallError{Errno: "EBADMSG"} // whatever is enforced
	case s != nil && slices.ContainsFunc(s.Signers, h.knows):
		return true, nil
	case s != nil:
		why = "module with unavailable key"
	}
	switch {
	case h.security.Enforced:
		return false, &host.CallError{Errno: "EKEYREJECTED", Log: []string{"Loading of " + why + " is rejected"}}
	case h.security.LockedDown:
		return false, &host.CallError{
			Errno: "EPERM", Log: []string{"Lockdown: drover-agent: unsigned module loading is restricted; see man kernel_lockdown.7"},
		}
	}
	return false, nil
}

// knows tells whether a keyring has the signer's key.
func (h *Host) knows(s signature.Signer) bool {
	return slices.ContainsFunc(h.security.Keyring, func(c *x509.Certificate) bool {
		if s.KeyID != "" {
			return s.KeyID == hex.EncodeToString(c.SubjectKeyId)
		}
		serial, ok := new(big.Int).SetString(s.Serial, 16)
		return ok && serial.Cmp(c.SerialNumber) == 0
	})
}
