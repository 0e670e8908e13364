// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"fmt"
	"slices"
)

// kind is one kind of objects.
type kind struct {
	group, version, resource, name2 string
	weight                          int
	namespaced, native              bool
	// body makes the fields of a valid object, but its head; change is a valid merge patch.
	body, change func(*gen) object
	// status is the field status, nil for kinds without the subresource.
	status func(*gen) object
	// invalid are merge patches that make an object invalid.
	invalid []string
}

func (k *kind) apiVersion() string {
	if k.group == "" {
		return k.version
	}
	return k.group + "/" + k.version
}

func (k *kind) base() string {
	if k.group == "" {
		return "/api/" + k.version
	}
	return "/apis/" + k.group + "/" + k.version
}

func (k *kind) collection(space string) string {
	if k.namespaced {
		return k.base() + "/namespaces/" + space + "/" + k.resource
	}
	return k.base() + "/" + k.resource
}

func (k *kind) spacesOf(g *gen) []string {
	if k.namespaced {
		return g.spaces()
	}
	return []string{""}
}

func isNative(k *kind) bool  { return k.native }
func isCustom(k *kind) bool  { return !k.native }
func hasStatus(k *kind) bool { return k.status != nil }
func isSpaced(k *kind) bool  { return k.namespaced }
func listable(k *kind) bool  { return k.resource != "configmaps" && k.resource != "leases" }
func is(r string) func(*kind) bool {
	return func(k *kind) bool { return k.resource == r }
}

// condition is one as Kubernetes has them.
func (g *gen) condition() string {
	return fmt.Sprintf(`{"type":%q,"status":%q,"reason":"Because","message":"m%d","lastTransitionTime":"2001-01-01T00:00:00Z"}`,
		g.one("Ready", "Degraded"), g.one("True", "False"), g.rand.IntN(3))
}

// template is one of pods.
const template = `{"metadata":{"labels":{"app":"x"}},"spec":{"containers":[{"name":"c","image":"example.com/i:%d"}]%s}}`

// owner is an ownerReference to another target.
func owner(t target, more string) object {
	return text(`{"apiVersion":%q,"kind":%q,"name":%q,"uid":"{{uid %s}}"%s}`, t.apiVersion(), t.name2, t.name, t.path(), more)
}

// kinds are all that Drover's parts, and what plays the cluster beside them, read or write.
func kinds() []*kind { return slices.Concat(customKinds(), coreKinds(), workloads(), otherKinds()) }

