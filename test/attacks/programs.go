// SPDX-License-Identifier: Apache-2.0

package attacks

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-project/drover/api/drover/v1alpha1"
	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/decide"
	"github.com/drover-project/drover/internal/agent/host"
	"github.com/drover-project/drover/internal/agent/journal"
	"github.com/drover-project/drover/internal/agent/modprobe"
	"github.com/drover-project/drover/internal/agent/observe"
	"github.com/drover-project/drover/internal/agent/orders"
	"github.com/drover-project/drover/internal/build/pipeline"
	"github.com/drover-project/drover/internal/shared/kernel"
	"github.com/drover-project/drover/internal/shared/kmod/synth"
)

// signs is a label that no kubelet may set.
const signs = corev1.LabelNamespaceNodeRestriction + "/signs"

// jobAttacks are those of a node that wants the key with which a Job signs, or to decide what the
// Job does.
func jobAttacks() []Attack {
	key := "root on the node reads each Secret that its pods mount, and the key's signatures are trusted on all nodes"
	return []Attack{
		{Who: Kubelet, What: "get the Job that signs, although the Module does not select its node", Why: key,
			Answer: Check("signing-nodes"), Says: "does not fit", Try: func(s *Scene) error {
				return s.getsJob(func(n *corev1.Node) { delete(n.Labels, "pool") }, nil)
			}},
		{Who: Kubelet, What: "get it, although `sign.selector` does not name its node", Why: key,
			Answer: Check("signing-nodes"), Says: "does not fit", Try: func(s *Scene) error {
				return s.getsJob(func(*corev1.Node) {}, map[string]string{signs: "true"})
			}},
		{Who: Kubelet, What: "label its own node as one that signs, where `sign.selector` has the prefix `node-restriction.kubernetes.io/`",
			Why: key, Answer: NodeRestriction, Says: signs, Try: func(s *Scene) error {
				mine := s.node(kernelVersion)
				return s.kubelet(mine).Patch(s.Context(), &corev1.Node{ObjectMeta: meta("", mine)}, merge(`{"metadata":{"labels":{%q:"true"}}}`, signs))
			}},
		{Who: Kubelet, What: "make a mirror pod that mounts the key", Why: key, Answer: NodeRestriction, Says: "reference secrets",
			Try: func(s *Scene) error {
				mine, node := s.node(kernelVersion), &corev1.Node{}
				s.must(s.admin.Get(s.Context(), client.ObjectKey{Name: mine}, node))
				pod := &corev1.Pod{ObjectMeta: meta(s.namespace, "static-"+mine), Spec: corev1.PodSpec{
					NodeName: mine, Containers: []corev1.Container{{Name: "main", Image: "registry.example.com/app:1"}},
					Volumes: []corev1.Volume{{Name: "key", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "key"}}}},
				}}
				pod.Annotations, pod.OwnerReferences = map[string]string{corev1.MirrorPodAnnotationKey: "x"}, ownedBy(node)
				return s.kubelet(mine).Create(s.Context(), pod)
			}},
		{Who: Kubelet, What: "report a kernel whose version is a command of `make`",
			Why:    "a Makefile names the kernel's headers by it, beside the keys of all nodes",
			Answer: Check("kernel-versions"), Says: "is not a kernel version", Try: runsInMake},
	}
}

// getsJob has the operator sign for the scene's nodes. The scheduler's own filter says whether the
// Job's pod fits on the kubelet's node, which has all that any other node has, but for a change.
func (s *Scene) getsJob(change func(*corev1.Node), selector map[string]string) error {
	s.Helper()
	labelled := func(n *corev1.Node) {
		n.Labels[corev1.LabelOSStable], n.Labels[corev1.LabelArchStable] = "linux", "amd64"
	}
	good := s.node(kernelVersion, labelled, func(n *corev1.Node) { n.Labels[signs] = "true" })
	mine := s.node(kernelVersion, labelled, change)
	s.must(s.editor().Create(s.Context(), s.module(func(m *v1beta1.Module) {
		container(m).Sign = &v1beta1.Sign{KeySecret: local("key"), CertSecret: local("cert"), FilesToSign: []string{"/opt/nic.ko"},
			UnsignedImage: "registry.example.com/nic:unsigned", Selector: selector}
	})))
	var jobs batchv1.JobList
	s.await("the Job that signs", func(ctx context.Context) (bool, error) {
		err := s.admin.List(ctx, &jobs, client.InNamespace(s.namespace))
		return len(jobs.Items) > 0, err
	})
	fits := func(name string) bool {
		node := &corev1.Node{}
		s.must(s.admin.Get(s.Context(), client.ObjectKey{Name: name}, node))
		pod := &corev1.Pod{Spec: jobs.Items[0].Spec.Template.Spec}
		fits, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
		s.must(err)
		return fits
	}
	if !fits(good) {
		s.Fatalf("the attempt could not be made: the Job fits on no node: %v", jobs.Items[0].Spec.Template.Spec.NodeSelector)
	}
	if fits(mine) {
		return nil
	}
	return stopped("the Job's pod does not fit on the node: it needs the labels %v", jobs.Items[0].Spec.Template.Spec.NodeSelector)
}

