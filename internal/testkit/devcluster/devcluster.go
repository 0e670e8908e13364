// SPDX-License-Identifier: Apache-2.0

// Package devcluster builds and starts the embedded control plane for tests,
// demo and benches. The control plane is a program of its own
// (tools/devcluster), so that this module does not depend on k8s.io/kubernetes.
package devcluster

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// stopPatience is how long a stop may take. devcluster itself kills what does
// not end in time, so this is never reached unless it hangs.
const stopPatience = 30 * time.Second

// Options say what to start. The zero value is a plain control plane in a
// temporary folder.
type Options struct {
	// Dir holds all state. Empty: a temporary folder, removed by Stop.
	Dir string
	// Keep leaves the data of an earlier run in Dir in place.
	Keep bool
	// Kubeconfig is a further place for the administrator's kubeconfig.
	Kubeconfig string
	// WithKwok also starts kwok, which plays pods on nodes labelled
	// drover.dev/hollow=true, other than carriers.
	WithKwok bool
	// ControllerQPS and ControllerBurst are kube-controller-manager's client
	// limits, in requests; 0 for 500 and 1000.
	ControllerQPS, ControllerBurst int
	// APIServerPort is the API server's port; 0 for a free one.
	APIServerPort int
	// AdvertiseAddress is published for the kubernetes Service; empty for none.
	AdvertiseAddress string
	// ExtraSANs are further names in the server's certificate.
	ExtraSANs []string
	// NodeHostAliases are names that the API server resolves to 127.0.0.1.
	// Linux and root only.
	NodeHostAliases []string
	// NodeTokens are node names to make bearer tokens for.
	NodeTokens []string
	// Args are further arguments for devcluster start, for example
	// --apiserver-arg=--feature-gates=….
	Args []string
	// ReadyTimeout bounds the start; 0 for two minutes, which a machine busy
	// with other builds may need.
	ReadyTimeout time.Duration
}

// Cluster is a running control plane. It ends when the process that started it
// does, however that ends.
type Cluster struct {
	// Kubeconfig is the administrator's: a client certificate in
	// system:masters.
	Kubeconfig string `json:"kubeconfig"`
	// Server is the API server's URL.
	Server string `json:"server"`
	// Dir holds all of the cluster's files.
	Dir string `json:"dir"`
	// AuditLog is the API server's audit log: one JSON event a line, all
	// requests but those for node leases, without bodies.
	AuditLog string `json:"auditLog"`
	// CA is the file of the certificate that signed the server's.
	CA string `json:"ca"`
	// PID is devcluster's process, PIDs are its components' by name.
	PID  int            `json:"pid"`
	PIDs map[string]int `json:"pids"`
	// Logs are the log files by component.
	Logs map[string]string `json:"logs"`
	// NodeTokens are bearer tokens by node name.
	NodeTokens map[string]string `json:"nodeTokens"`
	// Seconds is how long the control plane took to be ready.
	Seconds float64 `json:"seconds"`

	cmd       *exec.Cmd
	stdin     io.WriteCloser
	answers   chan string
	temporary string
	done      chan struct{}
	result    error
}

// Start builds devcluster when needed, starts it and returns when the control
// plane serves. When a component dies on the way, the error comes at once and
// holds the end of its log. The caller must Stop the cluster; ctx bounds the
// start alone.
func Start(ctx context.Context, o Options) (_ *Cluster, err error) {
	binary, err := Build(ctx)
	if err != nil {
		return nil, err
	}
	if o.WithKwok {
		kwok, err := buildKwok(ctx)
		if err != nil {
			return nil, err
		}
		o.Args = append([]string{"--kwok-binary=" + kwok}, o.Args...)
	}
	c := &Cluster{done: make(chan struct{}), answers: make(chan string, 1)}
	if o.Dir == "" {
		if c.temporary, err = os.MkdirTemp("", "devcluster-"); err != nil {
			return nil, fmt.Errorf("make a folder for the cluster: %w", err)
		}
		o.Dir = c.temporary
	}
	if o.ReadyTimeout == 0 {
		o.ReadyTimeout = 2 * time.Minute
	}
	ready, err := c.spawn(binary, o)
	if err != nil {
		return nil, errors.Join(err, c.clean())
	}
	select {
	case err := <-ready:
		if err == nil {
			return c, nil
		}
		return nil, errors.Join(err, c.Stop())
	case <-ctx.Done():
		return nil, errors.Join(fmt.Errorf("start devcluster: %w", context.Cause(ctx)), c.Stop())
	}
}