func customKinds() []*kind {
	kmm, own := "kmm.sigs.x-k8s.io", "drover.dev"
	conditions := func(g *gen) object {
		return text(`{"observedGeneration":%d,"conditions":[%s]}`, g.rand.IntN(4), g.condition())
	}
	preflight := func(g *gen) object {
		return text(`{"spec":{"kernelVersion":"6.1.0-%d-amd64"}}`, g.rand.IntN(3))
	}
	return []*kind{
		{group: kmm, version: "v1beta1", resource: "modules", name2: "Module", namespaced: true, weight: 8,
			body: moduleBody, change: moduleChange, status: moduleStatus,
			invalid: []string{`{"spec":{"selector":null}}`, `{"spec":{"moduleLoader":{"container":{"kernelMappings":[]}}}}`,
				`{"spec":{"tolerations":"no list"}}`, `{"spec":{"startupTaint":"node.kubernetes.io/x"}}`}},
		{group: kmm, version: "v1beta1", resource: "nodemodulesconfigs", name2: "NodeModulesConfig", weight: 8,
			body: orders, change: orders, status: nodeReport,
			invalid: []string{`{"spec":{"modules":[{"name":"x","namespace":"n"}]}}`, `{"spec":{"modules":[{"namespace":"n"}]}}`,
				`{"spec":{"modules":{}}}`}},
		{group: kmm, version: "v1beta2", resource: "preflightvalidations", name2: "PreflightValidation", weight: 2,
			body: preflight, change: preflight, status: conditions,
			invalid: []string{`{"spec":{"kernelVersion":"6"}}`, `{"spec":null}`, `{"spec":{"labels":{"a":1}}}`}},
		{group: own, version: "v1alpha1", resource: "moduleimages", name2: "ModuleImage", namespaced: true, weight: 4,
			body: func(g *gen) object {
				return text(`{"spec":{"architecture":"amd64","declaration":"d%d","hash":"h","image":"r.example/i:%d",
					"kernelVersion":"6.1.0","module":"m","serviceAccountName":"default","repoSecrets":[{}]}}`,
					g.rand.IntN(3), g.rand.IntN(3))
			},
			change:  func(g *gen) object { return text(`{"spec":{"trigger":"t%d"}}`, g.rand.IntN(3)) },
			status:  conditions,
			invalid: []string{`{"spec":{"architecture":"AMD 64"}}`, `{"spec":{"hash":7}}`, `{"spec":{"sign":{}}}`}},
		{group: own, version: "v1alpha1", resource: "modulepolicies", name2: "ModulePolicy", weight: 2,
			body: func(g *gen) object {
				return text(`{"spec":{"mode":"Audit","namespaceSelector":{"matchLabels":{"never":"x"}},"images":["r.example/%d/*"]}}`,
					g.rand.IntN(3))
			},
			change: func(g *gen) object { return text(`{"spec":{"drain":%q}}`, g.one("None", "Node", "")) },
			invalid: []string{`{"spec":{"mode":"Maybe"}}`, `{"spec":{"images":[]}}`, `{"spec":null}`,
				`{"spec":{"nodeSelector":{"matchExpressions":[{"key":"k","operator":"In"}]}}}`}},
		{group: "hub.kmm.sigs.x-k8s.io", version: "v1beta1", resource: "managedclustermodules", name2: "ManagedClusterModule", weight: 3,
			body: func(g *gen) object {
				return text(`{"spec":{"selector":{"c":"%d"},"spokeNamespace":"s","moduleSpec":{"selector":{"a":"b"}}}}`, g.rand.IntN(3))
			},
			change: func(g *gen) object {
				return text(`{"spec":{"rollout":{"maxConcurrency":%s}}}`, g.one("1", `"10%"`, "3"))
			},
			status: conditions,
			invalid: []string{`{"spec":{"rollout":{"maxConcurrency":"0%"}}}`, `{"spec":{"spokeNamespace":null}}`,
				`{"spec":{"rollout":{"waves":[{"name":"w","selector":{}},{"name":"w","selector":{}}]}}}`}},
	}
}

// orders are a node's: each of three Modules' orders belongs to another field manager.
func orders(g *gen) object {
	return text(`{"spec":{"modules":[{"namespace":"n","name":%q,"serviceAccountName":"default","delivery":{"id":"d%d"},
		"config":{"kernelVersion":"6.1.0","containerImage":"r.example/x:%d","insecurePull":false,"modprobe":{"moduleName":"x"}}}]}}`,
		g.one("x", "y", "z"), g.rand.IntN(3), g.rand.IntN(3))
}

func nodeReport(g *gen) object {
	return g.pickText(`{"artifacts":[{"id":"d1","digest":"sha256:0"}]}`, `{"artifacts":null,"modules":null,"attempts":null}`,
		`{"attempts":[{"namespace":"n","name":"x","state":"Waiting","reason":"Pull"}]}`, `{"attempts":[]}`, `{}`,
		`{"modules":[{"namespace":"n","name":"x","serviceAccountName":"s","bootId":"b","observed":{"parameters":{"a":"1"}},
			"config":{"kernelVersion":"6","containerImage":"i:1","insecurePull":false,"modprobe":{}}}]}`,
		`{"attempts":[{"namespace":"n","name":"x","state":"Nonsense"}]}`, `{"artifacts":[{"id":"d1"}],"strange":1}`,
		`{"artifacts":[{"id":"d1","digest":"a"},{"id":"d1","digest":"b"}]}`)
}

func (g *gen) pickText(of ...string) object { return text("%s", g.one(of...)) }

