// SPDX-License-Identifier: Apache-2.0

package kmod_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"

	"github.com/drover-project/drover/internal/shared/kmod"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
)

const vermagic = "6.1.0-18-amd64 SMP preempt mod_unload modversions "

// full has every fact that a module can have.
func full() synth.Module {
	return synth.Module{
		Name: "my-module", Vermagic: vermagic, BuildID: "00112233445566778899aabbccddeeff00112233",
		SrcVersion: "533BB7E5866E52F63B9ACCB", Version: "1.2", License: "Dual MIT/GPL",
		Depends: []string{"dep-one", "dep_two"}, SoftdepPre: []string{"soft-a", "soft_b"}, SoftdepPost: []string{"after"},
		Aliases: []string{"pci:v00008086d*", "net-pf-16"}, Firmware: []string{"my/fw.bin"},
		Params:   []kmod.Param{{Name: "debug", Type: "int", Desc: "level: 0 or 1"}, {Name: "name", Type: "charp"}},
		ImportNS: []string{"DMA_BUF"}, InTree: true, ModVersions: true, Signed: true, Machine: synth.MachineAArch64,
		Exports: []string{"my_export"}, Imports: []string{"their_export"},
	}
}

func fullInfo() *kmod.Info {
	return &kmod.Info{
		Name: "my_module", BuildID: "00112233445566778899aabbccddeeff00112233", SrcVersion: "533BB7E5866E52F63B9ACCB",
		Vermagic: vermagic, Version: "1.2", License: "Dual MIT/GPL",
		Depends: []string{"dep_one", "dep_two"}, SoftdepPre: []string{"soft_a", "soft_b"}, SoftdepPost: []string{"after"},
		Firmware: []string{"my/fw.bin"},
		Params:   []kmod.Param{{Name: "debug", Type: "int", Desc: "level: 0 or 1"}, {Name: "name", Type: "charp"}},
		InTree:   true, Machine: 183, HasCRCs: true, Signed: true,
	}
}

