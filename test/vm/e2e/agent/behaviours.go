// SPDX-License-Identifier: Apache-2.0

//go:build linux

package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/test/vm/artifacts"
	"github.com/drover-project/drover/test/vm/e2e/loads"
	"github.com/drover-project/drover/test/vm/e2e/suite"
	"github.com/drover-project/drover/test/vm/registry"
)

// behaviour is something that the agent does only because it is allowed to.
type behaviour struct {
	says string
	// before and after surround the time of an agent, begin comes after its deployment.
	before, begin, after func(context.Context) error
	// look says what is seen; undecided: nothing yet.
	look func(context.Context) (string, error)
	// whole is in what is seen when nothing is missing.
	whole string
}

// probe is what is in what is seen of a behaviour without an item.
type probe struct {
	behaviour
	without string
}

// untested are items that this kernel and container runtime do not look at, with the reason.
var untested = map[string]string{
	"AppArmor Unconfined":                "the node's kernel has no AppArmor profile loaded",
	"SELinux type spc_t":                 "Debian's kernel has no SELinux policy loaded",
	"mount /lib/modules":                 "for rawArgs that name no directory, which is up to modprobe",
	"mount /host/var/lib/systemd/pstore": "for nodes with systemd",
}

const (
	loaded, pinned, released = "live and reported", "pinned", "released"
	holder, sleeper          = "pod " + loads.Devices + "/holder", "process sleep"
)

var (
	camera   = client.ObjectKey{Namespace: loads.Restricted, Name: "camera"}
	blob     = client.ObjectKey{Namespace: loads.Restricted, Name: "blob"}
	refusing = client.ObjectKey{Namespace: loads.Restricted, Name: "refusing"}
	raw      = client.ObjectKey{Namespace: loads.Restricted, Name: "raw"}
)

func (s *steps) behaviours() []behaviour {
	return []behaviour{s.repairs(), s.explains(), s.names(), s.stages(), s.runsModprobe(), s.letsGo(), s.startsAlone()}
}

// probes are all items of the DaemonSet that something here breaks without.
func (s *steps) probes() map[string]probe {
	const ends = "the agent ends: "
	return map[string]probe{
		"capability SYS_MODULE":             {s.repairs(), "(EPERM)"},
		"capability SYSLOG":                 {s.explains(), "refused without a word of the kernel"},
		"capability SYS_PTRACE":             {s.names(), "named: nobody"},
		"capability DAC_READ_SEARCH":        {s.names(), "named: " + holder + ", in:"},
		"user 0":                            {s.repairs(), "AgentFailed"},
		"hostNetwork":                       {s.startsAlone(), "waits for the pod network"},
		"mount /host/proc":                  {s.repairs(), ends},
		"mount /host/sys":                   {s.repairs(), "does not show this build as live"},
		"write /host/sys":                   {s.stages(), "AgentFailed: Firmware cannot be staged"},
		"mount /host/lib/modules":           {s.repairs(), "MissingDependency"},
		"mount /tmp":                        {s.runsModprobe(), "read-only file system"},
		"write /tmp":                        {s.runsModprobe(), "read-only file system"},
		"mount /host/var/log/pods":          {s.names(), "named: process reader, " + sleeper},
		"mount /var/lib/kubelet/pods":       {s.stages(), "AgentFailed"},
		"propagation /var/lib/kubelet/pods": {s.letsGo(), pinned},
		"mount /var/lib/drover":             {s.repairs(), "AgentFailed"},
		"write /var/lib/drover":             {s.repairs(), "AgentFailed"},
		"mount /host/var/lib/firmware":      {s.stages(), "AgentFailed: Firmware cannot be staged"},
		"write /host/var/lib/firmware":      {s.stages(), "AgentFailed: Firmware cannot be staged"},
	}
}

