// SPDX-License-Identifier: Apache-2.0

// Package cluster starts a control plane as child processes on loopback,
// watches them and stops them in order. Everything it writes is below one
// folder.
package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"
)

// Options say what to start.
type Options struct {
	// Dir holds all state: data, certificates, kubeconfigs, logs. Required.
	Dir string
	// Kubeconfig is where the administrator's kubeconfig goes besides Dir;
	// empty for Dir alone.
	Kubeconfig string
	// Keep leaves the data of an earlier run in Dir in place.
	Keep bool
	// WithKwok also starts kwok, which plays the kubelet for pods on nodes
	// with the label drover.dev/hollow=true.
	WithKwok bool
	// KwokBinary is a devcluster whose kwok it is; empty: this one. An older
	// release of Kubernetes has an older kwok, that plays less.
	KwokBinary string
	// APIServerPort is kube-apiserver's port; 0 takes a free one.
	APIServerPort int
	// AdvertiseAddress is the address published for the kubernetes Service;
	// empty publishes none (loopback addresses are not allowed there).
	AdvertiseAddress string
	// ExtraSANs are names and addresses for the server's certificate besides
	// those it always has.
	ExtraSANs []string
	// NodeHostAliases are names that kube-apiserver resolves to 127.0.0.1, so
	// that it reaches kubelets behind forwarded ports. Linux and root only.
	NodeHostAliases []string
	// NodeTokens are node names to make bearer tokens for.
	NodeTokens []string
	// ControllerQPS and ControllerBurst are kube-controller-manager's client
	// limits, requests per second and at once.
	ControllerQPS, ControllerBurst int
	// ExtraArgs are flags by component name, added last.
	ExtraArgs map[string][]string
	// ReadyTimeout bounds one start.
	ReadyTimeout time.Duration
}

// complete checks the options and makes the paths absolute.
func (o *Options) complete() error {
	if o.Dir == "" {
		return errors.New("no folder given")
	}
	for _, path := range []*string{&o.Dir, &o.Kubeconfig} {
		if *path == "" {
			continue
		}
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return fmt.Errorf("make %s absolute: %w", *path, err)
		}
		*path = absolute
	}
	if len(o.NodeHostAliases) > 0 && (runtime.GOOS != "linux" || os.Geteuid() != 0) {
		return errors.New("host aliases for nodes need Linux and root: the API server gets a hosts file of its own in a mount namespace")
	}
	return nil
}

// Info is what a started cluster tells about itself.
type Info struct {
	// Kubeconfig is the administrator's: a client certificate in
	// system:masters.
	Kubeconfig string `json:"kubeconfig"`
	// Server is the API server's URL.
	Server string `json:"server"`
	// Etcd is the URL of etcd's client port, without TLS.
	Etcd string `json:"etcd"`
	// Dir holds all of the cluster's files.
	Dir string `json:"dir"`
	// AuditLog is the API server's audit log, one JSON event a line.
	AuditLog string `json:"auditLog"`
	// CA is the certificate that signed the server's and all clients'.
	CA string `json:"ca"`
	// CAKey is its key.
	CAKey string `json:"caKey"`
	// PID is the process that started the components.
	PID int `json:"pid"`
	// PIDs are the processes by component.
	PIDs map[string]int `json:"pids"`
	// Logs are the log files by component.
	Logs map[string]string `json:"logs"`
	// NodeTokens are bearer tokens by node name: user system:node:NAME, group
	// system:nodes.
	NodeTokens map[string]string `json:"nodeTokens,omitempty"`
	// Seconds is how long the start took.
	Seconds float64 `json:"seconds"`
}
