// SPDX-License-Identifier: Apache-2.0

package lolcow

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"syscall"
	"time"

	api "github.com/drover-project/drover/api/lolcow/v1alpha1"
	"github.com/drover-project/drover/kit"
)

const (
	// announceTimeout bounds one request with its answer.
	announceTimeout = 5 * time.Second
	// retryAfter is when something is tried again that no watch reports.
	retryAfter = time.Minute
	// maxHeader bounds an answer's header, in bytes. Its body is not read.
	maxHeader = 16 << 10
)

type announcement struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Greeting  string `json:"greeting"`
}

// announce sends each new greeting to spec.announceURL, exactly once.
func (o *operator) announce(ctx context.Context, l *api.Lolcow) error {
	if l.Spec.AnnounceURL == "" || l.Spec.Greeting == "" {
		return nil
	}
	err := kit.Once(ctx, o.client, o.live, l, &api.LolcowWorkspace{}, effect(l), func(ctx context.Context, nonce string) error {
		if err := o.post(ctx, l, nonce); err != nil {
			return &kit.Problem{Reason: api.ReasonAnnounceFailed, Message: err.Error(), Errored: true, RetryAfter: retryAfter}
		}
		return nil
	})
	if err != nil {
		return err
	}
	l.Status.Announced = l.Spec.Greeting
	return nil
}

// effect names what happens: this greeting to this URL.
func effect(l *api.Lolcow) string {
	sum := sha256.Sum256([]byte(l.Spec.AnnounceURL + "\x00" + l.Spec.Greeting))
	return "announce/" + hex.EncodeToString(sum[:])
}

// post sends the request. It returns no more of the answer than its status: the URL's author may
// not be allowed to read more.
func (o *operator) post(ctx context.Context, l *api.Lolcow, nonce string) error {
	body, err := json.Marshal(announcement{Namespace: l.Namespace, Name: l.Name, Greeting: l.Spec.Greeting})
	if err != nil {
		return fmt.Errorf("encode the announcement: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, l.Spec.AnnounceURL, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("spec.announceURL: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", nonce)
	request.Header.Set("User-Agent", Name)
	response, err := o.http.Do(request)
	if err != nil {
		var failed *url.Error
		if errors.As(err, &failed) { // its text repeats the URL
			err = failed.Err
		}
		return fmt.Errorf("spec.announceURL: sending the greeting to %s failed: %w", request.URL.Host, err)
	}
	_ = response.Body.Close() // nothing was read
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return fmt.Errorf("spec.announceURL: %s answers %s", request.URL.Host, response.Status)
	}
	return nil
}

// newHTTP makes the client for announcements.
func newHTTP() *http.Client {
	dialer := &net.Dialer{Timeout: announceTimeout, Control: notLinkLocal}
	return &http.Client{
		Timeout:       announceTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, DisableKeepAlives: true, MaxResponseHeaderBytes: maxHeader,
		},
	}
}

// notLinkLocal refuses the addresses at which clouds serve nodes' credentials.
func notLinkLocal(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("read the address: %w", err)
	}
	if to.Addr().Unmap().IsLinkLocalUnicast() {
		return fmt.Errorf("%s is a link-local address", to.Addr())
	}
	return nil
}
