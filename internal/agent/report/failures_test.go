// SPDX-License-Identifier: Apache-2.0

package report

import (
	"testing"

	"github.com/drover-project/drover/api/kmm/v1beta1"
	"github.com/drover-project/drover/internal/agent/host"
)

func TestLoadReasons(t *testing.T) {
	cases := map[string]struct {
		given host.CallError
		then  string
	}{
		"version magic": {host.CallError{Errno: "ENOEXEC", Log: []string{"m: version magic '1' should be '2'"}},
			v1beta1.ReasonVermagicMismatch},
		"symbol version": {host.CallError{Errno: "EINVAL", Log: []string{"m: disagrees about version of symbol module_layout"}},
			v1beta1.ReasonUnknownSymbol},
		"symbol":        {host.CallError{Errno: "ENOENT", Log: []string{"m: Unknown symbol f (err -2)"}}, v1beta1.ReasonUnknownSymbol},
		"not an object": {host.CallError{Errno: "ENOEXEC"}, v1beta1.ReasonVermagicMismatch},
		"key":           {host.CallError{Errno: "ENOKEY"}, v1beta1.ReasonSignatureRejected},
		"rejected":      {host.CallError{Errno: "EKEYREJECTED"}, v1beta1.ReasonSignatureRejected},
		"not permitted": {host.CallError{Errno: "EPERM"}, v1beta1.ReasonSignatureRejected},
		"lockdown": {host.CallError{Errno: "EPERM", Log: []string{"Lockdown: x: unsigned module loading is restricted; see man " +
			"kernel_lockdown.7"}}, v1beta1.ReasonLockedDown},
		"pinned": {host.CallError{Errno: "EPERM", Log: []string{`LoadPin: kernel-module denied obj="/m.ko" pid=1 cmdline="x"`}},
			v1beta1.ReasonLoadPin},
		"firmware": {host.CallError{Errno: "ENOENT", Log: []string{"m 0000:01:00.0: Direct firmware load for m.bin failed " +
			"with error -2"}}, v1beta1.ReasonMissingFirmware},
		"denied by SELinux":      {host.CallError{Errno: "EACCES", Log: []string{host.SELinuxEnforces}}, v1beta1.ReasonSELinux},
		"forbidden by SELinux":   {host.CallError{Errno: "EPERM", Log: []string{host.SELinuxForbids}}, v1beta1.ReasonSELinux},
		"denied by another, IMA": {host.CallError{Errno: "EACCES"}, v1beta1.ReasonLoadFailed},
		"disabled":               {host.CallError{Errno: "EPERM", Log: []string{"kernel.modules_disabled is 1"}}, v1beta1.ReasonModulesDisabled},
		"parameter": {host.CallError{Errno: "EINVAL", Log: []string{"m: `x' invalid for parameter `n'"}},
			v1beta1.ReasonInvalidParameter},
		"init says no":    {host.CallError{Errno: "EINVAL"}, v1beta1.ReasonLoadFailed},
		"no device":       {host.CallError{Errno: "ENODEV"}, v1beta1.ReasonNoSuchDevice},
		"no such address": {host.CallError{Errno: "ENXIO"}, v1beta1.ReasonNoSuchDevice},
		"anything else":   {host.CallError{Errno: "EIO"}, v1beta1.ReasonLoadFailed},
		"asked for a module": {host.CallError{Errno: "ENXIO", Log: []string{"xt_pknock: request_module('hmac(sha256)') error."}},
			v1beta1.ReasonMissingDependency},
		"no card, and a word": {host.CallError{Errno: "ENODEV", Log: []string{"m: cannot find the card; see module m's page"}},
			v1beta1.ReasonNoSuchDevice},
		"number out of range": {host.CallError{Errno: "ERANGE"}, v1beta1.ReasonInvalidParameter},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			same(t, "reason", tc.then, LoadFailed(&tc.given, nil).Reason)
		})
	}
}
