// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// Gauge is a metric with one value per object. Its series go when they are forgotten.
type Gauge struct{ vec *prometheus.GaugeVec }

// NewGauge makes a gauge that the manager serves. labels name what a series is about, such as namespace and name. A second gauge of one name, with the
// same labels, is the same one. It panics where Prometheus refuses the name or the labels.
func NewGauge(name, help string, labels ...string) *Gauge {
	vec := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	err := metrics.Registry.Register(vec)
	var there prometheus.AlreadyRegisteredError
	if errors.As(err, &there) {
		if same, ok := there.ExistingCollector.(*prometheus.GaugeVec); ok {
			return &Gauge{vec: same}
		}
	}
	if err != nil {
		panic(err)
	}
	return &Gauge{vec: vec}
}

// Set gives the series of these labels' values a value.
func (g *Gauge) Set(value float64, labels ...string) { g.vec.WithLabelValues(labels...).Set(value) }

// Forget removes the series of these labels' values.
func (g *Gauge) Forget(labels ...string) { g.vec.DeleteLabelValues(labels...) }
