// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package kmod

import "errors"

func (m *memory) reserve(int) error { return errors.ErrUnsupported }

func (m *memory) release() {}
