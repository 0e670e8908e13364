// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"
)

// ticks is how many units of /proc's CPU times make a second: USER_HZ, 100 on all of Linux's
// architectures that Go runs on.
const ticks = 100

// cpuSeconds is what each program has used until now, by name; none where there is no /proc.
func (b *bench) cpuSeconds() map[string]float64 {
	programs := maps.Clone(b.f.Cluster.PIDs)
	programs["bench"], programs["hollow"] = os.Getpid(), b.f.Hollow.PID()
	if b.f.Operator != nil {
		programs["operator"] = b.f.Operator.PID()
	}
	used := map[string]float64{}
	for name, pid := range programs {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		// The second field, the program's name in parentheses, may hold anything.
		_, rest, _ := strings.Cut(string(stat), ") ")
		if fields := strings.Fields(rest); len(fields) > 12 {
			user, _ := strconv.ParseFloat(fields[11], 64)
			system, _ := strconv.ParseFloat(fields[12], 64)
			used[name] = (user + system) / ticks
		}
	}
	return used
}
