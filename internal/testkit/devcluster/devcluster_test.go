// SPDX-License-Identifier: Apache-2.0

package devcluster_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/drover-project/drover/internal/testkit/devcluster"
)

// holderVariable makes the test binary a process that starts a cluster, prints
// its facts and waits: something to kill.
const holderVariable = "DEVCLUSTER_TEST_HOLDER"

func TestMain(m *testing.M) {
	if os.Getenv(holderVariable) != "" {
		if err := hold(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func hold() error {
	c, err := devcluster.Start(context.Background(), devcluster.Options{})
	if err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(c); err != nil {
		return errors.Join(err, c.Stop())
	}
	<-c.Done()
	return c.Stop()
}

// built builds the binary outside of what a test measures.
func built(t *testing.T) string {
	t.Helper()
	binary, err := devcluster.Build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

func start(t *testing.T, o devcluster.Options) *devcluster.Cluster {
	t.Helper()
	c, err := devcluster.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func client(t *testing.T, c *devcluster.Cluster, change func(*rest.Config)) *kubernetes.Clientset {
	t.Helper()
	config, err := c.RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	change(config)
	set, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// A start takes at most ten seconds once built. If it takes longer because other packages' tests
// have the processors, it costs no more than ten seconds of two processors, with its stop.
func TestReadyWithinTenSeconds(t *testing.T) {
	built(t)
	var said []string
	for range 3 {
		begin, beginIdle := childrensTime(t), idle(t)
		c := start(t, devcluster.Options{})
		unused := idle(t) - beginIdle
		if err := c.Stop(); err != nil {
			t.Fatal(err)
		}
		spent := childrensTime(t) - begin
		if spent < time.Second || spent > 20*time.Second {
			t.Errorf("%.1f s of processor time, want 1 to 20", spent.Seconds())
		}
		all := c.Seconds * float64(runtime.NumCPU())
		said = append(said, fmt.Sprintf("%.1f s, while %.1f of the %.1f s of all processors were idle", c.Seconds, unused.Seconds(), all))
		if c.Seconds <= 10 || unused.Seconds() < all/4 && runtime.GOOS == "linux" {
			t.Log(said)
			return
		}
	}
	t.Errorf("ready after %q, want at most 10 s on processors that are free", said)
}

// idle is how long the machine's processors had nothing to do, all together; proc_stat(5).
// Elsewhere than on linux it is 0.
func idle(t *testing.T) time.Duration {
	t.Helper()
	if runtime.GOOS != "linux" {
		return 0
	}
	content, err := os.ReadFile("/proc/stat")
	if err != nil {
		t.Fatal(err)
	}
	var user, nice, system, idle, iowait int64 // in hundredths of a second
	if _, err := fmt.Sscanf(string(content), "cpu %d %d %d %d %d", &user, &nice, &system, &idle, &iowait); err != nil {
		t.Fatal(err)
	}
	return time.Duration(idle+iowait) * 10 * time.Millisecond
}

// childrensTime is the processor time of the processes that this one, or one of them, has waited
// for.
func childrensTime(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func TestTwoClustersAtOnce(t *testing.T) {
	built(t)
	dirs := []string{t.TempDir(), t.TempDir()}
	clusters := make([]*devcluster.Cluster, len(dirs))
	errs := make(chan error)
	for i := range dirs {
		go func() {
			var err error
			clusters[i], err = devcluster.Start(t.Context(), devcluster.Options{Dir: dirs[i]})
			errs <- err
		}()
	}
	err := errors.Join(<-errs, <-errs)
	for _, c := range clusters {
		if c != nil {
			t.Cleanup(func() {
				if err := c.Stop(); err != nil {
					t.Error(err)
				}
			})
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	// Each has its own store: a name made in one is unknown in the other.
	for i, c := range clusters {
		space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("only-in-%d", i)}}
		set := client(t, c, func(*rest.Config) {})
		if _, err := set.CoreV1().Namespaces().Create(t.Context(), space, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		_, err := set.CoreV1().Namespaces().Get(t.Context(), fmt.Sprintf("only-in-%d", 1-i), metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			t.Errorf("cluster %d knows the other's namespace: %v", i, err)
		}
	}
}

func TestAuditLogHoldsUserAgents(t *testing.T) {
	c := start(t, devcluster.Options{})
	set := client(t, c, func(config *rest.Config) { config.UserAgent = "drover-test/1" })
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "audited"}}
	if _, err := set.CoreV1().Namespaces().Create(t.Context(), space, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	type event struct {
		Verb, UserAgent string
		User            struct{ Username string }
		ObjectRef       struct{ Resource, Name string }
		ResponseStatus  struct{ Code int }
	}
	want := event{Verb: "create", UserAgent: "drover-test/1"}
	want.User.Username = "kubernetes-admin"
	want.ObjectRef.Resource, want.ObjectRef.Name = "namespaces", "audited"
	want.ResponseStatus.Code = 201

	log, err := os.Open(c.AuditLog)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	var ours []event
	for lines := json.NewDecoder(log); ; {
		var e event
		err := lines.Decode(&e)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e.UserAgent == want.UserAgent {
			ours = append(ours, e)
		}
	}
	if diff := cmp.Diff([]event{want}, ours); diff != "" {
		t.Error(diff)
	}
}

func TestEverythingEndsWithItsStarter(t *testing.T) {
	binary := built(t)
	tests := map[string]struct {
		command []string
		env     string
	}{
		"devcluster itself is killed": {command: []string{binary, "start", "--with-kwok"}},
		"the test process is killed":  {command: []string{os.Args[0]}, env: holderVariable + "=1"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if test.env == "" {
				test.command = append(test.command, "--dir="+dir)
			}
			cmd := exec.Command(test.command[0], test.command[1:]...)
			cmd.Env = append(os.Environ(), test.env, "TMPDIR="+dir)
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			c, err := facts(stdout)
			// kill -9 in any case: nothing gets a chance to clean up.
			err = errors.Join(err, cmd.Process.Kill())
			_ = cmd.Wait() // killed, as meant
			if err != nil {
				t.Fatalf("%v\n%s", err, stderr.String())
			}
			processes := append(slices.Collect(maps.Values(c.PIDs)), c.PID)
			if len(processes) < 5 {
				t.Fatalf("only %d processes: %v", len(processes), c.PIDs)
			}
			err = wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 5*time.Second, true, func(context.Context) (bool, error) {
				return !slices.ContainsFunc(processes, alive), nil
			})
			if err != nil {
				t.Errorf("processes left of %v: %v", c.PIDs, slices.DeleteFunc(processes, func(pid int) bool { return !alive(pid) }))
			}
		})
	}
}

// facts reads the line of JSON that a starter prints.
func facts(r io.Reader) (*devcluster.Cluster, error) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		if !strings.HasPrefix(lines.Text(), "{") {
			continue
		}
		c := new(devcluster.Cluster)
		return c, json.Unmarshal(lines.Bytes(), c)
	}
	return nil, errors.Join(errors.New("it ended before it was ready"), lines.Err())
}

// alive tells whether a process runs. One that has ended but that nobody has
// waited for yet, which /proc shows, does not.
func alive(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return !os.IsNotExist(err) || !exists("/proc/self")
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z")
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func TestNodeTokenIsTheNode(t *testing.T) {
	c := start(t, devcluster.Options{NodeTokens: []string{"vm-1"}})
	set := client(t, c, func(config *rest.Config) {
		config.TLSClientConfig = rest.TLSClientConfig{CAFile: c.CA}
		config.BearerToken = c.NodeTokens["vm-1"]
	})
	node := func(name string) error {
		object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		_, err := set.CoreV1().Nodes().Create(t.Context(), object, metav1.CreateOptions{})
		return err
	}
	if err := node("vm-1"); err != nil {
		t.Errorf("a node must be able to register itself: %v", err)
	}
	if err := node("vm-2"); !apierrors.IsForbidden(err) {
		t.Errorf("a node registered another: %v", err)
	}
}

func TestFailureShowsTheLog(t *testing.T) {
	built(t)
	dir := t.TempDir()
	begin := time.Now()
	_, err := devcluster.Start(t.Context(), devcluster.Options{
		Dir: dir, Args: []string{"--apiserver-arg=--no-such-flag"}, ReadyTimeout: time.Hour,
	})
	if err == nil || !strings.Contains(err.Error(), "unknown flag: --no-such-flag") {
		t.Errorf("the error does not say why: %v", err)
	}
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("the failure took %s to show", took)
	}
}

func TestAssetsAreTheComponents(t *testing.T) {
	dir, err := devcluster.Assets(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]string{
		"etcd":           "etcd Version: 3.",
		"kube-apiserver": "Kubernetes v1.",
		"kubectl":        "Client Version: v1.",
	}
	for name, want := range tests {
		t.Run(name, func(t *testing.T) {
			args := []string{"--version"}
			if name == "kubectl" {
				args = []string{"version", "--client"}
			}
			output, err := exec.CommandContext(t.Context(), filepath.Join(dir, name), args...).CombinedOutput()
			if err != nil || !strings.Contains(string(output), want) {
				t.Errorf("%s: %v: %s, want %q", name, err, output, want)
			}
		})
	}
}
