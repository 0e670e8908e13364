// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"crypto/rand"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// HollowLabel is the label, with the value true, of nodes whose pods kwok
// plays.
const HollowLabel = "drover.dev/hollow"

//go:embed audit-policy.yaml
var auditPolicy []byte

//go:embed kwok.yaml
var kwokConfig []byte

// layout is where everything of one start is: files and addresses.
type layout struct {
	dir, data                      string
	etcdURL, peerURL, server       string
	apiPort                        int
	ca                             *authority
	serving, kubelet               pair
	saPrivate, saPublic            string
	admin                          string
	controllers, schedulers, kwoks string
	auditPolicy, auditLog          string
	kwokConfig, hosts, tokens      string
	nodeTokens                     map[string]string
}

// prepare chooses ports and writes all files that the components read.
func prepare(o Options) (*layout, error) {
	l := &layout{
		dir:         o.Dir,
		data:        filepath.Join(o.Dir, "etcd"),
		admin:       filepath.Join(o.Dir, "admin.kubeconfig"),
		controllers: filepath.Join(o.Dir, "kube-controller-manager.kubeconfig"),
		schedulers:  filepath.Join(o.Dir, "kube-scheduler.kubeconfig"),
		kwoks:       filepath.Join(o.Dir, "kwok.kubeconfig"),
		auditPolicy: filepath.Join(o.Dir, "audit-policy.yaml"),
		auditLog:    filepath.Join(o.Dir, "audit.log"),
		kwokConfig:  filepath.Join(o.Dir, "kwok.yaml"),
		hosts:       filepath.Join(o.Dir, "hosts"),
		tokens:      filepath.Join(o.Dir, "tokens.csv"),
	}
	for _, step := range []func(Options) error{l.clean, l.choosePorts, l.writeCertificates, l.writeKubeconfigs, l.writeFiles} {
		if err := step(o); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// clean makes the folder and removes what an earlier run left.
func (l *layout) clean(o Options) error {
	if err := os.MkdirAll(l.dir, 0o755); err != nil {
		return fmt.Errorf("make the cluster's folder: %w", err)
	}
	if o.Keep {
		return nil
	}
	logs, err := filepath.Glob(filepath.Join(l.dir, "*.log"))
	if err != nil {
		return fmt.Errorf("find the logs of an earlier run: %w", err)
	}
	for _, path := range append(logs, l.data) {
		// This program's own output may go there, opened by whoever started it.
		if filepath.Base(path) == "devcluster.log" {
			continue
		}
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("remove what an earlier run left: %w", err)
		}
	}
	return nil
}

func (l *layout) choosePorts(o Options) error {
	ports, err := freePorts(3)
	if err != nil {
		return err
	}
	l.apiPort = ports[2]
	if o.APIServerPort != 0 {
		l.apiPort = o.APIServerPort
	}
	l.etcdURL = fmt.Sprintf("http://127.0.0.1:%d", ports[0])
	l.peerURL = fmt.Sprintf("http://127.0.0.1:%d", ports[1])
	l.server = fmt.Sprintf("https://127.0.0.1:%d", l.apiPort)
	return nil
}

func (l *layout) writeCertificates(o Options) (err error) {
	pki := filepath.Join(l.dir, "pki")
	if l.ca, err = openAuthority(pki, o.Keep); err != nil {
		return err
	}
	if l.serving, err = l.ca.server("kube-apiserver", append(serverNames(), o.ExtraSANs...)); err != nil {
		return err
	}
	if l.kubelet, err = l.ca.client("kubelet-client", "kube-apiserver-kubelet-client", "system:masters"); err != nil {
		return err
	}
	l.saPrivate, l.saPublic, err = serviceAccountKey(pki, o.Keep)
	return err
}

func (l *layout) writeKubeconfigs(o Options) error {
	type user struct{ path, name, group string }
	users := []user{
		{l.admin, "kubernetes-admin", "system:masters"},
		{l.controllers, "system:kube-controller-manager", ""},
		{l.schedulers, "system:kube-scheduler", ""},
		{l.kwoks, "kwok", "system:masters"},
	}
	if o.Kubeconfig != "" {
		users = append(users, user{o.Kubeconfig, "kubernetes-admin", "system:masters"})
	}
	for _, u := range users {
		var groups []string
		if u.group != "" {
			groups = []string{u.group}
		}
		client, err := l.ca.client("client-"+strings.ReplaceAll(u.name, ":", "-"), u.name, groups...)
		if err != nil {
			return err
		}
		if err := writeKubeconfig(u.path, l.server, l.ca.certificateFile(), u.name, client); err != nil {
			return err
		}
	}
	return nil
}

func (l *layout) writeFiles(o Options) error {
	files := map[string][]byte{l.auditPolicy: auditPolicy, l.kwokConfig: kwokConfig}
	if len(o.NodeHostAliases) > 0 {
		own, err := os.ReadFile("/etc/hosts")
		if err != nil {
			return fmt.Errorf("read the host's names: %w", err)
		}
		files[l.hosts] = fmt.Appendf(own, "\n127.0.0.1 %s\n", strings.Join(o.NodeHostAliases, " "))
	}
	l.nodeTokens = make(map[string]string, len(o.NodeTokens))
	var tokens strings.Builder
	for _, node := range o.NodeTokens {
		l.nodeTokens[node] = rand.Text()
		fmt.Fprintf(&tokens, "%s,system:node:%s,%s,system:nodes\n", l.nodeTokens[node], node, node)
	}
	files[l.tokens] = []byte(tokens.String())
	for path, content := range files {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return fmt.Errorf("write %s: %w", path, err)
		}
	}
	return nil
}