// spawn starts the program. The returned channel receives the outcome: nil
// when the cluster is ready and its facts are in c.
func (c *Cluster) spawn(binary string, o Options) (<-chan error, error) {
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the cluster's folder: %w", err)
	}
	log, err := os.Create(filepath.Join(o.Dir, "devcluster.log"))
	if err != nil {
		return nil, fmt.Errorf("make devcluster's log: %w", err)
	}
	// The program has its own descriptor.
	defer func() { _ = log.Close() }()

	c.cmd = exec.Command(binary, o.args()...)
	c.cmd.Stderr = log
	// Ctrl-C must not reach the control plane before those who use it.
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start devcluster: %w", err)
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start devcluster: %w", err)
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start devcluster: %w", err)
	}
	ready := make(chan error, 1)
	go c.follow(stdout, log.Name(), ready)
	return ready, nil
}

// follow reads what the program prints, until it ends.
func (c *Cluster) follow(stdout io.Reader, log string, ready chan<- error) {
	defer close(c.done)
	lines := bufio.NewScanner(stdout)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		switch line := lines.Text(); {
		case strings.HasPrefix(line, "{"):
			ready <- c.read(lines.Bytes())
		case strings.HasPrefix(line, "DONE "), strings.HasPrefix(line, "FAILED "):
			c.answers <- line
		}
	}
	c.result = c.cmd.Wait()
	content, err := os.ReadFile(log)
	select {
	case ready <- errors.Join(c.ended(content), err):
	default: // it was ready before it ended
	}
}

// ended describes how the program ended.
func (c *Cluster) ended(log []byte) error {
	if c.result == nil {
		return fmt.Errorf("devcluster ended without an error: %s", log)
	}
	return fmt.Errorf("devcluster ended: %w: %s", c.result, log)
}

func (c *Cluster) read(facts []byte) error {
	if err := json.Unmarshal(facts, c); err != nil {
		return fmt.Errorf("read devcluster's facts: %w", err)
	}
	return nil
}

func (o Options) args() []string {
	args := []string{"start", "--until-stdin-eof", "--dir=" + o.Dir, "--ready-timeout=" + o.ReadyTimeout.String()}
	flag := func(set bool, name string, value any) {
		if set {
			args = append(args, fmt.Sprintf("--%s=%v", name, value))
		}
	}
	flag(o.Keep, "keep", true)
	flag(o.Kubeconfig != "", "kubeconfig", o.Kubeconfig)
	flag(o.WithKwok, "with-kwok", true)
	flag(o.ControllerQPS != 0, "kcm-qps", o.ControllerQPS)
	flag(o.ControllerBurst != 0, "kcm-burst", o.ControllerBurst)
	flag(o.APIServerPort != 0, "apiserver-port", o.APIServerPort)
	flag(o.AdvertiseAddress != "", "advertise-address", o.AdvertiseAddress)
	flag(len(o.ExtraSANs) > 0, "extra-sans", strings.Join(o.ExtraSANs, ","))
	for _, alias := range o.NodeHostAliases {
		flag(true, "node-host-alias", alias)
	}
	for _, node := range o.NodeTokens {
		flag(true, "node-token", node)
	}
	return append(args, o.Args...)
}

// RESTConfig is a client configuration for the administrator, without client
// limits. Set UserAgent on it: the audit log tells clients apart by it.
func (c *Cluster) RESTConfig() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read the cluster's kubeconfig: %w", err)
	}
	config.QPS = -1
	return config, nil
}

// Done is closed when the cluster has ended, by Stop or because a component
// died.
func (c *Cluster) Done() <-chan struct{} { return c.done }

// Stop ends all components in order, waits until their processes are gone and
// removes the folder if it was a temporary one. It may be called again.
func (c *Cluster) Stop() error {
	if err := c.stdin.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("stop devcluster: %w", err)
	}
	timer := time.NewTimer(stopPatience)
	defer timer.Stop()
	select {
	case <-c.done:
	case <-timer.C:
		// Its children end with it.
		if err := c.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("kill devcluster: %w", err)
		}
		<-c.done
	}
	return c.clean()
}

func (c *Cluster) clean() error {
	if c.temporary == "" {
		return nil
	}
	if err := os.RemoveAll(c.temporary); err != nil {
		return fmt.Errorf("remove the cluster's folder: %w", err)
	}
	return nil
}
