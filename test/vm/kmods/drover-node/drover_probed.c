// SPDX-License-Identifier: GPL-2.0-only
/* drover_probed: has a parameter and needs a module of the kernel's own, for loads by one way or another. */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/crc-itu-t.h>
#include <linux/init.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/printk.h>
#include <linux/string.h>

static char *text = "";
module_param(text, charp, 0444);
MODULE_PARM_DESC(text, "what the checksum in the log is of");

static int __init probed_init(void)
{
	pr_info("loaded, %04x\n", crc_itu_t(0, text, strlen(text)));
	return 0;
}

static void __exit probed_exit(void)
{
	pr_info("unloaded\n");
}

module_init(probed_init);
module_exit(probed_exit);
MODULE_DESCRIPTION("Needs another module, for Drover's tests");
MODULE_LICENSE("GPL");
