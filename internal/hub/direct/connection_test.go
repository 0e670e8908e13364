// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"strings"
	"testing"
)

const good = `
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1", certificate-authority-data: ""}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`

// TestKubeconfigsHaveAllInside: nothing of the hub's own files is read for a cluster, and no
// program runs.
func TestKubeconfigsHaveAllInside(t *testing.T) {
	for name, tc := range map[string]struct{ from, to, want string }{
		"good":          {},
		"empty":         {from: good, want: "empty"},
		"no kubeconfig": {from: good, to: "{", want: "is not a kubeconfig"},
		"no context":    {from: "current-context: x", want: "is not a usable kubeconfig"},
		"a program": {from: "{token: t}", to: "{exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/sh, " +
			"interactiveMode: Never}}", want: "user u: exec runs a program"},
		"a token's file": {from: "{token: t}", to: "{tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token}",
			want: "user u: names a file"},
		"a key's file": {from: "{token: t}", to: "{client-certificate: /etc/hosts, client-key: /etc/hosts}", want: "user u: names a file"},
		"a plugin":     {from: "{token: t}", to: "{auth-provider: {name: gcp}}", want: "user u: auth-provider"},
		"an authority's file": {from: `certificate-authority-data: ""`, to: "certificate-authority: /etc/ssl/certs/ca.pem",
			want: "cluster c: certificate-authority names a file"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := configOf([]byte(strings.Replace(good, tc.from, tc.to, 1)))
			switch {
			case tc.want == "" && err != nil:
				t.Error(err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}
