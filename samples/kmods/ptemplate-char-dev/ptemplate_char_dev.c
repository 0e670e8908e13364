// SPDX-License-Identifier: GPL-2.0-only
/*
 * ptemplate_char_dev: character devices that hold a message.
 *
 * /dev/ptemplate-0 ... /dev/ptemplate-<max_dev - 1> each read as the last
 * message that was written to them, and as default_msg until then. There is no
 * hardware behind them: they stand for the devices that an operator hands out.
 *
 * The devices are misc devices, so one call makes a number and a node and one
 * call takes both back, with nothing in between to forget. These calls have
 * been the same since long before the kernels this is built for.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/fs.h>
#include <linux/kernel.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <linux/version.h>

#if LINUX_VERSION_CODE < KERNEL_VERSION(4, 18, 0)
#error "ptemplate_char_dev is for Linux 4.18 and later"
#endif

/* The size of the array below. Loading refuses more instead of writing past it. */
#define MAX_DEVICES 5
#define MAX_BUFFER 4096

/* All parameters are fixed from load to unload: sizes follow from them. */
static int max_dev = MAX_DEVICES;
module_param(max_dev, int, 0444);
MODULE_PARM_DESC(max_dev, "number of devices, 1 to 5 (default 5)");

static int buffersize = 100;
module_param(buffersize, int, 0444);
MODULE_PARM_DESC(buffersize, "longest message in bytes, 1 to 4096 (default 100)");

static char *default_msg = "ptemplate";
module_param(default_msg, charp, 0444);
MODULE_PARM_DESC(default_msg, "what devices read as before the first write, at most buffersize bytes");

struct ptemplate_device {
	struct miscdevice misc;
	char name[sizeof("ptemplate-") + 10];
	/* Guards message and length: readers see one whole message. */
	struct mutex lock;
	char *message;
	size_t length;
};

static struct ptemplate_device devices[MAX_DEVICES];

/* misc_open leaves the miscdevice in private_data. */
static struct ptemplate_device *device_of(struct file *file)
{
	return container_of(file->private_data, struct ptemplate_device, misc);
}

static ssize_t ptemplate_read(struct file *file, char __user *to, size_t count, loff_t *position)
{
	struct ptemplate_device *device = device_of(file);
	ssize_t done;

	if (mutex_lock_interruptible(&device->lock))
		return -ERESTARTSYS;
	done = simple_read_from_buffer(to, count, position, device->message, device->length);
	mutex_unlock(&device->lock);
	return done;
}

/* A write is a message of its own, wherever the file's position is. */
static ssize_t ptemplate_write(struct file *file, const char __user *from, size_t count, loff_t *position)
{
	struct ptemplate_device *device = device_of(file);
	char *message;

	if (!count)
		return 0;
	if (count > buffersize)
		return -EMSGSIZE;
	message = kmalloc(count, GFP_KERNEL);
	if (!message)
		return -ENOMEM;
	/* Before the lock: a fault here may take as long as it likes. */
	if (copy_from_user(message, from, count)) {
		kfree(message);
		return -EFAULT;
	}
	if (mutex_lock_interruptible(&device->lock)) {
		kfree(message);
		return -ERESTARTSYS;
	}
	memcpy(device->message, message, count);
	device->length = count;
	mutex_unlock(&device->lock);
	kfree(message);
	return count;
}

/* The owner keeps the module in the kernel while a device is open. */
static const struct file_operations ptemplate_operations = {
	.owner = THIS_MODULE,
	.read = ptemplate_read,
	.write = ptemplate_write,
	.llseek = default_llseek,
};

static void remove_device(struct ptemplate_device *device)
{
	misc_deregister(&device->misc);
	kfree(device->message);
	device->message = NULL;
}

static void remove_devices(int count)
{
	while (count-- > 0)
		remove_device(&devices[count]);
}

static int add_device(int index)
{
	struct ptemplate_device *device = &devices[index];
	int err;

	mutex_init(&device->lock);
	device->length = strlen(default_msg);
	device->message = kzalloc(buffersize, GFP_KERNEL);
	if (!device->message)
		return -ENOMEM;
	memcpy(device->message, default_msg, device->length);
	snprintf(device->name, sizeof(device->name), "ptemplate-%d", index);
	device->misc.minor = MISC_DYNAMIC_MINOR;
	device->misc.name = device->name;
	device->misc.fops = &ptemplate_operations;
	/* Who may use a device is decided by who is given it. */
	device->misc.mode = 0666;
	err = misc_register(&device->misc);
	if (err) {
		kfree(device->message);
		device->message = NULL;
	}
	return err;
}

static int check_parameters(void)
{
	if (max_dev < 1 || max_dev > MAX_DEVICES) {
		pr_err("max_dev=%d is not between 1 and %d\n", max_dev, MAX_DEVICES);
		return -EINVAL;
	}
	if (buffersize < 1 || buffersize > MAX_BUFFER) {
		pr_err("buffersize=%d is not between 1 and %d\n", buffersize, MAX_BUFFER);
		return -EINVAL;
	}
	if (!default_msg || strnlen(default_msg, buffersize + 1) > buffersize) {
		pr_err("default_msg is longer than buffersize=%d\n", buffersize);
		return -EINVAL;
	}
	return 0;
}

static int __init ptemplate_init(void)
{
	int index, err;

	err = check_parameters();
	if (err)
		return err;
	for (index = 0; index < max_dev; index++) {
		err = add_device(index);
		if (err) {
			remove_devices(index);
			return err;
		}
	}
	pr_info("loaded, max_dev=%d buffersize=%d\n", max_dev, buffersize);
	return 0;
}

static void __exit ptemplate_exit(void)
{
	remove_devices(max_dev);
	pr_info("unloaded\n");
}

module_init(ptemplate_init);
module_exit(ptemplate_exit);

MODULE_LICENSE("GPL");
MODULE_AUTHOR("Drover authors");
MODULE_DESCRIPTION("Sample character devices that hold a message");
MODULE_VERSION("1.0");