// prepareBehaviours leaves a module with a dependency of the node's own loaded, and another one in
// use: by a pod as root, and by a process of the node as somebody else.
func (s *steps) prepareBehaviours(ctx context.Context) error {
	ds, err := s.daemonSet()
	if err != nil {
		return err
	}
	s.agentPod = ds.Spec.Template.Spec.DeepCopy()
	if err := s.LoadModule(ctx); err != nil {
		return err
	}
	if err := s.HoldAsPod(ctx, 0); err != nil {
		return err
	}
	const other = `echo 'other:x:65532:65532::/:/bin/sh' >>/etc/passwd; su -s /bin/sh other -c 'exec sleep 86400' </dev/drover_sample1 >/dev/null 2>&1 &`
	if _, err := s.Console(ctx, other); err != nil {
		return err
	}
	if err := s.Eventually(ctx, "both hold the device", func(ctx context.Context) error {
		return s.Expect(ctx, artifacts.Linux61, "test $(cat /sys/module/drover_sample/refcnt) -gt 1 && ps -o args | grep '^sleep 86400'",
			"sleep 86400")
	}); err != nil {
		return err
	}
	return s.ThirdPartyAs(ctx, camera)
}

// repairs: what somebody unloads is loaded again, with what it needs of the node's own modules.
func (s *steps) repairs() behaviour {
	return behaviour{
		says: "what somebody unloads is loaded again", whole: loaded,
		begin: func(ctx context.Context) error {
			_, err := s.Console(ctx, "rmmod v4l2loopback; rmmod videodev; true")
			return err
		},
		look: func(ctx context.Context) (string, error) { return s.seenOf(ctx, camera, "v4l2loopback") },
	}
}

// seenOf is a Module's attempt, or that its module is loaded and says so.
func (s *steps) seenOf(ctx context.Context, key client.ObjectKey, name string) (string, error) {
	nmc, err := s.NodeConfig(ctx)
	if err != nil {
		return "", client.IgnoreNotFound(err)
	}
	attempt, err := s.orderSays(ctx, key)
	// Repairs that go on are told for a while after the module is back.
	if err != nil || attempt != undecided && !strings.HasPrefix(attempt, v1beta1.ReasonDrifted+": ") {
		return attempt, err
	}
	for _, m := range nmc.Status.Modules {
		if m.Namespace == key.Namespace && m.Name == key.Name && s.InKernel(ctx, artifacts.Linux61, name, true) == nil {
			return loaded, nil
		}
	}
	return undecided, nil
}

// explains: the attempt of a module that the kernel refuses has the kernel's own words. Each round
// takes a build of its own, for no build is tried twice.
func (s *steps) explains() behaviour {
	const name = "drover_refused"
	return behaviour{
		says: "a refused load is explained in the kernel's words", whole: "refused in the kernel's words",
		begin: func(ctx context.Context) error {
			content, err := s.NodeModule(ctx, name)
			if err != nil {
				return err
			}
			if content, err = loads.OtherCRC(content); err != nil {
				return err
			}
			if content, err = anotherBuild(content); err != nil {
				return err
			}
			image, err := s.PushModule(ctx, name, content, nil)
			if err != nil {
				return err
			}
			return s.Client.Create(ctx, loads.Module(refusing, artifacts.Linux61, image, name))
		},
		look: func(ctx context.Context) (string, error) {
			attempt, err := s.orderSays(ctx, refusing)
			switch {
			case err != nil || !strings.Contains(attempt, "The kernel refused"):
				return undecided, err
			case strings.Contains(attempt, "disagrees about version of symbol"):
				return "refused in the kernel's words: " + attempt, nil
			}
			return "refused without a word of the kernel: " + attempt, nil
		},
		after: func(ctx context.Context) error { return s.Remove(ctx, refusing, name) },
	}
}

