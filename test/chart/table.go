// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
)

// Objects that have settings.
const (
	operatorObject = "Deployment drover-system/drover-operator"
	hubObject      = "Deployment drover-system/drover-hub"
	agentObject    = "DaemonSet drover-system/drover-agent"
	lolcowObject   = "Deployment lolcow-operator-system/lolcow-operator-controller-manager"
	imagesObject   = "ConfigMap drover-system/drover-images"
	namespace      = "Namespace drover-system"
)

const (
	podSpec   = "/spec/template/spec"
	container = podSpec + "/containers/0"
	digest    = "sha256:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
)

// table has a row for each value of the chart.
func table() []setting {
	return slices.Concat(general(), switches(), nodes(), images(), agent(), outside(),
		operator("operator", operatorObject), operator("hub", hubObject),
		operator("operators.deviceconfig", device("deviceconfig")), operator("operators.ptemplate", device("ptemplate")),
		operator("operators.lolcow", lolcowObject))
}

func device(name string) string {
	return fmt.Sprintf("Deployment %[1]s-operator-system/%[1]s-operator-controller-manager", name)
}

func pulls(object string) setting {
	return setting{
		value: "imagePullSecrets", given: `[{"name": "pull"}]`, object: object, at: podSpec + "/imagePullSecrets/*",
		want: `{"name": "pull"}`,
	}
}

func traces(object string) setting {
	return setting{
		value: "tracing.endpoint", given: `"collector:4317"`, object: object, at: container + "/args/*",
		want: `"--tracing-endpoint=collector:4317"`,
	}
}

func general() []setting {
	level := "/metadata/labels/pod-security.kubernetes.io~1"
	return []setting{
		{value: "crds.install", given: "false", object: "CustomResourceDefinition lolcows.my.domain", want: "false"},
		{value: "namespace.create", given: "false", object: namespace, want: "false"},
		{value: "namespace.create", given: "false", object: "Namespace lolcow-operator-system", want: "false"},
		{value: "namespace.podSecurity.enforce", given: `"baseline"`, object: namespace, at: level + "enforce", want: `"baseline"`},
		{value: "namespace.podSecurity.audit", given: `"restricted"`, object: namespace, at: level + "audit", want: `"restricted"`},
		{value: "namespace.podSecurity.warn", given: `"restricted"`, object: namespace, at: level + "warn", want: `"restricted"`},
		{value: "namespace.labels", given: `{"team": "kernel"}`, object: namespace, at: "/metadata/labels/team", want: `"kernel"`},
		pulls(operatorObject), pulls(hubObject), pulls(agentObject), pulls(lolcowObject),
	}
}

