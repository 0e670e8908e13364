// SPDX-License-Identifier: GPL-2.0-only
/*
 * he_sample_kernel_module: says hello when it is loaded and goodbye when it is
 * unloaded, and in between offers /dev/he_sample0 and /dev/he_sample1, which
 * read as "hello 0" and "hello 1". It is the smallest kernel module that gives
 * a device plugin something to hand out.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/fs.h>
#include <linux/kernel.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <linux/version.h>

#if LINUX_VERSION_CODE < KERNEL_VERSION(4, 18, 0)
#error "he_sample_kernel_module is for Linux 4.18 and later"
#endif

struct he_device {
	struct miscdevice misc;
	const char *line;
};

/* misc_open leaves the miscdevice in private_data. */
static ssize_t he_read(struct file *file, char __user *to, size_t count, loff_t *position)
{
	const struct he_device *device = container_of(file->private_data, struct he_device, misc);

	return simple_read_from_buffer(to, count, position, device->line, strlen(device->line));
}

/* The owner keeps the module in the kernel while a device is open. */
static const struct file_operations he_operations = {
	.owner = THIS_MODULE,
	.read = he_read,
	.llseek = default_llseek,
};

/* Everybody may read; there is nothing to write. */
#define HE_DEVICE(number)                                   \
	{                                                   \
		.misc = {                                   \
			.minor = MISC_DYNAMIC_MINOR,        \
			.name = "he_sample" #number,        \
			.fops = &he_operations,             \
			.mode = 0444,                       \
		},                                          \
		.line = "hello " #number "\n",              \
	}

static struct he_device devices[] = { HE_DEVICE(0), HE_DEVICE(1) };

static void remove_devices(size_t count)
{
	while (count-- > 0)
		misc_deregister(&devices[count].misc);
}

static int __init he_init(void)
{
	size_t index;
	int err;

	for (index = 0; index < ARRAY_SIZE(devices); index++) {
		err = misc_register(&devices[index].misc);
		if (err) {
			remove_devices(index);
			return err;
		}
	}
	pr_info("hello\n");
	return 0;
}

static void __exit he_exit(void)
{
	remove_devices(ARRAY_SIZE(devices));
	pr_info("goodbye\n");
}

module_init(he_init);
module_exit(he_exit);

/* Not "Apache 2.0": the kernel gives its GPL symbols only to licences it knows. */
MODULE_LICENSE("GPL");
MODULE_AUTHOR("Drover authors");
MODULE_DESCRIPTION("Hardware enablement sample: two character devices that say hello");
MODULE_VERSION("1.0");
