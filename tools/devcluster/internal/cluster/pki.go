// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// certificateLife is the life of every certificate: longer than any run.
const certificateLife = 365 * 24 * time.Hour

// authority signs the cluster's certificates.
type authority struct {
	dir         string
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// pair is a certificate and its key, as files.
type pair struct {
	cert, key string
}

// openAuthority is the authority of an earlier run in dir when there is one and
// keep is set, else a new one.
func openAuthority(dir string, keep bool) (*authority, error) {
	if !keep {
		return newAuthority(dir)
	}
	files, err := tls.LoadX509KeyPair(filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key"))
	if errors.Is(err, fs.ErrNotExist) {
		return newAuthority(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("read the authority in %s: %w", dir, err)
	}
	key, ok := files.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("read the authority in %s: not an ECDSA key", dir)
	}
	return &authority{dir: dir, certificate: files.Leaf, key: key}, nil
}

// newAuthority makes a certificate authority and writes it to dir as ca.crt
// and ca.key.
func newAuthority(dir string) (*authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder for certificates: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the authority's key: %w", err)
	}
	template, err := newTemplate(pkix.Name{CommonName: "devcluster"})
	if err != nil {
		return nil, err
	}
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature | x509.KeyUsageCRLSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign the authority: %w", err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read the authority back: %w", err)
	}
	a := &authority{dir: dir, certificate: certificate, key: key}
	_, err = a.write("ca", der, key)
	return a, err
}

// certificateFile is the authority's certificate as a file.
func (a *authority) certificateFile() string { return filepath.Join(a.dir, "ca.crt") }

// keyFile is the authority's key as a file.
func (a *authority) keyFile() string { return filepath.Join(a.dir, "ca.key") }

// client writes a client certificate for a user and its groups.
func (a *authority) client(file, user string, groups ...string) (pair, error) {
	return a.issue(file, pkix.Name{CommonName: user, Organization: groups}, x509.ExtKeyUsageClientAuth, nil)
}

// server writes a serving certificate for names and addresses.
func (a *authority) server(file string, names []string) (pair, error) {
	return a.issue(file, pkix.Name{CommonName: file}, x509.ExtKeyUsageServerAuth, names)
}

func (a *authority) issue(file string, subject pkix.Name, usage x509.ExtKeyUsage, names []string) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, fmt.Errorf("make the key of %s: %w", file, err)
	}
	template, err := newTemplate(subject)
	if err != nil {
		return pair{}, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{usage}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
			continue
		}
		template.DNSNames = append(template.DNSNames, name)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return pair{}, fmt.Errorf("sign the certificate of %s: %w", file, err)
	}
	return a.write(file, der, key)
}

func (a *authority) write(file string, der []byte, key *ecdsa.PrivateKey) (pair, error) {
	files := pair{cert: filepath.Join(a.dir, file+".crt"), key: filepath.Join(a.dir, file+".key")}
	if err := writePEM(files.cert, "CERTIFICATE", der); err != nil {
		return pair{}, err
	}
	return files, writeKey(files.key, key)
}

// newTemplate is what all certificates share. It starts an hour ago, for
// virtual machines whose clocks lag.
func newTemplate(subject pkix.Name) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("make a serial number: %w", err)
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      subject,
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(certificateLife),
	}, nil
}

// serviceAccountKey writes the key that signs ServiceAccount tokens and the
// public one that checks them; with keep, those of an earlier run stay, so that
// tokens in kept Secrets stay valid.
func serviceAccountKey(dir string, keep bool) (private, public string, err error) {
	private, public = filepath.Join(dir, "sa.key"), filepath.Join(dir, "sa.pub")
	if _, err := os.Stat(public); keep && err == nil {
		return private, public, nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", fmt.Errorf("make the ServiceAccount key: %w", err)
	}
	if err := writeKey(private, key); err != nil {
		return "", "", err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return "", "", fmt.Errorf("encode the ServiceAccount key: %w", err)
	}
	return private, public, writePEM(public, "PUBLIC KEY", der)
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	return writePEM(path, "EC PRIVATE KEY", der)
}

func writePEM(path, kind string, der []byte) error {
	block := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	if err := os.WriteFile(path, block, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
