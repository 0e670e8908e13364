// SPDX-License-Identifier: GPL-2.0-only
/* drover_sample_dep: exports one symbol, so that drover_sample_user depends on it. */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>

#include "drover_sample_dep.h"

int drover_sample_dep_answer(void)
{
	return 42;
}
EXPORT_SYMBOL_GPL(drover_sample_dep_answer);

static int __init dep_init(void)
{
	pr_info("loaded\n");
	return 0;
}

static void __exit dep_exit(void)
{
	pr_info("unloaded\n");
}

module_init(dep_init);
module_exit(dep_exit);

MODULE_LICENSE("GPL");
MODULE_AUTHOR("Drover authors");
MODULE_DESCRIPTION("Sample of a module that another one depends on");
MODULE_VERSION("1.0");