// usual is the Makefile of most kernel modules.
const usual = "KDIR ?= /lib/modules/$(KERNEL_FULL_VERSION)/build\nall:\n\t@echo $(KDIR)\n"

// runsInMake has the product make the Job that compiles for the kernel, and make read a Makefile in
// the environment of the Job's compiler.
func runsInMake(s *Scene) error {
	m := s.module(func(m *v1beta1.Module) {
		container(m).Build = &v1beta1.Build{Native: &v1beta1.NativeBuild{ToolchainImage: "registry.example.com/gcc:12",
			SourceImage: "registry.example.com/source:1", Command: []string{"make"}, Artifacts: []string{"*.ko"}}}
	})
	mapper, err := kernel.NewMapper(m.Spec.ModuleLoader, m.Namespace, m.Name)
	s.must(err)
	resolved, _, err := mapper.For("6.1.0-44$(shell touch pwned)-amd64", "amd64")
	if err != nil {
		return err
	}
	spec, err := pipeline.Declare(m, &resolved, "amd64")
	s.must(err)
	dir := s.TempDir()
	s.must(os.WriteFile(filepath.Join(dir, "Makefile"), []byte(usual), 0o600))
	for _, c := range pipeline.Job(&v1alpha1.ModuleImage{Spec: *spec}, 1, "New", &pipeline.Options{}).Spec.Template.Spec.InitContainers {
		if c.Name != pipeline.StepBuild {
			continue
		}
		command := exec.CommandContext(s.Context(), c.Args[0], c.Args[1:]...)
		command.Dir, command.Env = dir, os.Environ()
		for _, v := range c.Env {
			command.Env = append(command.Env, v.Name+"="+strings.ReplaceAll(v.Value, "$$", "$")) // as kubelets do
		}
		output, err := command.CombinedOutput()
		if err != nil {
			s.Fatalf("the attempt could not be made: %v: %s", err, output)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "pwned")); err == nil {
		return nil
	}
	return stopped("make ran no command")
}

// modprobeAttacks have kmod's modprobe read what is not the image's, or do what it was not told.
func modprobeAttacks() []Attack {
	foreign, door := "any pod of the author's puts files on a node; limits on images would not hold", Policy("drover-modules")
	reads := func(what string, change func(p *v1beta1.ModprobeSpec, evil string)) Attack {
		return Attack{Who: Editor, What: "have `modprobe` read " + what, Why: foreign, Answer: Check("modprobe-paths"),
			Says: "outside of the image's directory", Try: func(s *Scene) error { return s.modprobes(change) }}
	}
	loads := func(what string, load func(evil string) []string) Attack {
		return reads(what, func(p *v1beta1.ModprobeSpec, evil string) { p.Args = &v1beta1.ModprobeArgs{Load: load(evil)} })
	}
	says := func(what, why, field string, change func(*v1beta1.ModprobeSpec)) Attack {
		return Attack{Who: Editor, What: what, Why: why, Answer: door, Says: "modprobe." + field,
			Try: admitted(func(m *v1beta1.Module) { change(&container(m).Modprobe) })}
	}
	options := "options are what `modprobe.args` is for, which a ModulePolicy can deny"
	return []Attack{
		loads("modules of a pod's volume, by `-d`", func(evil string) []string { return []string{"-d", evil} }),
		loads("them by `-vd` in one word", func(evil string) []string { return []string{"-vd" + evil} }),
		loads("them by `--dirname`, cut short", func(evil string) []string { return []string{"--dir=" + evil} }),
		loads("them by way of a folder of the host's", func(evil string) []string { return []string{"-d", "/etc/.." + evil} }),
		loads("them by `-S`, upwards", func(evil string) []string {
			return []string{"-S", "../../../.." + evil + "/lib/modules/" + kernelVersion}
		}),
		loads("a configuration of a pod's volume, by `-C`, which runs a command", func(evil string) []string {
			return []string{"-C", evil + "/modprobe.d"}
		}),
		loads("it by `--config`", func(evil string) []string { return []string{"--config", evil + "/modprobe.d"} }),
		reads("modules of a pod's volume, by `rawArgs`", func(p *v1beta1.ModprobeSpec, evil string) {
			p.RawArgs = &v1beta1.ModprobeArgs{Load: []string{"-d", evil, p.ModuleName}, Unload: []string{"-r", p.ModuleName}}
			p.ModuleName = ""
		}),
		reads("them by a `dirName` that leads upwards", func(p *v1beta1.ModprobeSpec, evil string) {
			p.DirName, p.Args = "/.."+evil, &v1beta1.ModprobeArgs{Load: []string{"-v"}}
		}),
		says("give `modprobe` an option in place of a module's name", options, "moduleName", func(p *v1beta1.ModprobeSpec) {
			p.ModuleName = "-C/x"
		}),
		says("give it an option in place of a parameter", options, "parameters[1]", func(p *v1beta1.ModprobeSpec) {
			p.Parameters = []string{"mode=1", "-d/x"}
		}),
		says("have it run a command, by a line break in `modulesLoadingOrder`", "its configuration says so in a line, and the agent is root",
			"modulesLoadingOrder[1]", func(p *v1beta1.ModprobeSpec) {
				p.ModulesLoadingOrder = []string{"nic", "x\ninstall nic /bin/sh -c id"}
			}),
	}
}

