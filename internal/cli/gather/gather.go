// SPDX-License-Identifier: Apache-2.0

// Package gather is `drover gather`: one file with what it takes to find out what is
// wrong, without Secrets and what is like them.
package gather

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/dynamic"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/drover-project/drover/internal/cli/cluster"
	"github.com/drover-project/drover/internal/cli/explain"
	"github.com/drover-project/drover/internal/cli/paint"
	"github.com/drover-project/drover/internal/shared/version"
	"github.com/drover-project/drover/internal/shared/words"
)

const (
	// tail is how many lines of a log are read.
	tail = 5000
	// mostExplained is how many Modules are explained.
	mostExplained = 50
)

type options struct {
	genericiooptions.IOStreams
	flags *genericclioptions.ConfigFlags
	clock clock.PassiveClock

	output              string
	mostLogs            int
	mostBytes, logBytes int
}

// NewCommand makes the command.
func NewCommand(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams, clock clock.PassiveClock) *cobra.Command {
	o := &options{IOStreams: streams, flags: flags, clock: clock}
	cmd := &cobra.Command{
		Use:   "gather",
		Short: "Write what is needed to find a fault into one file, without Secrets",
		Long: "Writes one archive (tar.gz) with what is needed to find a fault, without Secrets.\n\n" +
			"It holds all objects of Drover's kinds and their definitions, nodes, pods of Drover and of Modules,\n" +
			"events about them, admission policies, the logs of operators and agents, and what `drover explain` says of each Module.\n\n" +
			"No Secret is read. Values of environment variables and build arguments, and command lines of others' containers, are removed,\n" +
			"also where logs and messages repeat them. Names of nodes, images and kernels stay: look before you send it.\n" +
			"What your rights do not show is listed in notes.txt.",
		Example: "  drover gather                             # drover-gather-<time>.tar.gz in this folder\n" +
			"  drover gather --output - | tar -tz        # to the standard output",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	cmd.Flags().StringVar(&o.output, "output", "", "file to write, which must not exist; - is the standard output; "+
		"without it, drover-gather-<time>.tar.gz")
	cmd.Flags().IntVar(&o.mostLogs, "max-logs", 50, "of how many pods logs are read, those of nodes in trouble first")
	cmd.Flags().IntVar(&o.mostBytes, "max-bytes", 100<<20, "how many bytes are kept, before they are packed")
	cmd.Flags().IntVar(&o.logBytes, "max-log-bytes", 2<<20, "how many bytes of one log are kept")
	return cmd
}

func (o *options) run(ctx context.Context) error {
	config, _, err := cluster.Config(o.flags)
	if err != nil {
		return err
	}
	c, err := o.collector(config)
	if err != nil {
		return err
	}
	c.add("version.txt", "drover "+version.Version+"\n")
	if err := c.everything(ctx); err != nil {
		return err
	}
	o.explain(ctx, c)
	at := o.clock.Now().UTC()
	folder := "drover-gather-" + at.Format("20060102T150405Z")
	out, name, err := o.open(folder)
	if err != nil {
		return err
	}
	written, err := c.write(out, folder, at, o.mostBytes, c.text)
	if err = errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	fmt.Fprintf(o.ErrOut, "%s: %s, %d bytes before they were packed. Nothing that is known to be secret is in it; look before you send it.\n",
		name, words.Count(len(c.files), "file"), written)
	if len(c.notes) > 0 {
		fmt.Fprintf(o.ErrOut, "%s in notes.txt on what is not in it, such as:\n  %s\n", words.Count(len(c.notes), "note"), c.notes[0])
	}
	return nil
}

func (o *options) collector(config *rest.Config) (*collector, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	core, err := corev1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	logs := func(ctx context.Context, namespace, pod, container string, previous bool) (io.ReadCloser, error) {
		return core.Pods(namespace).GetLogs(pod, &corev1.PodLogOptions{
			Container: container, Previous: previous, TailLines: ptr.To[int64](tail), LimitBytes: ptr.To(int64(o.logBytes)), Timestamps: true,
		}).Stream(ctx)
	}
	return newCollector(client, logs, o.mostLogs, o.logBytes), nil
}

func newCollector(client dynamic.Interface, logs func(context.Context, string, string, string, bool) (io.ReadCloser, error),
	mostLogs, mostBytes int) *collector {
	return &collector{
		bundle: &bundle{}, redactor: newRedactor(), client: client, logs: logs, mostLogs: mostLogs, mostBytes: mostBytes,
		seen: map[string]bool{}, troubled: map[string]bool{},
	}
}

type nopCloser struct{ io.Writer }

// Close does nothing.
func (nopCloser) Close() error { return nil }

// open makes the file. A file that is there is not overwritten, and others may not read it.
func (o *options) open(folder string) (out io.WriteCloser, name string, err error) {
	if o.output == "-" {
		return nopCloser{paint.Raw(o.Out)}, "standard output", nil
	}
	name = o.output
	if name == "" {
		name = folder + ".tar.gz"
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, name, fmt.Errorf("make the archive: %w", err)
	}
	return f, name, nil
}

// explain adds what `drover explain` says of each Module.
func (o *options) explain(ctx context.Context, c *collector) {
	modules := c.modules
	if len(modules) > mostExplained {
		c.note("not all: %d of %d Modules are explained", mostExplained, len(modules))
		modules = modules[:mostExplained]
	}
	client, err := cluster.Connect(o.flags)
	if err != nil {
		c.note("nothing is explained: %v", err)
		return
	}
	for _, m := range modules {
		text, err := explain.Text(ctx, client, o.clock.Now(), m.GetNamespace(), m.GetName())
		if err != nil {
			c.note("not explained: Module %s/%s: %v", m.GetNamespace(), m.GetName(), err)
			continue
		}
		c.add(path.Join("explain", m.GetNamespace(), m.GetName()+".txt"), text)
	}
}

// isModule tells Modules from other kinds.
func isModule(o *unstructured.Unstructured) bool {
	return o.GetKind() == "Module" && strings.HasPrefix(o.GetAPIVersion(), "kmm.sigs.x-k8s.io/")
}
