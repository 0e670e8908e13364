// SPDX-License-Identifier: Apache-2.0

package signer

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/spf13/cobra"

	"github.com/drover-project/drover/internal/build/examine"
	"github.com/drover-project/drover/internal/build/pipeline/result"
	"github.com/drover-project/drover/internal/shared/kmod/sign"
)

const (
	user     = "robot"
	password = "correct horse battery staple"
)

// server is a registry over TLS with a password, that counts what is sent to it. Each repository
// has blobs of its own, as with most registries.
type server struct {
	*httptest.Server
	inner http.Handler

	mu     sync.Mutex
	blobs  map[string]bool // repository and digest
	sent   int64
	mounts int
	faults []int // answers of the next requests
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{inner: registry.New(registry.Logger(log.New(io.Discard, "", 0))), blobs: map[string]bool{}}
	s.Server = httptest.NewUnstartedServer(s)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// ServeHTTP implements http.Handler.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if u, p, _ := r.BasicAuth(); u != user || p != password {
		w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if code := s.fault(); code != 0 {
		w.WriteHeader(code)
		return
	}
	if r.URL.Path != "/v2/" && s.blob(w, r) {
		return
	}
	body := &counted{from: r.Body}
	r.Body = body
	s.inner.ServeHTTP(w, r)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent += body.n
	if digest := r.URL.Query().Get("digest"); r.Method == http.MethodPut && digest != "" {
		s.blobs[repository(r)+"@"+digest] = true
	}
}

func (s *server) fault() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.faults) == 0 {
		return 0
	}
	code := s.faults[0]
	s.faults = s.faults[1:]
	return code
}

// blob answers for blobs of single repositories, which the registry inside does not know.
func (s *server) blob(w http.ResponseWriter, r *http.Request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, digest, isBlob := strings.Cut(r.URL.Path, "/blobs/sha256:")
	if isBlob && r.Method == http.MethodHead && !s.blobs[repository(r)+"@sha256:"+digest] {
		w.WriteHeader(http.StatusNotFound)
		return true
	}
	q := r.URL.Query()
	if r.Method != http.MethodPost || !s.blobs[q.Get("from")+"@"+q.Get("mount")] {
		return false
	}
	s.blobs[repository(r)+"@"+q.Get("mount")] = true
	s.mounts++
	w.Header().Set("Docker-Content-Digest", q.Get("mount"))
	w.WriteHeader(http.StatusCreated)
	return true
}

func repository(r *http.Request) string {
	path, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v2/"), "/blobs/")
	return path
}

type counted struct {
	from io.ReadCloser
	n    int64
}

// Read implements io.Reader.
func (c *counted) Read(into []byte) (int, error) {
	n, err := c.from.Read(into)
	c.n += int64(n)
	return n, err
}

// Close implements io.Closer.
func (c *counted) Close() error { return c.from.Close() }

func (s *server) image(repository string) string {
	return strings.TrimPrefix(s.URL, "https://") + "/" + repository
}

// total of bytes that were sent to the server, from the last time that it was asked.
func (s *server) total() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	sent := s.sent
	s.sent = 0
	return sent
}

// flags that let a step in.
func (s *server) flags(t *testing.T) []string {
	t.Helper()
	dir := t.TempDir()
	ca, auth := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "config.json")
	write(t, ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	host := strings.TrimPrefix(s.URL, "https://")
	write(t, auth, fmt.Appendf(nil, `{"auths":{"https://elsewhere.example":{"username":"x","password":"y"},%q:{"username":%q,"password":%q}}}`,
		host, user, password))
	return []string{"--ca", ca, "--auth", auth, "--retry-delay", "1ms"}
}

// put pushes an image as somebody else would.
func (s *server) put(t *testing.T, repository string, image v1.Image) {
	t.Helper()
	if err := remote.Write(s.tag(t, repository), image, s.options()...); err != nil {
		t.Fatal(err)
	}
}