// switches: what a component brings in detail is compared with kustomize.
func switches() []setting {
	return []setting{
		{value: "cluster.enabled", given: "false", values: `{hub: {enabled: true}}`, object: operatorObject, want: "false"},
		{value: "spoke.enabled", given: "true", values: `{}`, object: operatorObject, at: container + "/args/*", want: `"--mode=spoke"`},
		{value: "hub.enabled", given: "true", values: `{}`, object: hubObject, want: "true"},
		{
			value: "build.enabled", given: "true", values: `{}`, object: imagesObject, at: "/data/signer",
			want: `"registry.invalid/drover/drover-signer:dev"`,
		},
		{
			value: "monitoring.serviceMonitor.enabled", given: "true", values: `{}`, object: "ServiceMonitor drover-system/drover-operator",
			want: "true",
		},
		{value: "monitoring.rules.enabled", given: "true", values: `{}`, object: "PrometheusRule drover-system/drover", want: "true"},
		{value: "monitoring.dashboard.enabled", given: "true", values: `{}`, object: "ConfigMap drover-system/drover-dashboard", want: "true"},
		{value: "release.enabled", given: "false", object: "Job drover-system/drover-release", want: "false"},
		{value: "ooto.enabled", given: "true", values: `{}`, object: operatorObject, at: container + "/args/*", want: `"--controllers=*,ooto"`},
		{
			value: "nodeCondition.enabled", given: "true", values: `{}`, object: operatorObject, at: container + "/args/*",
			want: `"--node-condition"`,
		},
		{
			value: "criticalQuota.enabled", given: "true", values: `{}`, object: "ResourceQuota drover-system/drover-critical-pods", want: "true",
		},
		{value: "openshift.enabled", given: "true", values: `{}`, object: "SecurityContextConstraints drover-agent", want: "true"},
		{
			value: "noPtrace.enabled", given: "true", values: `{}`, object: agentObject, at: container + "/securityContext/capabilities/add",
			want: `["SYS_MODULE", "SYSLOG", "DAC_READ_SEARCH"]`,
		},
		{
			value: "blacklist.enabled", given: "true", values: `{}`, object: agentObject, at: container + "/args/*",
			want: `"--modprobe-d=/host/etc/modprobe.d"`,
		},
		{
			value: "boot.enabled", given: "true", values: `{}`, object: agentObject, at: container + "/env/*",
			want: `{"name": "BOOT_IMAGE", "value": "registry.invalid/drover/drover-agent:dev"}`,
		},
		traces(operatorObject), traces(hubObject), traces(lolcowObject),
		{
			value: "tracing.samplingRatePerMillion", given: "500", values: `{tracing: {endpoint: "collector:4317"}}`, object: operatorObject,
			at: container + "/args/*", want: `"--tracing-sampling-rate-per-million=500"`,
		},
		{value: "operators.deviceconfig.enabled", given: "true", values: `{}`, object: device("deviceconfig"), want: "true"},
		{value: "operators.ptemplate.enabled", given: "true", values: `{}`, object: device("ptemplate"), want: "true"},
		{value: "operators.lolcow.enabled", given: "true", values: `{}`, object: lolcowObject, want: "true"},
	}
}

// nodes: which taints and how many nodes the operator goes by.
func nodes() []setting {
	return []setting{
		{
			value: "operator.startupTaints", given: `["example.com/a", "drivers:example.com/b"]`, object: operatorObject, at: container + "/args/*",
			want: `"--startup-taints=example.com/a,drivers:example.com/b"`,
		},
		{
			value: "operator.unloadTaints", given: `["example.com/a", "b"]`, object: operatorObject, at: container + "/args/*",
			want: `"--unload-taints=example.com/a,b"`,
		},
		{
			value: "operator.maxUnavailableNodes", given: `"10%"`, object: operatorObject, at: container + "/args/*",
			want: `"--max-unavailable-nodes=10%"`,
		},
		{
			value: "operator.nodePoolLabel", given: `"example.com/pool"`, values: `{operator: {maxUnavailableNodes: 2}}`, object: operatorObject,
			at: container + "/args/*", want: `"--node-pool-label=example.com/pool"`,
		},
	}
}