// anotherBuild gives a module another build ID.
func anotherBuild(content []byte) ([]byte, error) {
	// A note of owner GNU: sizes of name and description, type 3, the name, the ID.
	at := bytes.Index(content, []byte("\x04\x00\x00\x00\x14\x00\x00\x00\x03\x00\x00\x00GNU\x00"))
	if at < 0 {
		return nil, errors.New("the module has no build ID")
	}
	changed := bytes.Clone(content)
	copy(changed[at+16:], fmt.Sprintf("%020d", time.Now().UnixNano()))
	return changed, nil
}

// names: whoever keeps a module from being reloaded is named.
func (s *steps) names() behaviour {
	return behaviour{
		says: "the users of a busy module are named", whole: "named: " + holder + ", " + sleeper,
		// An agent that could not see the module has forgotten the last order to reload it, and adopts it
		// as it is.
		begin: func(ctx context.Context) error { return s.Greet(ctx, strconv.FormatInt(time.Now().UnixNano(), 36)) },
		look: func(ctx context.Context) (string, error) {
			if s.agentPIDof(ctx) != nil {
				return undecided, nil
			}
			attempt, err := s.orderSays(ctx, loads.Loader)
			if err != nil || !strings.HasPrefix(attempt, "InUse") {
				return "not in use: " + attempt, err
			}
			var users []string
			for _, user := range []string{holder, "process reader", sleeper} {
				if strings.Contains(attempt, user) {
					users = append(users, user)
				}
			}
			if len(users) == 0 {
				users = []string{"nobody"}
			}
			return fmt.Sprintf("named: %s, in: %s", strings.Join(users, ", "), attempt), nil
		},
	}
}

// stages: a module that comes with firmware is delivered and loads.
func (s *steps) stages() behaviour {
	return s.delivers(blob, "drover_firmware", "a module that comes with firmware is delivered, finds it and is loaded",
		func(m *v1beta1.ModprobeSpec) { m.FirmwarePath = "/firmware" })
}

// runsModprobe: command lines of the user's own find the image's tree where they expect it.
func (s *steps) runsModprobe() behaviour {
	return s.delivers(raw, loads.Probed, "modprobe loads with rawArgs", func(m *v1beta1.ModprobeSpec) {
		m.ModuleName = ""
		m.RawArgs = &v1beta1.ModprobeArgs{Load: []string{"-d", "/tmp/opt", loads.Probed}, Unload: []string{"-r", "-d", "/tmp/opt", loads.Probed}}
	})
}

// delivers brings one of this group's modules in an image of its own, with firmware, and loads it.
func (s *steps) delivers(key client.ObjectKey, name, says string, change func(*v1beta1.ModprobeSpec)) behaviour {
	return behaviour{
		says: says, whole: loaded,
		begin: func(ctx context.Context) error {
			image, err := s.PushNodeModule(ctx, name, map[string]registry.File{"/firmware/drover/blob.bin": {Content: []byte("as delivered")}})
			if err != nil {
				return err
			}
			m := loads.Module(key, artifacts.Linux61, image, name)
			change(&m.Spec.ModuleLoader.Container.Modprobe)
			return s.Client.Create(ctx, m)
		},
		look: func(ctx context.Context) (string, error) {
			if seen, err := s.seenOf(ctx, key, name); err != nil || seen != undecided {
				return seen, err
			}
			if waits, err := s.carrierWaits(ctx); err != nil || waits {
				return "the carrier is not collected", err
			}
			return undecided, nil
		},
		after: func(ctx context.Context) error {
			// Whoever staged nothing has to take nothing away; the next agent has all it needs.
			if err := s.deployAgent(ctx, nil); err != nil {
				return err
			}
			return s.Remove(ctx, key, name)
		},
	}
}

// carrierWaits: a carrier runs longer than any agent needs to see it.
func (s *steps) carrierWaits(ctx context.Context) (bool, error) {
	pods, err := s.Carriers(ctx, loads.Restricted)
	for _, p := range pods {
		for _, c := range p.Status.ContainerStatuses {
			if c.State.Running != nil && time.Since(c.State.Running.StartedAt.Time) > 12*time.Second {
				return true, nil
			}
		}
	}
	return false, err
}

