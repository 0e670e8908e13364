// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"k8s.io/client-go/discovery"
)

// storageSeries is the size of etcd's database, as it tells the API server.
const storageSeries = "apiserver_storage_size_bytes{"

// sumOf adds up the series of metrics in Prometheus' text format that begin with a name and labels.
func sumOf(metrics io.Reader, series string) (float64, error) {
	sum, found := 0.0, false
	lines := bufio.NewScanner(metrics)
	for lines.Scan() {
		labels, value, _ := strings.Cut(lines.Text(), "} ")
		if !strings.HasPrefix(labels, series) {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("read %s: %w", labels, err)
		}
		sum, found = sum+n, true
	}
	if err := lines.Err(); err != nil {
		return 0, fmt.Errorf("read metrics: %w", err)
	}
	if !found {
		return 0, fmt.Errorf("there is no series %s…", series)
	}
	return sum, nil
}

// etcdMiB is how large etcd's database is, with what is to be compacted.
func (b *bench) etcdMiB(ctx context.Context) (float64, error) {
	c, err := discovery.NewDiscoveryClientForConfig(b.f.AdminConfig)
	if err != nil {
		return 0, fmt.Errorf("connect to the API server's metrics: %w", err)
	}
	metrics, err := c.RESTClient().Get().AbsPath("/metrics").Stream(ctx)
	if err != nil {
		return 0, fmt.Errorf("ask for the API server's metrics: %w", err)
	}
	defer func() { _ = metrics.Close() }()
	bytes, err := sumOf(metrics, storageSeries)
	if err != nil {
		return 0, fmt.Errorf("read the API server's metrics: %w", err)
	}
	return math.Round(10*bytes/(1<<20)) / 10, nil
}
