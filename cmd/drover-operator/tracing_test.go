// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/testkit/collector"
	"github.com/drover-project/drover/internal/testkit/env"
)

// secrets are in the Module that is traced, and in no span.
const secrets = "not-for-a-trace"

func tracedModule(t *testing.T) *v1beta1.Module {
	t.Helper()
	m := &v1beta1.Module{ObjectMeta: metav1.ObjectMeta{Namespace: env.Get(t).Namespace(t), Name: "traced"}, Spec: v1beta1.ModuleSpec{
		Selector:        map[string]string{"no": "node"},
		ImageRepoSecret: &corev1.LocalObjectReference{Name: secrets},
		ModuleLoader: &v1beta1.ModuleLoaderSpec{Container: v1beta1.ModuleLoaderContainerSpec{
			Modprobe:       v1beta1.ModprobeSpec{ModuleName: "nic", Parameters: []string{"key=" + secrets}},
			KernelMappings: []v1beta1.KernelMapping{{Regexp: "^6", ContainerImage: "r.example/nic:1"}},
		}},
	}}
	if err := env.Get(t).Admin(t).Create(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestAPassIsASpan, and the requests that it makes are spans below it.
func TestAPassIsASpan(t *testing.T) {
	t.Setenv(collector.Soon, collector.SoonValue)
	c := collector.Start(t)
	startOperator(t, env.Operator, "--agent-image=registry.invalid/drover/drover-agent:dev", "--tracing-endpoint="+c.Endpoint)
	m := tracedModule(t)
	c.Await(t, func(spans []collector.Span) error {
		for _, pass := range collector.Named(spans, "reconcile status") {
			if pass.Attributes["k8s.namespace.name"] != m.Namespace || pass.Attributes["drover.object.name"] != m.Name {
				continue
			}
			for _, request := range collector.Below(spans, pass) {
				if strings.HasSuffix(request.Name, " modules/status") && strings.Contains(request.Attributes["url.full"], m.Namespace) {
					return complete(pass, request)
				}
			}
		}
		return errors.New("no pass wrote the Module's status")
	})
	c.Await(t, func(spans []collector.Span) error {
		for _, pass := range collector.Named(spans, "reconcile module") {
			if pass.Attributes["k8s.namespace.name"] == m.Namespace && pass.Parent == "" {
				return nil
			}
		}
		return errors.New("no span of the controller that gives orders")
	})
	for _, sent := range c.Raw() {
		if strings.Contains(sent, secrets) {
			t.Errorf("a span tells a secret: %s", sent)
		}
	}
}

func complete(pass, request collector.Span) error {
	if pass.Parent != "" || pass.Attributes["drover.outcome"] == "" || pass.Attributes["drover.reconcile.id"] == "" ||
		pass.Resource["service.name"] != "drover-operator" || request.Attributes["http.response.status_code"] == "" ||
		request.Start < pass.Start || request.End > pass.End {
		return fmt.Errorf("they are %+v and %+v", pass, request)
	}
	return nil
}

// TestTheOperatorNeedsNoCollector to work, and to end in time.
func TestTheOperatorNeedsNoCollector(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel takes connections, nobody reads from them
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	for name, endpoint := range map[string]string{"nobody listens": "127.0.0.1:1", "never answers": silent.Addr().String()} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(collector.Soon, collector.SoonValue)
			const grace = 12 * time.Second // of the Deployment's 15
			var told time.Time
			t.Cleanup(func() {
				if took := time.Since(told); took > grace {
					t.Errorf("the end took %s", took)
				}
			})
			startOperator(t, env.Operator, "--agent-image=registry.invalid/drover/drover-agent:dev", "--tracing-endpoint="+endpoint)
			t.Cleanup(func() { told = time.Now() })
			m := tracedModule(t)
			if err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
				err := env.Get(t).Admin(t).Get(ctx, client.ObjectKeyFromObject(m), m)
				return meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionReady) != nil, err
			}); err != nil {
				t.Fatalf("the Module has no condition: %v", err)
			}
		})
	}
}

// TestEachControllerIsTraced under its own name.
func TestEachControllerIsTraced(t *testing.T) {
	named, completed := regexp.MustCompile(`Named\(("[^"]+")\)`), regexp.MustCompile(`\bComplete\((kube\.Traced\(("[^"]+"))?`)
	controllers := 0
	err := filepath.WalkDir("../../internal/operator/controller", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name := ""
		for line := range strings.Lines(string(content)) {
			if m := named.FindStringSubmatch(line); m != nil {
				name = m[1]
			}
			if m := completed.FindStringSubmatch(line); m != nil && name != "" {
				controllers++
				if m[2] != name {
					t.Errorf("%s: controller %s is traced as %q", path, name, m[2])
				}
				name = ""
			}
		}
		return nil
	})
	if err != nil || controllers < 15 {
		t.Errorf("%d controllers, %v", controllers, err)
	}
}
