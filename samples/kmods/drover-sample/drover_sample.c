// SPDX-License-Identifier: GPL-2.0-only
/*
 * drover_sample: character devices that read as a fixed greeting.
 *
 * /dev/drover_sample0 ... /dev/drover_sample<devices-1> each hold one line:
 * the greeting, a space, the device's number, a newline. There is no hardware
 * behind them, so the whole way from an image to an open device can be tried
 * anywhere.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cdev.h>
#include <linux/device.h>
#include <linux/fs.h>
#include <linux/kdev_t.h>
#include <linux/kernel.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/slab.h>
#include <linux/version.h>

#define MAX_DEVICES 16
/* Long enough for a line of text, short enough for one slab object. */
#define MAX_GREETING 256

static int devices = 1;
module_param(devices, int, 0444);
MODULE_PARM_DESC(devices, "number of devices, 1 to 16 (default 1)");

static char *greeting = "hello from drover";
module_param(greeting, charp, 0444);
MODULE_PARM_DESC(greeting, "text that every device reads as, at most 255 bytes");

static uint magic;
module_param(magic, uint, 0644);
MODULE_PARM_DESC(magic, "a number that may be changed while loaded; nothing depends on it");

/* One device: its line is made once at load and never changes. */
struct sample_device {
	char line[MAX_GREETING + 16];
	size_t length;
};

static struct sample_device *samples;
static struct class *sample_class;
static struct cdev sample_cdev;
static dev_t first_number;

static int sample_open(struct inode *inode, struct file *file)
{
	unsigned int index = iminor(inode) - MINOR(first_number);

	if (index >= devices)
		return -ENODEV;
	file->private_data = &samples[index];
	return 0;
}

static ssize_t sample_read(struct file *file, char __user *to, size_t count, loff_t *position)
{
	const struct sample_device *sample = file->private_data;

	return simple_read_from_buffer(to, count, position, sample->line, sample->length);
}

/* The owner keeps the module in the kernel while a device is open. */
static const struct file_operations sample_operations = {
	.owner = THIS_MODULE,
	.open = sample_open,
	.read = sample_read,
	.llseek = default_llseek,
};

/* Everybody may read; there is nothing to write. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 2, 0)
static char *sample_devnode(const struct device *device, umode_t *mode)
#else
static char *sample_devnode(struct device *device, umode_t *mode)
#endif
{
	if (mode)
		*mode = 0444;
	return NULL;
}

static struct class *make_class(void)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 4, 0)
	return class_create(KBUILD_MODNAME);
#else
	return class_create(THIS_MODULE, KBUILD_MODNAME);
#endif
}

static void remove_nodes(int count)
{
	while (count-- > 0)
		device_destroy(sample_class, first_number + count);
}

static int make_nodes(void)
{
	struct device *device;
	int index;

	for (index = 0; index < devices; index++) {
		device = device_create(sample_class, NULL, first_number + index, NULL, "drover_sample%d", index);
		if (IS_ERR(device)) {
			remove_nodes(index);
			return PTR_ERR(device);
		}
	}
	return 0;
}

static int check_parameters(void)
{
	if (devices < 1 || devices > MAX_DEVICES) {
		pr_err("devices=%d is not between 1 and %d\n", devices, MAX_DEVICES);
		return -EINVAL;
	}
	if (!greeting || strnlen(greeting, MAX_GREETING) == MAX_GREETING) {
		pr_err("greeting is longer than %d bytes\n", MAX_GREETING - 1);
		return -EINVAL;
	}
	return 0;
}

static int make_lines(void)
{
	int index;

	samples = kcalloc(devices, sizeof(*samples), GFP_KERNEL);
	if (!samples)
		return -ENOMEM;
	for (index = 0; index < devices; index++)
		samples[index].length = scnprintf(samples[index].line, sizeof(samples[index].line),
						  "%s %d\n", greeting, index);
	return 0;
}

static int __init sample_init(void)
{
	int err;

	err = check_parameters();
	if (err)
		return err;
	err = make_lines();
	if (err)
		return err;
	err = alloc_chrdev_region(&first_number, 0, devices, KBUILD_MODNAME);
	if (err)
		goto free_lines;
	sample_class = make_class();
	if (IS_ERR(sample_class)) {
		err = PTR_ERR(sample_class);
		goto free_numbers;
	}
	sample_class->devnode = sample_devnode;
	cdev_init(&sample_cdev, &sample_operations);
	sample_cdev.owner = THIS_MODULE;
	err = cdev_add(&sample_cdev, first_number, devices);
	if (err)
		goto destroy_class;
	err = make_nodes();
	if (err)
		goto delete_cdev;
	pr_info("loaded, devices=%d\n", devices);
	return 0;

delete_cdev:
	cdev_del(&sample_cdev);
destroy_class:
	class_destroy(sample_class);
free_numbers:
	unregister_chrdev_region(first_number, devices);
free_lines:
	kfree(samples);
	return err;
}

static void __exit sample_exit(void)
{
	remove_nodes(devices);
	cdev_del(&sample_cdev);
	class_destroy(sample_class);
	unregister_chrdev_region(first_number, devices);
	kfree(samples);
	pr_info("unloaded\n");
}

module_init(sample_init);
module_exit(sample_exit);

MODULE_LICENSE("GPL");
MODULE_AUTHOR("Drover authors");
MODULE_DESCRIPTION("Sample character devices that read as a greeting");
MODULE_VERSION("1.0");
