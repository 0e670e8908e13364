// SPDX-License-Identifier: Apache-2.0

package step

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/authn/kubernetes"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"

	"github.com/drover-project/drover/internal/build/repack/ocidir"
	"github.com/drover-project/drover/internal/shared/version"
)

// Registry says how to reach a registry.
type Registry struct {
	// Image is the reference that is asked for.
	Image string
	// Insecure allows plain HTTP.
	Insecure bool
	// SkipVerify takes any certificate of the registry.
	SkipVerify bool
	// CA is a file of more certificate authorities in PEM, or a folder of such; it may be missing.
	CA string
	// Auth are files with credentials. AccountAuth are more of them, of a ServiceAccount's Secrets: as
	// for a kubelet, they need not exist.
	Auth, AccountAuth []string
	// Backoff before the second try of a request; it triples each time.
	Backoff time.Duration
}

// AddFlags adds the flags. image is what --image says of itself.
func (r *Registry) AddFlags(flags *pflag.FlagSet, image string) {
	flags.StringVar(&r.Image, "image", "", image)
	flags.BoolVar(&r.Insecure, "insecure", false, "allow plain HTTP")
	flags.BoolVar(&r.SkipVerify, "skip-tls-verify", false, "accept any certificate of the registry")
	flags.StringVar(&r.CA, "ca", "", "file with more certificate authorities in PEM, or folder of such files; it need not exist")
	flags.StringArrayVar(&r.Auth, "auth", nil, "file with credentials for registries, like docker's config.json; may be repeated")
	flags.StringArrayVar(&r.AccountAuth, "account-auth", nil, "file with more credentials, which need not exist; may be repeated")
	flags.DurationVar(&r.Backoff, "retry-delay", 2*time.Second, "delay before a request is repeated; it triples each time")
}

// Connect gives what the library needs to ask the registry for an image.
func (r *Registry) Connect(ctx context.Context) (name.Reference, []remote.Option, error) {
	reference, err := r.Reference(r.Image)
	if err != nil {
		return nil, nil, err
	}
	options, err := r.options(ctx)
	return reference, options, err
}

// Fetch asks the registry for an image or an index.
func (r *Registry) Fetch(ctx context.Context) (top ocidir.Manifest, err error) {
	reference, options, err := r.Connect(ctx)
	if err != nil {
		return nil, err
	}
	found, err := remote.Get(reference, options...)
	if err != nil {
		return nil, fmt.Errorf("ask the registry: %w", err)
	}
	if found.MediaType.IsIndex() {
		top, err = found.ImageIndex()
	} else {
		top, err = found.Image()
	}
	if err != nil {
		return nil, fmt.Errorf("read the manifest: %w", err)
	}
	return top, nil
}

// Reference is the name of an image in this registry.
func (r *Registry) Reference(image string) (name.Reference, error) {
	var options []name.Option
	if r.Insecure {
		options = append(options, name.Insecure)
	}
	reference, err := name.ParseReference(image, options...)
	if err != nil {
		return nil, fmt.Errorf("%w: image reference: %w", ErrInvalid, err)
	}
	return reference, nil
}

const (
	tries = 4
	// patience is how long a registry may take to answer: it checks large blobs first.
	patience = 5 * time.Minute
)

func (r *Registry) options(ctx context.Context) ([]remote.Option, error) {
	base, ok := remote.DefaultTransport.(*http.Transport)
	if !ok {
		return nil, errors.New("the registry library has a transport of unknown type")
	}
	transport := base.Clone()
	transport.ResponseHeaderTimeout = patience
	authorities, err := r.authorities()
	if err != nil {
		return nil, err
	}
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: authorities, InsecureSkipVerify: r.SkipVerify}
	keychain, err := r.keychain(ctx)
	if err != nil {
		return nil, err
	}
	return []remote.Option{
		remote.WithContext(ctx), remote.WithTransport(transport), remote.WithAuthFromKeychain(keychain), remote.WithJobs(2),
		remote.WithUserAgent(version.UserAgent("drover-signer")),
		remote.WithRetryBackoff(remote.Backoff{Duration: r.Backoff, Factor: 3, Jitter: 0.1, Steps: tries}),
	}, nil
}

