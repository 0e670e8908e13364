// SPDX-License-Identifier: Apache-2.0

package hollow_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/drover-project/drover/internal/agent/hollow"
	"github.com/drover-project/drover/internal/agent/host/fake"
	"github.com/drover-project/drover/internal/shared/delivery"
)

// ask reads JSON from the debug address.
func (r *running) ask(path string, into any) {
	r.t.Helper()
	answer, err := http.Get("http://" + r.debug + path)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if err := json.NewDecoder(answer.Body).Decode(into); err != nil {
		r.t.Fatal(err)
	}
}

// TestUpset: an agent that is killed at its call, under a clock that is wrong, begins again and
// ends well; who reads the stream of changes is told, and the journal can be taken.
func TestUpset(t *testing.T) {
	r := start(t, hollow.Options{Nodes: 1, Kernels: []string{kernelA}})
	r.do("/clock?off=-2h&node=" + r.node(0))
	r.do("/kill?node=" + r.node(0))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.debug+"/changes", nil)
	if err != nil {
		t.Fatal(err)
	}
	changes, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = changes.Body.Close() }()
	line := make([]byte, 1)
	if _, err := changes.Body.Read(line); err != nil { // the first says that it watches
		t.Fatal(err)
	}

	r.deliver(r.node(0), kernelA, image, delivery.ModeImageVolume)
	r.live(r.node(0))

	if _, err := changes.Body.Read(line); err != nil {
		t.Errorf("the change of the kernel: %v", err)
	}
	var vitals struct{ AgentKills, Goroutines, Descriptors int }
	r.ask("/vitals", &vitals)
	if vitals.AgentKills != 1 || vitals.Goroutines == 0 || vitals.Descriptors == 0 {
		t.Errorf("%+v", vitals)
	}
	for i, want := range []int{1, 0} {
		var journal map[string][]fake.Call
		r.ask("/journal?take=true", &journal)
		if got := len(journal[r.node(0)]); got != want {
			t.Errorf("read for the %d. time, the journal has %d calls, want %d", i+1, got, want)
		}
	}
	r.do("/spare?node=" + r.node(0))
	for verb, says := range map[string]string{"fill": "--disk-size", "clock": "the clock is wrong"} {
		if got := r.refused("/" + verb + "?node=" + r.node(0)); !strings.Contains(got, says) {
			t.Errorf("%s: %s", verb, got)
		}
	}
}

// refused is what the debug address answers to what it cannot do.
func (r *running) refused(verb string) string {
	r.t.Helper()
	answer, err := http.Post("http://"+r.debug+verb, "", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return answer.Status + " " + string(text)
}
