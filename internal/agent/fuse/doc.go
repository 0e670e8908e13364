// SPDX-License-Identifier: Apache-2.0

// Package fuse keeps a kernel module that takes the node down from doing so at every boot, and keeps a power cut, a
// reboot or a killed agent from condemning a healthy build.
//
// It decides and remembers; it loads nothing, looks at no kernel, has no clock and does not log. What it remembers is
// one file in the agent's state directory, apart from the record, so that losing the one does not lose the other.
//
// The order of calls in one life of the agent:
//
//	f, err := fuse.Open(dir, true)             // err may come with a usable f: report it and go on
//	verdicts, err := f.Boot(bootID, dumps, now) // once, before any load; Resumed: look at the kernel, then Done
//	hold, ok := f.Allowed(build, now)          // not ok: Quarantined, or wait until hold.Until
//	err = f.Intent(build, now)                 // not nil: do not load
//	...finit_module...
//	err = f.Done(build, live, now)             // whatever the kernel said
//	err = f.Settle(now)                        // every minute or so
//	err = f.Stop(now)                          // told to stop: what follows may be an orderly reboot
//
// What the end of a boot means for a build whose load was on its way, or had returned less than SettleAfter ago:
//
//   - the boot has not ended: the agent died, the kernel did not; nothing is counted;
//   - a dump of the kernel names the module: quarantined at once;
//   - a dump names another module that was being loaded, or the agent had been told to stop: nothing;
//   - a load was on its way: one strike, and a new try after RetryAfter; the second in a row quarantines;
//   - the load had returned, and that of another build was on its way, which explains the end: nothing;
//   - the load had returned, and no other was on its way: nothing, unless it happened EarlyLimit times in a row; from then on it is a strike.
//
// "In a row" ends when a load of the build stays live for SettleAfter. A quarantine ends after QuarantineFor, by
// Release, or by another build, which is another Build here.
//
// Times come from the node's wall clock. One that jumps forward ends waits early; times that lie in the future are taken
// to be now, so that a clock that was wrong once holds nothing for years.
package fuse