// authorities are the system's and those of CA; nil stands for the system's alone.
func (r *Registry) authorities() (*x509.CertPool, error) {
	info, err := os.Stat(r.CA)
	if r.CA == "" || errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: authorities: %w", ErrInvalid, err)
	}
	files := []string{r.CA}
	if info.IsDir() {
		if files, err = filepath.Glob(filepath.Join(r.CA, "*.[cp]*")); err != nil { // .crt .cert .ca .pem
			return nil, fmt.Errorf("%w: authorities: %w", ErrInvalid, err)
		}
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool() // the image of this program has none
	}
	found := false
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("%w: read an authority: %w", ErrInvalid, err)
		}
		found = pool.AppendCertsFromPEM(raw) || found
	}
	if !found {
		return nil, fmt.Errorf("%w: %s holds no certificate in PEM", ErrInvalid, r.CA)
	}
	return pool, nil
}

// credentials are one file's: docker's config.json of today, or the bare map of its first form,
// which may lie beside it as .dockercfg.
type credentials struct {
	raw   []byte
	auths map[string]json.RawMessage
	bare  bool
}

func readCredentials(file string) (c credentials, err error) {
	if c.raw, err = os.ReadFile(file); errors.Is(err, fs.ErrNotExist) {
		if older, olderErr := os.ReadFile(filepath.Join(filepath.Dir(file), corev1.DockerConfigKey)); olderErr == nil {
			c.raw, err = older, nil
		}
	}
	if err != nil {
		return c, fmt.Errorf("%w: read credentials: %w", ErrInvalid, err)
	}
	var config struct {
		Auths map[string]json.RawMessage `json:"auths"`
	}
	if err := json.Unmarshal(c.raw, &config); err != nil {
		return c, fmt.Errorf("%w: the credentials in %s are unreadable", ErrInvalid, file) // the error may quote them
	}
	if c.auths, c.bare = config.Auths, config.Auths == nil; c.bare && json.Unmarshal(c.raw, &c.auths) != nil {
		return c, fmt.Errorf("%w: the credentials in %s are unreadable", ErrInvalid, file)
	}
	return c, nil
}

// credentials of all files, the Module's before those of its ServiceAccount.
func (r *Registry) credentials() ([]credentials, error) {
	var all []credentials
	for i, file := range slices.Concat(r.Auth, r.AccountAuth) {
		c, err := readCredentials(file)
		if i >= len(r.Auth) && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// keychain finds credentials as a kubelet does, and then as docker does.
func (r *Registry) keychain(ctx context.Context) (authn.Keychain, error) {
	var secrets []corev1.Secret
	all, err := r.credentials()
	if err != nil {
		return nil, err
	}
	for _, c := range all {
		secret := corev1.Secret{Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: c.raw}}
		if c.bare {
			secret = corev1.Secret{Type: corev1.SecretTypeDockercfg, Data: map[string][]byte{corev1.DockerConfigKey: c.raw}}
		}
		secrets = append(secrets, secret)
	}
	keychain, err := kubernetes.NewFromPullSecrets(ctx, secrets)
	if err != nil {
		return nil, fmt.Errorf("%w: the credentials for registries are unreadable", ErrInvalid) // as above
	}
	return authn.NewMultiKeychain(keychain, authn.DefaultKeychain), nil
}

// Merge writes all credentials to a file, if named; of two for one registry the first.
func (r *Registry) Merge(into string) error {
	if into == "" {
		return nil
	}
	all := map[string]json.RawMessage{}
	files, err := r.credentials()
	if err != nil {
		return err
	}
	for _, c := range files {
		for registry, auth := range c.auths {
			if _, known := all[registry]; !known {
				all[registry] = auth
			}
		}
	}
	raw, err := json.Marshal(map[string]any{"auths": all})
	if err != nil {
		return fmt.Errorf("%w: the credentials for registries are unreadable", ErrInvalid)
	}
	// The builder is another user; only its container mounts the folder.
	if err := os.WriteFile(into, raw, 0o644); err != nil {
		return fmt.Errorf("write the credentials for the builder: %w", err)
	}
	return nil
}
