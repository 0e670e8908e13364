/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The few calls of the kernel that the sample modules use, for user space: so
 * that their own code can run under the address sanitizer. Every call that can
 * fail fails when the test says so, and a copy from or to "user space" fails at
 * addresses that no process has.
 */
#ifndef KERNEL_STUB_H
#define KERNEL_STUB_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#define LINUX_VERSION_CODE 1
#define KERNEL_VERSION(a, b, c) 0
#define KBUILD_MODNAME "module"
#define THIS_MODULE NULL
#define ERESTARTSYS 512
#define GFP_KERNEL 0
#define MISC_DYNAMIC_MINOR 255
#define default_llseek NULL
#define __init
#define __exit
#define __user
#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define container_of(p, type, member) ((type *)((char *)(p) - offsetof(type, member)))
#define module_param(name, type, mode) static const int mode_of_##name __attribute__((unused)) = (mode)
#define MODULE_PARM_DESC(name, text) _Static_assert(1, "")
#define MODULE_LICENSE(text) _Static_assert(1, "")
#define MODULE_AUTHOR(text) _Static_assert(1, "")
#define MODULE_DESCRIPTION(text) _Static_assert(1, "")
#define MODULE_VERSION(text) _Static_assert(1, "")
#define module_init(f) static int (*stub_init)(void) = f
#define module_exit(f) static void (*stub_exit)(void) = f
#define pr_info(fmt, ...) printf(pr_fmt(fmt), ##__VA_ARGS__)
#define pr_err(fmt, ...) printf(pr_fmt(fmt), ##__VA_ARGS__)

struct file { void *private_data; };
struct inode;
struct file_operations {
	void *owner;
	ssize_t (*read)(struct file *, char *, size_t, loff_t *);
	ssize_t (*write)(struct file *, const char *, size_t, loff_t *);
	void *llseek;
};
struct miscdevice {
	int minor;
	const char *name;
	const struct file_operations *fops;
	unsigned short mode;
};
struct mutex { int held; };

/* The call, counted from 1, that fails; 0: none. */
static int fail_alloc, fail_register;
static int allocs, registers, registered;
static struct miscdevice *nodes[64];

static inline void *kzalloc(size_t size, int flags)
{
	return ++allocs == fail_alloc ? NULL : calloc(1, size);
}

static inline void *kmalloc(size_t size, int flags)
{
	return ++allocs == fail_alloc ? NULL : malloc(size);
}

static inline void kfree(void *p) { free(p); }

static inline int misc_register(struct miscdevice *device)
{
	if (++registers == fail_register)
		return -ENODEV;
	nodes[registered++] = device;
	return 0;
}

static inline void misc_deregister(struct miscdevice *device)
{
	int i;

	for (i = 0; i < registered; i++)
		if (nodes[i] == device) {
			nodes[i] = nodes[--registered];
			return;
		}
	abort(); /* was never registered, or is gone already */
}

static inline void mutex_init(struct mutex *lock) { lock->held = 0; }

static inline int mutex_lock_interruptible(struct mutex *lock)
{
	if (lock->held)
		abort();
	lock->held = 1;
	return 0;
}

static inline void mutex_unlock(struct mutex *lock)
{
	if (!lock->held)
		abort();
	lock->held = 0;
}

/* access_ok in small: nothing of user space is below one page. */
static inline int bad(const void *p) { return (uintptr_t)p < 4096; }

static inline unsigned long copy_from_user(void *to, const void *from, unsigned long count)
{
	if (bad(from))
		return count;
	memcpy(to, from, count);
	return 0;
}

static inline ssize_t simple_read_from_buffer(void *to, size_t count, loff_t *position, const void *from, size_t available)
{
	if (*position < 0)
		return -EINVAL;
	if ((size_t)*position >= available || !count)
		return 0;
	if (count > available - *position)
		count = available - *position;
	if (bad(to))
		return -EFAULT;
	memcpy(to, (const char *)from + *position, count);
	*position += count;
	return count;
}

#endif
