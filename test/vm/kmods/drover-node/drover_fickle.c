// SPDX-License-Identifier: GPL-2.0-only
/* drover_fickle: has no memory, as it says, while sysctl kernel.panic is 77. */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/errno.h>
#include <linux/module.h>
#include <linux/panic.h>

static int value = 1;
module_param(value, int, 0444);

static int __init fickle_init(void)
{
	if (panic_timeout == 77) {
		pr_info("no memory\n");
		return -ENOMEM;
	}
	return 0;
}

static void __exit fickle_exit(void)
{
}

module_init(fickle_init);
module_exit(fickle_exit);
MODULE_DESCRIPTION("Fails at times, for Drover's tests");
MODULE_LICENSE("GPL");
