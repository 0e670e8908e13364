// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/drover-project/drover/tools/devcluster/internal/cluster"
	"github.com/drover-project/drover/tools/devcluster/internal/component"
)

func newStart() *cobra.Command {
	var o cluster.Options
	var untilEOF bool
	extra := map[string]*[]string{}
	cmd := &cobra.Command{
		Use:   "start --dir DIR",
		Short: "Start a control plane and keep it until SIGINT or SIGTERM",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.ExtraArgs = make(map[string][]string, len(extra))
			for name, args := range extra {
				o.ExtraArgs[name] = *args
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			var orders <-chan cluster.Order
			if untilEOF {
				ctx, orders = follow(ctx, os.Stdin, cmd.OutOrStdout())
			}
			return start(ctx, o, cmd.OutOrStdout(), orders)
		},
	}
	cmd.SetContext(context.Background())
	flags := cmd.Flags()
	flags.StringVar(&o.Dir, "dir", "", "folder for all state; its data is removed at the start")
	flags.BoolVar(&o.Keep, "keep", false, "keep the data of an earlier run in the folder")
	flags.StringVar(&o.Kubeconfig, "kubeconfig", "", "write the administrator's kubeconfig here too")
	flags.BoolVar(&o.WithKwok, "with-kwok", false, "start kwok too: it plays pods on nodes labelled "+cluster.HollowLabel+"=true")
	flags.StringVar(&o.KwokBinary, "kwok-binary", "", "devcluster whose kwok it is; empty is this one")
	flags.IntVar(&o.APIServerPort, "apiserver-port", 0, "kube-apiserver's port; 0 takes a free one")
	flags.StringVar(&o.AdvertiseAddress, "advertise-address", "", "address published for the kubernetes Service; empty publishes none")
	flags.StringSliceVar(&o.ExtraSANs, "extra-sans", nil, "more names or addresses for the server's certificate")
	flags.StringArrayVar(&o.NodeHostAliases, "node-host-alias", nil,
		"name that kube-apiserver resolves to 127.0.0.1 (Linux, root; repeatable)")
	flags.StringArrayVar(&o.NodeTokens, "node-token", nil, "node to make a bearer token for (repeatable)")
	flags.IntVar(&o.ControllerQPS, "kcm-qps", 500, "kube-controller-manager's requests per second")
	flags.IntVar(&o.ControllerBurst, "kcm-burst", 1000, "kube-controller-manager's requests at once")
	flags.DurationVar(&o.ReadyTimeout, "ready-timeout", time.Minute, "give up when the cluster is not ready by then")
	flags.BoolVar(&untilEOF, "until-stdin-eof", false, "stop when standard input ends, too: ties the cluster to whoever holds the other "+
		"end; its lines \"stop COMPONENT\" and \"start COMPONENT\" are obeyed and answered by DONE or FAILED")
	for flag, name := range map[string]string{
		"etcd-arg":      component.Etcd,
		"apiserver-arg": component.APIServer,
		"kcm-arg":       component.ControllerManager,
		"scheduler-arg": component.Scheduler,
		"kwok-arg":      component.Kwok,
	} {
		extra[name] = flags.StringArray(flag, nil, "one more argument for "+name+" (repeatable)")
	}
	// The flag was defined above.
	cobra.CheckErr(cmd.MarkFlagRequired("dir"))
	return cmd
}

// start runs a cluster until ctx ends or a component dies. It prints READY and,
// on the next line, the cluster's Info as JSON.
func start(ctx context.Context, o cluster.Options, out io.Writer, orders <-chan cluster.Order) (err error) {
	c, err := cluster.Start(ctx, o)
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	info, err := json.Marshal(c.Info)
	if err != nil {
		return fmt.Errorf("encode the cluster's facts: %w", err)
	}
	if _, err := fmt.Fprintf(out, "READY kubeconfig=%s\n%s\n", c.Info.Kubeconfig, info); err != nil {
		return fmt.Errorf("print the cluster's facts: %w", err)
	}
	return c.Wait(ctx, orders)
}

// follow reads orders, one a line, from in and answers them on out. The context
// ends when in does.
func follow(ctx context.Context, in io.Reader, out io.Writer) (context.Context, <-chan cluster.Order) {
	ctx, cancel := context.WithCancelCause(ctx)
	orders := make(chan cluster.Order)
	go func() {
		lines := bufio.NewScanner(in)
		for lines.Scan() {
			if err := obey(ctx, lines.Text(), orders, out); err != nil {
				cancel(err)
				return
			}
		}
		cancel(errors.Join(errors.New("standard input ended"), lines.Err()))
	}()
	return ctx, orders
}

// obey passes one line on as an order and prints the answer.
func obey(ctx context.Context, line string, orders chan<- cluster.Order, out io.Writer) error {
	order := cluster.Order{Done: make(chan error, 1)}
	order.Verb, order.Component, _ = strings.Cut(line, " ")
	select {
	case orders <- order:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	answer := "DONE " + line
	if err := <-order.Done; err != nil {
		// One line per answer; quoting keeps a log's tail on it.
		answer = fmt.Sprintf("FAILED %q", err)
	}
	if _, err := fmt.Fprintln(out, answer); err != nil {
		return fmt.Errorf("answer an order: %w", err)
	}
	return nil
}