func (s *server) get(t *testing.T, repository string) v1.Image {
	t.Helper()
	image, err := remote.Image(s.tag(t, repository), s.options()...)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

func (s *server) tag(t *testing.T, repository string) name.Tag {
	t.Helper()
	tag, err := name.NewTag(s.image(repository))
	if err != nil {
		t.Fatal(err)
	}
	return tag
}

func (s *server) options() []remote.Option {
	return []remote.Option{remote.WithTransport(s.Client().Transport), remote.WithAuth(&authn.Basic{Username: user, Password: password})}
}

func write(t *testing.T, file string, content []byte) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, content, 0o600)); err != nil {
		t.Fatal(err)
	}
}

// certificate writes a new one, and a key that stands for its.
func certificate(t *testing.T) (key, cert string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "modules"},
		NotAfter: time.Unix(2_000_000_000, 0)}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	key, cert = filepath.Join(dir, "key"), filepath.Join(dir, "cert")
	write(t, key, []byte("private key material"))
	write(t, cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}))
	return key, cert
}

// doneFile is what check leaves in the state folder.
const doneFile = "done"

const mark = "~signed~"

// readTestKey signs by a mark, so that tests see where; the real signature has tests of its own.
func readTestKey(key, certificate []byte) (*Key, error) {
	block, _ := pem.Decode(certificate)
	if block == nil || len(key) == 0 {
		return nil, errors.New("no certificate or no key")
	}
	parsed, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, err
	}
	return &Key{Signer: describe(parsed), Sign: func(path string, from *os.File, to io.Writer) (bool, error) {
		content, err := io.ReadAll(from)
		if err != nil {
			return false, err
		}
		if !bytes.HasPrefix(content, []byte("\x7fELF")) {
			return false, fmt.Errorf("%s: %w", path, sign.ErrNotModule)
		}
		if bytes.HasSuffix(content, []byte(mark)) {
			return false, nil
		}
		_, err = to.Write(append(content, mark...))
		return true, err
	}}, nil
}

// run runs a step, and returns what its termination message says.
func run(t *testing.T, args ...string) (result.Result, error) {
	t.Helper()
	root := &cobra.Command{Use: "drover-signer", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(CheckCommand(), PullCommand(), FetchCommand(), PackCommand(), SignCommand(readTestKey), PushCommand(), examine.Command())
	message := filepath.Join(t.TempDir(), "message")
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(append(args, "--termination-message", message))
	runErr := root.ExecuteContext(t.Context())
	raw, err := os.ReadFile(message)
	if err != nil {
		t.Fatalf("no termination message: %v; the step says %v", err, runErr)
	}
	if len(raw) > result.MaxMessage {
		t.Errorf("a message of %d bytes", len(raw))
	}
	for _, secret := range []string{password, "private key material", "Y29ycmVjdCBob3JzZSBiYXR0ZXJ5IHN0YXBsZQ"} {
		if bytes.Contains(raw, []byte(secret)) || strings.Contains(out.String(), secret) || runErr != nil &&
			strings.Contains(runErr.Error(), secret) {
			t.Errorf("a secret was told: %s, %s, %v", raw, out.String(), runErr)
		}
	}
	var r result.Result
	if err := json.Unmarshal(raw, &r); err != nil {
		t.Fatal(err)
	}
	return r, runErr
}

func succeed(t *testing.T, args ...string) result.Result {
	t.Helper()
	r, err := run(t, args...)
	if err != nil {
		t.Fatalf("%q: %v", args[0], err)
	}
	return r
}

func fails(t *testing.T, reason result.Reason, args ...string) result.Result {
	t.Helper()
	r, err := run(t, args...)
	if err == nil || r.Reason != reason || r.Error == "" {
		t.Errorf("%s: reason %q instead of %q, error %v", args[0], r.Reason, reason, err)
	}
	return r
}
