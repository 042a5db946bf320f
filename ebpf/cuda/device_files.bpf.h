/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Has the calling process a device of NVIDIA's open? Whoever has none has never used the driver. */
#ifndef OTEL_GPU_CUDA_DEVICE_FILES_BPF_H
#define OTEL_GPU_CUDA_DEVICE_FILES_BPF_H

#include "lib/caller.bpf.h"
#include "lib/kernel.h"
#include "lib/loops.bpf.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

const volatile u32 device_major = 195; /* of /dev/nvidiactl, in Documentation/admin-guide/devices.txt */

#define MAX_FILES 256 /* the first ones: the driver opens its own as soon as it is used */
#define MINOR_BITS 20

struct inode___device {
	u32 i_rdev;
} CO_RE;

struct file___device {
	struct inode___device *f_inode;
} CO_RE;

struct fdtable {
	unsigned int max_fds;
	struct file___device **fd;
} CO_RE;

struct files_struct {
	struct fdtable *fdt;
} CO_RE;

struct task_struct___files {
	struct files_struct *files;
} CO_RE;

struct open_files {
	struct file___device **files;
	u32 count;
	u32 found;
};

ROUND(look_at_file)(u32 i, struct open_files *open)
{
	struct file___device *file = NULL;

	if (i >= open->count)
		return 1;
	bpf_probe_read_kernel(&file, sizeof(file), open->files + i);
	if (!file || BPF_CORE_READ(file, f_inode, i_rdev) >> MINOR_BITS != device_major)
		return 0;
	open->found = 1;
	return 1;
}

RARE int has_device_open(void)
{
	struct task_struct___files *task = (void *)bpf_get_current_task();
	struct fdtable *table = BPF_CORE_READ(task, files, fdt);
	struct open_files open = {};

	if (!table)
		return 1;
	open.files = BPF_CORE_READ(table, fd);
	open.count = BPF_CORE_READ(table, max_fds);
	REPEAT(MAX_FILES, look_at_file, &open);
	return open.found;
}

#endif
