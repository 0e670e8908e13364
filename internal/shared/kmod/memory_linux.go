// SPDX-License-Identifier: Apache-2.0

package kmod

import "syscall"

// reserve takes addresses; writing to them takes memory.
func (m *memory) reserve(size int) (err error) {
	m.mapped, err = syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_NORESERVE)
	return err //nolint:wrapcheck // the heap takes its place
}

func (m *memory) release() {
	if m.mapped != nil {
		_ = syscall.Munmap(m.mapped) // only fails for what is not mapped
		m.mapped = nil
	}
}
