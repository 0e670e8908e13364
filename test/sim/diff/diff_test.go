// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/drover-project/drover/internal/testkit/env"
	"github.com/drover-project/drover/test/sim/memapi"
)

var (
	asked     = flag.Int("questions", 500, "how many questions both servers are asked")
	firstSeed = flag.Uint64("seed", 1, "which questions")
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard()) // what the server in memory logs is not about answers
	os.Exit(env.Main(m))
}

// real is kube-apiserver with etcd.
func real(t *testing.T) Side {
	t.Helper()
	e := env.Get(t)
	e.Install(t, "hub")
	transport, err := rest.TransportFor(e.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	return Side{Name: "kube-apiserver", URL: e.AdminConfig().Host, HTTP: transport}
}

// memory is the server in memory, with what the real one was given.
func memory(t *testing.T, cached bool) Side {
	t.Helper()
	server, err := memapi.New(t.Context(), memapi.Options{WatchCache: cached})
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Install(t.Context(), installed(t)...); err != nil {
		t.Fatal(err)
	}
	side := Side{Name: "memapi", URL: memapi.Host, HTTP: server.As(memapi.Admin())}
	awaitPolicies(t, side)
	return side
}

// awaitPolicies returns when the server has taken up its policies and their parameters.
func awaitPolicies(t *testing.T, side Side) {
	t.Helper()
	const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x","labels":{"drover.dev/carrier":""}},` +
		`"spec":{"containers":[{"name":"c","image":"i"}]}}`
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, side.URL+"/api/v1/namespaces/default/pods?dryRun=All",
			strings.NewReader(pod))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		answer, err := side.HTTP.RoundTrip(request)
		if err != nil {
			t.Fatalf("wait until the policies are enforced: %v", err)
		}
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "a carrier runs") {
			return
		}
		if err := pause(ctx); err != nil {
			t.Fatalf("wait until the policies are enforced: %v; the last answer: %s", err, text)
		}
	}
}

// installed is what the real server was given beyond what any new one has.
func installed(t *testing.T) (all []*unstructured.Unstructured) {
	t.Helper()
	side := real(t)
	client, err := dynamic.NewForConfigAndClient(&rest.Config{Host: side.URL}, &http.Client{Transport: side.HTTP})
	if err != nil {
		t.Fatal(err)
	}
	for _, resource := range []schema.GroupVersionResource{
		{Version: "v1", Resource: "namespaces"}, {Version: "v1", Resource: "configmaps"},
		{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
		{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicies"},
		{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicybindings"},
	} {
		list, err := client.Resource(resource).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			o := &list.Items[i]
			if o.GetNamespace() == metav1.NamespaceSystem || o.GetKind() == "Namespace" && o.GetName() != env.OperatorNamespace {
				continue // any new server has it
			}
			o.SetUID("")
			o.SetResourceVersion("")
			o.SetManagedFields(nil)
			all = append(all, o)
		}
	}
	return all
}

// TestAnswersAsKubeAPIServer asks the server in memory, with and without a watch cache, what it
// asks the real one.
func TestAnswersAsKubeAPIServer(t *testing.T) {
	begin, result := time.Now(), map[string]any{"seed": *firstSeed}
	questioned, requests, different := 0, 0, 0
	for _, cached := range []bool{true, false} {
		var without []string
		if !cached { // a list from the cache knows no pages
			without = append(without, "list from the cache")
		}
		report, err := Ask(t.Context(), real(t), memory(t, cached), *firstSeed, *asked/2, without...)
		if err != nil {
			t.Fatal(err)
		}
		for i, d := range report.Different {
			if i < 20 {
				t.Errorf("watch cache %t: %.3000s", cached, d.String())
			}
		}
		questioned, requests, different = questioned+report.Questions, requests+report.Requests, different+len(report.Different)
		result["kinds"] = len(report.Kinds)
		if unasked := len(questions) - len(without) - (len(report.Kinds) - 1); unasked > 0 && report.Questions >= 2000 {
			t.Errorf("%d kinds of questions were not asked", unasked)
		}
	}
	result["questions"], result["requests"], result["different"] = questioned, requests, different
	result["replaced"], result["seconds"] = len(Replaced), int(time.Since(begin).Seconds())
	text, err := json.Marshal(result)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("RESULT %s\n", text)
}

// TestASeedAsksTheSame asks twice: what is asked depends on the seed alone.
func TestASeedAsksTheSame(t *testing.T) {
	a, b := memory(t, false), memory(t, false)
	var digests [3]uint64
	for i, seed := range []uint64{77, 77, 78} {
		report, err := Ask(t.Context(), a, b, seed, 150)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range report.Different {
			t.Errorf("%s", d)
		}
		digests[i] = report.Digest
	}
	if digests[0] != digests[1] || digests[0] == digests[2] {
		t.Errorf("digests are %v; the first two are of the same seed, the third is not", digests)
	}
}
