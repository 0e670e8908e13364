// SPDX-License-Identifier: GPL-2.0-only
/* Runs ptemplate_char_dev in user space; see kernel_stub.h. Prints what fails, and ends with 1 then. */

#include "../ptemplate-char-dev/ptemplate_char_dev.c"

static int failures;

static void expect(const char *given, long got, long want)
{
	if (got == want)
		return;
	printf("%s: %ld instead of %ld\n", given, got, want);
	failures++;
}

/* load starts over, as another insmod would. */
static int load(int devices_wanted, int size, char *message)
{
	max_dev = devices_wanted;
	buffersize = size;
	default_msg = message;
	allocs = registers = 0;
	return stub_init();
}

static void unload(void)
{
	stub_exit();
	expect("nodes after unload", registered, 0);
}

static void parameters(void)
{
	static char hundred[101];

	memset(hundred, 'x', 100);
	expect("no device", load(0, 100, "m"), -EINVAL);
	expect("a negative number of devices", load(-1, 100, "m"), -EINVAL);
	expect("one device more than there is room for", load(MAX_DEVICES + 1, 100, "m"), -EINVAL);
	expect("no buffer", load(1, 0, "m"), -EINVAL);
	expect("a buffer that is too long", load(1, MAX_BUFFER + 1, "m"), -EINVAL);
	expect("no message", load(1, 100, NULL), -EINVAL);
	expect("a message longer than the buffer", load(1, 99, hundred), -EINVAL);
	expect("nodes after refusals", registered, 0);
	expect("a message as long as the buffer", load(1, 100, hundred), 0);
	unload();
	expect("an empty message", load(1, 1, ""), 0);
	unload();
	expect("mode of max_dev", mode_of_max_dev & 0222, 0);
	expect("mode of buffersize", mode_of_buffersize & 0222, 0);
	expect("mode of default_msg", mode_of_default_msg & 0222, 0);
}

/* The sanitizer tells what is not given back. */
static void shortages(void)
{
	int i;

	for (i = 1; i <= MAX_DEVICES; i++) {
		fail_alloc = i;
		expect("no memory", load(MAX_DEVICES, 100, "m"), -ENOMEM);
		expect("nodes without memory", registered, 0);
		fail_alloc = 0;
		fail_register = i;
		expect("no number", load(MAX_DEVICES, 100, "m"), -ENODEV);
		expect("nodes without a number", registered, 0);
		fail_register = 0;
	}
}

static void messages(void)
{
	char got[64], long_message[17];
	struct file file;
	loff_t position = 0;

	memset(long_message, 'y', sizeof(long_message));
	expect("load", load(MAX_DEVICES, 16, "ptemplate"), 0);
	expect("nodes", registered, MAX_DEVICES);
	expect("name of the last node", strcmp(nodes[MAX_DEVICES - 1]->name, "ptemplate-4"), 0);
	file.private_data = nodes[1];
	expect("read", ptemplate_read(&file, got, sizeof(got), &position), 9);
	expect("content", memcmp(got, "ptemplate", 9), 0);
	expect("read at the end", ptemplate_read(&file, got, sizeof(got), &position), 0);
	position = 0;
	expect("read to nowhere", ptemplate_read(&file, NULL, 1, &position), -EFAULT);
	expect("write of more than fits", ptemplate_write(&file, long_message, 17, &position), -EMSGSIZE);
	expect("write of far more", ptemplate_write(&file, long_message, (size_t)-1, &position), -EMSGSIZE);
	expect("write from nowhere", ptemplate_write(&file, NULL, 4, &position), -EFAULT);
	expect("write of nothing", ptemplate_write(&file, got, 0, &position), 0);
	fail_alloc = allocs + 1;
	expect("write without memory", ptemplate_write(&file, long_message, 4, &position), -ENOMEM);
	fail_alloc = 0;
	expect("read after refusals", ptemplate_read(&file, got, sizeof(got), &position), 9);
	expect("write of all that fits", ptemplate_write(&file, long_message, 16, &position), 16);
	position = 0;
	expect("read of it", ptemplate_read(&file, got, sizeof(got), &position), 16);
	file.private_data = nodes[0];
	position = 0;
	expect("another device", ptemplate_read(&file, got, sizeof(got), &position), 9);
	unload();
}

int main(void)
{
	parameters();
	shortages();
	messages();
	return failures != 0;
}
