// SPDX-License-Identifier: Apache-2.0

package firmware

import "slices"

// OnStep has f called before each change that s makes.
func (s *Stage) OnStep(f func(step string)) { s.step = f }

// Owners returns, sorted, who needs the file with that path below the staging directory.
func (s *Stage) Owners(name string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for owner, c := range s.ledger.Claims {
		if _, needs := c.Files[name]; needs && !nobody(owner) {
			all = append(all, owner)
		}
	}
	slices.Sort(all)
	return all
}
