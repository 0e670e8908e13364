// SPDX-License-Identifier: Apache-2.0

// Package targets_test runs the Makefile's targets for device operators against a real API server
// and a real registry.
package targets_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/internal/testkit/devcluster"
	"github.com/drover-project/drover/internal/testkit/env"
)

func TestMain(m *testing.M) { os.Exit(env.Main(m)) }

const root = "../.."

// operators of which there are manifests.
func operators(t *testing.T) []string {
	t.Helper()
	roles, err := filepath.Glob(filepath.Join(root, "config/operators/*/rbac/role.yaml"))
	if err != nil || len(roles) == 0 {
		t.Fatalf("no operator has a role: %v", err)
	}
	var names []string
	for _, role := range roles {
		names = append(names, filepath.Base(filepath.Dir(filepath.Dir(role))))
	}
	return names
}

// kubeconfig of the administrator, as a file.
func kubeconfig(t *testing.T, config *rest.Config) string {
	t.Helper()
	k := clientcmdapi.NewConfig()
	k.Clusters["c"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	k.AuthInfos["u"] = &clientcmdapi.AuthInfo{ClientCertificateData: config.CertData, ClientKeyData: config.KeyData}
	k.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	k.CurrentContext = "x"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*k, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// kubectl is the path of a kubectl: a machine that tests need not have one.
func kubectl(ctx context.Context) (string, error) {
	assets, err := devcluster.Assets(ctx)
	return filepath.Join(assets, "kubectl"), err
}

// run runs make in the repository's root.
func run(ctx context.Context, kubeconfig string, args ...string) error {
	path, err := kubectl(ctx)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "make", append([]string{"--no-print-directory", "KUBECTL=" + path}, args...)...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("make %s: %w\n%s", strings.Join(args, " "), err, said)
	}
	return nil
}

func get(t *testing.T, namespace, name string, into client.Object) {
	t.Helper()
	if err := env.Get(t).Admin(t).Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, into); err != nil {
		t.Fatal(err)
	}
}

// TestDeployInstallsTheWholeOperator: definition, account, role under the name that the guide
// prints, binding, and a Deployment of the image that was asked for.
func TestDeployInstallsTheWholeOperator(t *testing.T) {
	config := kubeconfig(t, env.Get(t).AdminConfig())
	for _, operator := range operators(t) {
		t.Run(operator, func(t *testing.T) {
			program := operator + "-operator"
			if err := run(t.Context(), config, "deploy", "OPERATOR="+operator, "IMAGE_TAG_BASE=registry.example.com:5000/team/mine",
				"IMAGE_TAG=7"); err != nil {
				t.Fatal(err)
			}
			role := &rbacv1.ClusterRole{}
			get(t, "", program+"-manager-role", role)
			if len(role.Rules) == 0 {
				t.Error("the role allows nothing")
			}
			binding := &rbacv1.ClusterRoleBinding{}
			get(t, "", program+"-manager-rolebinding", binding)
			account := rbacv1.Subject{Kind: "ServiceAccount", Name: program + "-controller-manager", Namespace: program + "-system"}
			if binding.RoleRef.Name != role.Name || !slices.Contains(binding.Subjects, account) {
				t.Errorf("the binding gives %s to %v", binding.RoleRef.Name, binding.Subjects)
			}
			get(t, account.Namespace, account.Name, &corev1.ServiceAccount{})
			get(t, account.Namespace, program+"-leader-election-role", &rbacv1.Role{})
			deployment := &appsv1.Deployment{}
			get(t, account.Namespace, account.Name, deployment)
			pod := deployment.Spec.Template.Spec
			if pod.ServiceAccountName != account.Name || pod.Containers[0].Image != "registry.example.com:5000/team/mine:7" {
				t.Errorf("the Deployment runs %s as %s", pod.Containers[0].Image, pod.ServiceAccountName)
			}
		})
	}
}

// TestRegistryIsAskedFor: what pushes, or names images for a cluster, refuses without a registry
// and names the variable, before anything else runs; each of the two variables will do. The
// refusals are those of make itself: no kubectl is called.
func TestRegistryIsAskedFor(t *testing.T) {
	t.Setenv("REGISTRY", "")
	for _, target := range []string{
		"deploy", "deploy OPERATOR=lolcow", "docker-push", "docker-push OPERATOR=ptemplate", "bundle", "krew", "run",
	} {
		args := append(strings.Fields(target), "DIST="+t.TempDir())
		for _, empty := range [][]string{nil, {"REGISTRY="}} {
			if err := run(t.Context(), "/dev/null", append(args, empty...)...); err == nil || !strings.Contains(err.Error(), "REGISTRY is not set") {
				t.Errorf("make %s %s: %v", target, empty, err)
			}
		}
		for given, image := range map[string]string{
			"REGISTRY=r.example:5000/us": "r.example:5000/us/drover/", "IMAGE_TAG_BASE=r.example/mine": "r.example/mine",
		} {
			cmd := exec.CommandContext(t.Context(), "make", append(args, "--dry-run", "KUBECTL=kubectl", given)...)
			cmd.Dir = root
			said, err := cmd.CombinedOutput()
			if err != nil || strings.Contains(string(said), "REGISTRY is not set") || target != "krew" && !strings.Contains(string(said), image) {
				t.Errorf("make %s %s: %v\n%s", target, given, err, said)
			}
		}
	}
}

