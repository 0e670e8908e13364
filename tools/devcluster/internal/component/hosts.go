// SPDX-License-Identifier: Apache-2.0

package component

// HostsFileVariable names, in kube-apiserver's environment, a file that the
// process reads in place of /etc/hosts. It needs Linux and a mount namespace
// of the process's own.
const HostsFileVariable = "DEVCLUSTER_HOSTS_FILE"