func coreKinds() []*kind {
	return []*kind{
		native(kind{resource: "nodes", name2: "Node", weight: 6,
			body: func(g *gen) object {
				return g.pickText(`{}`, `{"spec":{"taints":[{"key":"k","effect":"NoSchedule"}]}}`, `{"spec":{"unschedulable":true}}`)
			},
			change: func(g *gen) object {
				return g.pickText(`{"spec":{"unschedulable":true}}`, `{"spec":{"unschedulable":null}}`, `{"spec":{"taints":null}}`,
					`{"spec":{"taints":[{"key":"k","value":"v","effect":"NoExecute"}]}}`,
					`{"spec":{"podCIDR":"10.0.0.0/24","podCIDRs":["10.0.0.0/24"]}}`)
			},
			status: func(g *gen) object {
				return text(`{"conditions":[%s],"nodeInfo":{"bootID":"b%d","kernelVersion":"6.1.0"},"capacity":{"cpu":"%d"}}`,
					g.condition(), g.rand.IntN(3), 1+g.rand.IntN(2))
			},
			invalid: []string{`{"spec":{"taints":[{"key":"a b","effect":"Never"}]}}`, `{"spec":{"podCIDRs":["x"]}}`,
				`{"spec":{"unschedulable":"yes"}}`}}),
		native(kind{resource: "pods", name2: "Pod", namespaced: true, weight: 6,
			body: func(g *gen) object {
				return text(`{"spec":{"containers":[{"name":"c","image":"example.com/i:%d"}]%s}}`, g.rand.IntN(2),
					g.one(``, `,"nodeName":"a"`, `,"nodeName":"b","terminationGracePeriodSeconds":5`, `,"hostNetwork":true`))
			},
			change: func(g *gen) object { return text(`{"spec":{"activeDeadlineSeconds":%d}}`, 1000000-g.number) },
			status: func(g *gen) object {
				return text(`{"phase":%q,"conditions":[%s],
					"containerStatuses":[{"name":"c","image":"i","imageID":"j","ready":true,"restartCount":0,
					"state":{"running":{"startedAt":"2001-01-01T00:00:00Z"}}}]}`, g.one("Running", "Pending", "Succeeded"), g.condition())
			},
			invalid: []string{`{"spec":{"nodeName":"z"}}`, `{"spec":{"containers":[]}}`, `{"spec":{"restartPolicy":"Sometimes"}}`,
				`{"spec":{"containers":[{"name":"c","image":"i",
					"securityContext":{"privileged":true,"allowPrivilegeEscalation":false}}]}}`}}),
		native(kind{resource: "configmaps", name2: "ConfigMap", namespaced: true, weight: 3,
			body:    func(g *gen) object { return text(`{"data":{"k":"v%d"}}`, g.rand.IntN(3)) },
			change:  func(g *gen) object { return text(`{"data":{"l":"v%d"}}`, g.rand.IntN(3)) },
			invalid: []string{`{"data":{"a b":"c"}}`, `{"data":{"a":1}}`, `{"data":{"a":"x"},"binaryData":{"a":"eA=="}}`}}),
		native(kind{resource: "secrets", name2: "Secret", namespaced: true, weight: 2,
			body: func(g *gen) object {
				return g.pickText(`{"data":{"k":"dg=="}}`, `{"stringData":{"k":"v"},"type":"drover.dev/key"}`)
			},
			change: func(g *gen) object {
				return g.pickText(`{"data":{"l":"dg=="}}`, `{"stringData":{"m":"v"}}`, `{"immutable":true}`)
			},
			invalid: []string{`{"type":"kubernetes.io/dockerconfigjson"}`, `{"data":{"k":"no base64!"}}`, `{"type":"other"}`}}),
		native(kind{resource: "serviceaccounts", name2: "ServiceAccount", namespaced: true, weight: 2,
			body: func(g *gen) object { return g.pickText(`{}`, `{"imagePullSecrets":[{"name":"s"}]}`) },
			change: func(g *gen) object {
				return g.pickText(`{"automountServiceAccountToken":false}`, `{"imagePullSecrets":null}`)
			},
			invalid: []string{`{"imagePullSecrets":"s"}`, `{"automountServiceAccountToken":"no"}`}}),
	}
}

