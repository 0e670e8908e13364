// SPDX-License-Identifier: Apache-2.0

// Package step is what the steps of an image's Job share: each is a command, reaches registries the
// same way, and writes its result into its container's termination message
// (internal/build/pipeline/result). Nothing prints keys, tokens or contents.
package step

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/drover-project/drover/internal/build/pipeline/result"
	"github.com/drover-project/drover/internal/build/repack"
	"github.com/drover-project/drover/internal/build/repack/ocidir"
)

// ErrInvalid is an input that no other try makes right.
var ErrInvalid = WithReason(errors.New("invalid input"), result.ReasonInvalid)

// WithReason makes an error give a step's result its reason, whatever wraps it.
func WithReason(err error, reason result.Reason) error {
	return &reasonError{error: err, reason: reason}
}

type reasonError struct {
	error
	reason result.Reason
}

// Unwrap serves errors.Is.
func (e *reasonError) Unwrap() error { return e.error }

// doneFile in the state folder says that the registry has the image: the other steps do nothing.
const doneFile = "done"

// Common are the flags of all steps.
type Common struct {
	message string
	state   string
}

// Command is a step.
func Command(use, short string, do func(context.Context, *Common, *result.Result) error) *cobra.Command {
	c := &Common{}
	cmd := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		return c.run(cmd, do)
	}}
	cmd.Flags().StringVar(&c.message, "termination-message", "", "file for the result (default /dev/termination-log where there is one)")
	cmd.Flags().StringVar(&c.state, "state", "", "folder in which check tells the other steps that there is nothing to do")
	return cmd
}

// UnlessDone skips a step when check has found the image.
func UnlessDone(do func(context.Context, *result.Result) error) func(context.Context, *Common, *result.Result) error {
	return func(ctx context.Context, c *Common, r *result.Result) error {
		if r.Skipped = c.IsDone(); r.Skipped {
			return nil
		}
		return do(ctx, r)
	}
}

// Require makes flags of a step required.
func Require(cmd *cobra.Command, names ...string) {
	for _, name := range names {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err) // a flag that was not added
		}
	}
}

// OpenLayout opens the OCI layout that another step has filled.
func OpenLayout(dir string) (*ocidir.Layout, error) {
	layout, err := ocidir.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return layout, nil
}

// DigestOf an image, or of an index.
func DigestOf(top partial.Describable) (string, error) {
	digest, err := top.Digest()
	if err != nil {
		return "", fmt.Errorf("digest of the image: %w", err)
	}
	return digest.String(), nil
}

// ForPlatform is the image itself, or an index's image for the architecture, as a kubelet would
// choose it; nil where there is none.
func ForPlatform(top ocidir.Manifest, arch string) (v1.Image, error) {
	if image, ok := top.(v1.Image); ok {
		return image, nil
	}
	index, ok := top.(v1.ImageIndex)
	if !ok {
		return nil, fmt.Errorf("%w: %T is not an image", repack.ErrRefused, top)
	}
	wanted := v1.Platform{OS: "linux", Architecture: arch}
	fitting, err := partial.FindManifests(index, func(d v1.Descriptor) bool {
		return d.Platform != nil && d.MediaType.IsImage() && d.Platform.Satisfies(wanted)
	})
	if err != nil {
		return nil, fmt.Errorf("read the index: %w", err)
	}
	if len(fitting) == 0 {
		return nil, nil
	}
	image, err := index.Image(fitting[0].Digest)
	if err != nil {
		return nil, fmt.Errorf("read the image for %s: %w", wanted, err)
	}
	return image, nil
}

// MarkDone tells the other steps that the registry has the image.
func (c *Common) MarkDone() error {
	if c.state == "" {
		return nil
	}
	if err := os.WriteFile(filepath.Join(c.state, doneFile), nil, 0o644); err != nil {
		return fmt.Errorf("tell the other steps: %w", err)
	}
	return nil
}

// IsDone reports whether check has found the image.
func (c *Common) IsDone() bool {
	if c.state == "" {
		return false
	}
	_, err := os.Lstat(filepath.Join(c.state, doneFile))
	return err == nil
}

const terminationLog = "/dev/termination-log"

// run does one step and writes its result.
func (c *Common) run(cmd *cobra.Command, do func(context.Context, *Common, *result.Result) error) error {
	r := &result.Result{Step: cmd.Name()}
	ctx := cmd.Context()
	err := do(ctx, c, r)
	if err != nil {
		r.Error, r.Reason = err.Error(), classify(err)
	}
	message, encodeErr := r.Message()
	if encodeErr != nil {
		return errors.Join(err, encodeErr)
	}
	_, printErr := fmt.Fprintln(cmd.OutOrStdout(), message)
	klog.FromContext(ctx).V(1).Info("Step ended", "step", r.Step, "state", r.State, "digest", r.Digest, "signed", r.Signed, "reason", r.Reason)
	file := c.message
	if file == "" {
		if _, statErr := os.Stat(terminationLog); statErr != nil {
			return errors.Join(err, printErr)
		}
		file = terminationLog
	}
	return errors.Join(err, printErr, r.Write(file))
}

// classify finds the reason of a failure.
func classify(err error) result.Reason {
	var known *reasonError
	switch {
	case errors.As(err, &known):
		return known.reason
	case errors.Is(err, repack.ErrPattern):
		return result.ReasonInvalid
	case errors.Is(err, repack.ErrRefused), errors.Is(err, ocidir.ErrLayout):
		return result.ReasonImageRefused
	}
	return classifyRegistry(err)
}

func classifyRegistry(err error) result.Reason {
	var (
		verification *tls.CertificateVerificationError
		record       tls.RecordHeaderError
		answered     *transport.Error
		network      net.Error
		request      *url.Error
	)
	switch {
	// The library joins this error and that of HTTP to one text.
	case errors.As(err, &verification), errors.As(err, &record), strings.Contains(err.Error(), "x509: "),
		strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return result.ReasonTLS
	case errors.As(err, &answered) && answered.StatusCode < http.StatusInternalServerError &&
		strings.Contains(strings.ToLower(err.Error()), "immutable"):
		return result.ReasonInvalid // another try, after another build, would be refused as well
	case errors.As(err, &answered):
		return answer(answered.StatusCode)
	case errors.As(err, &network), errors.As(err, &request):
		return result.ReasonUnavailable
	}
	return result.ReasonFailed
}

func answer(code int) result.Reason {
	switch {
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return result.ReasonUnauthorized
	case code == http.StatusNotFound:
		return result.ReasonNotFound
	case code == http.StatusTooManyRequests || code == http.StatusRequestTimeout || code >= http.StatusInternalServerError:
		return result.ReasonUnavailable
	}
	return result.ReasonFailed
}
