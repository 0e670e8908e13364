// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/drover-project/drover/api/kmm/v1beta1"
)

// governed says of each field of a Module which case of [TestModulePolicies] shows that a policy
// limits it ("= case"), or why no policy need.
func governed() map[string]string {
	return map[string]string{
		"devicePlugin.container": "= a device plugin", "devicePlugin.initContainer": "= an init container's image",
		"dra.container": "= a DRA driver", "dra.initContainer": "= an init container's image",
		"devicePlugin.volumes": "= a hostPath", "dra.volumes": "= a hostPath", "dra.hostNetwork": "= the node's network",
		"dra.driverName": "= a driver's name", "dra.deviceClasses": "= a DeviceClass",
		"devicePlugin.imagePullSecrets":             ownSecrets,
		"imageRepoSecret":                           ownSecrets,
		"imageRepoSecrets":                          ownSecrets,
		"devicePlugin.serviceAccountName":           ownAccount,
		"devicePlugin.automountServiceAccountToken": ownAccount,
		"dra.serviceAccountName":                    ownAccount,
		"dra.automountServiceAccountToken":          ownAccount,
		"moduleLoader.serviceAccountName":           ownAccount,
		"imageRebuildTriggerGeneration":             when,
		"deletionTimeout":                           when,
		"rollout.maxUnavailable":                    when,
		"rollout.soak":                              when,
		"rollout.pauseOnFailure":                    when,
		"rollout.paused":                            when,
		"rollout.deselectGracePeriod":               when,
		"rollout.drain":                             "= a drain",
		"rollout.drainOptions":                      "they narrow or widen drain, which is limited",
		"selector":                                  where,
		"tolerations":                               where,
		"startupTaint":                              "= a startup taint",

		"moduleLoader.container.build":                 "= build of all",
		"moduleLoader.container.sign":                  "= an image that is signed",
		"moduleLoader.container.containerImage":        "= the container's image",
		"moduleLoader.container.imagePullPolicy":       when,
		"moduleLoader.container.registryTLS":           transport,
		"moduleLoader.container.unloadPolicy":          when,
		"moduleLoader.container.version":               when,
		"moduleLoader.container.blacklistInTree":       "it keeps out the modules of inTreeModulesToRemove, which are limited",
		"moduleLoader.container.readyWhen":             "it reads what every process of the node may read, and its command is the plugin's",
		"moduleLoader.container.inTreeModuleToRemove":  "= one to remove, of old",
		"moduleLoader.container.inTreeModulesToRemove": "= one to remove",

		"moduleLoader.container.kernelMappings.build":                 "= build of a mapping",
		"moduleLoader.container.kernelMappings.sign":                  "= an image that is signed",
		"moduleLoader.container.kernelMappings.containerImage":        "= an image",
		"moduleLoader.container.kernelMappings.architecture":          where,
		"moduleLoader.container.kernelMappings.literal":               where,
		"moduleLoader.container.kernelMappings.regexp":                where,
		"moduleLoader.container.kernelMappings.registryTLS":           transport,
		"moduleLoader.container.kernelMappings.inTreeModuleToRemove":  "= one that a mapping removes",
		"moduleLoader.container.kernelMappings.inTreeModulesToRemove": "= one that a mapping removes",

		"moduleLoader.container.modprobe.moduleName":          "= a name",
		"moduleLoader.container.modprobe.parameters":          "= parameters",
		"moduleLoader.container.modprobe.dirName":             "it is a directory of the image; modprobe, to which it could be more, needs args",
		"moduleLoader.container.modprobe.args":                "= args",
		"moduleLoader.container.modprobe.rawArgs":             "= rawArgs",
		"moduleLoader.container.modprobe.firmwarePath":        "= firmware",
		"moduleLoader.container.modprobe.modprobedDir":        "no node supports it",
		"moduleLoader.container.modprobe.modulesLoadingOrder": "= a dependency",
	}
}

const (
	ownSecrets = "Secrets of the Module's own namespace"
	ownAccount = "a ServiceAccount of the Module's own namespace, whose pods can have it anyway"
	when       = "it says when and how many of the Module's own nodes change, and nothing of other Modules"
	where      = "it says where; a policy limits what comes there, and chooses nodes by its nodeSelector"
	transport  = "it weakens the way of an image that policies allow, where the Module's author could name it by digest"
)

// opened are the structures whose fields a policy tells apart. Others are one field.
var opened = []reflect.Type{
	reflect.TypeFor[v1beta1.DevicePluginSpec](), reflect.TypeFor[v1beta1.DRASpec](), reflect.TypeFor[v1beta1.ModuleLoaderSpec](),
	reflect.TypeFor[v1beta1.ModuleLoaderContainerSpec](), reflect.TypeFor[v1beta1.KernelMapping](), reflect.TypeFor[v1beta1.ModprobeSpec](),
	reflect.TypeFor[v1beta1.RolloutSpec](),
}

func fieldsOf(of reflect.Type, prefix string) (paths []string) {
	for i := range of.NumField() {
		name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
		kind := of.Field(i).Type
		for kind.Kind() == reflect.Pointer || kind.Kind() == reflect.Slice {
			kind = kind.Elem()
		}
		if slices.Contains(opened, kind) {
			paths = append(paths, fieldsOf(kind, prefix+name+".")...)
			continue
		}
		paths = append(paths, prefix+name)
	}
	return paths
}

// TestEveryFieldIsGoverned: who adds a field to Modules says what limits it, or why nothing need.
func TestEveryFieldIsGoverned(t *testing.T) {
	said := governed()
	cases := policiesOfNames()
	maps.Copy(cases, policiesOfTexts())
	maps.Copy(cases, policiesOfTheRest())
	for _, path := range fieldsOf(reflect.TypeFor[v1beta1.ModuleSpec](), "") {
		why, ok := said[path]
		if !ok || why == "" {
			t.Errorf("spec.%s: what keeps it within its namespace? Let ModulePolicy limit it, with a case, or say here why it need not", path)
		}
		if name, limited := strings.CutPrefix(why, "= "); limited && cases[name].bad == nil {
			t.Errorf("spec.%s: TestModulePolicies has no case %q", path, name)
		}
		delete(said, path)
	}
	for path := range said {
		t.Errorf("spec.%s: there is no such field", path)
	}
}
