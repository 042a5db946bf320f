/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Who is this program? Told once, from within it, when it first has an entry in any table: what /proc would say may be
 * another program's by the time that somebody looks. */
#ifndef OTEL_GPU_LIB_ANNOUNCE_BPF_H
#define OTEL_GPU_LIB_ANNOUNCE_BPF_H

#include "abi/events.h"
#include "abi/identity.h"
#include "lib/caller.bpf.h"
#include "lib/loops.bpf.h"

/* The trickle of events, ordered over all CPUs. Holds the names of 16,000 kernels, or 150 programs that show themselves within the time that the agent takes to wake up; the agent reads as they come, and maps it
 * twice. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 << 20);
} events SEC(".maps");

#define PID_LEVELS 32 /* MAX_PID_NS_LEVEL */
struct numbers {
	struct pid *pid;
	u32 found;
};

ROUND(look_at_level)(u32 level, struct numbers *numbers)
{
	struct pid *pid = numbers->pid;
	struct upid one;

	if (bpf_core_read(&one, sizeof(one), &pid->numbers[level]))
		return 1;
	if (BPF_CORE_READ(one.ns, ns.inum) != pidns_ino)
		return 0;
	numbers->found = one.nr;
	return 1;
}

/* The number of a process in the agent's pid namespace; 0 when it has none. */
static __always_inline u32 number_of(struct task_struct *task)
{
	struct pid *pid = BPF_CORE_READ(task, thread_pid);
	struct numbers numbers = { .pid = pid };
	u32 levels = BPF_CORE_READ(pid, level) + 1;

	if (!pidns_ino)
		return BPF_CORE_READ(task, tgid);
	if (levels > PID_LEVELS + 1)
		levels = PID_LEVELS + 1;
	REPEAT(levels, look_at_level, &numbers);
	return numbers.found;
}

/* A way up a tree, and the names on it, one behind the other. What changes on the way stands where the verifier does not
 * follow it, so that it takes one step for like the next. */
struct way {
	void *here;
	struct mount *mount;
	struct names *names;
	u32 *bytes; /* in the record */
};

static __always_inline void put_name(const struct way *way, const void *name)
{
	u32 at = *way->bytes;
	long size;

	asm volatile("" : "+r"(at)); /* the verifier must see the bound */
	if (at >= IDENTITY_NAMES)
		return;
	size = bpf_probe_read_kernel_str(way->names->text + at, IDENTITY_NAME, name);
	if (size > 0)
		*way->bytes = at + size;
}

/* One directory up, or from the root of a mount to where that is; true at the top. */
ROUND(directory_up)(u32 step, struct way *way)
{
	struct mount *mount = way->mount;
	struct dentry *here = way->here;

	if (here == BPF_CORE_READ(mount, mnt.mnt_root)) {
		BPF_CORE_READ_INTO(&way->here, mount, mnt_mountpoint);
		BPF_CORE_READ_INTO(&way->mount, mount, mnt_parent);
		return way->mount == mount;
	}
	put_name(way, BPF_CORE_READ(here, d_name.name));
	BPF_CORE_READ_INTO(&way->here, here, d_parent);
	return !way->here || way->here == here;
}

static __always_inline struct kernfs_node *node_above(struct kernfs_node *node)
{
	struct kernfs_node___6_15 *newer = (void *)node;

	if (bpf_core_field_exists(newer->__parent))
		return BPF_CORE_READ(newer, __parent);
	return BPF_CORE_READ(node, parent);
}

ROUND(group_up)(u32 step, struct way *way)
{
	struct kernfs_node *here = way->here, *up = node_above(here);

	if (!up)
		return 1;
	put_name(way, BPF_CORE_READ(here, name));
	way->here = up;
	return 0;
}

/* Whether this kernel's types say how. */
#define WALKS_UP bpf_core_type_exists(struct mount)
#define PATH_STEPS 40 /* directories, and mounts between them */
#define GROUP_STEPS 16

