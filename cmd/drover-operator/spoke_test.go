// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/drover-project/drover/internal/hub"
	"github.com/drover-project/drover/internal/hub/direct"
	"github.com/drover-project/drover/internal/testkit/env"
)

// spokesAccount has the rights of a spoke's operator and no others. That of the other tests has
// those of a whole one.
const spokesAccount = "spoke-under-test"

// grant gives an account the rights of files of config.
func grant(t *testing.T, admin client.Client, files ...string) {
	t.Helper()
	create := func(o client.Object) {
		if err := admin.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = admin.Delete(context.Background(), o) })
	}
	create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: env.OperatorNamespace, Name: spokesAccount}})
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: env.OperatorNamespace, Name: spokesAccount}}
	number := 0
	for _, file := range files {
		content, err := os.ReadFile(filepath.Join("../../config", file))
		if err != nil {
			t.Fatal(err)
		}
		for document := range strings.SplitSeq(string(content), "\n---\n") {
			role := &rbacv1.Role{}
			if err := yaml.Unmarshal([]byte(document), role); err != nil {
				t.Fatal(err)
			}
			number++
			name := metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", spokesAccount, number), Namespace: role.Namespace}
			reference := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: role.Kind, Name: name.Name}
			if role.Kind == "Role" {
				create(&rbacv1.Role{ObjectMeta: name, Rules: role.Rules})
				create(&rbacv1.RoleBinding{ObjectMeta: name, RoleRef: reference, Subjects: subjects})
				continue
			}
			create(&rbacv1.ClusterRole{ObjectMeta: name, Rules: role.Rules})
			create(&rbacv1.ClusterRoleBinding{ObjectMeta: name, RoleRef: reference, Subjects: subjects})
		}
	}
}

// TestASpokeSaysWhatItsNodesRun, again and again, with no more rights than config/spoke has.
func TestASpokeSaysWhatItsNodesRun(t *testing.T) {
	admin := env.Get(t).Admin(t)
	grant(t, admin, "spoke/operator_role.yaml", "spoke/claims_role.yaml")
	startOperator(t, spokesAccount, "--mode=spoke", "--agent-image=registry.invalid/drover/drover-agent:dev")
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: spokesAccount}}
	if err := admin.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Delete(context.Background(), node) })
	for _, kernel := range []string{"6.1.0-56-amd64", "6.12.9+"} {
		node.Status.NodeInfo = corev1.NodeSystemInfo{KernelVersion: kernel, Architecture: "amd64"}
		if err := admin.Status().Update(t.Context(), node); err != nil {
			t.Fatal(err)
		}
		var last error
		if err := wait.PollUntilContextTimeout(t.Context(), 200*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
			said := &corev1.ConfigMap{}
			if last = admin.Get(ctx, client.ObjectKey{Namespace: env.OperatorNamespace, Name: direct.Platforms}, said); last == nil &&
				said.Data[hub.PlatformsClaim] != "amd64/"+kernel {
				last = fmt.Errorf("it says %q", said.Data)
			}
			return last == nil, nil
		}); err != nil {
			t.Fatalf("kernel %s is not told within %s: %v", kernel, patience, last)
		}
	}
}