// TestProgramsKnowTheirRegistry: make tells the linker where the images of this build are, and a
// build without a registry says so.
func TestProgramsKnowTheirRegistry(t *testing.T) {
	for registry, then := range map[string]string{"registry.example.com/us": "registry.example.com/us", "": "registry.invalid"} {
		cmd := exec.CommandContext(t.Context(), "make", "--no-print-directory", "--dry-run", "bin/drover", "REGISTRY="+registry)
		cmd.Dir = root
		said, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		_, flags, _ := strings.Cut(string(said), `-ldflags "`)
		flags, _, _ = strings.Cut(flags, `"`)
		dir := t.TempDir()
		main := "package main\n\nimport \"github.com/drover-project/drover/internal/shared/version\"\n\nfunc main() { print(version.Registry) }\n"
		if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(main), 0o600); err != nil {
			t.Fatal(err)
		}
		// An overlay: a package that may import internal ones must lie below the repository's root.
		overlay := filepath.Join(dir, "overlay.json")
		here, err := filepath.Abs(filepath.Join(root, "internal/shared/version/printed/main.go"))
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf(`{"Replace": {%q: %q}}`, here, filepath.Join(dir, "main.go"))
		if err := os.WriteFile(overlay, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		printed := exec.CommandContext(t.Context(), "go", "run", "-overlay", overlay, "-ldflags", flags, "./internal/shared/version/printed")
		printed.Dir = root
		if got, err := printed.CombinedOutput(); err != nil || string(got) != then {
			t.Errorf("REGISTRY=%s: the program has %q, %v; want %s", registry, got, err, then)
		}
	}
}

// TestInstallBringsTheDefinitions: afterwards the API server takes the operator's sample.
func TestInstallBringsTheDefinitions(t *testing.T) {
	config := kubeconfig(t, env.Get(t).AdminConfig())
	for _, operator := range operators(t) {
		t.Run(operator, func(t *testing.T) {
			if err := run(t.Context(), config, "install", "OPERATOR="+operator); err != nil {
				t.Fatal(err)
			}
			path, err := kubectl(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, args := range [][]string{
				{"wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"},
				{"apply", "--server-side", "--validate=strict", "--dry-run=server", "-k", "config/operators/" + operator + "/samples"},
			} {
				cmd := exec.CommandContext(t.Context(), path, append([]string{"--kubeconfig", config}, args...)...)
				cmd.Dir = root
				if said, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, said)
				}
			}
		})
	}
}

// TestBuildGeneratesFirst: what is compiled fits what is generated.
func TestBuildGeneratesFirst(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "make", "--no-print-directory", "--dry-run", "build", "OPERATOR=ptemplate")
	cmd.Dir = root
	said, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	at := -1
	for _, step := range []string{"controller-gen object paths=./api/...", "output:rbac:artifacts:config=config/operators/",
		"-o bin/ptemplate-operator ./cmd/ptemplate-operator"} {
		next := strings.Index(string(said), step)
		if next <= at {
			t.Errorf("%q does not come after what is before it:\n%s", step, said)
		}
		at = next
	}
}

// TestImageTagBaseNamesWhatIsPushed: the image is in the registry under the name that was asked
// for, and runs the operator without root.
func TestImageTagBaseNamesWhatIsPushed(t *testing.T) {
	const operator = "ptemplate"
	if _, err := os.Stat(filepath.Join(root, "cmd", operator+"-operator")); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	base := strings.TrimPrefix(server.URL, "http://") + "/team/mine"
	err := run(t.Context(), "", "docker-push", "OPERATOR="+operator, "IMAGE_TAG_BASE="+base, "IMAGE_TAG=7", "PLATFORMS="+runtime.GOARCH,
		"DIST="+t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag(base + ":7")
	if err != nil {
		t.Fatal(err)
	}
	image, err := remote.Image(tag, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: runtime.GOARCH}))
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if got := config.Config; got.User != "65532:65532" || !slices.Equal(got.Entrypoint, []string{"/usr/local/bin/" + operator + "-operator"}) {
		t.Errorf("the image runs %v as %q", got.Entrypoint, got.User)
	}
	if repositories, err := remote.Catalog(t.Context(), tag.Registry); err != nil || !slices.Equal(repositories, []string{"team/mine"}) {
		t.Errorf("the registry has %v, %v", repositories, err)
	}
}
