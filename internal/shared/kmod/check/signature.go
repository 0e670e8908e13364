// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// signature finds a damaged signature. Kernels that know signatures refuse one even when they ask
// for none. Which keys a kernel trusts, a node does not show in full.
func (c *checker) signature(m Module) *Finding {
	s := m.Details.Signature
	if s == nil || s.Problem == "" {
		return nil
	}
	return &Finding{
		Reason: v1beta1.ReasonSignatureRejected,
		Message: fmt.Sprintf("Module %s ends in a signature that cannot be read (%s), and a kernel with CONFIG_MODULE_SIG refuses it; "+
			"sign the file again, and do not strip it afterwards.", m.Name, s.Problem),
	}
}
