// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// configKey is upstream's key in the ConfigMap, and so the file's name where the ConfigMap is
// mounted.
const configKey = "controller_config.yaml"

// fileConfig is upstream's configuration of its operator. A key that is not set keeps the flag's
// value.
type fileConfig struct {
	HealthProbeBindAddress *string `json:"healthProbeBindAddress"`
	WebhookPort            *int    `json:"webhookPort"`
	LeaderElection         struct {
		Enabled    *bool   `json:"enabled"`
		ResourceID *string `json:"resourceID"`
	} `json:"leaderElection"`
	Metrics struct {
		BindAddress      *string `json:"bindAddress"`
		SecureServing    *bool   `json:"secureServing"`
		EnableAuthnAuthz *bool   `json:"enableAuthnAuthz"`
	} `json:"metrics"`
	Job struct {
		GCDelay *string `json:"gcDelay"`
	} `json:"job"`
	Worker struct {
		RunAsUser        *int64  `json:"runAsUser"`
		SELinuxType      *string `json:"seLinuxType"`
		FirmwareHostPath *string `json:"firmwareHostPath"`
	} `json:"worker"`
}

// loadConfig reads a file, or the mounted ConfigMap at a directory, into the options, where no flag
// was given: flags win. One that is not there sets nothing, as upstream has it. What is unknown or
// has a bad value is an error of one line.
func (o *Options) loadConfig(path string, given map[string]bool) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, configKey)
	}
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		o.Notes = append(o.Notes, path+" is not there: nothing is set by it")
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	var c fileConfig
	if err := yaml.UnmarshalStrict(content, &c); err != nil {
		return fmt.Errorf("%s: %s", path, strings.Join(strings.Fields(err.Error()), " "))
	}
	if c.Job.GCDelay != nil {
		if delay, err := time.ParseDuration(*c.Job.GCDelay); err != nil || delay < 0 {
			return fmt.Errorf("%s: job.gcDelay: %q is no duration", path, *c.Job.GCDelay)
		}
	}
	set(&o.ProbeAddress, c.HealthProbeBindAddress, given["health-probe-bind-address"])
	set(&o.LeaderElect, c.LeaderElection.Enabled, given["leader-elect"])
	set(&o.LeaderElectionID, c.LeaderElection.ResourceID, given["leader-election-id"])
	set(&o.MetricsAddress, c.Metrics.BindAddress, given["metrics-bind-address"])
	set(&o.MetricsSecure, c.Metrics.SecureServing, given["metrics-secure"])
	for key, isSet := range map[string]bool{
		"webhookPort": c.WebhookPort != nil, "metrics.enableAuthnAuthz": c.Metrics.EnableAuthnAuthz != nil, "job.gcDelay": c.Job.GCDelay != nil,
		"worker.runAsUser": c.Worker.RunAsUser != nil, "worker.seLinuxType": c.Worker.SELinuxType != nil,
		"worker.firmwareHostPath": c.Worker.FirmwareHostPath != nil,
	} {
		if isSet {
			o.Notes = append(o.Notes, path+": "+key+" has no effect here; docs/reference/configuration.md says what takes its place")
		}
	}
	return nil
}

// set an option from the file unless a flag has set it.
func set[T any](option, value *T, given bool) {
	if value != nil && !given {
		*option = *value
	}
}
