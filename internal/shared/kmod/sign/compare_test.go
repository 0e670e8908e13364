// SPDX-License-Identifier: Apache-2.0

//go:build compare && linux

package sign_test

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drover-project/drover/internal/shared/kmod/sign"
	"github.com/drover-project/drover/internal/shared/kmod/signature"
	"github.com/drover-project/drover/test/vm/artifacts"
)

// signFileProgram is the kernel's own program, which comes from Debian's packages once and stays in
// .cache/vm.
func signFileProgram(t *testing.T) string {
	t.Helper()
	cache, err := artifacts.Open("")
	if err != nil {
		t.Fatal(err)
	}
	program, err := cache.SignFile(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// folder is where programs get their files.
type folder struct {
	t   *testing.T
	dir string
}

func (f folder) write(name string, content []byte) string {
	f.t.Helper()
	path := filepath.Join(f.dir, name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		f.t.Fatal(err)
	}
	return path
}

func (f folder) read(name string) []byte {
	f.t.Helper()
	content, err := os.ReadFile(filepath.Join(f.dir, name))
	if err != nil {
		f.t.Fatal(err)
	}
	return content
}

func (f folder) run(program string, args ...string) {
	f.t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir = f.dir
	if output, err := cmd.CombinedOutput(); err != nil {
		f.t.Fatalf("%s %v: %v\n%s", program, args, err, output)
	}
}

// theirs signs with sign-file. The certificate is in DER, as KMM's documentation makes it.
func (f folder) theirs(program string, content []byte, key sign.Key, private []byte, hash string, flags ...string) []byte {
	f.t.Helper()
	f.write("key", private)
	f.write("cert", key.Certificate().Raw)
	f.write("in.ko", content)
	f.run(program, append(flags, hash, "key", "cert", "in.ko", "out.ko")...)
	return f.read("out.ko")
}

func pkcs8(t *testing.T, key crypto.Signer) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pemOf("PRIVATE KEY", der)
}

func TestSameBytesAsSignFile(t *testing.T) {
	program, key := signFileProgram(t), keyOf(t, rsaKey())
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			f := folder{t, t.TempDir()}
			ours, err := signFile("in.ko", module("a"), key, way.options)
			if err != nil {
				t.Fatal(err)
			}
			theirs := f.theirs(program, module("a"), key, pkcs8(t, rsaKey()), way.hash, way.flags...)
			if !bytes.Equal(ours, theirs) {
				t.Errorf("ours\n%x\nsign-file's\n%x", ours, theirs)
			}
			again, err := signFile("in.ko", theirs, key, way.options)
			if err != nil || !bytes.Equal(again, theirs) {
				t.Errorf("what sign-file signed is not left as it is: %v", err)
			}
		})
	}
}

// A module that others have signed gets a second signature, and ours is sign-file's in that as
// well.
func TestAnotherSignatureIsAppendedAsSignFileDoes(t *testing.T) {
	program, first, second := signFileProgram(t), keyOf(t, otherKey()), keyOf(t, rsaKey())
	f := folder{t, t.TempDir()}
	signed, err := signFile("in.ko", module("a"), first, sign.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ours, err := signFile("in.ko", signed, second, sign.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if theirs := f.theirs(program, signed, second, pkcs8(t, rsaKey()), "sha256"); !bytes.Equal(ours, theirs) {
		t.Errorf("ours\n%x\nsign-file's\n%x", ours, theirs)
	}
	if all := signature.List(ours); len(all) != 2 {
		t.Errorf("%d signatures instead of 2", len(all))
	}
}

// With ECDSA everything but the value is sign-file's, and openssl takes the value.
func TestECDSAIsSignFilesButForTheValue(t *testing.T) {
	program, key := signFileProgram(t), keyOf(t, ecKey())
	shape := func(t *testing.T, signed []byte, o sign.Options) []byte {
		_, message, err := signature.Split(signed)
		if err != nil {
			t.Fatal(err)
		}
		value, err := signature.Value(message)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := signature.Message(key.Certificate(), value, o); err != nil || !bytes.Equal(again, message) {
			t.Errorf("with the same value the messages differ: %v\n%x\n%x", err, again, message)
		}
		return message
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			f := folder{t, t.TempDir()}
			ours, err := signFile("in.ko", module("a"), key, way.options)
			if err != nil {
				t.Fatal(err)
			}
			again, err := signFile("in.ko", module("a"), key, way.options)
			if err != nil || !bytes.Equal(ours, again) {
				t.Errorf("a second time gives other bytes: %v", err)
			}
			theirs := f.theirs(program, module("a"), key, pkcs8(t, ecKey()), way.hash, way.flags...)
			shape(t, theirs, way.options)
			f.opensslVerifies(shape(t, ours, way.options), module("a"), key)
			if err := signature.Verify(theirs, key.Certificate()); err != nil {
				t.Errorf("sign-file's is refused: %v", err)
			}
			if same, err := signFile("in.ko", theirs, key, way.options); err != nil || !bytes.Equal(same, theirs) {
				t.Errorf("what sign-file signed is not left as it is: %v", err)
			}
		})
	}
}

