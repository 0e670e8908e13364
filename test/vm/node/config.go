// SPDX-License-Identifier: Apache-2.0

//go:build linux

package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-project/drover/test/vm/artifacts"
)

// Addresses inside of a guest. The gateway is QEMU's own: it is the host's
// 127.0.0.1, and all of the host that a guest reaches.
const (
	gateway   = "10.0.2.2"
	firstHost = 15
	// maxIndex keeps node addresses and pod networks within their ranges.
	maxIndex = 200
)

// Gateway is the address under which a guest reaches the host's 127.0.0.1. The
// API server's certificate must be valid for it.
const Gateway = gateway

// Config says what node to start.
type Config struct {
	// Name is the node's name in Kubernetes. Required. The API server must
	// resolve it to 127.0.0.1 to reach the kubelet.
	Name string
	// Index makes node addresses and pod networks differ between nodes of one
	// cluster; 0 for the first.
	Index int
	// Kernel is the series to boot; by default 6.1.
	Kernel artifacts.Series
	// KernelArgs are added to the kernel's command line.
	KernelArgs []string
	// UEFI is the content of the memory in which UEFI firmware keeps its
	// variables, afresh at every power on. Without it the machine has a BIOS.
	UEFI []byte
	// MemMB is the machine's memory, MiB; 0 stands for 1280.
	MemMB int
	// SMP is the number of processors; 0 stands for 1. Emulated processors that
	// wait for each other, while the host runs them in turn, only lose time.
	SMP int
	// Dir holds the disk, logs and configuration. Required; kept at the end.
	// A disk of an earlier machine in it is used again.
	Dir string
	// Server is the API server's URL as the host sees it, on 127.0.0.1.
	Server string
	// CA is the certificate, PEM, that the API server's is signed with.
	CA []byte
	// Token authenticates the kubelet as system:node:NAME.
	Token string
	// RegistryPort is the port on the host's 127.0.0.1 of the registry that
	// all images are pulled from, whatever their host name.
	RegistryPort int
	// Peers are ports on the host's 127.0.0.1 of further servers, which a native node reaches under
	// the gateway's address.
	Peers []int
	// KubeletPort is a free port of the host for the kubelet; 0 takes one.
	KubeletPort int
	// ServiceIP is the kubernetes Service's address; empty for 10.0.0.1.
	ServiceIP string
	// Labels are set on the Node when it registers.
	Labels map[string]string
	// Taints are set on the Node when it registers.
	Taints []corev1.Taint
	// FeatureGates of the kubelet.
	FeatureGates map[string]bool
	// native nodes take this machine's control groups as they are.
	native bool
	// Files are written into the guest at every boot, by absolute path:
	// static pods below /etc/kubernetes/manifests, for example.
	Files map[string]artifacts.File
}

// complete checks the configuration and fills in defaults.
func (c *Config) complete() error {
	if c.Name == "" || c.Dir == "" {
		return errors.New("a node needs a name and a folder")
	}
	if c.Index < 0 || c.Index > maxIndex {
		return fmt.Errorf("index %d is not in 0…%d", c.Index, maxIndex)
	}
	if c.Kernel == "" {
		c.Kernel = artifacts.Linux61
	}
	if c.MemMB == 0 {
		c.MemMB = 1280
	}
	if c.SMP == 0 {
		c.SMP = 1
	}
	if c.ServiceIP == "" {
		c.ServiceIP = "10.0.0.1"
	}
	return nil
}

func (c *Config) address() string { return fmt.Sprintf("10.0.2.%d", firstHost+c.Index) }

