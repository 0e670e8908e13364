// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"strconv"

	"github.com/drover-project/drover/tools/devcluster/internal/component"
)

// serviceCIDR is the range of Service addresses; its first one is the
// kubernetes Service's.
const serviceCIDR = "10.0.0.0/24"

// serverNames are in the server's certificate always: loopback, the host as
// seen from a QEMU guest with user networking, the kubernetes Service.
func serverNames() []string {
	return []string{
		"127.0.0.1", "localhost", "10.0.2.2", "10.0.0.1",
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
	}
}

func (l *layout) etcd(o Options) spec {
	return spec{name: component.Etcd, args: []string{
		"--name=default",
		"--data-dir=" + l.data,
		"--listen-client-urls=" + l.etcdURL,
		"--advertise-client-urls=" + l.etcdURL,
		"--listen-peer-urls=" + l.peerURL,
		"--initial-advertise-peer-urls=" + l.peerURL,
		"--initial-cluster=default=" + l.peerURL,
		// A crash of the machine may lose data that nobody wants to keep.
		"--unsafe-no-fsync",
		"--quota-backend-bytes=" + strconv.Itoa(4<<30),
		"--log-level=warn",
	}}
}

func (l *layout) apiServer(o Options) spec {
	s := spec{name: component.APIServer, args: []string{
		"--etcd-servers=" + l.etcdURL,
		"--bind-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(l.apiPort),
		"--tls-cert-file=" + l.serving.cert,
		"--tls-private-key-file=" + l.serving.key,
		"--client-ca-file=" + l.ca.certificateFile(),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + l.saPublic,
		"--service-account-signing-key-file=" + l.saPrivate,
		"--service-cluster-ip-range=" + serviceCIDR,
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
		"--kubelet-preferred-address-types=Hostname,InternalIP",
		"--kubelet-client-certificate=" + l.kubelet.cert,
		"--kubelet-client-key=" + l.kubelet.key,
		"--max-requests-inflight=4000",
		"--max-mutating-requests-inflight=2000",
		"--audit-policy-file=" + l.auditPolicy,
		"--audit-log-path=" + l.auditLog,
		// Megabytes until rotation: one file must hold all, benches count lines.
		"--audit-log-maxsize=1000000",
	}}
	if len(o.NodeTokens) > 0 {
		s.args = append(s.args, "--token-auth-file="+l.tokens)
	}
	if o.AdvertiseAddress == "" {
		// Loopback addresses may not be published as endpoints; without this,
		// the server would try for ever.
		s.args = append(s.args, "--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none")
	} else {
		s.args = append(s.args, "--advertise-address="+o.AdvertiseAddress)
	}
	if len(o.NodeHostAliases) > 0 {
		s.ownMounts = true
		s.env = []string{component.HostsFileVariable + "=" + l.hosts}
	}
	return s
}

func (l *layout) controllerManager(o Options) spec {
	return spec{name: component.ControllerManager, args: []string{
		"--kubeconfig=" + l.controllers,
		"--leader-elect=false",
		"--secure-port=0",
		"--service-account-private-key-file=" + l.saPrivate,
		"--root-ca-file=" + l.ca.certificateFile(),
		"--cluster-signing-cert-file=" + l.ca.certificateFile(),
		"--cluster-signing-key-file=" + l.ca.keyFile(),
		"--use-service-account-credentials=true",
		"--kube-api-qps=" + strconv.Itoa(o.ControllerQPS),
		"--kube-api-burst=" + strconv.Itoa(o.ControllerBurst),
	}}
}

func (l *layout) scheduler(Options) spec {
	return spec{name: component.Scheduler, args: []string{
		"--kubeconfig=" + l.schedulers,
		"--leader-elect=false",
		"--secure-port=0",
		"--kube-api-qps=500",
		"--kube-api-burst=1000",
	}}
}

func (l *layout) kwok(o Options) spec {
	return spec{
		name:   component.Kwok,
		binary: o.KwokBinary,
		args: []string{
			"--kubeconfig=" + l.kwoks,
			"--config=" + l.kwokConfig,
			"--manage-nodes-with-label-selector=" + HollowLabel + "=true",
		},
		// kwok reads ~/.kwok/kwok.yaml as well.
		env: []string{"HOME=" + l.dir},
	}
}
