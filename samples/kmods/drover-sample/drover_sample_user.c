// SPDX-License-Identifier: GPL-2.0-only
/* drover_sample_user: calls drover_sample_dep, which must therefore be loaded first. */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>

#include "drover_sample_dep.h"

static int __init user_init(void)
{
	pr_info("loaded, answer=%d\n", drover_sample_dep_answer());
	return 0;
}

static void __exit user_exit(void)
{
	pr_info("unloaded\n");
}

module_init(user_init);
module_exit(user_exit);

MODULE_LICENSE("GPL");
MODULE_AUTHOR("Drover authors");
MODULE_DESCRIPTION("Sample of a module that depends on another one");
MODULE_VERSION("1.0");
