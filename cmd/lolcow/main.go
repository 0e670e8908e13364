// SPDX-License-Identifier: Apache-2.0

// Command lolcow is a cow that says its arguments, or a fortune without any: first in the terminal,
// then on a web page on port 8080 of all addresses, or $PORT. With LOLCOW_ONCE=true it speaks in
// the terminal only.
package main

import (
	"context"
	"math/rand/v2"
	"net"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/drover-project/drover/internal/operators/lolcow/cow"
	"github.com/drover-project/drover/internal/shared/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(klog.NewContext(ctx, textlogger.NewLogger(textlogger.NewConfig())))
	stop()
	if err != nil {
		_, _ = os.Stderr.WriteString("lolcow: " + err.Error() + "\n")
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	config, err := cow.Configure(os.Args[1:], os.Getenv, rand.IntN)
	if err != nil {
		return err
	}
	logger := klog.FromContext(ctx)
	return cow.Run(ctx, os.Stdout, config, func(address net.Addr) {
		logger.Info("Serving the cow's page; Ctrl-C ends", "address", address.String(), "version", version.Version)
	})
}
