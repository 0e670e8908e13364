// SPDX-License-Identifier: Apache-2.0

// Package signer holds the steps of drover-signer, which a Job runs to make a kernel module image.
// Each step is a command and writes its result into its container's termination message
// (internal/build/pipeline/result).
//
// check asks the registry, fetch and source bring what is compiled, pull and pack fill an OCI
// layout, sign changes it, push sends it. Only sign sees the key, and it needs no network. Nothing
// prints keys, tokens or contents.
package signer

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

	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/drover-project/drover/internal/build/pipeline/result"
	"github.com/drover-project/drover/internal/build/repack"
	"github.com/drover-project/drover/internal/build/repack/ocidir"
	"github.com/drover-project/drover/internal/shared/kmod/sign"
)

var (
	errInvalid  = errors.New("invalid input")
	errPrebuilt = errors.New("the registry has an image that Drover did not make and does not overwrite; use another tag, or remove " +
		"that image")
	errNothing = errors.New("nothing to sign")
	errKey     = errors.New("the key cannot be used")
)

// doneFile in the state folder says that the registry has the image: the other steps do nothing.
const doneFile = "done"

// common are the flags of all steps.
type common struct {
	message string
	state   string
}

// command is a step.
func command(use, short string, do func(context.Context, *common, *result.Result) error) *cobra.Command {
	c := &common{}
	cmd := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		return c.run(cmd, do)
	}}
	cmd.Flags().StringVar(&c.message, "termination-message", "", "file for the result (default /dev/termination-log where there is one)")
	cmd.Flags().StringVar(&c.state, "state", "", "folder in which check tells the other steps that there is nothing to do")
	return cmd
}

// unlessDone skips a step when check has found the image.
func unlessDone(do func(context.Context, *result.Result) error) func(context.Context, *common, *result.Result) error {
	return func(ctx context.Context, c *common, r *result.Result) error {
		if r.Skipped = c.isDone(); r.Skipped {
			return nil
		}
		return do(ctx, r)
	}
}

func require(cmd *cobra.Command, names ...string) {
	for _, name := range names {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err) // a flag that was not added
		}
	}
}

func openLayout(dir string) (*ocidir.Layout, error) {
	layout, err := ocidir.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errInvalid, err)
	}
	return layout, nil
}

func digestOf(top partial.Describable) (string, error) {
	digest, err := top.Digest()
	if err != nil {
		return "", fmt.Errorf("digest of the image: %w", err)
	}
	return digest.String(), nil
}

func (c *common) done() string { return filepath.Join(c.state, doneFile) }

// isDone reports whether check has found the image.
func (c *common) isDone() bool {
	if c.state == "" {
		return false
	}
	_, err := os.Lstat(c.done())
	return err == nil
}

const terminationLog = "/dev/termination-log"

// run does one step and writes its result.
func (c *common) run(cmd *cobra.Command, do func(context.Context, *common, *result.Result) error) error {
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
	var unfit *unfitError
	if errors.As(err, &unfit) {
		return result.ReasonUnfit
	}
	for _, known := range []struct {
		is     error
		reason result.Reason
	}{
		{sign.ErrNotModule, result.ReasonNotModule}, {errNothing, result.ReasonNothingToSign}, {errKey, result.ReasonKey},
		{errPrebuilt, result.ReasonPrebuilt},
		{errInvalid, result.ReasonInvalid}, {repack.ErrPattern, result.ReasonInvalid},
		{repack.ErrRefused, result.ReasonImageRefused}, {ocidir.ErrLayout, result.ReasonImageRefused},
	} {
		if errors.Is(err, known.is) {
			return known.reason
		}
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
