// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// parentVariable makes the test binary play the parent that gets killed.
const parentVariable = "PROCESS_TEST_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(parentVariable) != "" {
		child, err := Start(exec.Command("sleep", "600"))
		if err != nil {
			panic(err)
		}
		fmt.Println(child.PID())
		<-child.Done()
	}
	os.Exit(m.Run())
}

func TestChildDiesWithAKilledParent(t *testing.T) {
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), parentVariable+"=1")
	output, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	var ended *exec.ExitError
	if err := parent.Wait(); !errors.As(err, &ended) {
		t.Fatalf("the parent ended with %v", err)
	}
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for running(pid) {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("process %d is still there; killing it: %v", pid, syscall.Kill(pid, syscall.SIGKILL))
		}
	}
}

// running says whether a process is there and no zombie that merely waits for
// somebody to take its exit code.
func running(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}

func TestKillWaitsForTheEnd(t *testing.T) {
	child, err := Start(exec.Command("sleep", "600"))
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Kill(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-child.Done():
	default:
		t.Error("not ended")
	}
	if err := child.Kill(); err != nil {
		t.Errorf("killing again: %v", err)
	}
}