func native(k kind) *kind {
	k.version, k.native = "v1", true
	return &k
}

// workloads are kinds of what runs pods.
func workloads() []*kind {
	selects := func(g *gen) string {
		return fmt.Sprintf(`"selector":{"matchLabels":{"app":"x"}},"template":`+template, g.rand.IntN(3), "")
	}
	return []*kind{
		native(kind{group: "apps", resource: "daemonsets", name2: "DaemonSet", namespaced: true, weight: 3,
			body: func(g *gen) object { return text(`{"spec":{%s}}`, selects(g)) },
			change: func(g *gen) object {
				return g.pickText(`{"spec":{"minReadySeconds":3}}`,
					`{"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":null}}}`,
					`{"spec":{"template":{"spec":{"nodeSelector":{"a":"b"}}}}}`, `{"spec":{"revisionHistoryLimit":2}}`)
			},
			status: func(g *gen) object {
				return text(`{"currentNumberScheduled":%d,"desiredNumberScheduled":2,"numberMisscheduled":0,
					"numberReady":%d,"observedGeneration":%d}`,
					g.rand.IntN(3), g.rand.IntN(3), g.rand.IntN(3))
			},
			invalid: []string{`{"spec":{"selector":{"matchLabels":{"app":"y"}}}}`, `{"spec":{"template":null}}`,
				`{"spec":{"updateStrategy":{"type":"Never"}}}`}}),
		native(kind{group: "apps", resource: "deployments", name2: "Deployment", namespaced: true, weight: 2,
			body:    func(g *gen) object { return text(`{"spec":{%s}}`, selects(g)) },
			change:  func(g *gen) object { return text(`{"spec":{"replicas":%d}}`, g.rand.IntN(3)) },
			status:  func(g *gen) object { return text(`{"replicas":%d,"observedGeneration":1}`, g.rand.IntN(3)) },
			invalid: []string{`{"spec":{"replicas":-1}}`, `{"spec":{"selector":null}}`}}),
		native(kind{group: "apps", resource: "controllerrevisions", name2: "ControllerRevision", namespaced: true, weight: 1,
			body:    func(g *gen) object { return text(`{"revision":%d,"data":{"spec":{"x":1}}}`, 1+g.rand.IntN(3)) },
			change:  func(g *gen) object { return text(`{"revision":%d}`, 1+g.rand.IntN(3)) },
			invalid: []string{`{"revision":-1}`, `{"data":{"spec":{"x":2}}}`}}),
		native(kind{group: "batch", resource: "jobs", name2: "Job", namespaced: true, weight: 3,
			body: func(g *gen) object {
				return text(`{"spec":{"backoffLimit":%d,"template":`+template+`}}`, g.rand.IntN(3), g.rand.IntN(2),
					`,"restartPolicy":"Never"`)
			},
			change: func(g *gen) object {
				return g.pickText(`{"spec":{"suspend":true}}`, `{"spec":{"suspend":false}}`, `{"spec":{"ttlSecondsAfterFinished":60}}`)
			},
			status: func(g *gen) object { return text(`{"active":%d,"startTime":"2001-01-01T00:00:00Z"}`, g.rand.IntN(3)) },
			invalid: []string{`{"spec":{"template":{"spec":{"restartPolicy":"Always"}}}}`, `{"spec":{"completions":-1}}`,
				`{"spec":{"parallelism":"two"}}`}}),
	}
}

