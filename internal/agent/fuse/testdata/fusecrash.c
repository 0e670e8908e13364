// SPDX-License-Identifier: GPL-2.0-only
#include <linux/module.h>
#include <linux/timer.h>
#include <linux/string.h>
#include <linux/delay.h>
// Takes the kernel down in the way that mode says: what the dumps next to this file come from.

static int mode;
module_param(mode, int, 0);
static struct timer_list late;
static noinline void late_fn(struct timer_list *t) { *(volatile int *)16 = 1; }
static int __init fusecrash_init(void)
{
	volatile char *nowhere = (char *)8;
	switch (mode) {
	case 0: *nowhere = 1; break;
	case 1: panic("fusecrash: asked to panic");
	case 2: BUG();
	case 3: WARN_ON(1); break;
	case 4: timer_setup(&late, late_fn, 0); mod_timer(&late, jiffies + HZ / 5); break;
	case 5: memset((void *)nowhere, 0, mode * 7000); break;
	case 6: ((void (*)(void))NULL)(); break;
	case 7: local_irq_disable(); for (;;) cpu_relax();
	case 8: preempt_disable(); for (;;) cpu_relax();
	case 9: msleep(60000);
	}
	return 0;
}
static void __exit fusecrash_exit(void) { del_timer_sync(&late); }
module_init(fusecrash_init);
module_exit(fusecrash_exit);
MODULE_LICENSE("GPL");