// letsGo: what the host unmounts below the kubelet's directory is gone, though it was there when
// the agent started.
func (s *steps) letsGo() behaviour {
	// As a pod's volume lies. The kubelet takes away what belongs to no pod, and a mount point that is
	// taken away is unmounted everywhere: it takes only what is empty below the mount.
	const (
		pod    = "/var/lib/kubelet/pods/volume-of-a-test"
		volume = pod + "/volumes/kubernetes.io~empty-dir/content"
	)
	unmounted := false
	return behaviour{
		says: "another pod's volume can be unmounted", whole: released,
		before: func(ctx context.Context) error {
			unmounted = false
			_, err := s.Console(ctx, "mkdir -p "+volume+" && touch "+volume+"/kept && mount -t tmpfs tmpfs "+volume)
			return err
		},
		look: func(ctx context.Context) (string, error) {
			if s.agentPIDof(ctx) != nil {
				return undecided, nil
			}
			if !unmounted {
				if err := s.Expect(ctx, artifacts.Linux61, "grep -c "+volume+" /proc/"+suite.AgentPID+"/mountinfo", "1"); err != nil {
					return undecided, nil
				}
				if _, err := s.Console(ctx, "umount "+volume); err != nil {
					return "", err
				}
				unmounted = true
			}
			count, err := s.Console(ctx, "grep -c "+volume+" /proc/"+suite.AgentPID+"/mountinfo || true")
			return map[string]string{"0": released, "1": pinned}[count], err
		},
		after: func(ctx context.Context) error {
			_, err := s.Console(ctx, "rm -rf "+pod)
			return err
		},
	}
}

// agentPIDof checks that the process of the newest agent's pod runs: the one of the last may take a
// moment to end.
func (s *steps) agentPIDof(ctx context.Context) error {
	pod := &corev1.Pod{}
	if err := s.Client.Get(ctx, client.ObjectKey{Namespace: suite.OperatorNamespace, Name: s.agentName}, pod); err != nil {
		return err
	}
	return s.Expect(ctx, artifacts.Linux61, "grep -c "+string(pod.UID)+" /proc/"+suite.AgentPID+"/cgroup", "1")
}

// startsAlone: a node whose pod network is not there yet, perhaps for want of a driver, gets its
// agent.
func (s *steps) startsAlone() behaviour {
	const config = "/etc/cni/net.d/10-node.conflist"
	return behaviour{
		says: "the agent starts without a pod network", whole: "runs",
		before: func(ctx context.Context) error {
			_, err := s.Console(ctx, "mv "+config+" /root/conflist")
			return err
		},
		look: func(ctx context.Context) (string, error) {
			if s.agentPIDof(ctx) == nil {
				return "runs", nil
			}
			events, err := s.Kubectl(ctx, "-n", suite.OperatorNamespace, "get", "events", "--field-selector=involvedObject.name="+s.agentName, "-o",
				"jsonpath={.items[*].message}")
			if err == nil && strings.Contains(strings.ToLower(events), "network is not ready") {
				return "waits for the pod network: " + events, nil
			}
			return undecided, err
		},
		after: func(ctx context.Context) error {
			// containerd reads it anew when it is written, not when it appears.
			if _, err := s.Console(ctx, "cp /root/conflist "+config); err != nil {
				return err
			}
			return s.Eventually(ctx, "the node is ready again", func(ctx context.Context) error {
				n := &corev1.Node{}
				if err := s.Client.Get(ctx, client.ObjectKey{Name: suite.NodeName(artifacts.Linux61)}, n); err != nil {
					return err
				}
				for _, c := range n.Status.Conditions {
					if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
						return fmt.Errorf("it is not: %s", c.Message)
					}
				}
				return nil
			})
		},
	}
}
