// SPDX-License-Identifier: Apache-2.0

package attacks

import (
	"context"
	"crypto/tls"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/api/kmm/v1beta2"
	"github.com/drover-project/drover/internal/testkit/env"
)

// clusterAttacks are those of other clusters, and of people who only look or ask.
func clusterAttacks() []Attack {
	return append(readerAttacks(), []Attack{
		{Who: Remover, What: "delete a namespace that holds a Module", Why: "what would unload its kernel modules would go with it",
			Answer: Policy("drover-namespaces"), Says: "still holds Module nic", Try: func(s *Scene) error {
				const role = "attacks-remove"
				err := s.admin.Create(s.Context(), &rbacv1.ClusterRole{ObjectMeta: meta("", role), Rules: []rbacv1.PolicyRule{
					{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"delete"}},
				}})
				s.must(client.IgnoreAlreadyExists(err))
				remover := s.user(true, role)
				s.create(s.module())
				return s.soon(func(ctx context.Context) error {
					return remover.Delete(ctx, &corev1.Namespace{ObjectMeta: meta("", s.namespace)}, client.DryRunAll)
				})
			}},
		{Who: HubAccess, What: "read Secrets of the spoke", Why: "a hub brings Modules, and nothing else", Answer: RBAC, Says: "secrets",
			Try: func(s *Scene) error {
				return s.hub().List(s.Context(), &corev1.SecretList{}, client.InNamespace(env.OperatorNamespace))
			}},
		{Who: HubAccess, What: "order a node of the spoke past its operator", Why: "the spoke's ModulePolicies would not be asked",
			Answer: RBAC,
			Says:   "nodemodulesconfigs", Try: func(s *Scene) error {
				return s.hub().Create(s.Context(), &v1beta1.NodeModulesConfig{ObjectMeta: meta("", s.node(kernelVersion))})
			}},
		{Who: HubAccess, What: "say which image the spoke's carriers run", Why: "carriers would run another program",
			Answer: RBAC, Says: "configmaps",
			Try: func(s *Scene) error {
				return s.hub().Patch(s.Context(), &corev1.ConfigMap{ObjectMeta: meta(env.OperatorNamespace, "drover-images")},
					merge(`{"data":{"agent":"evil.example.com/e:1"}}`), client.DryRunAll)
			}},
	}...)
}

// readerAttacks are those of people who look at Modules, or ask about kernels.
func readerAttacks() []Attack {
	retry := merge(`{"metadata":{"annotations":{%q:"2026-01-01T00:00:00Z"}}}`, v1beta1.RetryAnnotation)
	return []Attack{
		{Who: Reader, What: "have a node try again what took it down", Why: "a reader changes nothing",
			Answer: RBAC, Says: `resource "nodes"`,
			Try: func(s *Scene) error {
				return s.reader().Patch(s.Context(), &corev1.Node{ObjectMeta: meta("", s.node(kernelVersion))}, retry)
			}},
		{Who: Reader, What: "pause a Module", Why: "a reader changes nothing", Answer: RBAC, Says: "modules.kmm.sigs.x-k8s.io",
			Try: func(s *Scene) error {
				m := s.module()
				s.create(m)
				return s.reader().Patch(s.Context(), m, merge(`{"metadata":{"annotations":{%q:""}}}`, v1beta1.PausedAnnotation))
			}},
		{Who: Reader, What: "read the Secrets that Modules name", Why: "names are not contents", Answer: RBAC, Says: "secrets",
			Try: func(s *Scene) error {
				return s.reader().List(s.Context(), &corev1.SecretList{}, client.InNamespace(s.namespace))
			}},
		{Who: PreflightEditor, What: "ask about a kernel whose version is a shell's command", Why: "asking may start a build",
			Answer: Schema, Says: "kernelVersion", Try: func(s *Scene) error {
				return s.user(true, "drover-preflight-editor").Create(s.Context(), &v1beta2.PreflightValidation{ObjectMeta: meta("", s.namespace),
					Spec: v1beta2.PreflightValidationSpec{KernelVersion: "6.1.0-44$(touch /tmp/x)-amd64"}})
			}},
		{Who: PreflightEditor, What: "say that a Module is ready for a kernel", Why: "an upgrade waits for the answer", Answer: RBAC,
			Says: "preflightvalidations/status", Try: func(s *Scene) error {
				c, p := s.user(true, "drover-preflight-editor"), &v1beta2.PreflightValidation{ObjectMeta: meta("", s.namespace),
					Spec: v1beta2.PreflightValidationSpec{KernelVersion: kernelVersion}}
				s.must(c.Create(s.Context(), p))
				return c.Status().Patch(s.Context(), p, merge(`{"status":{"conditions":[]}}`))
			}},
	}
}

// metricsAttacks ask for what the operator counts: names of namespaces, Modules and nodes.
func metricsAttacks() []Attack {
	names := "numbers tell which drivers and nodes others have"
	return []Attack{
		{Who: Nobody, What: "read the operator's metrics", Why: names, Answer: Check("metrics-readers"), Says: "401 Unauthorized",
			Try: func(s *Scene) error { return s.scrapes("") }},
		{Who: Reader, What: "read the operator's metrics, which `drover-metrics-reader` is for", Why: names, Answer: Check("metrics-readers"),
			Says: "403 Forbidden", Try: func(s *Scene) error {
				if err := s.scrapes(s.account("drover-metrics-reader")); err != nil {
					s.Fatalf("the attempt could not be made: who may read them gets %v", err)
				}
				return s.scrapes(s.account("drover-module-viewer"))
			}},
	}
}

// account is the token of a ServiceAccount with a ClusterRole.
func (s *Scene) account(role string) string {
	s.Helper()
	s.create(&corev1.ServiceAccount{ObjectMeta: meta(s.namespace, role)}, &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta("", s.namespace+"."+role), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: s.namespace, Name: role}},
	})
	return s.env.Token(s, s.namespace, role)
}

// scrapes asks the operator for its metrics.
func (s *Scene) scrapes(token string) error {
	s.Helper()
	// The certificate is of the operator's own making.
	asks := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer asks.CloseIdleConnections()
	status := ""
	s.await("the operator's metrics", func(ctx context.Context) (bool, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+metricsAddress+"/metrics", nil)
		s.must(err)
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		answer, err := asks.Do(request)
		if err != nil {
			return false, nil // it does not listen yet
		}
		status = answer.Status
		return true, answer.Body.Close()
	})
	if status == "200 OK" {
		return nil
	}
	return stopped("%s", status)
}

func (s *Scene) reader() client.WithWatch {
	s.Helper()
	return s.user(true, "drover-module-viewer")
}

// hub has the token that a hub without Open Cluster Management is given.
func (s *Scene) hub() client.WithWatch {
	s.Helper()
	return s.env.Client(s, s.config("drover-hub-access"))
}
