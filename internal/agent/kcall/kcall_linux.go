// SPDX-License-Identifier: Apache-2.0

package kcall

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/drover-project/drover/internal/shared/kmod"
)

// compressed are the first bytes of formats, by their names in /sys/module/compression.
var compressed = map[string][]byte{
	"gzip": {0x1f, 0x8b},
	"xz":   {0xfd, '7', 'z', 'X', 'Z', 0},
	"zstd": {0x28, 0xb5, 0x2f, 0xfd},
}

func load(l Load) Answer {
	file := os.NewFile(3, l.Name) // the first of exec.Cmd's ExtraFiles
	if file == nil {
		return Answer{Message: "the module's file was not handed over"}
	}
	kind, kernels, err := compression(file)
	if err != nil {
		return Answer{Message: err.Error()}
	}
	params := commandLine(l.Params)
	byKernel := kernels && kind == l.KernelDecompresses
	if l.ByLabel {
		return loadUnderSELinux(file, l.Name, params, kind != "", byKernel)
	}
	if byKernel {
		if err := insert(file, params, unix.MODULE_INIT_COMPRESSED_FILE); !errors.Is(err, unix.EOPNOTSUPP) {
			return answerOf(err)
		}
	}
	if kind == "" {
		return answerOf(insert(file, params, 0))
	}
	content, err := unpacked(file)
	if err == nil {
		file, err = inMemory(content, l.Name)
	}
	if err != nil {
		return Answer{Message: err.Error()}
	}
	return answerOf(insert(file, params, 0))
}

// loadUnderSELinux tries what policies allow. They decide finit_module(2) by the file's label: on
// RHEL and Fedora, a file in memory that spc_t has made is one to load from, and nothing below
// /var/lib is; on Debian only what is labelled as /lib/modules is. init_module(2) they decide by
// the process alone, and allow it; but IMA may refuse it, for it wants to see the file.
func loadUnderSELinux(file *os.File, name, params string, compressed, byKernel bool) Answer {
	content, err := unpacked(file)
	if err != nil {
		return Answer{Message: err.Error()}
	}
	ways := []func() error{
		func() error {
			copied, err := inMemory(content, name)
			if err != nil {
				return err
			}
			return insert(copied, params, 0)
		},
		func() error { return unix.InitModule(content, params) },
	}
	switch {
	case byKernel:
		ways = append(ways, func() error { return insert(file, params, unix.MODULE_INIT_COMPRESSED_FILE) })
	case !compressed:
		ways = append(ways, func() error { return insert(file, params, 0) })
	}
	return answerOf(firstAllowed(ways))
}

// firstAllowed goes on to the next way after EACCES, which is how a security module denies one. The
// module's own code has not run then, unless its init says EACCES: that one runs again.
func firstAllowed(ways []func() error) (err error) {
	for _, way := range ways {
		if err = way(); !errors.Is(err, unix.EACCES) {
			return err
		}
	}
	return err
}

func insert(file *os.File, params string, flags int) error {
	defer runtime.KeepAlive(file)                          // else it may be closed as garbage before the kernel has its descriptor
	return unix.FinitModule(int(file.Fd()), params, flags) //nolint:wrapcheck // for answerOf
}

func unload(name string) Answer {
	return answerOf(unix.DeleteModule(name, unix.O_NONBLOCK))
}

func answerOf(err error) Answer {
	if err == nil {
		return Answer{}
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return Answer{Errno: cmp.Or(unix.ErrnoName(errno), fmt.Sprintf("E%d", int(errno)))}
	}
	return Answer{Message: err.Error()}
}

// compression names the file's compression by its first bytes; empty for a plain ELF file. kernels
// is true if a kernel that knows the compression can unpack this file.
func compression(file *os.File) (kind string, kernels bool, err error) {
	head := make([]byte, 14)
	n, err := file.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", false, fmt.Errorf("read the module's file: %w", err)
	}
	for kind, magic := range compressed {
		if bytes.HasPrefix(head[:n], magic) {
			return kind, kind != "xz" || kernelsXZ(head[:n]), nil
		}
	}
	return "", false, nil
}

// kernelsXZ is true for what `xz --check=crc32` writes. Kernels know no other checksum, and xz's
// own default is CRC64; of filters before LZMA2, they know those of their own architecture, or
// none. Such files end in EINVAL, as a wrong parameter does. head is the stream's header, whose
// eighth byte names the check, and the first two bytes of the first block's, of which the second
// counts filters. Documentation/staging/xz.rst of the kernel, and the file format of xz.
func kernelsXZ(head []byte) bool {
	const crc32, moreFilters = 1, 3
	return len(head) >= 14 && head[7] <= crc32 && head[13]&moreFilters == 0
}

// unpacked is a module's ELF file, with any appended signature.
func unpacked(file *os.File) ([]byte, error) {
	content, err := io.ReadAll(io.NewSectionReader(file, 0, kmod.MaxSize))
	if err != nil {
		return nil, fmt.Errorf("read the module's file: %w", err)
	}
	return kmod.Decompress(content)
}

// inMemory is a file in memory with this content.
func inMemory(content []byte, name string) (*os.File, error) {
	// Where vm.memfd_noexec is 2, the kernel makes no other file in memory; before 6.3, not this one.
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) {
		fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	}
	if err != nil {
		return nil, fmt.Errorf("memory for the module: %w", err)
	}
	memory := os.NewFile(uintptr(fd), name)
	if _, err := memory.Write(content); err != nil {
		return nil, fmt.Errorf("memory for the module: %w", err)
	}
	return readOnly(memory)
}

// readOnly reopens a file in memory: finit_module refuses a file that may still be written to.
func readOnly(memory *os.File) (*os.File, error) {
	again, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", memory.Fd()))
	if err != nil {
		return nil, fmt.Errorf("open the module's copy in memory: %w", err)
	}
	if err := memory.Close(); err != nil {
		return nil, fmt.Errorf("close the module's copy in memory: %w", err)
	}
	return again, nil
}
