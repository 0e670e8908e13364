// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package kcall

const onlyLinux = "kernel modules are loaded on Linux only"

func load(Load) Answer     { return Answer{Message: onlyLinux} }
func unload(string) Answer { return Answer{Message: onlyLinux} }
