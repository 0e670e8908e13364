// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"
)

// wrong are values that must be refused, and the path that the message must have.
var wrong = []struct{ values, path string }{
	{`{}`, "images.registry is empty: set it to the registry"},
	{`{operator: {replicas: two}}`, "'/operator/replicas'"},
	{`{operator: {replicas: -1}}`, "'/operator/replicas'"},
	{`{operator: {replica: 2}}`, "'/operator'"},
	{`{operators: {nosuch: {enabled: true}}}`, "'/operators'"},
	{`{hub: true}`, "'/hub'"},
	{`{hub: {enabled: "yes"}}`, "'/hub/enabled'"},
	{`{images: {agent: {digest: "sha256:12"}}}`, "'/images/agent/digest'"},
	{`{images: {agent: {repository: "Not A Name"}}}`, "'/images/agent/repository'"},
	{`{images: {buildah: {repository: quay.io/buildah/stable}}}`, "'/images/buildah/digest'"},
	{`{images: {pullPolicy: Sometimes}}`, "'/images/pullPolicy'"},
	{`{imagePullSecrets: [pull]}`, "'/imagePullSecrets/0'"},
	{`{namespace: {podSecurity: {enforce: none}}}`, "'/namespace/podSecurity/enforce'"},
	{`{namespace: {labels: {a: 1}}}`, "'/namespace/labels/a'"},
	{`{kubeletDir: var/lib/kubelet}`, "'/kubeletDir'"},
	{`{stateDir: /var/lib/drover/}`, "'/stateDir'"},
	{`{boot: {manifestsDir: ""}}`, "'/boot/manifestsDir'"},
	{`{agent: {maxUnavailable: many}}`, "'/agent/maxUnavailable'"},
	{`{agent: {extraArgs: [v=4]}}`, "'/agent/extraArgs/0'"},
	{`{agent: {tolerations: [{key: a, operator: Is}]}}`, "'/agent/tolerations/0/operator'"},
	{`{agent: {resources: {limits: {memory: a lot}}}}`, "'/agent/resources/limits/memory'"},
	{`{hub: {affinity: {nodes: {}}}}`, "'/hub/affinity'"},
	{`{caBundle: {configMap: Not_A_Name}}`, "'/caBundle/configMap'"},
	{`{networkPolicies: {metricsFrom: [{}]}}`, "'/networkPolicies/metricsFrom/0'"},
	{`{spoke: {enabled: true}, build: {enabled: true}}`, "'/build/enabled'"},
	{`{cluster: {enabled: false}, spoke: {enabled: true}}`, "'/spoke/enabled'"},
	{`{cluster: {enabled: false}, boot: {enabled: true}}`, "'/boot/enabled'"},
	{`{noSuchValue: 1}`, "noSuchValue"},
}

// refusals gives wrong values, and returns those that are taken, or refused without the path.
func refusals(ctx context.Context, h *helm, r *result) ([]string, error) {
	told := make([]string, len(wrong))
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i, w := range wrong {
		group.Go(func() error {
			_, err := h.template(groupCtx, filepath.Join(h.dir, "chart"), w.values)
			switch {
			case err == nil:
				told[i] = w.values + " is taken"
			case !strings.Contains(err.Error(), w.path):
				told[i] = fmt.Sprintf("%s: the message does not name %s: %v", w.values, w.path, err)
			}
			return groupCtx.Err()
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var problems []string
	for _, t := range told {
		if t == "" {
			r.Refused++
			continue
		}
		problems = append(problems, t)
	}
	return problems, nil
}
