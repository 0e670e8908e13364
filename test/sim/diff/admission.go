// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"fmt"
	"net/http"
	"strings"
)

const operator = "system:serviceaccount:drover-system:drover-operator"

func moduleBody(g *gen) object {
	container := fmt.Sprintf(`{"modprobe":{"moduleName":"nic%d"},
		"kernelMappings":[{"regexp":"^.+$","containerImage":"r.example/nic:%d"}]%s}`,
		g.rand.IntN(2), g.rand.IntN(3), g.one(``, `,"version":"1"`, `,"imagePullPolicy":"Always"`))
	return text(`{"spec":{"selector":{"a":"b%d"},"moduleLoader":{"container":%s}%s}}`, g.rand.IntN(2), container,
		g.one(``, `,"imageRepoSecret":{}`, `,"tolerations":[{"operator":"Exists"}]`, `,"rollout":{"maxUnavailable":"10%"}`))
}

func moduleChange(g *gen) object {
	return g.pickText(`{"spec":{"selector":{"c":"d"}}}`, `{"spec":{"rollout":{"maxUnavailable":2}}}`, `{"spec":{"rollout":null}}`,
		`{"spec":{"startupTaint":"drover.dev/x"}}`, `{"spec":{"imageRepoSecrets":[{"name":"s"},{}]}}`, `{"spec":{"tolerations":null}}`,
		`{"spec":{"moduleLoader":{"container":{"version":"2"}}}}`, `{"spec":{"moduleLoader":{"container":{"version":null}}}}`,
		`{"spec":{"moduleLoader":{"container":{"kernelMappings":[{"literal":"6.1.0","containerImage":"r.example/other:1"}]}}}}`)
}

func moduleStatus(g *gen) object {
	return g.pickText(fmt.Sprintf(`{"observedGeneration":%d,
		"moduleLoader":{"nodesMatchingSelectorNumber":%d,"desiredNumber":1,"availableNumber":0}}`,
		g.rand.IntN(4), g.rand.IntN(3)), `{"conditions":[`+g.condition()+`]}`, `{}`,
		`{"problems":[{"part":"Plugin","node":"n","reason":"r"}]}`,
		`{"problems":[{"part":"Strange","node":"n","reason":"r"}]}`, `{"conditions":[{"type":"Ready"}]}`, `{"strange":1}`)
}

// specRules are changes of a Module's spec, containerRules of spec.moduleLoader.container, which
// our schema, its rules or our policies let pass or refuse.
var specRules = []string{
	`"selector":null`, `"selector":{"a":1}`, `"dra":{"driverName":"d.example","container":{"image":"i:1"}}`,
	`"dra":{"driverName":"d.example","container":{"image":"i:1"}},"devicePlugin":{"container":{"image":"i:1"}}`,
	`"devicePlugin":{"container":{"image":"i:1","env":[{"name":"A","value":"b"}]},"volumes":[{"name":"v","hostPath":{"path":"/dev/x"}}]}`,
	`"devicePlugin":{"container":{"image":"i:1"},"volumes":[{"name":"v","hostPath":{"path":"/etc"}}]}`,
	`"devicePlugin":{"container":{"image":"i:1"},"volumes":[{"name":"drover-host-dev","emptyDir":{}}]}`,
	`"devicePlugin":{"container":{"image":"i:1","volumeMounts":[{"name":"v","mountPath":"/var/lib/kubelet/device-plugins"}]}}`,
	`"devicePlugin":{}`, `"deletionTimeout":"5m"`, `"deletionTimeout":"five"`, `"imageRepoSecret":{}`, `"imageRepoSecrets":[{},{}]`,
	`"imageRepoSecrets":[{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}]`, `"rollout":{"maxUnavailable":0}`,
	`"rollout":{"maxUnavailable":"101%"}`,
	`"rollout":{"maxUnavailable":"100%"}`, `"rollout":{"maxUnavailable":1.5}`, `"rollout":{"drain":"Some"}`,
	`"rollout":{"drainOptions":{"timeout":"1h"}}`,
	`"rollout":{"drain":"Node","drainOptions":{"timeout":"1h"}}`, `"rollout":{"soak":"1h30m","deselectGracePeriod":"x"}`,
	`"startupTaint":"kubernetes.io/x"`, `"startupTaint":"startup-taint.cluster-autoscaler.kubernetes.io/x"`, `"startupTaint":"no good"`,
	`"startupTaint":""`,
	`"tolerations":[{"key":"a b"}]`, `"tolerations":[{}]`, `"tolerations":[{"key":"k","operator":"Exists","value":"v"}]`,
	`"tolerations":[{"key":"k","effect":"NoSchedule","tolerationSeconds":3}]`, `"tolerations":[{"key":"k","value":"no good!"}]`,
	`"strange":1`,
	`"moduleLoader":{}`, `"moduleLoader":null`, `"moduleLoader":{"container":{}}`, `"moduleLoader":{"serviceAccountName":"s"}`,
}