// images: registry, repository, tag and digest of each, where they are used.
func images() []setting {
	rows := []setting{
		{value: "images.registry", given: `"a.example"`, object: imagesObject, at: "/data/agent", want: `"a.example/drover/drover-agent:dev"`},
		{value: "images.tag", given: `"v1"`, object: imagesObject, at: "/data/signer", want: `"registry.invalid/drover/drover-signer:v1"`},
	}
	for _, o := range []string{operatorObject, hubObject, agentObject, lolcowObject} {
		rows = append(rows,
			setting{value: "images.pullPolicy", given: `"Always"`, object: o, at: container + "/imagePullPolicy", want: `"Always"`})
	}
	for _, image := range []struct{ name, repository, object, at string }{
		{"operator", "drover/drover-operator", operatorObject, container + "/image"},
		{"operator", "drover/drover-operator", operatorObject, container + "/env/3/value"}, // OPERATOR_IMAGE
		{"operator", "drover/drover-operator", hubObject, container + "/image"},
		{"agent", "drover/drover-agent", agentObject, container + "/image"},
		{"agent", "drover/drover-agent", imagesObject, "/data/agent"},
		{"agent", "drover/drover-agent", agentObject, container + "/env/1/value"}, // BOOT_IMAGE
		{"signer", "drover/drover-signer", imagesObject, "/data/signer"},
		{"signer", "drover/drover-signer", "ConfigMap drover-system/drover-hub-images", "/data/signer"},
		{"deviceconfig", "drover/deviceconfig-operator", device("deviceconfig"), container + "/image"},
		{"ptemplate", "drover/ptemplate-operator", device("ptemplate"), container + "/image"},
		{"lolcow", "drover/lolcow-operator", lolcowObject, container + "/image"},
	} {
		value := "images." + image.name
		row := func(part, given, want string) setting {
			return setting{value: value + "." + part, given: given, object: image.object, at: image.at, want: want}
		}
		rows = append(rows,
			row("registry", `"b.example:5000"`, fmt.Sprintf(`"b.example:5000/%s:dev"`, image.repository)),
			row("repository", `"mine/renamed"`, `"registry.invalid/mine/renamed:dev"`),
			row("repository", `"c.example/mine/renamed"`, `"c.example/mine/renamed:dev"`),
			row("tag", `"1.2"`, fmt.Sprintf(`"registry.invalid/%s:1.2"`, image.repository)),
			row("digest", `"`+digest+`"`, fmt.Sprintf(`"registry.invalid/%s@%s"`, image.repository, digest)))
	}
	const buildah = `{build: {enabled: true}, hub: {enabled: true}, images: {buildah: {repository: tools/buildah, digest: "sha256:` +
		`ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"}}}`
	old := strings.Repeat("f", 64)
	for _, o := range []string{imagesObject, "ConfigMap drover-system/drover-hub-images"} {
		row := func(part, given, want string) setting {
			return setting{value: "images.buildah." + part, given: given, object: o, at: "/data/buildah", want: want, values: buildah}
		}
		rows = append(rows,
			row("registry", `"quay.io"`, `"quay.io/tools/buildah@sha256:`+old+`"`),
			row("repository", `"quay.io/buildah/stable"`, `"quay.io/buildah/stable@sha256:`+old+`"`),
			row("digest", `"`+digest+`"`, `"registry.invalid/tools/buildah@`+digest+`"`))
	}
	return rows
}

func agent() []setting {
	rows := []setting{
		{value: "boot.manifestsDir", given: `"/opt/pods"`, object: agentObject, at: podSpec + "/volumes/0/hostPath/path", want: `"/opt/pods"`},
		{
			value: "boot.manifestsDir", given: `"/opt/pods"`, object: agentObject, at: container + "/volumeMounts/0/mountPath",
			want: `"/host/opt/pods"`,
		},
		{value: "boot.manifestsDir", given: `"/opt/pods"`, object: agentObject, at: container + "/env/0/value", want: `"/host/opt/pods"`},
		{
			value: "kubeletDir", given: `"/data/kubelet"`, object: agentObject, at: podSpec + "/volumes/*",
			want: `{"name": "pods", "hostPath": {"path": "/data/kubelet/pods", "type": "Directory"}}`,
		},
		{
			value: "stateDir", given: `"/data/drover"`, object: agentObject, at: podSpec + "/volumes/*",
			want: `{"name": "state", "hostPath": {"path": "/data/drover", "type": "DirectoryOrCreate"}}`,
		},
		// BOOT_STATE_PATH
		{value: "stateDir", given: `"/data/drover"`, object: agentObject, at: container + "/env/2/value", want: `"/data/drover"`},
		{
			value: "agent.maxUnavailable", given: `3`, object: agentObject, at: "/spec/updateStrategy/rollingUpdate/maxUnavailable",
			want: `3`,
		},
	}
	return append(rows, pod("agent", agentObject)...)
}

