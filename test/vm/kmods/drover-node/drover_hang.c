// SPDX-License-Identifier: GPL-2.0-only
/* drover_hang: its init waits for what never comes, as a driver whose hardware does not answer. */

#include <linux/completion.h>
#include <linux/init.h>
#include <linux/module.h>

static DECLARE_COMPLETION(never);

static int __init hang_init(void)
{
	wait_for_completion(&never);
	return 0;
}

static void __exit hang_exit(void)
{
}

module_init(hang_init);
module_exit(hang_exit);
MODULE_DESCRIPTION("Never returns from its init, for Drover's tests");
MODULE_LICENSE("GPL");