var containerRules = []string{
	`"inTreeModulesToRemove":["x"]`, `"inTreeModulesToRemove":["x"],"inTreeModuleToRemove":"y"`,
	`"inTreeModuleToRemove":"x","kernelMappings":[{"literal":"6","containerImage":"i:1","inTreeModulesToRemove":["y"]}]`,
	`"kernelMappings":[{"literal":"6"}]`, `"containerImage":"i:1","kernelMappings":[{"literal":"6"}]`, `"containerImage":"untagged"`,
	`"containerImage":"i@sha256:0"`, `"kernelMappings":[]`, `"kernelMappings":null`,
	`"kernelMappings":[{"literal":"6","regexp":"7","containerImage":"i:1"}]`,
	`"kernelMappings":[{"containerImage":"i:1"}]`, `"kernelMappings":[{"regexp":"(","containerImage":"i:1"}]`,
	`"kernelMappings":[{"literal":"6","containerImage":"r/i:${KERNEL_FULL_VERSION}"},{"regexp":"^7","containerImage":"r/i:${STRANGE}"}]`,
	`"kernelMappings":[{"literal":"6","containerImage":"i:1","architecture":"ARM"}]`,
	`"kernelMappings":[{"literal":"6","containerImage":"i:1","build":{"dockerfileConfigMap":{"name":"d"}}}]`,
	`"kernelMappings":[{"literal":"6","containerImage":"i:1","sign":{"keySecret":{"name":"k"},"certSecret":{}}}]`,
	`"sign":{"keySecret":{"name":"k"},"certSecret":{"name":"c"},"filesToSign":["/opt/x.ko","/etc/x.ko"]}`,
	`"sign":{"keySecret":{"name":"k"}}`,
	`"build":{"native":{"sourceImage":"s:1"},"dockerfileConfigMap":{"name":"d"}}`,
	`"build":{"native":{"sourceImage":"s:1","sourceConfigMap":{"name":"d"}}}`,
	`"build":{"native":{"sourceImage":"s:$STRANGE"}}`,
	`"build":{"native":{"sourceImage":"s:1"},"resources":{"limits":{"cpu":"1","gpu":"1"}}}`,
	`"build":{"native":{"sourceImage":"s:1"},"resources":{"limits":{"cpu":1,"memory":"much"}}}`,
	`"build":{"buildArgs":[{"name":"a"}],"secrets":[{}]}`,
	`"modprobe":{"moduleName":null}`, `"modprobe":{"moduleName":"x","rawArgs":{"load":["x"]}}`,
	`"modprobe":{"moduleName":null,"rawArgs":{"load":["x"],"unload":["-r","x"]}}`, `"modprobe":{"modulesLoadingOrder":["nic0"]}`,
	`"modprobe":{"moduleName":"x","modulesLoadingOrder":["x","y"]}`, `"modprobe":{"moduleName":"x","modulesLoadingOrder":["y","x"]}`,
	`"modprobe":{"moduleName":"x","modulesLoadingOrder":["x","y","y"]}`, `"modprobe":{"moduleName":"-x"}`,
	`"modprobe":{"moduleName":"a b"}`,
	`"modprobe":{"parameters":["a=b","-c"]}`, `"modprobe":{"firmwarePath":"/lib/../etc"}`, `"modprobe":{"modprobedDir":"etc"}`,
	`"modprobe":{"dirName":""}`,
	`"modprobe":{"dirName":null}`, `"readyWhen":[{"deviceNode":"/dev/x"}]`, `"readyWhen":[{"deviceNode":"/dev/x","command":["a"]}]`,
	`"readyWhen":[{"command":["a"]},{"command":["b"]}]`, `"readyWhen":[{"command":["a"]}]`, `"readyWhen":[{"deviceNode":"/dev/../x"}]`,
	`"readyWhen":[{"sysfs":{}}]`, `"readyWhen":[{}]`, `"unloadPolicy":"Never"`, `"unloadPolicy":"OnReboot"`, `"version":"no good"`,
	`"version":"1.0"`,
	`"version":""`, `"version":null`, `"imagePullPolicy":"Sometimes"`, `"imagePullPolicy":null`,
}

