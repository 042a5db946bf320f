/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The few kernel types that the programs read, with CO-RE relocations: no vmlinux.h, so that one source
 * builds for every architecture on any machine. */
#ifndef OTEL_GPU_LIB_KERNEL_H
#define OTEL_GPU_LIB_KERNEL_H

#include "abi/types.h"

typedef u8 __u8;
typedef u16 __u16;
typedef u32 __u32;
typedef u64 __u64;
typedef s32 __s32;
typedef s64 __s64;
typedef s16 __s16;
typedef s8 __s8;
typedef u16 __be16;
typedef u32 __be32;
typedef u32 __wsum;

/* include/uapi/linux/bpf.h: the values used here. */
enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_PROG_ARRAY = 3,
	BPF_MAP_TYPE_PERCPU_HASH = 5,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_LPM_TRIE = 11,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};
enum { BPF_ANY = 0, BPF_NOEXIST = 1, BPF_EXIST = 2 };
enum { BPF_F_NO_PREALLOC = 1, BPF_F_MMAPABLE = 1024, BPF_RB_NO_WAKEUP = 1, BPF_RB_FORCE_WAKEUP = 2 };
enum { BPF_RB_AVAIL_DATA, BPF_RB_RING_SIZE, BPF_RB_CONS_POS, BPF_RB_PROD_POS };
enum { BPF_F_USER_STACK = 256 };
enum { BPF_LOCAL_STORAGE_GET_F_CREATE = 1 };

struct bpf_pidns_info {
	u32 pid;
	u32 tgid;
};

#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip, cs, flags, sp, ss;
};
#elif defined(__TARGET_ARCH_arm64)
struct pt_regs {
	u64 regs[31], sp, pc, pstate;
};
#else
#error "no calling convention for this architecture"
#endif

#define CO_RE __attribute__((preserve_access_index))

struct thread_struct {
	unsigned long fsbase;
} CO_RE;

struct sched_info {
	unsigned long pcount; /* how often it was given a CPU */
	unsigned long long run_delay;
} CO_RE;

/* What the kernel keeps of calls whose return is probed: their return address lies here, and in the stack that of its
 * own code, which starts at xol_area.vaddr. */
struct return_instance {
	unsigned long stack; /* where the return address lay */
	unsigned long orig_ret_vaddr;
	struct return_instance *next; /* further out */
} CO_RE;

struct uprobe_task {
	struct return_instance *return_instances;
} CO_RE;

struct xol_area {
	unsigned long vaddr;
} CO_RE;

struct uprobes_state {
	struct xol_area *xol_area;
} CO_RE;

/* Where an executable lies: the way from its directory entry to the root of its mount, and on from there. */
struct qstr {
	const unsigned char *name;
} CO_RE;

struct dentry {
	struct dentry *d_parent;
	struct qstr d_name;
} CO_RE;

struct vfsmount {
	struct dentry *mnt_root;
} CO_RE;

struct mount {
	struct mount *mnt_parent;
	struct dentry *mnt_mountpoint;
	struct vfsmount mnt;
} CO_RE;

struct path {
	struct vfsmount *mnt;
	struct dentry *dentry;
} CO_RE;

struct file {
	struct path f_path;
} CO_RE;

struct mm_struct {
	struct uprobes_state uprobes_state;
	unsigned long arg_start, arg_end, env_start, env_end;
	struct file *exe_file;
} CO_RE;

/* In which control groups a process is. */
struct kernfs_node {
	struct kernfs_node *parent;
	const char *name;
} CO_RE;

struct kernfs_node___6_15 {
	struct kernfs_node *__parent;
} CO_RE;

struct cgroup {
	struct kernfs_node *kn;
} CO_RE;

struct cgroup_subsys_state {
	struct cgroup *cgroup;
} CO_RE;

enum cgroup_subsys_id {
	memory_cgrp_id = 4,
	pids_cgrp_id = 11,
};

struct css_set {
	struct cgroup_subsys_state *subsys[1];
	struct cgroup *dfl_cgrp; /* of the second version's hierarchy */
} CO_RE;

/* Under which numbers a process is known, by pid namespace, the outermost first. */
struct ns_common {
	unsigned int inum;
} CO_RE;

struct pid_namespace {
	struct ns_common ns;
} CO_RE;

struct upid {
	int nr;
	struct pid_namespace *ns;
} CO_RE;

struct pid {
	unsigned int level;
	struct upid numbers[1];
} CO_RE;

typedef struct {
	int counter;
} atomic_t;

struct signal_struct {
	atomic_t live; /* threads */
} CO_RE;

struct task_struct {
	struct sched_info sched_info;
	struct mm_struct *mm;
	struct uprobe_task *utask;
	struct signal_struct *signal;
	struct css_set *cgroups;
	struct task_struct *real_parent;
	struct pid *thread_pid;
	char comm[16];
	unsigned long nvcsw, nivcsw, min_flt, maj_flt;
	struct task_struct *group_leader;
	u64 start_boottime; /* 5.5; ns */
	u64 self_exec_id;
	struct thread_struct thread;
	int tgid;
	int pid;
	unsigned int __state; /* 5.14 */
	unsigned int flags;
	int exit_state;
	unsigned int on_cpu; /* a byte since 7.2: what is unsigned is read in whatever size it has */
} CO_RE;

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
} CO_RE;

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
} CO_RE;

struct vm_area_struct {
	void *vm_file;
	unsigned long vm_flags;
} CO_RE;

enum bpf_func_id {
	BPF_FUNC_get_attach_cookie = 174,
	BPF_FUNC_get_current_task_btf = 158,
	BPF_FUNC_cgrp_storage_delete = 211,
	BPF_FUNC_loop = 181,
};

#endif
