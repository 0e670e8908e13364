// SPDX-License-Identifier: Apache-2.0

// Package fuse keeps a kernel module that takes the node down from doing so at every boot, and
// keeps a power cut, a reboot or a killed agent from condemning a healthy build.
//
// It decides and remembers; it loads nothing, has no clock and does not log. Its memory is one file
// in the agent's state directory, apart from the record, so that no fault loses both.
//
// The order of calls in one life of the agent:
//
//	f, err := fuse.Open(dir, true)              // err may come with a usable f: report it and go on
//	verdicts, err := f.Boot(bootID, dumps, now) // once, before any load; Resumed: look at the kernel, then Done
//	hold, ok := f.Allowed(build, now)           // not ok: quarantined, or wait until hold.Until
//	err = f.Intent(build, now)                  // not nil: do not load
//	...finit_module...
//	err = f.Done(build, live, now)              // whatever the kernel said
//	err = f.Settle(now)                         // every minute or so
//	err = f.Stop(now)                           // told to stop: an orderly reboot may follow
//
// Boot judges each build whose load had not returned, or had returned less than SettleAfter ago.
// The first of these that holds decides:
//
//   - the boot has not ended, only the agent: nothing;
//   - a dump of the kernel names the module: quarantine;
//   - a dump names another module that was being loaded, or the agent had been told to stop:
//     nothing;
//   - the load had not returned: a strike, and a new try after RetryAfter; StrikeLimit in a row
//     quarantine;
//   - the load had returned, and another had not, which explains the end: nothing;
//   - otherwise: nothing, but a strike from the EarlyLimit-th time in a row on.
//
// "In a row" ends when a load of the build stays live for SettleAfter. A quarantine ends after
// QuarantineFor, by Release, or with another build.
//
// Times are of the node's wall clock. If it jumps forward, waits end early. Times in the future
// count as now, so that a clock that was wrong once delays nothing for years.
package fuse