// tooLarge are lists over their maximum.
func tooLarge(g *gen) string {
	return g.one(`"modprobe":{"parameters":[`+strings.Repeat(`"a=b",`, 128)+`"c=d"]}`,
		`"kernelMappings":[`+strings.Repeat(`{"literal":"6","containerImage":"i:1"},`, 512)+`{"literal":"7","containerImage":"i:1"}]`,
		`"modprobe":{"moduleName":"`+strings.Repeat("m", 257)+`"}`, `"inTreeModulesToRemove":[`+strings.Repeat(`"a",`, 64)+`"c"]`)
}

func moduleRules(g *gen) []step {
	t := g.any(is("modules"))
	change := ""
	switch at := g.rand.IntN(len(specRules) + len(containerRules) + 5); {
	case at < len(specRules):
		change = `{"spec":{` + specRules[at] + `}}`
	case at < len(specRules)+len(containerRules):
		change = `{"spec":{"moduleLoader":{"container":{` + containerRules[at-len(specRules)] + `}}}}`
	default:
		change = `{"spec":{"moduleLoader":{"container":{` + tooLarge(g) + `}}}}`
	}
	if _, live := g.known[t.path()]; live && g.chance(60) {
		return seen(t.path(), patching(t, mergePatch, change, g.one("", "", "fieldValidation=Strict")))
	}
	return seen(t.path(), post(t, merged(g.object(t), text("%s", change)), g.one("", "dryRun=All")))
}

// policies refuse an administrator, too.
func policies(g *gen) []step {
	module, pod := g.target(g.kind(is("modules"))), g.target(g.kind(is("pods")))
	carrier := target{kind: pod.kind, space: pod.space, name: "drover-carrier-x"}
	labelled := object{"metadata": object{"labels": object{"drover.dev/carrier": ""}}}
	long := target{kind: module.kind, space: module.space, name: strings.Repeat("m", 40)}
	return [][]step{
		{post(carrier, g.object(carrier), "dryRun=All")},
		{post(pod, merged(g.object(pod), labelled), "dryRun=All")},
		{post(long, g.object(long), "dryRun=All")},
		{post(module, merged(g.object(module), text(`{"metadata":{"annotations":{"drover.dev/retry":%q}}}`, g.one("now",
			"2026-01-31T12:00:00Z"))), "dryRun=All")},
		seen(module.path(), patching(module, mergePatch, text(`{"metadata":{"annotations":{"drover.dev/%s":%q}}}`, g.one("retry",
			"confirm-deselection"),
			g.one("2001-01-31T12:00:00Z", "soon")))),
	}[g.rand.IntN(5)]
}

// by asks as another identity.
func by(s step, user string, groups ...string) step {
	s.as = http.Header{"Impersonate-User": {user}}
	if len(groups) > 0 {
		s.as["Impersonate-Group"] = groups
	}
	return s
}

