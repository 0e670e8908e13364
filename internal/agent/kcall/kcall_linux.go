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
	if kernels && kind == l.KernelDecompresses {
		err := unix.FinitModule(int(file.Fd()), commandLine(l.Params), unix.MODULE_INIT_COMPRESSED_FILE)
		if !errors.Is(err, unix.EOPNOTSUPP) {
			return answerOf(err)
		}
	}
	if kind != "" {
		if file, err = decompress(file, l.Name); err != nil {
			return Answer{Message: err.Error()}
		}
	}
	defer runtime.KeepAlive(file) // else it may be closed as garbage before the kernel has its descriptor
	return answerOf(unix.FinitModule(int(file.Fd()), commandLine(l.Params), 0))
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

// decompress gives the kernel a plain file in memory, with any appended signature.
func decompress(file *os.File, name string) (*os.File, error) {
	packed, err := io.ReadAll(io.NewSectionReader(file, 0, kmod.MaxSize))
	if err != nil {
		return nil, fmt.Errorf("read the module's file: %w", err)
	}
	plain, err := kmod.Decompress(packed)
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memory for the decompressed module: %w", err)
	}
	memory := os.NewFile(uintptr(fd), name)
	if _, err := memory.Write(plain); err != nil {
		return nil, fmt.Errorf("memory for the decompressed module: %w", err)
	}
	return readOnly(memory)
}

// readOnly reopens a file in memory: finit_module refuses a file that somebody may write.
func readOnly(memory *os.File) (*os.File, error) {
	again, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", memory.Fd()))
	if err != nil {
		return nil, fmt.Errorf("open the decompressed module: %w", err)
	}
	if err := memory.Close(); err != nil {
		return nil, fmt.Errorf("close the decompressed module: %w", err)
	}
	return again, nil
}
