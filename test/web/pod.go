// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// readyTimeout bounds a start of the program.
const readyTimeout = 10 * time.Second

// container is what the operator's Deployment says about the cow's container, as far as a kubelet
// reads it here.
type container struct {
	Command []string
	Args    []string
	Env     []struct{ Name, Value string }
	Ports   []struct{ ContainerPort int }

	LivenessProbe, ReadinessProbe, StartupProbe *probe
}

type probe struct {
	HTTPGet *struct {
		Path string
		Port any
	}
}

// describe asks the operator's code for the container of a greeting.
func (r *rig) describe(ctx context.Context, greeting string) (container, error) {
	command := exec.CommandContext(ctx, r.describer, "container", greeting)
	command.Stderr = os.Stderr
	output, err := command.Output()
	if err != nil {
		return container{}, fmt.Errorf("ask for the operator's Deployment: %w", err)
	}
	var c container
	if err := json.Unmarshal(output, &c); err != nil {
		return container{}, fmt.Errorf("read the operator's Deployment: %w", err)
	}
	return c, nil
}

// pod is one run of the program.
type pod struct {
	container container
	process   *exec.Cmd
	said      *output
	port      int
	url       string
	ended     chan error
}

// output collects what a process writes.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// start runs the program as a kubelet would start the container that the operator wants for a
// greeting, on a port of this machine.
func (r *rig) start(ctx context.Context, greeting string, port int) (*pod, error) {
	c, err := r.describe(ctx, greeting)
	if err != nil {
		return nil, err
	}
	p := &pod{container: c, said: &output{}, port: port, url: fmt.Sprintf("http://127.0.0.1:%d/", port), ended: make(chan error, 1)}
	p.process, err = r.command(c, fmt.Sprintf("PORT=%d", port))
	if err != nil {
		return nil, err
	}
	p.process.Stdout, p.process.Stderr = p.said, p.said
	if err := p.process.Start(); err != nil {
		return nil, fmt.Errorf("start the program: %w", err)
	}
	go func() { p.ended <- p.process.Wait() }()
	if err := p.await(ctx); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

// imageConfig is what the image's configuration says.
type imageConfig struct {
	User       string
	Entrypoint []string
	Env        []string
}

// command is the image's entry point with a container's arguments and environment, and nothing else
// of this machine. As root it runs as the image's user, and sees only the image's files.
func (r *rig) command(c container, more ...string) (*exec.Cmd, error) {
	if len(c.Command) > 0 || len(r.image.Entrypoint) != 1 {
		return nil, fmt.Errorf("the Deployment replaces the image's entry point %q by %q", r.image.Entrypoint, c.Command)
	}
	values := map[string]string{}
	for _, variable := range c.Env {
		values[variable.Name] = variable.Value
	}
	var args []string
	for _, arg := range c.Args {
		args = append(args, expand(arg, values))
	}
	command := exec.Command(filepath.Join(r.root, r.image.Entrypoint[0]), args...)
	command.Env = slices.Clone(r.image.Env)
	for name, value := range values {
		command.Env = append(command.Env, name+"="+value)
	}
	command.Env = append(command.Env, more...)
	if os.Getuid() != 0 || runtime.GOOS != "linux" {
		return command, nil
	}
	var uid, gid uint32
	if _, err := fmt.Sscanf(r.image.User, "%d:%d", &uid, &gid); err != nil {
		return nil, fmt.Errorf("user %q of the image: %w", r.image.User, err)
	}
	command.Path, command.Dir = r.image.Entrypoint[0], "/"
	command.SysProcAttr = &syscall.SysProcAttr{Chroot: r.root, Credential: &syscall.Credential{Uid: uid, Gid: gid}}
	return command, nil
}

// await returns when the program answers, or its words when it ends.
func (p *pod) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if answer, err := get(ctx, p.url+"healthz"); err == nil && answer.status == http.StatusOK {
			return nil
		}
		select {
		case err := <-p.ended:
			p.ended <- err
			return fmt.Errorf("the program ended: %w\n%s", err, p.said)
		case <-ctx.Done():
			return fmt.Errorf("the program does not answer: %w\n%s", ctx.Err(), p.said)
		case <-tick.C:
		}
	}
}

// stop ends the program as a kubelet does, and says how it ended.
func (p *pod) stop() error {
	if err := p.process.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("end the program: %w", err)
	}
	select {
	case err := <-p.ended:
		return err
	case <-time.After(readyTimeout):
		return errors.Join(errors.New("the program does not end"), p.process.Process.Kill())
	}
}

// answer is what a server said.
type answer struct {
	status int
	header http.Header
	body   string
}

func get(ctx context.Context, url string, header ...string) (answer, error) {
	return ask(ctx, http.MethodGet, url, header...)
}

// ask sends a request with header lines "Name: value" on a connection of its own.
func ask(ctx context.Context, method, url string, header ...string) (answer, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, http.NoBody)
	if err != nil {
		return answer{}, err
	}
	request.Close = true
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		request.Header.Set(name, value)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return answer{status: response.StatusCode, header: response.Header, body: string(body)}, err
}

// freePort returns a port that nobody listens on.
func freePort() (int, error) {
	listener, err := net.Listen("tcp", ":0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	address, ok := listener.Addr().(*net.TCPAddr)
	if !ok {
		return 0, fmt.Errorf("%s is no TCP address", listener.Addr())
	}
	return address.Port, listener.Close()
}

// expand replaces $(NAME) as the kubelet does in arguments: only variables of the container, and
// "$$" is one "$".
func expand(text string, values map[string]string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '$' || i+1 == len(text) {
			b.WriteByte(text[i])
			continue
		}
		i++
		end := strings.IndexByte(text[i:], ')')
		switch {
		case text[i] == '$':
			b.WriteByte('$')
		case text[i] == '(' && end > 0:
			name := text[i+1 : i+end]
			if value, ok := values[name]; ok {
				b.WriteString(value)
			} else {
				b.WriteString("$(" + name + ")")
			}
			i += end
		default:
			b.WriteString("$" + text[i:i+1])
		}
	}
	return b.String()
}