// guestFiles are all files laid over the root file system at boot, by path
// without the leading slash, for an archive.
func (c *Config) guestFiles() (map[string]artifacts.File, error) {
	server, err := url.Parse(c.Server)
	if err != nil {
		return nil, fmt.Errorf("read the API server's URL: %w", err)
	}
	apiAddress := net.JoinHostPort(gateway, server.Port())
	kubeconfig, err := json.Marshal(c.kubeconfig(apiAddress))
	if err != nil {
		return nil, fmt.Errorf("write the kubeconfig: %w", err)
	}
	kubelet, err := json.Marshal(c.kubelet())
	if err != nil {
		return nil, fmt.Errorf("write the kubelet's configuration: %w", err)
	}
	network, err := json.Marshal(c.network())
	if err != nil {
		return nil, fmt.Errorf("write the network's configuration: %w", err)
	}
	peers := make([]string, 0, len(c.Peers))
	for _, port := range c.Peers {
		peers = append(peers, strconv.Itoa(port))
	}
	env := []string{
		"NODE_NAME=" + c.Name, "NODE_IP=" + c.address(), "NODE_LABELS=" + c.labels(),
		"API_ADDRESS=" + apiAddress, "SERVICE_IP=" + c.ServiceIP, "REGISTRY_ADDRESS=" + net.JoinHostPort(gateway, strconv.Itoa(c.RegistryPort)),
		"PEERS='" + strings.Join(peers, " ") + "'",
	}
	mirror := fmt.Sprintf("[host.\"http://%s:%d\"]\n  capabilities = [\"pull\", \"resolve\"]\n", gateway, c.RegistryPort)
	files := map[string]artifacts.File{
		"etc/kubernetes/kubeconfig":                  {Content: kubeconfig, Mode: 0o600},
		"etc/kubernetes/kubelet.json":                {Content: kubelet},
		"etc/cni/net.d/10-node.conflist":             {Content: network},
		"etc/containerd/certs.d/_default/hosts.toml": {Content: []byte(mirror)},
		"etc/node/env":                               {Content: []byte(strings.Join(env, "\n") + "\n")},
	}
	for path, file := range c.Files {
		name, absolute := strings.CutPrefix(path, "/")
		if !absolute || name == "" {
			return nil, fmt.Errorf("the guest's file %q has no absolute path", path)
		}
		files[name] = file
	}
	overlay := make(map[string]artifacts.File, len(files))
	for name, file := range files {
		overlay["overlay/"+name] = file
	}
	return overlay, nil
}

func (c *Config) labels() string {
	var pairs []string
	for _, key := range slices.Sorted(maps.Keys(c.Labels)) {
		pairs = append(pairs, key+"="+c.Labels[key])
	}
	return strings.Join(pairs, ",")
}

func (c *Config) kubeconfig(apiAddress string) map[string]any {
	return map[string]any{
		"apiVersion": "v1",
		"kind":       "Config",
		"clusters": []any{map[string]any{"name": "cluster",
			"cluster": map[string]any{"server": "https://" + apiAddress, "certificate-authority-data": c.CA}}},
		"users":           []any{map[string]any{"name": "node", "user": map[string]any{"token": c.Token}}},
		"contexts":        []any{map[string]any{"name": "node", "context": map[string]any{"cluster": "cluster", "user": "node"}}},
		"current-context": "node",
	}
}

// kubelet is a KubeletConfiguration. Its server takes every request, because
// it is reachable from the host's loopback only.
func (c *Config) kubelet() map[string]any {
	config := map[string]any{
		"apiVersion":                "kubelet.config.k8s.io/v1beta1",
		"kind":                      "KubeletConfiguration",
		"authentication":            map[string]any{"anonymous": map[string]any{"enabled": true}, "webhook": map[string]any{"enabled": false}},
		"authorization":             map[string]any{"mode": "AlwaysAllow"},
		"cgroupDriver":              "cgroupfs",
		"containerRuntimeEndpoint":  "unix:///run/containerd/containerd.sock",
		"failSwapOn":                false,
		"featureGates":              c.FeatureGates,
		"registerWithTaints":        c.Taints,
		"port":                      c.KubeletPort,
		"makeIPTablesUtilChains":    false,
		"evictionHard":              map[string]any{"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
		"nodeStatusUpdateFrequency": "4s",
		"syncFrequency":             "5s",
		"fileCheckFrequency":        "5s",
		"serializeImagePulls":       false,
		"staticPodPath":             "/etc/kubernetes/manifests",
		"clusterDomain":             "cluster.local",
		"resolvConf":                "/etc/resolv.conf",
	}
	if c.native {
		config["failCgroupV1"] = false
		config["imageGCHighThresholdPercent"] = 100 // the disk is not the node's alone
	}
	return config
}

// network is the list of CNI plugins: a point-to-point link per pod.
func (c *Config) network() map[string]any {
	subnet := fmt.Sprintf("10.88.%d.0/24", c.Index)
	return map[string]any{
		"cniVersion": "1.0.0",
		"name":       "pods",
		"plugins": []any{map[string]any{
			"type": "ptp", "ipMasq": false,
			"ipam": map[string]any{
				"type":   "host-local",
				"ranges": []any{[]any{map[string]any{"subnet": subnet}}},
				"routes": []any{map[string]any{"dst": "0.0.0.0/0"}},
			},
		}},
	}
}