static __always_inline void put_path(struct names *names, u32 *bytes, struct task_struct *task)
{
	struct file *file = BPF_CORE_READ(task, mm, exe_file);
	struct dentry *here = BPF_CORE_READ(file, f_path.dentry);
	struct way way = { .here = here, .names = names, .bytes = bytes };

	if (!WALKS_UP) {
		put_name(&way, BPF_CORE_READ(here, d_name.name));
		return;
	}
	way.mount = (void *)BPF_CORE_READ(file, f_path.mnt) - bpf_core_field_offset(struct mount, mnt);
	REPEAT(PATH_STEPS, directory_up, &way);
}

/* Where a controller has its own hierarchy, the second version's has the process in its root. */
#define NODE_IN(groups, controller)                                                                                    \
	({                                                                                                             \
		struct cgroup_subsys_state *state_ = NULL;                                                             \
		if (bpf_core_enum_value_exists(enum cgroup_subsys_id, controller))                                     \
			bpf_core_read(&state_, sizeof(state_),                                                         \
				      &(groups)->subsys[bpf_core_enum_value(enum cgroup_subsys_id, controller)]);      \
		BPF_CORE_READ(state_, cgroup, kn);                                                                     \
	})

static __always_inline void put_groups(struct names *names, u32 *bytes, struct task_struct *task)
{
	struct css_set *groups = BPF_CORE_READ(task, cgroups);
	struct way way = { .here = BPF_CORE_READ(groups, dfl_cgrp, kn), .names = names, .bytes = bytes };

	if (!WALKS_UP)
		return;
	if (!node_above(way.here))
		way.here = NODE_IN(groups, memory_cgrp_id);
	if (!node_above(way.here))
		way.here = NODE_IN(groups, pids_cgrp_id);
	REPEAT(GROUP_STEPS, group_up, &way);
}

/* Reads as much of a range as there is room for; zeros where it cannot be read, for it has been swapped out. Returns how
 * much there is. */
static __always_inline u32 put_range(char *to, u64 room, u64 from, u64 until)
{
	u64 whole = until > from ? until - from : 0, size = whole;

	if (size > room)
		size = room;
	asm volatile("" : "+r"(size)); /* the verifier must see the bound */
	if (size <= room)
		bpf_probe_read_user(to, size, (void *)from);
	return whole > ~0U ? ~0U : whole;
}

/* False when there is no room now. Programs that come in masses leave half of the ring to what others have to say. */
RARE int announce(u32 tgid, u32 exec_id, u32 tid, u32 parent)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct program_event *told;
	struct identity *i;

	if (bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA) > bpf_ringbuf_query(&events, BPF_RB_RING_SIZE) / 2)
		return 0;
	told = bpf_ringbuf_reserve(&events, sizeof(*told), 0);
	if (!told)
		return 0;
	told->event.type = EVENT_PROGRAM;
	told->event.tgid = tgid;
	told->event.exec_id = exec_id;
	told->event.tid = tid;
	told->event.time_ns = bpf_ktime_get_ns();
	told->event.a = process_start(task);
	told->event.b = BPF_CORE_READ(task, self_exec_id);
	told->event.c = parent;
	told->event.d = WALKS_UP;
	i = &told->identity;
	bpf_get_current_comm(i->comm, sizeof(i->comm));
	i->path_bytes = i->groups_bytes = 0;
	put_path(&i->path, &i->path_bytes, task);
	put_groups(&i->groups, &i->groups_bytes, task);
	i->arguments_bytes = put_range(i->arguments, IDENTITY_ARGUMENTS, BPF_CORE_READ(task, mm, arg_start),
				       BPF_CORE_READ(task, mm, arg_end));
	i->environment_bytes = put_range(i->environment, IDENTITY_ENVIRONMENT, BPF_CORE_READ(task, mm, env_start),
					 BPF_CORE_READ(task, mm, env_end));
	bpf_ringbuf_submit(told, 0);
	return 1;
}

#endif
