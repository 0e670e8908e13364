// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-project/drover/internal/testkit/audit"
)

// logged is a line of an audit log about node n.
func logged(second, revision int, resource, subresource, object string) string {
	return fmt.Sprintf(`{"verb":"patch","userAgent":"drover-operator/v1","objectRef":{"resource":%q,"subresource":%q,"name":"n"},"responseStatus":{"code":200},
		"requestReceivedTimestamp":"2026-01-01T00:00:%02d.000000Z","stageTimestamp":"2026-01-01T00:00:%02d.500000Z",
		"responseObject":{"metadata":{"name":"n","resourceVersion":"%d"%s}}`,
		resource, subresource, second, second, revision, object)
}

func nmc(second, revision, generation int, spec, status string) string {
	return logged(second, revision, "nodemodulesconfigs", "",
		fmt.Sprintf(`,"uid":"u","generation":%d},"spec":{"modules":[%s]},"status":{"modules":[%s]}`, generation, spec, status))
}

func node(second, revision int, boot, ready string) string {
	return logged(second, revision, "nodes", "status",
		fmt.Sprintf(`},"status":{"nodeInfo":{"bootID":%q},"conditions":[{"type":"Ready","status":%q}]}`, boot, ready))
}

// aborted is a write of an order whose client went away.
func aborted(second int, spec string) string {
	return strings.Replace(strings.Replace(
		nmc(second, 0, 0, spec, ""), `"code":200`, `"code":504`, 1), `"responseObject"`, `"requestObject"`, 1)
}

// until gives a line a later answer.
func until(second int, line string) string {
	_, after, _ := strings.Cut(line, `"stageTimestamp":"2026-01-01T00:00:`)
	return strings.Replace(line, `"stageTimestamp":"2026-01-01T00:00:`+after[:2], fmt.Sprintf(`"stageTimestamp":"2026-01-01T00:00:%02d`, second), 1)
}

// by names the Module for which a line's write was made.
func by(module, line string) string {
	return strings.Replace(line, `{"verb"`, `{"requestURI":"/apis/x/n?fieldManager=drover%2Fns%2F`+module+`&force=true","verb"`, 1)
}

// reported is an agent's write of its status.
func reported(second, revision, generation int, spec, status string) string {
	return strings.Replace(nmc(second, revision, generation, spec, status), `"subresource":""`, `"subresource":"status"`, 1)
}

const (
	entryA    = `{"namespace":"ns","name":"driver","config":{"kernelVersion":"6.1","containerImage":"a"}}`
	entryB    = `{"namespace":"ns","name":"driver","config":{"kernelVersion":"6.1","containerImage":"b","modprobe":{"parameters":["x=1"]}}}`
	entryGone = `{"namespace":"ns","name":"driver","state":"Absent","config":{"kernelVersion":"6.1","containerImage":"b"}}`
	another   = `{"namespace":"ns","name":"another","config":{"kernelVersion":"6.1","containerImage":"c"}}`
	liveA     = `{"namespace":"ns","name":"driver","bootId":"boot-1"}`
)

