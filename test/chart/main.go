// SPDX-License-Identifier: Apache-2.0

// Command chart compares what the Helm chart renders with what kustomize makes of config/, object
// by object and field by field, for each way of installing. It lints the chart, sets each of its
// values and looks for the field that must change, and gives it wrong values, which must be
// refused.
//
// Environment: HELM is the path of helm. BREAK=object alters one rendered object, so that the
// result must be red.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/drover-project/drover/hack/chart/tree"
)

const chartDir = "charts/drover"

// parallel is how many programs run at once.
const parallel = 4

// result is the line that ends the run.
type result struct {
	// Equal says whether chart and kustomize are the same in all ways.
	Equal bool `json:"equal"`
	Lint  bool `json:"lint"`
	// Objects were compared, in all ways together.
	Objects int `json:"objects"`
	Ways    int `json:"ways"`
	// Settings are the values that change what they must; Refused are the wrong ones that are told.
	Settings int    `json:"settings"`
	Refused  int    `json:"refused"`
	Problems int    `json:"problems"`
	Break    string `json:"break,omitempty"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	h, err := newHelm(cmp.Or(os.Getenv("HELM"), "bin/helm"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	r := result{Ways: len(ways), Break: os.Getenv("BREAK")}
	if r.Break != "" && r.Break != "object" {
		return fmt.Errorf("BREAK=%s: only object can be broken", r.Break)
	}
	different, err := compareWays(ctx, h, &r)
	if err != nil {
		return err
	}
	r.Equal = len(different) == 0
	linted := h.lint(ctx)
	r.Lint = len(linted) == 0
	unset, err := settings(ctx, h, &r)
	if err != nil {
		return err
	}
	accepted, err := refusals(ctx, h, &r)
	if err != nil {
		return err
	}
	for _, problems := range [][]string{different, linted, unset, accepted} {
		for _, p := range problems {
			fmt.Println("FAILED", p)
		}
		r.Problems += len(problems)
	}
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	fmt.Printf("RESULT %s\n", line)
	if r.Problems > 0 {
		return fmt.Errorf("%d problems", r.Problems)
	}
	return nil
}

// compareWays renders every way twice and returns the differences.
func compareWays(ctx context.Context, h *helm, r *result) ([]string, error) {
	config, err := tree.Read(".")
	if err != nil {
		return nil, err
	}
	rendered := make([]objects, len(ways))
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i, w := range ways {
		group.Go(func() (err error) {
			rendered[i], err = h.template(groupCtx, chartDir, w.values, nowhere)
			if err != nil {
				err = fmt.Errorf("%s: %w", w.name, err)
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	if r.Break == "object" {
		rendered[0].damage()
	}
	var different []string
	for i, w := range ways {
		want, err := w.kustomize(config)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", w.name, err)
		}
		problems := compare(want, rendered[i])
		for _, p := range problems {
			different = append(different, w.name+": "+p)
		}
		r.Objects += len(want)
		fmt.Printf("%-28s %3d objects, %d differ\n", w.name, len(want), len(problems))
	}
	return different, nil
}
