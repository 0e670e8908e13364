// SPDX-License-Identifier: Apache-2.0

// Command house looks at the shape of the sources: how many files a package has, how long files and
// functions and how wide lines are, how large a tracked file is, what pure packages import, what
// programs link, and whether each reason is reported. It prints what is beyond the bounds of
// CONTRIBUTING.md, and a RESULT; it fails if anything is.
package main

import (
	"encoding/json"
	"fmt"
	"os"
)

// result is what is printed at the end.
type result struct {
	Packages int `json:"packages"`
	Files    int `json:"files"`
	Problems int `json:"problems"`
	// Loc are the lines written by hand for the product, without the hub.
	Loc int `json:"loc"`
}

func main() {
	if err := run("."); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "house:", err)
		os.Exit(1)
	}
}

func run(root string) error {
	h := &house{root: root}
	if err := h.look(); err != nil {
		return err
	}
	for _, p := range h.sorted() {
		fmt.Println(p)
	}
	text, err := json.Marshal(result{Packages: len(h.packages), Files: h.files, Problems: len(h.problems), Loc: h.loc})
	if err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	fmt.Printf("RESULT %s\n", text)
	if len(h.problems) > 0 {
		return fmt.Errorf("%d problems", len(h.problems))
	}
	return nil
}