func TestHistory(t *testing.T) {
	refused := strings.Replace(nmc(13, 99, 9, another, ""), `"code":200`, `"code":409`, 1)
	for _, tc := range []struct {
		name   string
		lines  []string
		orders []string // second want
		sights []string // second up
		gaps   int
	}{
		{
			name: "a life, logged in another order than it was written",
			lines: []string{
				node(1, 10, "boot-1", "True"), nmc(3, 12, 1, entryA, liveA), nmc(2, 11, 1, entryA, ""),
				nmc(4, 13, 2, entryA+","+another, liveA), nmc(5, 14, 3, entryB, liveA), nmc(5, 14, 3, entryB, liveA),
				node(6, 15, "boot-1", "False"), node(7, 16, "boot-1", "True"), node(8, 17, "boot-2", "True"),
				nmc(9, 18, 4, entryGone, liveA), nmc(10, 19, 5, "", ""), refused,
			},
			orders: []string{"2 a/6.1", "5 b/6.1 x=1", "9 "},
			sights: []string{"1 false", "3 true", "6 false", "7 true", "8 false"},
		},
		{
			name:   "an order that is not in the log",
			lines:  []string{nmc(2, 11, 1, entryA, ""), nmc(3, 14, 3, entryB, "")},
			orders: []string{"2 a/6.1", "3 b/6.1 x=1"}, sights: []string{"2 false"}, gaps: 1,
		},
		{
			name: "orders of an operator that was killed while it wrote them",
			lines: []string{
				aborted(1, entryA), reported(3, 12, 1, entryA, ""), // seen in what the agent reports
				aborted(4, entryB), nmc(6, 20, 3, entryGone, ""), // seen by the generation alone
				aborted(7, entryA), reported(8, 21, 3, entryGone, ""), // it did not happen
			},
			orders: []string{"1 a/6.1", "4 b/6.1 x=1", "6 "}, sights: []string{"3 false"},
		},
		{
			name: "an operator that was killed while it took the entry out",
			lines: []string{
				nmc(1, 10, 1, entryA, ""), nmc(2, 11, 2, entryGone, ""),
				strings.Replace(aborted(3, ""), `"requestObject":{`, `"requestObject":[{"op":"remove","path":"/spec/modules/0"}],"ignored":{`, 1),
				reported(4, 13, 3, "", ""),
			},
			orders: []string{"1 a/6.1", "2 "}, sights: []string{"1 false"},
		},
		{
			name: "an operator that was killed while it wrote another Module's entry",
			lines: []string{
				by("driver", nmc(1, 10, 1, entryA, "")), by("another", aborted(2, another)), reported(3, 12, 2, entryA+","+another, ""),
				by("another", aborted(4, another)), by("driver", aborted(5, entryB)), reported(6, 14, 4, entryB+","+another, ""),
			},
			orders: []string{"1 a/6.1", "5 b/6.1 x=1"}, sights: []string{"1 false"},
		},
		{
			name: "an order whose request ran out of time while the agent reported",
			lines: []string{
				nmc(1, 10, 1, entryA, ""), until(5, aborted(2, entryGone)), reported(3, 11, 1, entryA, liveA), reported(6, 13, 2, entryGone, ""),
			},
			orders: []string{"1 a/6.1", "2 "}, sights: []string{"1 false"},
		},
		{
			name: "another Module's order, whose request ran out of time while the agent reported",
			lines: []string{
				nmc(1, 10, 1, entryA, ""), by("another", until(5, aborted(2, another))), reported(3, 11, 1, entryA, liveA),
				reported(6, 13, 2, entryA+","+another, ""),
			},
			orders: []string{"1 a/6.1"}, sights: []string{"1 false"},
		},
		{
			name: "one request that ran out of time explains one change at most",
			lines: []string{
				nmc(1, 10, 1, entryA, ""), until(9, aborted(2, entryGone)), reported(3, 11, 2, entryGone, ""), reported(6, 13, 3, entryB, ""),
				by("another", until(9, aborted(7, another))), reported(7, 14, 4, entryB+","+another, ""), reported(8, 15, 5, entryB, ""),
			},
			orders: []string{"1 a/6.1", "2 ", "6 b/6.1 x=1"}, sights: []string{"1 false"}, gaps: 2,
		},
		{
			name:   "an order that only an agent's report shows",
			lines:  []string{reported(3, 12, 1, entryA, "")},
			orders: []string{"3 a/6.1"}, sights: []string{"3 false"}, gaps: 1,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "audit.log")
			var content strings.Builder
			for _, l := range tc.lines {
				content.WriteString(strings.ReplaceAll(l, "\n", "") + "\n")
			}
			if err := os.WriteFile(path, []byte(content.String()), 0o644); err != nil {
				t.Fatal(err)
			}
			requests, err := audit.Whole(path).Next()
			if err != nil {
				t.Fatal(err)
			}
			h := NewHistory(types.NamespacedName{Namespace: "ns", Name: "driver"}, func(image, kernel string) string { return image + "/" + kernel })
			if err := h.Add(requests); err != nil {
				t.Fatal(err)
			}

			n, gaps := h.Node("n")

			var orders, sights []string
			for _, o := range n.Orders {
				orders = append(orders, fmt.Sprintf("%d %s", o.Received.Second(), o.Want))
				if o.Absent != (o.Want == "") || !strings.HasPrefix(o.By, "drover-operator/") {
					t.Errorf("order %+v", o)
				}
			}
			for _, s := range n.Sights {
				sights = append(sights, fmt.Sprintf("%d %t", s.From.Second(), s.Up))
			}
			if !slices.Equal(orders, tc.orders) || !slices.Equal(sights, tc.sights) || gaps != tc.gaps {
				t.Errorf("orders %q, sights %q, %d gaps; want %q, %q, %d", orders, sights, gaps, tc.orders, tc.sights, tc.gaps)
			}
		})
	}
}
