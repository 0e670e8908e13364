// SPDX-License-Identifier: Apache-2.0

package reasons

import "testing"

// TestPatienceIsForReasonsThatExist: a name that the page does not have is one that nobody reports.
func TestPatienceIsForReasonsThatExist(t *testing.T) {
	for _, name := range patience {
		if Of(name).Name != name {
			t.Errorf("%s is not in docs/reference/reasons.md", name)
		}
		if !Patience(name) || Final(name) {
			t.Errorf("%s: patience %t, final %t", name, Patience(name), Final(name))
		}
	}
	if Patience("Progressing") || Patience("WaitingForTurn") {
		t.Error("reasons that do not exist ask for patience")
	}
}
