// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"os"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// writeKubeconfig writes a kubeconfig with all certificates inside, so that
// the file alone is enough.
func writeKubeconfig(path, server string, ca string, user string, client pair) error {
	config := clientcmdapi.NewConfig()
	config.Clusters["devcluster"] = &clientcmdapi.Cluster{Server: server, CertificateAuthority: ca}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{ClientCertificate: client.cert, ClientKey: client.key}
	config.Contexts["devcluster"] = &clientcmdapi.Context{Cluster: "devcluster", AuthInfo: user}
	config.CurrentContext = "devcluster"
	if err := clientcmdapi.FlattenConfig(config); err != nil {
		return fmt.Errorf("read the certificates for %s: %w", path, err)
	}
	// A file of an earlier run may be open to others.
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("replace %s: %w", path, err)
	}
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// restConfig is the client configuration of the kubeconfig at path.
func restConfig(path string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	config.UserAgent = "devcluster"
	return config, nil
}
