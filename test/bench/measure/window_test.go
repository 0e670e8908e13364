// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"strings"
	"testing"
)

func TestSumOf(t *testing.T) {
	const metrics = `# HELP passes how many
passes{controller="module",result="error"} 2
passes{controller="module",result="success"} 40
passes{controller="node",result="success"} 7
size{cluster="etcd-0"} 1.048576e+06
broken{a="b"} many
`
	cases := map[string]struct {
		series string
		then   float64
		fails  string
	}{
		"several series": {series: `passes{controller="module",`, then: 42},
		"an exponent":    {series: "size{", then: 1 << 20},
		"no number":      {series: "broken{", fails: "broken"},
		"none":           {series: "other{", fails: "no series other{"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := SumOf(strings.NewReader(metrics), tc.series)
			if got != tc.then || (err != nil) != (tc.fails != "") || err != nil && !strings.Contains(err.Error(), tc.fails) {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
}