// otherKinds are the rest, outside the core group.
func otherKinds() []*kind {
	return []*kind{
		native(kind{group: "policy", resource: "poddisruptionbudgets", name2: "PodDisruptionBudget", namespaced: true, weight: 2,
			body: func(g *gen) object {
				return text(`{"spec":{"maxUnavailable":%s,"selector":{"matchLabels":{"color":%q}}}}`, g.one("0", "1", `"50%"`),
					g.one("red", "blue"))
			},
			change: func(g *gen) object {
				return g.pickText(`{"spec":{"maxUnavailable":2}}`, `{"spec":{"maxUnavailable":"10%"}}`)
			},
			status: func(g *gen) object {
				return text(`{"observedGeneration":%d,"disruptionsAllowed":%d,"currentHealthy":2,"desiredHealthy":1,"expectedPods":2}`,
					1+g.rand.IntN(2), g.rand.IntN(2))
			},
			invalid: []string{`{"spec":{"minAvailable":1,"maxUnavailable":1}}`, `{"spec":{"maxUnavailable":"x"}}`}}),
		native(kind{group: "coordination.k8s.io", resource: "leases", name2: "Lease", namespaced: true, weight: 2,
			body: func(g *gen) object {
				return text(`{"spec":{"holderIdentity":"h%d","leaseDurationSeconds":40,"renewTime":"2001-01-01T00:00:00.000001Z"}}`,
					g.rand.IntN(3))
			},
			change: func(g *gen) object {
				return text(`{"spec":{"holderIdentity":"h%d","leaseTransitions":1}}`, g.rand.IntN(3))
			},
			invalid: []string{`{"spec":{"leaseDurationSeconds":0}}`, `{"spec":{"renewTime":"yesterday"}}`}}),
		native(kind{group: "events.k8s.io", resource: "events", name2: "Event", namespaced: true, weight: 2,
			body: func(g *gen) object {
				return text(`{"eventTime":"2001-01-01T00:00:00.000000Z","reportingController":"drover-operator","reportingInstance":"i",
					"action":"Load","reason":"R%d","type":"Normal","note":"n"}`, g.rand.IntN(2))
			},
			change: func(g *gen) object {
				return text(`{"series":{"count":%d,"lastObservedTime":"2001-01-01T00:00:01.000000Z"}}`, 2+g.rand.IntN(3))
			},
			invalid: []string{`{"type":"Odd"}`, `{"reason":"changed"}`, `{"action":""}`}}),
		native(kind{group: "resource.k8s.io", resource: "deviceclasses", name2: "DeviceClass", weight: 1,
			body: func(g *gen) object {
				return text(`{"spec":{"selectors":[{"cel":{"expression":"device.driver == 'd%d.example'"}}]}}`, g.rand.IntN(3))
			},
			change:  func(*gen) object { return text(`{"spec":{"selectors":null}}`) },
			invalid: []string{`{"spec":{"selectors":[{"cel":{"expression":"device."}}]}}`, `{"spec":{"selectors":[{}]}}`}}),
		native(kind{group: "resource.k8s.io", resource: "resourceslices", name2: "ResourceSlice", weight: 1,
			body: func(g *gen) object {
				return text(`{"spec":{"driver":"d.example","nodeName":"a","pool":{"name":"p","generation":%d,"resourceSliceCount":1},
					"devices":[{"name":"x","attributes":{"m":{"string":"v"}}}]}}`, g.rand.IntN(3))
			},
			change: func(g *gen) object {
				return text(`{"spec":{"pool":{"name":"p","generation":%d,"resourceSliceCount":1}}}`, g.rand.IntN(3))
			},
			invalid: []string{`{"spec":{"driver":"other.example"}}`, `{"spec":{"pool":{"resourceSliceCount":0}}}`}}),
		native(kind{group: "resource.k8s.io", resource: "resourceclaims", name2: "ResourceClaim", namespaced: true, weight: 1,
			body: func(*gen) object {
				return text(`{"spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"a"}}]}}}`)
			},
			change: func(*gen) object { return text(`{"metadata":{"annotations":{"x":"y"}}}`) },
			status: func(g *gen) object {
				return g.pickText(`{}`,
					`{"allocation":{"devices":{"results":[{"request":"r","driver":"d.example","pool":"p","device":"x"}]}}}`)
			},
			invalid: []string{`{"spec":{"devices":{"requests":[]}}}`}}),
	}
}
