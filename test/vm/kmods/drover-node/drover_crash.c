// SPDX-License-Identifier: GPL-2.0-only
/* drover_crash: takes the node down when it is loaded, as a broken driver does. */

#include <linux/init.h>
#include <linux/kernel.h>
#include <linux/module.h>

static int __init crash_init(void)
{
	panic("drover_crash: as it was asked to");
}

static void __exit crash_exit(void)
{
}

module_init(crash_init);
module_exit(crash_exit);
MODULE_DESCRIPTION("Panics on load, for Drover's tests");
MODULE_LICENSE("GPL");
