// SPDX-License-Identifier: Apache-2.0

package kmod

import (
	"io/fs"

	"github.com/drover-project/drover/internal/shared/kmod/signature"
)

// Details are an Info and what else the kernel looks at when it loads a module: symbols and
// signature. They cost a walk over the whole symbol table.
type Details struct {
	Info *Info
	// Imports are the symbols that others must export, in the file's order.
	Imports []Symbol
	// Exports are the symbols that the module gives to others, in the file's order.
	Exports []Symbol
	// Signature is the last one, which kernels look at; nil when there is none (Info.Signed is false).
	Signature *signature.Signature
	// Earlier are the signatures before it, the last first.
	Earlier []signature.Signature
}

// ReadDetails reads everything about a module from the content of its file, which may be
// compressed. Any input is safe: errors wrap ErrMalformed or ErrTooLarge. Signature.Problem tells
// of a malformed signature: kernels that ignore signatures load such a file.
func ReadDetails(content []byte) (*Details, error) {
	file, info, err := parse(content)
	if err != nil {
		return nil, err
	}
	d := &Details{Info: info}
	if all := signature.List(file.data); len(all) > 0 {
		d.Signature, d.Earlier = &all[0], all[1:]
	}
	d.Imports, d.Exports, err = file.symbols()
	if err != nil {
		return nil, err
	}
	return d, nil
}

// ReadDetailsFile reads everything about one module file.
func ReadDetailsFile(fsys fs.FS, path string) (*Details, error) {
	return fromFile(fsys, path, ReadDetails)
}