// pod has the rows of what all pods can be set to.
func pod(value, object string) []setting {
	return []setting{
		{value: value + ".extraArgs", given: `["--v=4"]`, object: object, at: container + "/args/*", want: `"--v=4"`},
		{
			value: value + ".resources", given: `{"limits": {"memory": "3Gi"}}`, object: object,
			at: container + "/resources/limits/memory", want: `"3Gi"`,
		},
		{value: value + ".nodeSelector", given: `{"pool": "a"}`, object: object, at: podSpec + "/nodeSelector/pool", want: `"a"`},
		{
			value: value + ".tolerations", given: `[{"key": "a", "operator": "Exists"}]`, object: object, at: podSpec + "/tolerations",
			want: `[{"key": "a", "operator": "Exists"}]`,
		},
		{
			value: value + ".affinity", given: `{"podAffinity": {"a": "b"}}`, object: object, at: podSpec + "/affinity/podAffinity",
			want: `{"a": "b"}`,
		},
		{value: value + ".priorityClassName", given: `"mine"`, object: object, at: podSpec + "/priorityClassName", want: `"mine"`},
	}
}

// operator has the rows of a Deployment.
func operator(value, object string) []setting {
	budget := strings.Replace(object, "Deployment", "PodDisruptionBudget", 1)
	return append(pod(value, object),
		setting{value: value + ".replicas", given: "3", object: object, at: "/spec/replicas", want: "3"},
		setting{value: value + ".podDisruptionBudget.enabled", given: "true", object: budget, want: "true"},
		setting{
			value: value + ".podDisruptionBudget.maxUnavailable", given: `"20%"`, object: budget, at: "/spec/maxUnavailable", want: `"20%"`,
			values: budgetFor(value),
		})
}

// budgetFor are values that switch on an operator and its budget.
func budgetFor(value string) string {
	inner := "{enabled: true, podDisruptionBudget: {enabled: true}}"
	if value == "operator" { // with cluster.enabled
		inner = "{podDisruptionBudget: {enabled: true}}"
	}
	for _, name := range slices.Backward(strings.Split(value, ".")) {
		inner = fmt.Sprintf("{%s: %s}", name, inner)
	}
	return inner
}

// outside: proxy and certificates of what calls out of the cluster, and who may call it.
func outside() []setting {
	const proxied = `{hub: {enabled: true}, proxy: {https: "http://proxy:3128"}, operators: {lolcow: {enabled: true}}}`
	var rows []setting
	for _, o := range []string{hubObject, lolcowObject} {
		rows = append(rows,
			setting{
				value: "proxy.http", given: `"http://p:1"`, object: o, at: container + "/env/*",
				want: `{"name": "HTTP_PROXY", "value": "http://p:1"}`,
			},
			setting{
				value: "proxy.https", given: `"http://p:2"`, object: o, at: container + "/env/*",
				want: `{"name": "HTTPS_PROXY", "value": "http://p:2"}`,
			},
			setting{
				value: "proxy.exclude", given: `".svc,10.0.0.0/8"`, object: o, at: container + "/env/*", values: proxied,
				want: `{"name": "NO_PROXY", "value": ".svc,10.0.0.0/8,$(KUBERNETES_SERVICE_HOST)"}`,
			},
			setting{
				value: "caBundle.configMap", given: `"roots"`, object: o, at: podSpec + "/volumes/*",
				want: `{"name": "ca", "configMap": {"name": "roots"}}`,
			},
			setting{
				value: "caBundle.configMap", given: `"roots"`, object: o, at: container + "/volumeMounts/*",
				want: `{"name": "ca", "mountPath": "/etc/drover/ca", "readOnly": true}`,
			},
			setting{
				value: "caBundle.configMap", given: `"roots"`, object: o, at: container + "/env/*",
				want: `{"name": "SSL_CERT_DIR", "value": "/etc/drover/ca"}`,
			})
	}
	for _, o := range []string{operatorObject, hubObject, device("deviceconfig"), device("ptemplate"), lolcowObject} {
		rule := strings.Replace(o, "Deployment", "NetworkPolicy", 1)
		rows = append(rows,
			setting{value: "networkPolicies.enabled", given: "false", object: rule, want: "false"},
			setting{
				value: "networkPolicies.metricsFrom", given: `[{"namespaceSelector": {}}]`, object: rule, at: "/spec/ingress",
				want: `[{"from": [{"namespaceSelector": {}}], "ports": [{"port": "metrics"}]}]`,
			})
	}
	return rows
}
