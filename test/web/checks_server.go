// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
)

// terminal looks at what the program prints when it starts as a pod, and when it is to speak once.
func terminal(ctx context.Context, r *rig) error {
	const greeting = "Oh my gosh, I am a cow in a container, and 牛 has two columns!"
	const balloon = " ________________________________________\n" +
		"/ Oh my gosh, I am a cow in a container, \\\n" +
		"\\ and 牛 has two columns!                /\n" +
		" ----------------------------------------\n"
	return r.running(ctx, greeting, func(p *pod) error { return r.saysEverywhere(ctx, p, balloon) })
}

// saysEverywhere looks for a balloon in the log, on the server, and where the same container speaks
// once.
func (r *rig) saysEverywhere(ctx context.Context, p *pod, balloon string) error {
	served, err := get(ctx, p.url+"cow")
	if err != nil {
		return err
	}
	once, err := r.command(p.container, "LOLCOW_ONCE=true")
	if err != nil {
		return err
	}
	said, err := once.Output()
	if err != nil {
		return fmt.Errorf("speak once: %w", err)
	}
	for place, text := range map[string]string{"the log": p.said.String(), "/cow": served.body, "LOLCOW_ONCE": string(said)} {
		if !strings.Contains(text, balloon) || !strings.Contains(text, "|oo|") {
			return fmt.Errorf("%s has no cow that says it:\n%s", place, text)
		}
	}
	return nil
}

func server(ctx context.Context, r *rig) error {
	return r.running(ctx, "Moo", func(p *pod) error { return r.production(ctx, p) })
}

// production asks what a server that is not for development only would answer.
func (r *rig) production(ctx context.Context, p *pod) error {
	address, closeProxy, err := r.spoil.via(p.url)
	if err != nil {
		return err
	}
	defer closeProxy()
	page, err := get(ctx, address)
	if err != nil {
		return err
	}
	again, err := get(ctx, address, "If-None-Match: "+page.header.Get("ETag"))
	if err != nil {
		return err
	}
	post, err := ask(ctx, http.MethodPost, address)
	if err != nil {
		return err
	}
	nothing, err := get(ctx, address+"nothing")
	if err != nil {
		return err
	}
	policy := page.header.Get("Content-Security-Policy")
	for _, fact := range []struct {
		says  string
		holds bool
	}{
		{"the page is UTF-8 HTML", page.status == http.StatusOK && page.header.Get("Content-Type") == "text/html; charset=utf-8"},
		{"no server names itself", page.header.Get("Server") == "" && page.header.Get("X-Powered-By") == ""},
		{"the policy allows nothing unsafe", strings.HasPrefix(policy, "default-src 'none'; ") && !strings.Contains(policy, "unsafe") &&
			!strings.Contains(policy, "*")},
		{"types are not guessed", page.header.Get("X-Content-Type-Options") == "nosniff"},
		{"the page is asked for again", page.header.Get("Cache-Control") == "no-cache" && page.header.Get("ETag") != ""},
		{"what is known is not sent again", again.status == http.StatusNotModified && again.body == ""},
		{"other methods are not allowed", post.status == http.StatusMethodNotAllowed},
		{"other addresses are not found", nothing.status == http.StatusNotFound},
		{"there is no word of a development server", !strings.Contains(strings.ToLower(p.said.String()), "development")},
		{"its user is not root", os.Getuid() != 0 || p.process.SysProcAttr.Credential.Uid != 0},
	} {
		if !fact.holds {
			return fmt.Errorf("not so: %s", fact.says)
		}
	}
	return probes(ctx, p)
}

// probes asks as the kubelet does.
func probes(ctx context.Context, p *pod) error {
	for name, probe := range map[string]*probe{"readiness": p.container.ReadinessProbe, "liveness": p.container.LivenessProbe,
		"startup": p.container.StartupProbe} {
		if probe == nil && name == "startup" {
			continue
		}
		if probe == nil || probe.HTTPGet == nil {
			return fmt.Errorf("the Deployment has no %s probe by HTTP", name)
		}
		answer, err := get(ctx, p.url+strings.TrimPrefix(probe.HTTPGet.Path, "/"))
		if err != nil || answer.status != http.StatusOK {
			return errors.Join(fmt.Errorf("%s probe: %d", name, answer.status), err)
		}
	}
	return nil
}

// addresses asks on every address of this machine.
func addresses(ctx context.Context, r *rig) error {
	own, err := net.InterfaceAddrs()
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	return r.running(ctx, "Moo", func(p *pod) error {
		asked := 0
		for _, address := range own {
			network, ok := address.(*net.IPNet)
			if !ok || network.IP.IsLinkLocalUnicast() {
				continue
			}
			answer, err := get(ctx, fmt.Sprintf("http://%s/greeting", net.JoinHostPort(network.IP.String(), strconv.Itoa(p.port))))
			if err != nil || answer.body != "Moo" {
				return errors.Join(fmt.Errorf("on %s: %q", network.IP, answer.body), err)
			}
			asked++
		}
		if asked == 0 {
			return errors.New("this machine has no address")
		}
		return nil
	})
}
