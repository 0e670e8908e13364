// SPDX-License-Identifier: Apache-2.0

// Command skew has an older version of Drover and this one work together on hollow nodes: the
// operator ahead of the agents, then the agents ahead of the operator. In the middle of each load,
// upgrade and unload, what is ahead goes back to the older version and comes again. Agents are
// replaced under running kernels, and read what the other version has left on the node's disk. In
// the end, the API server's audit log and the kernels' journals say whether anything was unloaded
// that no order asked for, lost, wiped or refused.
//
// BASE is the older version, a commit or a tag.
//
// BREAK breaks something on purpose, so that the result must be red: unload (a module is removed
// behind Drover's back), field (a field of a Module goes while the versions change).
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/drover-project/drover/internal/testkit/fleet"
)

const nodes = 4

var kernels = []string{"6.1.0-44-amd64", "6.12.57+deb12-amd64"}

// result is the line that ends the run.
type result struct {
	Base string `json:"base"`
	// OperatorAhead has the agents of the older version all the time, AgentsAhead its operator.
	OperatorAhead outcome `json:"operatorAhead"`
	AgentsAhead   outcome `json:"agentsAhead"`
	// RanOn: no kernel has booted in between.
	RanOn          bool `json:"ranOn"`
	UnaskedUnloads int  `json:"unaskedUnloads"`
	WrongLoads     int  `json:"wrongLoads"`
	// FieldsLost are fields of Modules and NodeModulesConfigs that went, or changed, with a version;
	// LabelsLost are ready labels that went while the module was loaded.
	FieldsLost     int `json:"fieldsLost"`
	LabelsLost     int `json:"labelsLost"`
	PluginRestarts int `json:"pluginRestarts"`
	// Refused are writes that the API server refused, but for those about what is gone (404) or has
	// changed meanwhile (409), and those that came before its policies knew of the Module.
	Refused int `json:"refused"`
	// DependenciesLeft are kernel modules that were loaded for others, and stay: what an agent does
	// not know that it has loaded, it does not unload.
	DependenciesLeft int `json:"dependenciesLeft"`
	// JournalsAside are journals of this version's agents that those of the older version do not read.
	// They go on by what the kernel and the API say.
	JournalsAside int `json:"journalsAside"`
	// Writes by program and version.
	Writes      map[string]int `json:"writes"`
	HistoryGaps int            `json:"historyGaps"`
	Seconds     float64        `json:"seconds"`
}

// outcome of each scene with one side ahead.
type outcome struct {
	Loads    bool `json:"loads"`
	Reasons  bool `json:"reasons"`
	Upgrades bool `json:"upgrades"`
	Versions bool `json:"versions"`
	Unloads  bool `json:"unloads"`
}

// wrong names every promise that was not kept.
func (r result) wrong(older string) error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	whole := outcome{true, true, true, true, true}
	check(r.OperatorAhead == whole, "with the operator ahead: %+v", r.OperatorAhead)
	check(r.AgentsAhead == whole, "with the agents ahead: %+v", r.AgentsAhead)
	check(r.RanOn, "kernels have booted: agents were not replaced under them")
	check(r.UnaskedUnloads == 0, "%d unloads that no order asked for", r.UnaskedUnloads)
	check(r.WrongLoads == 0, "%d loads of what no order wanted", r.WrongLoads)
	check(r.FieldsLost == 0, "%d fields went with a version", r.FieldsLost)
	check(r.LabelsLost == 0, "%d ready labels went while the module was loaded", r.LabelsLost)
	check(r.PluginRestarts == 0, "%d device plugins started again", r.PluginRestarts)
	check(r.Refused == 0, "%d writes were refused", r.Refused)
	check(r.DependenciesLeft == 0 || r.JournalsAside > 0, "%d dependencies stay loaded, although all journals were read", r.DependenciesLeft)
	check(r.HistoryGaps == 0, "%d orders are not in the audit log: nothing can be said", r.HistoryGaps)
	for _, program := range []string{"drover-operator/", "drover-agent/"} {
		for _, v := range []string{older, ours} {
			check(r.Writes[program+v] > 0, "%s%s has written nothing: it did not run", program, v)
		}
	}
	return errors.Join(errs...)
}

func main() {
	base := flag.String("base", "", "the older version, a commit or a tag")
	dir := flag.String("dir", "", "folder for logs and state (default: a temporary one)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *base, *dir)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "skew:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, base, dir string) (err error) {
	begin := time.Now()
	say := func(format string, args ...any) {
		fmt.Printf("[%5.1fs] "+format+"\n", append([]any{time.Since(begin).Seconds()}, args...)...)
	}
	older, id, err := build(ctx, base, say)
	if err != nil {
		return err
	}
	if _, err := fleet.Build(ctx, say); err != nil {
		return err
	}
	begin = time.Now() // what has to be built is built
	f, err := fleet.Start(ctx, fleet.Options{
		Nodes: nodes, Kernels: kernels, Say: say, KeepBodies: true, Dir: dir, Release: &older,
		NodeLabels: map[string]string{selector: "true"}, HollowArgs: []string{"--keep-kernels", "--module-params=" + moduleParams},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Stop()) }()
	s := newScene(f, older, say)
	s.result.Base = id
	played := s.play(ctx)
	judged := s.judge(ctx)
	s.result.Seconds = time.Since(begin).Round(100 * time.Millisecond).Seconds()
	line, err := json.Marshal(s.result)
	if err != nil {
		return fmt.Errorf("print the result: %w", err)
	}
	fmt.Printf("RESULT %s\n", line)
	return errors.Join(played, judged, s.result.wrong(id))
}
