// SPDX-License-Identifier: Apache-2.0

// Package signer is what drover-signer does: the steps of the Job that makes a kernel module image. Each step is a command, does one thing, and
// says what came of it in its container's termination message (internal/pipeline/result).
//
// check asks the registry, fetch and source bring what is compiled, pull and pack fill an OCI layout, sign changes it, push sends it away. Only sign sees the key, and it needs no network.
// Nothing prints keys, tokens or contents.
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

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/drover-project/drover/internal/pipeline/result"
	"github.com/drover-project/drover/internal/repack"
	"github.com/drover-project/drover/internal/repack/ocidir"
)

var (
	errInvalid  = errors.New("invalid input")
	errPrebuilt = errors.New("an image that Drover has not made is there, and is not overwritten")
	errNothing  = errors.New("there is nothing to sign")
	errKey      = errors.New("the key cannot be used")
	// ErrNotModule is what a Key's Sign wraps for a file that cannot be signed.
	ErrNotModule = errors.New("not a kernel module")
)

// doneFile in the state folder says that the image is there: all further steps have nothing to do.
const doneFile = "done"

// common are the flags of all steps.
type common struct {
	message string
	state   string
}

func (c *common) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.message, "termination-message", "", "file for the result (default /dev/termination-log where there is one)")
	cmd.Flags().StringVar(&c.state, "state", "", "folder in which check tells the other steps that nothing is to be done")
}

func (c *common) done() string { return filepath.Join(c.state, doneFile) }

// isDone tells whether check has found the image.
func (c *common) isDone() bool {
	if c.state == "" {
		return false
	}
	_, err := os.Lstat(c.done())
	return err == nil
}

const terminationLog = "/dev/termination-log"

// run does one step and tells its result.
func (c *common) run(cmd *cobra.Command, step func(context.Context, *result.Result) error) error {
	r := &result.Result{Step: cmd.Name()}
	ctx := cmd.Context()
	err := step(ctx, r)
	if err != nil {
		r.Error, r.Reason = err.Error(), Classify(err)
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

// Classify finds the reason of a failure.
func Classify(err error) result.Reason {
	var unfit *unfitError
	if errors.As(err, &unfit) {
		return result.ReasonUnfit
	}
	for _, known := range []struct {
		is     error
		reason result.Reason
	}{
		{ErrNotModule, result.ReasonNotModule}, {errNothing, result.ReasonNothingToSign}, {errKey, result.ReasonKey}, {errPrebuilt, result.ReasonPrebuilt},
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
	// When HTTP was tried as well, the library joins both errors to one text.
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
