// SPDX-License-Identifier: Apache-2.0

package firmware

// OnStep has f called before each change that s makes.
func (s *Stage) OnStep(f func(step string)) { s.step = f }