// impersonate asks for what RBAC grants and our policies restrict. All are dry runs.
func impersonate(g *gen) []step {
	node := g.any(is("nodes"))
	module := g.any(is("modules"))
	nmc := g.any(is("nodemodulesconfigs"))
	pod := g.target(g.kind(is("pods")))
	carrier := target{kind: pod.kind, space: pod.space, name: "drover-carrier-x"}
	set := target{kind: g.kind(is("daemonsets")), space: pod.space, name: g.one("x-device-plugin", "x")}
	condition := patching(node, strategicPatch, text(`{"status":{"conditions":[{"type":%q,"status":"True"}]}}`,
		g.one("drover.dev/KernelModulesReady", "Ready")), "dryRun=All")
	condition.path += "/status"
	report := patching(nmc, mergePatch, `{"status":{"artifacts":[{"id":"a","digest":"b"}]}}`, "dryRun=All")
	report.path += "/status"
	agent := by(report, "system:serviceaccount:drover-system:drover-agent")
	agent.as["Impersonate-Extra-Authentication.kubernetes.io%2fnode-Name"] = []string{g.one("a", "b", nmc.name)}
	return []step{[]step{
		by(patching(node, mergePatch, g.one(`{"metadata":{"labels":{"kmm.node.kubernetes.io/n.m.ready":""}}}`,
			`{"metadata":{"labels":{"other":""}}}`,
			`{"metadata":{"annotations":{"drover.dev/cordoned-for":"m"}},"spec":{"unschedulable":true}}`,
			`{"spec":{"unschedulable":true}}`,
			`{"spec":{"taints":null}}`, `{"spec":{"taints":[{"key":"node.kubernetes.io/x","effect":"NoSchedule"}]}}`,
			`{"metadata":{"finalizers":["a.b/c"]}}`),
			"dryRun=All"), operator),
		by(patching(module, mergePatch, g.one(`{"metadata":{"finalizers":["`+ourFinalizer+`"]}}`,
			`{"metadata":{"finalizers":["drover.dev/other"]}}`,
			`{"metadata":{"labels":{"x":"y"}}}`, `{"spec":{"selector":{"x":"y"}}}`, `{"metadata":{"finalizers":null}}`), "dryRun=All"),
			operator),
		by(patching(g.any(is("pods")), mergePatch, g.one(`{"metadata":{"finalizers":null}}`, `{"metadata":{"labels":{"x":"y"}}}`),
			"dryRun=All"), operator),
		by(post(carrier, merged(g.object(carrier), g.pickText(`{}`, `{"spec":{"hostPID":true}}`,
			`{"spec":{"automountServiceAccountToken":false,"nodeName":"a"}}`)),
			"dryRun=All"), operator),
		by(post(pod, g.object(pod), "dryRun=All"), operator),
		by(post(set, merged(g.object(set), g.pickText(`{}`,
			`{"metadata":{"labels":{"kmm.node.kubernetes.io/module.name":"x","kmm.node.kubernetes.io/role":"device-plugin"}}}`)),
			"dryRun=All"), operator),
		by(removing(g.any(is("pods")), nil, "dryRun=All"), operator),
		by(removing(g.any(is("daemonsets")), nil, "dryRun=All"), operator),
		agent,
		by(patching(node, strategicPatch, g.one(`{"metadata":{"labels":{"kmm.node.kubernetes.io/n.m.ready":""}}}`,
			`{"metadata":{"annotations":{"drover.dev/x":"y"}}}`,
			`{"metadata":{"labels":{"beta.kubernetes.io/os":"linux"}}}`), "dryRun=All"), "system:node:"+node.name, "system:nodes",
			"system:authenticated"),
		by(condition, "system:node:"+node.name, "system:nodes", "system:authenticated"),
		by(applying(nmc, g.object(nmc), "fieldManager=drover/n/x", "force=true", "dryRun=All"), operator),
	}[g.rand.IntN(12)]}
}

// modulePolicies are parameters of a policy: the server learns of them by a watch of its own. One
// that no longer binds is awaited, too, lest it denies what other questions make.
func modulePolicies(g *gen) []step {
	p := target{kind: g.kind(is("modulepolicies")), name: fmt.Sprintf("p-%d", g.number)}
	t := target{kind: g.kind(is("modules")), space: g.spaces()[0], name: "policed"}
	policy := merged(g.object(p),
		text(`{"spec":{"mode":"Enforce","namespaceSelector":{"matchLabels":{"never":null,"run":%q}},"images":["other.example/*"]%s}}`,
			g.tag,
			g.one(``, `,"load":"Deny"`, `,"modules":["other"]`)))
	denied, allowed := post(t, g.object(t), "dryRun=All"), post(t, g.object(t), "dryRun=All")
	denied.await, allowed.await = http.StatusForbidden, http.StatusCreated
	return []step{post(p, policy), denied, removing(p, nil), allowed}
}