// opensslVerifies checks a message, and that it fits no other content.
func (f folder) opensslVerifies(message, content []byte, key sign.Key) {
	f.t.Helper()
	f.write("cert.pem", pemOf("CERTIFICATE", key.Certificate().Raw))
	f.write("message", message)
	f.write("content", content)
	args := strings.Fields("cms -verify -binary -inform DER -noverify -certfile cert.pem -in message -out /dev/null -content")
	f.run("openssl", append(args, "content")...)
	f.write("other", append(bytes.Clone(content), 0))
	cmd := exec.Command("openssl", append(args, "other")...)
	cmd.Dir = f.dir
	if cmd.Run() == nil {
		f.t.Error("openssl takes the signature for another module's")
	}
}

func TestOpenSSLVerifiesRSA(t *testing.T) {
	key := keyOf(t, rsaKey())
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			trailer, err := sign.Trailer(module("a"), key, way.options)
			if err != nil {
				t.Fatal(err)
			}
			_, message, err := signature.Split(append(module("a"), trailer...))
			if err != nil {
				t.Fatal(err)
			}
			folder{t, t.TempDir()}.opensslVerifies(message, module("a"), key)
		})
	}
}

// What openssl signs with attributes, as signing services do, is verified; and what it makes of
// keys is read.
func TestOpenSSLsOwnSignaturesAndKeys(t *testing.T) {
	f := folder{t, t.TempDir()}
	f.write("in.ko", module("a"))
	for name, arguments := range map[string]string{"rsa": "rsa:2048", "ec": "ec -pkeyopt ec_paramgen_curve:P-256"} {
		f.run("openssl", strings.Fields("req -x509 -new -nodes -utf8 -sha256 -days 36500 -batch -subj /O=Example/CN="+name+
			" -outform DER -out cert -keyout key -newkey "+arguments)...)
		key, err := sign.ParseKey(f.read("key"), f.read("cert"))
		if err != nil {
			t.Fatal(err)
		}
		f.write("cert.pem", pemOf("CERTIFICATE", f.read("cert")))
		for _, flags := range []string{"-noattr -nocerts", "-nocerts", "", "-keyid"} {
			f.run("openssl", strings.Fields("cms -sign -binary -outform DER -md sha512 -signer cert.pem -inkey key -in in.ko -out message "+
				flags)...)
			signed := append(module("a"), signature.Trailer(f.read("message"))...)
			if err := signature.Verify(signed, key.Certificate()); err != nil {
				t.Errorf("%s %s: %v", name, flags, err)
			}
			signed[100] ^= 1
			if err := signature.Verify(signed, key.Certificate()); err == nil {
				t.Errorf("%s %s: the signature fits another module", name, flags)
			}
		}
	}
}

// TestCompressorsReadWhatIsSigned and what they compressed is signed inside.
func TestCompressorsReadWhatIsSigned(t *testing.T) {
	key := keyOf(t, rsaKey())
	want, err := signFile("a.ko", module("a"), key, sign.Options{})
	if err != nil {
		t.Fatal(err)
	}
	// With the options of the kernel's build.
	for program, flags := range map[string]string{"gzip": "-n -c", "xz": "--check=crc32 --lzma2=dict=1MiB -c", "zstd": "-q -c"} {
		t.Run(program, func(t *testing.T) {
			filter := func(content []byte, args ...string) []byte {
				command := exec.Command(program, args...)
				command.Stdin = bytes.NewReader(content)
				out, err := command.Output()
				if err != nil {
					t.Fatalf("%v: %v", command.Args, err)
				}
				return out
			}
			signed, err := signFile("a.ko", filter(module("a"), strings.Fields(flags)...), key, sign.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(filter(signed, "-d", "-c"), want) {
				t.Errorf("%s finds something else inside than what a plain module becomes", program)
			}
		})
	}
}
