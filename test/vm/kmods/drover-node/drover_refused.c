// SPDX-License-Identifier: GPL-2.0-only
/* drover_refused: does nothing; tests damage its file in ways that the kernel refuses. */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/init.h>
#include <linux/module.h>
#include <linux/printk.h>

static int __init refused_init(void)
{
	pr_info("loaded\n");
	return 0;
}

static void __exit refused_exit(void)
{
	pr_info("unloaded\n");
}

module_init(refused_init);
module_exit(refused_exit);
MODULE_DESCRIPTION("Does nothing, for Drover's tests");
MODULE_LICENSE("GPL");