func compressed(t testing.TB, how string, content []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	var w interface {
		Write([]byte) (int, error)
		Close() error
	}
	var err error
	switch how {
	case "gz":
		w = gzip.NewWriter(&out)
	case "xz":
		// The kernel's build uses CRC32; several blocks, as multi-threaded xz writes for large modules.
		w, err = xz.WriterConfig{CheckSum: xz.CRC32, BlockSize: 4096}.NewWriter(&out)
	case "zst":
		w, err = zstd.NewWriter(&out)
	default:
		return content
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestRead(t *testing.T) {
	large := full()
	large.Padding = 100_000
	for _, how := range []string{"", "gz", "xz", "zst"} {
		for name, module := range map[string]synth.Module{"small": full(), "large": large} {
			t.Run(name+how, func(t *testing.T) {
				info, err := kmod.Read(compressed(t, how, module.Bytes()))
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(fullInfo(), info); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		}
	}

	t.Run("bare", func(t *testing.T) {
		info, err := kmod.Read(synth.Module{Name: "a", NoBuildID: true}.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(&kmod.Info{Name: "a", License: "GPL", Machine: 62}, info); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// What counts is read off modprobe; `make graph` compares with it on whole kernels.
func TestReadSoftdep(t *testing.T) {
	cases := map[string]struct {
		given     string
		pre, post []string
	}{
		"directions":              {given: "pre: b post: c pre: d", pre: []string{"b", "d"}, post: []string{"c"}},
		"the first of several":    {given: "pre: b\x00softdep=pre: c", pre: []string{"b"}},
		"the first says nothing":  {given: "gcm\x00softdep=pre: b"},
		"names before directions": {given: "gcm pre: b", pre: []string{"b"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			module := synth.Module{Name: "a", License: "GPL\x00softdep=" + tc.given}
			info, err := kmod.Read(module.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([][]string{tc.pre, tc.post}, [][]string{info.SoftdepPre, info.SoftdepPost}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Files of 32-bit and of big-endian machines differ in layout; this one is put together by hand.
func TestRead32BitBigEndian(t *testing.T) {
	be := binary.BigEndian
	file := make([]byte, 52)
	copy(file, "\x7fELF\x01\x02\x01")
	be.PutUint16(file[16:], 1)
	be.PutUint16(file[18:], 20) // EM_PPC
	names := "\x00.modinfo\x00.shstrtab\x00"
	modinfo := "name=a\x00depends=\x00vermagic=6.1.0 \x00"
	file = append(file, modinfo...)
	namesAt := len(file)
	file = append(file, names...)
	be.PutUint32(file[32:], uint32(len(file)))
	be.PutUint16(file[46:], 40)
	be.PutUint16(file[48:], 3)
	be.PutUint16(file[50:], 2)
	for _, header := range [][4]uint32{{}, {1, 1, 52, uint32(len(modinfo))}, {10, 3, uint32(namesAt), uint32(len(names))}} {
		for _, field := range []uint32{header[0], header[1], 0, 0, header[2], header[3], 0, 0, 1, 0} {
			file = be.AppendUint32(file, field)
		}
	}
	info, err := kmod.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&kmod.Info{Name: "a", Vermagic: "6.1.0 ", Machine: 20}, info); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestReadMalformed(t *testing.T) {
	good := full().Bytes()
	change := func(at int, value ...byte) []byte {
		out := bytes.Clone(good)
		copy(out[at:], value)
		return out
	}
	xzFile := compressed(t, "xz", good)
	hugeDictionary := bytes.Clone(xzFile)
	hugeDictionary[12+4] = 40 // 4 GiB; the third byte of the first block's filter
	for name, content := range map[string][]byte{
		"empty":               nil,
		"text":                []byte("version https://git-lfs.github.com/spec/v1\n"),
		"ELF header only":     good[:64],
		"cut in the middle":   good[:len(good)/2],
		"executable":          change(16, 2),
		"class":               change(4, 3),
		"byte order":          change(5, 0),
		"section table far":   change(40, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f),
		"section table wraps": change(40, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff),
		"section size":        change(58, 1, 0),
		"names index":         change(62, 0xf0, 0),
		"no .modinfo":         bytes.ReplaceAll(good, []byte(".modinfo"), []byte(".modinfX")),
		"entry without '='":   bytes.ReplaceAll(good, []byte("license=Dual"), []byte("license Dual")),
		"note cut short": bytes.ReplaceAll(good, []byte("\x14\x00\x00\x00\x03\x00\x00\x00GNU"),
			[]byte("\xff\x00\x00\x00\x03\x00\x00\x00GNU")),
		"note of someone else": bytes.ReplaceAll(good, []byte("GNU\x00"), []byte("GNX\x00")),
		"gzip header only":     []byte("\x1f\x8b"),
		"gzip cut":             compressed(t, "gz", good)[:100],
		"xz cut":               xzFile[:100],
		"xz header only":       []byte("\xfd7zXZ\x00"),
		"xz huge dictionary":   hugeDictionary,
		"zstd cut":             compressed(t, "zst", good)[:100],
		"zstd huge window":     []byte("\x28\xb5\x2f\xfd\x00\xa8\x01\x00\x00"),
	} {
		t.Run(name, func(t *testing.T) {
			info, err := kmod.Read(content)
			if !errors.Is(err, kmod.ErrMalformed) {
				t.Errorf("got %+v, error %v", info, err)
			}
		})
	}
}

func TestReadFileErrors(t *testing.T) {
	fsys := fstest.MapFS{"dir/a.ko": {Data: []byte("no module")}, "a.ko": {Data: full().Bytes()}}
	if _, err := kmod.ReadFile(fsys, "dir/a.ko"); !errors.Is(err, kmod.ErrMalformed) || !strings.HasPrefix(err.Error(), "dir/a.ko: ") {
		t.Errorf("error %v", err)
	}
	if _, err := kmod.ReadFile(fsys, "dir"); !errors.Is(err, kmod.ErrMalformed) {
		t.Errorf("a directory: error %v", err)
	}
	if _, err := kmod.ReadFile(fsys, "b.ko"); err == nil {
		t.Error("a missing file is no error")
	}
	if _, err := kmod.ReadFile(fsys, "a.ko"); err != nil {
		t.Error(err)
	}
}

func TestVermagic(t *testing.T) {
	if diff := cmp.Diff(kmod.Vermagic{Release: "6.1.0-18-amd64", Flags: []string{"SMP", "preempt", "mod_unload", "modversions"}},
		kmod.ParseVermagic(vermagic)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(kmod.Vermagic{}, kmod.ParseVermagic("")); diff != "" {
		t.Errorf("empty (-want +got):\n%s", diff)
	}
	for _, test := range []struct {
		module, running string
		crcs, want      bool
	}{
		{module: vermagic, running: vermagic, want: true},
		{module: strings.TrimSpace(vermagic), running: vermagic, want: true},
		{module: "6.1.0-17-amd64 SMP preempt mod_unload modversions ", running: vermagic, want: false},
		{module: "6.1.0-17-amd64 SMP preempt mod_unload modversions ", running: vermagic, crcs: true, want: true},
		{module: "6.1.0-18-amd64 SMP preempt_rt mod_unload modversions ", running: vermagic, crcs: true, want: false},
		{module: "6.1.0-18-amd64 SMP mod_unload ", running: vermagic, want: false},
		{module: "", running: vermagic, crcs: true, want: false},
	} {
		if got := kmod.CompatibleVermagic(test.module, test.running, test.crcs); got != test.want {
			t.Errorf("%q on %q, CRCs %v: %v", test.module, test.running, test.crcs, got)
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, how := range []string{"", "gz", "xz", "zst"} {
		f.Add(compressed(f, how, full().Bytes()))
		f.Add(compressed(f, how, synth.Module{Name: "a"}.Bytes()))
	}
	f.Add([]byte("\x7fELF"))
	f.Fuzz(func(t *testing.T, content []byte) {
		info, err := kmod.Read(content)
		if (info == nil) == (err == nil) {
			t.Errorf("info %v, error %v", info, err)
		}
		if err != nil && !errors.Is(err, kmod.ErrMalformed) && !errors.Is(err, kmod.ErrTooLarge) {
			t.Errorf("error %v is of no known kind", err)
		}
	})
}

// TestReadKeepsOnlyTheFacts: what a small file decompresses to is not held by what was read of it.
func TestReadKeepsOnlyTheFacts(t *testing.T) {
	t.Run("a section without bounds", func(t *testing.T) {
		module := synth.Module{Name: "a", License: "GPL" + strings.Repeat("\x00", 5<<20)}
		if _, err := kmod.Read(module.Bytes()); !errors.Is(err, kmod.ErrMalformed) || !strings.Contains(err.Error(), ".modinfo") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("facts between others", func(t *testing.T) {
		module := synth.Module{Name: "a", License: "GPL" + strings.Repeat("\x00unknown="+strings.Repeat("x", 1000), 3000)}
		content := module.Bytes()
		var kept []*kmod.Info
		before := heap()
		for range 20 {
			info, err := kmod.Read(content)
			if err != nil {
				t.Fatal(err)
			}
			kept = append(kept, info)
		}
		if grown := heap() - before; grown > 4<<20 {
			t.Errorf("%d facts hold %d bytes", len(kept), grown)
		}
		runtime.KeepAlive(kept)
		runtime.KeepAlive(content)
	})
}

// heap is what is alive.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // far below
}
