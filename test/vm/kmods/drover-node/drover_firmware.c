// SPDX-License-Identifier: GPL-2.0-only
/* drover_firmware: loads only if the kernel finds its firmware, and says what is in it. */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/device.h>
#include <linux/err.h>
#include <linux/firmware.h>
#include <linux/module.h>

#define BLOB "drover/blob.bin"

static int __init firmware_init(void)
{
	const struct firmware *blob;
	struct device *device = root_device_register(KBUILD_MODNAME);
	int error;

	if (IS_ERR(device))
		return PTR_ERR(device);
	error = request_firmware_direct(&blob, BLOB, device);
	if (!error) {
		pr_info("firmware is %.*s\n", (int)min_t(size_t, blob->size, 32), blob->data);
		release_firmware(blob);
	}
	root_device_unregister(device);
	return error;
}

static void __exit firmware_exit(void)
{
}

module_init(firmware_init);
module_exit(firmware_exit);
MODULE_DESCRIPTION("Asks for firmware, for Drover's tests");
MODULE_FIRMWARE(BLOB);
MODULE_LICENSE("GPL");