// modprobes has the agent decide about an order of a Module, which the API server admits, and
// modprobe say what it would do. evil is a folder with a module and a configuration, as a pod has
// one in a volume.
func (s *Scene) modprobes(change func(p *v1beta1.ModprobeSpec, evil string)) error {
	s.Helper()
	evil := s.folder("/var/tmp") // none of those that modprobe may read
	s.evil(evil)
	layout := s.folder(modprobe.Temp)
	s.must(os.MkdirAll(filepath.Join(layout, "lib/modules"), 0o755))
	m := s.module(func(m *v1beta1.Module) {
		container(m).Modprobe.DirName = strings.TrimPrefix(layout, modprobe.Temp)
		change(&container(m).Modprobe, evil)
	})
	s.must(s.editor().Create(s.Context(), m))
	mapper, err := kernel.NewMapper(m.Spec.ModuleLoader, m.Namespace, m.Name)
	s.must(err)
	resolved, _, err := mapper.For(kernelVersion, "amd64")
	s.must(err)
	args := modprobe.LoadArgs(&resolved.Config.Modprobe)
	if said, ran := s.wouldDo(args, evil); ran && !strings.Contains(said, evil) && !strings.Contains(said, "pwned") {
		s.Fatalf("the attempt could not be made: modprobe %q does no harm: %s", args, said)
	}
	d := decide.Next(observe.Facts{Task: orders.Task{Key: orders.Key{Namespace: m.Namespace, Name: m.Name}}, Release: kernelVersion,
		Now: time.Now(), Held: true, Modprobe: true, Firmware: true, Journal: &journal.Journal{}, Live: map[string]host.Module{},
		Order: &v1beta1.NodeModuleSpec{Config: resolved.Config, Delivery: &v1beta1.Delivery{ID: "d1", CarrierUID: "carrier"}}})
	if d.Attempt != nil {
		return stopped("%s: %s", d.Attempt.Reason, d.Attempt.Message)
	}
	if d.Verb != decide.Resolve {
		return stopped("the agent decides to %s", d.Verb)
	}
	return nil
}

// folder is one below another, until the end of the attempt.
func (s *Scene) folder(below string) string {
	s.Helper()
	dir, err := os.MkdirTemp(below, "attacks-")
	s.must(err)
	s.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			s.Error(err)
		}
	})
	return dir
}

// evil fills a folder as a pod has one in a volume.
func (s *Scene) evil(evil string) {
	s.Helper()
	modules, config := filepath.Join(evil, "lib/modules", kernelVersion), filepath.Join(evil, "modprobe.d")
	s.must(os.MkdirAll(modules, 0o755))
	s.must(os.Mkdir(config, 0o755))
	s.must(os.WriteFile(filepath.Join(modules, "nic.ko"), synth.Module{Name: "nic"}.Bytes(), 0o600))
	s.must(os.WriteFile(filepath.Join(config, "nic.conf"), []byte("install nic touch pwned\n"), 0o600))
}

// kmodVariable of the environment says that kmod has to be there, as `make attacks` does, which
// installs it. Elsewhere an attempt without it says nothing about what modprobe would do.
const kmodVariable = "ATTACKS_KMOD"

// wouldDo is what modprobe says that it would do; false: this machine has none.
func (s *Scene) wouldDo(args []string, evil string) (string, bool) {
	s.Helper()
	if _, err := exec.LookPath("modprobe"); err != nil && os.Getenv(kmodVariable) == "" {
		s.Logf("what modprobe would do is not tried: %v", err)
		return "", false
	}
	s.kmod("depmod", "-b", evil, kernelVersion)
	all := []string{"--dry-run", "--show-depends"}
	if !slices.ContainsFunc(args, func(word string) bool { return strings.HasPrefix(word, "-S") }) {
		all = append(all, "-S", kernelVersion) // in place of this machine's own
	}
	return s.kmod("modprobe", append(all, args...)...), true
}

func (s *Scene) kmod(program string, args ...string) string {
	s.Helper()
	output, err := exec.CommandContext(s.Context(), program, args...).CombinedOutput()
	if err != nil {
		s.Fatalf("the attempt could not be made: %s %q: %v: %s", program, args, err, output)
	}
	return string(output)
}
