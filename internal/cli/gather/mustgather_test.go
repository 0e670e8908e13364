// SPDX-License-Identifier: Apache-2.0

package gather

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/clock"
)

// asProgram is `drover gather`.
func asProgram() int {
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	cmd := NewCommand(genericclioptions.NewConfigFlags(true), streams, clock.RealClock{})
	if len(os.Args) < 2 || os.Args[1] != cmd.Name() {
		_, _ = fmt.Fprintf(os.Stderr, "want drover %s, have %q\n", cmd.Name(), os.Args)
		return 2
	}
	cmd.SetArgs(os.Args[2:])
	if err := cmd.Execute(); err != nil {
		return 1
	}
	return 0
}

// TestMustGather: the script of the image leaves an archive of this command, in which nothing is
// that the command takes out.
func TestMustGather(t *testing.T) {
	e, namespace := someCluster(t)
	programs, out := t.TempDir(), t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(programs, "drover")); err != nil {
		t.Fatal(err)
	}
	admin := e.AdminConfig()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: admin.Host, CertificateAuthorityData: admin.CAData}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{ClientCertificateData: admin.CertData, ClientKeyData: admin.KeyData}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	kubeconfig := filepath.Join(programs, "kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "../../../images/drover-must-gather/gather", out)
	cmd.Env = append(os.Environ(), "PATH="+programs+":"+os.Getenv("PATH"), "KUBECONFIG="+kubeconfig, "HOME="+programs)
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	packed, err := os.ReadFile(filepath.Join(out, "drover.tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	files := unpack(t, packed)
	nothingSecret(t, files)
	for file, says := range map[string]string{
		"objects/modules.kmm.sigs.x-k8s.io.yaml": "namespace: " + namespace, "objects/pods.yaml": removed,
	} {
		if !strings.Contains(files[file], says) {
			t.Errorf("%s does not say %q:\n%s", file, says, files[file])
		}
	}
}
