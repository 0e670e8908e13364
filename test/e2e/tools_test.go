// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"
)

// TestLifecycleKubectlWait: a script waits for a Module as for anything else.
func TestLifecycleKubectlWait(t *testing.T) {
	s := given(t, "kubectlwait")
	s.create(s.on("hollow-1"))
	out, err := shared.Kubectl(s.Context(), "wait", "--for=condition=Ready", "--timeout=60s", "-n", s.key.Namespace, "module/"+s.key.Name)
	if err != nil {
		t.Fatal(err, out)
	}
	s.must(s.ready(s.Context()))
}
