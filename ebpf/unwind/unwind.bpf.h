/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Who called? Native frames by the rows of .eh_frame, each activation of CPython's eval loop replaced by the
 * Python frames that it runs: one bpf_loop, a frame a round. Kernel 5.17. */
#ifndef OTEL_GPU_UNWIND_UNWIND_BPF_H
#define OTEL_GPU_UNWIND_UNWIND_BPF_H

#include "abi/stacks.h"
#include "abi/unwinding.h"
#include "lib/caller.bpf.h"

#if defined(__TARGET_ARCH_x86)
#define FRAME_POINTER(ctx) ((ctx)->bp)
#define INSTRUCTION(ctx) ((ctx)->ip)
#else
#define FRAME_POINTER(ctx) ((ctx)->regs[29])
#define INSTRUCTION(ctx) ((ctx)->pc)
#endif

/* Whose stack is walked: the calling thread's; or, where an object says so, another's that does not move meanwhile, from
 * a program that may sleep. */
#ifdef WALKS_OTHERS
#define OF_TASK struct task_struct *task,
#define WALKED(u) ((u)->task)
#define ADDRESS_OF_WALKED(u) walked_address
u64 walked_address = 0; /* the same, as a number; apart, to spare the stack: one thread is walked at a time */
#define READ_WALKED(u, to, size, from) bpf_copy_from_user_task(to, size, (void *)(from), (void *)(u)->task, 0)
#else
#define OF_TASK
#define WALKED(u) ((struct task_struct *)bpf_get_current_task_btf())
#define ADDRESS_OF_WALKED(u) bpf_get_current_task()
#define READ_WALKED(u, to, size, from) bpf_probe_read_user(to, size, (void *)(from))
#endif

/* Unwinding tables of all files, one behind the other; filled by the agent through shared memory. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 8 << 20);
	__type(key, u32);
	__type(value, struct unwind_row);
} unwind_rows SEC(".maps");

/* Mappings of all processes, a run for each. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1 << 17);
	__type(key, u32);
	__type(value, struct unwind_mapping);
} unwind_mappings SEC(".maps");

/* tgid -> where its mappings are, and its Python. Replaced as a whole. The CPU's timer comes here too, which kernels before
 * 6.1 let into no table that allocates. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, u32);
	__type(value, struct unwind_process);
} unwind_processes SEC(".maps");

#define MAX_ROUNDS (4 * MAX_FRAMES) /* an eval activation takes four: into its group, its frame, out, and a check */
#define MAX_FRAME_BYTES (1 << 20)   /* a frame pointer further away is none */

/* What the next round does. */
enum phase {
	PHASE_NATIVE, /* takes a native frame, or begins the group of Python frames of an eval activation, and leaves it */
	PHASE_GROUP,  /* takes a Python frame of an eval activation */
	PHASE_LEAP,   /* the same; at the group's end its shim shows the way out of the activation */
	PHASE_TAKEN,  /* leaves the activation whose frames were taken */
	PHASE_CHECK,  /* sees whether they were its own */
	PHASE_SEARCH, /* looks for the thread state whose they are */
};

/* Always 0, which the verifier does not know: Linux 7.2 would look at a bisection once for every way in which its ends
 * can be related. */
volatile u32 nothing = 0;
#define UNKNOWN(value) ((value) | nothing)

enum { NOT_ASKED, ONE_INTERPRETER, SEVERAL_INTERPRETERS };

struct unwind {
#ifdef WALKS_OTHERS
	struct task_struct *task;
#endif
	struct stack_sample *sample;
	struct unwind_process *process;
	struct unwind_state *at; /* the sample's */
};

static __always_inline struct unwind_mapping *mapping_at(u32 index)
{
	return bpf_map_lookup_elem(&unwind_mappings, &index);
}

/* The mapping that holds pc, by bisection. A call that never returns may be the last instruction of a mapping. */
static __always_inline struct unwind_mapping *find_mapping(struct unwind *u)
{
	struct unwind_mapping *m = mapping_at(u->at->mapping);
	u64 pc = u->at->pc - u->at->is_return;
	u32 low, high;

	if (m && m->start <= pc && pc < m->end)
		return m;
	low = u->process->first_mapping;
	high = low + u->process->mappings;
	for (int i = 0; i < 17 && low < high; i++) {
		u32 middle = (low + high) / 2;
		m = mapping_at(middle);
		if (!m)
			return 0;
		if (m->end <= pc)
			low = UNKNOWN(middle + 1);
		else if (m->start > pc)
			high = UNKNOWN(middle);
		else {
			u->at->mapping = middle;
			return m;
		}
	}
	return 0;
}

/* The last row whose pc is not above. */
static __always_inline struct unwind_row *find_row(const struct unwind_mapping *m, u32 pc)
{
	u32 low = m->first_row, high = m->first_row + m->rows;
	struct unwind_row *row;

	for (int i = 0; i < 24 && low < high; i++) {
		u32 middle = (low + high) / 2;
		row = bpf_map_lookup_elem(&unwind_rows, &middle);
		if (!row)
			return 0;
		if (row->pc <= pc)
			low = UNKNOWN(middle + 1);
		else
			high = UNKNOWN(middle);
	}
	if (low == m->first_row)
		return 0;
	low--;
	return bpf_map_lookup_elem(&unwind_rows, &low);
}

static __always_inline int put_frame(struct unwind *u, u64 a, u64 b)
{
	struct stack_sample *s = u->sample;
	u32 n = s->frames;

	if (n >= MAX_FRAMES) {
		s->stop = STOP_FULL;
		return 0;
	}
	s->frame[n].a = a;
	s->frame[n].b = b;
	s->frames = n + 1;
	return 1;
}

static __always_inline int stop(struct unwind *u, enum stop why)
{
	u->sample->stop = why;
	return 1;
}

static __always_inline int in_eval(const struct unwind_process *p, u64 pc)
{
#pragma unroll
	for (int i = 0; i < EVAL_RANGES; i++)
		if (p->eval[i].start <= pc && pc < p->eval[i].end)
			return 1;
	return 0;
}

/* Tells a code object from another that gets its address later; otel_gpu/cpython/layout.py: code_checksum. */
static __always_inline u32 code_checksum(const struct unwind *u, u64 code)
{
	const struct py_layout *py = &u->process->py;
	/* The four ints lie within 32 bytes in every version. */
	u16 base = py->code_argcount & ~15;
	u32 head[8] = {}, sum;

	if (READ_WALKED(u, head, sizeof(head), (void *)(code + base)))
		return 0;
	sum = head[((py->code_argcount - base) >> 2) & 7];
	sum = sum * 31 + head[((py->code_kwonly - base) >> 2) & 7];
	sum = sum * 31 + head[((py->code_flags - base) >> 2) & 7];
	return sum * 31 + head[((py->code_first_line - base) >> 2) & 7];
}

#define MAX_PROBED_RETURNS 64

/* Where the call whose return address lay at a place in the stack will return to; 0 when its return is not probed. A
 * function of its own for the verifier, which then looks at it once. */
__noinline u64 probed_return(u64 thread, u64 place)
{
	struct task_struct *task = (void *)thread;
	struct return_instance *call = BPF_CORE_READ(task, utask, return_instances);

	for (int i = 0; i < MAX_PROBED_RETURNS && call; i++) {
		if (BPF_CORE_READ(call, stack) == place)
			return BPF_CORE_READ(call, orig_ret_vaddr);
		call = BPF_CORE_READ(call, next);
	}
	return 0;
}

static __always_inline u64 find_trampoline(u64 thread)
{
	struct task_struct *task = (void *)thread;

	if (!BPF_CORE_READ(task, utask, return_instances))
		return 0;
	return BPF_CORE_READ(task, mm, uprobes_state.xol_area, vaddr);
}

/* Goes on at a return address that was read from a place in the stack. */
static __always_inline void go_on_at(struct unwind *u, u64 address, u64 place)
{
	u64 probed = 0;

	if (address == u->at->trampoline && address)
		probed = probed_return(ADDRESS_OF_WALKED(u), place);
	u->at->pc = probed ? probed : address;
	u->at->is_return = 1;
}

/* Leaves an eval activation, and whatever it called that has no tables, for the activation's caller: its shim lies at
 * a fixed distance from its CFA. */
static __always_inline int leap_over(struct unwind *u, u64 shim)
{
	u64 words[2], cfa = shim + u->process->py.marker_to_cfa; /* rbp, return address */

	if (cfa <= u->at->sp)
		return stop(u, STOP_STUCK);
	if (READ_WALKED(u, words, sizeof(words), (void *)(cfa - 16)))
		return stop(u, STOP_UNREADABLE);
	u->at->fp = words[0];
	u->at->sp = cfa;
	go_on_at(u, words[1], cfa - 8);
	u->at->phase = PHASE_NATIVE;
	return 0;
}

#include "unwind/interpreters.bpf.h"

/* Takes one Python frame; ends the group after an entry frame, or at a shim. */
static __always_inline int python_frame(struct unwind *u)
{
	const struct py_layout *py = &u->process->py;
	u64 *words = u->sample->words.word;
	u32 size = py->frame_instr_size == 4 ? 112 : 80, checksum;
	u64 code, previous, instr, owner = 0, here = u->at->here.frame;

	if (READ_WALKED(u, words, size, (void *)here)) {
		u->at->here.frame = 0;
		return stop(u, STOP_UNREADABLE);
	}
	code = words[(py->frame_code >> 3) & 15] & ~(u64)py->tag_mask;
	previous = words[(py->frame_previous >> 3) & 15];
	instr = words[(py->frame_instr >> 3) & 15];
	if (py->frame_instr_size == 4)
		instr = py->frame_instr & 4 ? instr >> 32 : instr;
	else
		instr -= code + py->code_bytecode;
	if (py->frame_owner != PY_ABSENT)
		owner = words[(py->frame_owner >> 3) & 15] >> (py->frame_owner & 7) * 8 & 0xff;
	u->at->here.frame = previous;
	if (py->entry_rule == PY_SHIM && py->shim_owners >> (owner & 15) & 1) {
		if (u->at->phase == PHASE_LEAP)
			return leap_over(u, here);
		u->at->phase = u->at->is_left ? PHASE_CHECK : PHASE_TAKEN;
		u->at->marker = here;
		return 0;
	}
	checksum = code_checksum(u, code);
	if (!put_frame(u, (code & (1ULL << FRAME_CHECKSUM_A) - 1) | (u64)(checksum >> 16) << FRAME_CHECKSUM_A,
		       (u64)FRAME_PYTHON << FRAME_KIND_SHIFT | (owner & 15) << FRAME_OWNER_SHIFT |
			       (u64)(checksum & 0xffff) << FRAME_CHECKSUM_B | (u32)instr))
		return 1;
	if (!previous && u->at->phase == PHASE_LEAP)
		return stop(u, STOP_CHAIN_ENDED);
	if (py->entry_rule == PY_EACH ||
	    (py->entry_rule == PY_IS_ENTRY &&
	     (words[(py->frame_is_entry >> 3) & 15] >> (py->frame_is_entry & 7) * 8 & 0xff)) ||
	    !previous) {
		u->at->phase = u->at->is_left ? PHASE_CHECK : PHASE_TAKEN;
		u->at->marker = py->entry_rule == PY_SHIM ? 0 : u->at->here.cframe;
	}
	return 0;
}

#define VM_EXEC 4 /* include/linux/mm.h */
#define ENOENT 2

enum code {
	CODE_NONE,    /* nothing that could be executed */
	CODE_MADE,    /* without a file: made at run time */
	CODE_OF_FILE, /* or it could not be told */
};

static long note_code(struct task_struct *task, struct vm_area_struct *area, enum code *found)
{
	if (!bpf_core_field_exists(area->vm_flags) || area->vm_flags & VM_EXEC)
		*found = area->vm_file ? CODE_OF_FILE : CODE_MADE;
	return 0;
}

/* What is at pc, now: a JIT makes code all the time, and libraries are mapped before the agent hears of it. */
static __always_inline enum code code_at(const struct unwind *u, u64 pc)
{
	enum code found = CODE_NONE;
	long error = bpf_find_vma((void *)WALKED(u), pc, note_code, &found, 0);

	return error && error != -ENOENT ? CODE_OF_FILE : found;
}

/* Whether a near call ends these eight bytes, by its encodings on x86-64: what a word on the stack that is a return
 * address has before it, and one that only looks like it hardly ever. What goes through a register or memory is FF /2.
 * A global function, which the verifier looks at by itself: its branches would multiply the walk's states. */
__noinline int ends_with_call(u64 code)
{
	u32 c7 = code >> 56, c6 = code >> 48 & 0xff, c5 = code >> 40 & 0xff, c4 = code >> 32 & 0xff,
	    c3 = code >> 24 & 0xff, c2 = code >> 16 & 0xff, c1 = code >> 8 & 0xff;

	return c3 == 0xe8 ||						       /* a distance */
	       (c6 == 0xff && ((c7 & 0xf8) == 0xd0 || (c7 & 0xf8) == 0x10)) || /* a register, or what it points to */
	       (c5 == 0xff && ((c6 & 0xf8) == 0x50 || c6 == 0x14)) ||	       /* with a byte behind it */
	       (c4 == 0xff && c5 == 0x54) ||
	       (c2 == 0xff && ((c3 & 0xf8) == 0x90 || c3 == 0x15)) || /* with a word behind it */
	       (c1 == 0xff && (c2 == 0x94 || c2 == 0x14));
}

static __always_inline int follows_call(const struct unwind *u, u64 pc)
{
	u64 code;

	return !READ_WALKED(u, &code, sizeof(code), (void *)(pc - sizeof(code))) && ends_with_call(code);
}

/* Leaves a frame for its caller by frame pointers; 0 when they are none. The caller may have its frame on another stack,
 * as Go's has below C: only within the file given, for nothing else then tells it from chance. */
static __always_inline int step_by_frame_pointer(struct unwind *u, u32 file)
{
	u64 words[2], pc = u->at->pc;
	u32 was_return = u->at->is_return;
	int is_elsewhere = u->at->fp - u->at->sp > MAX_FRAME_BYTES; /* also where it lies below */
	struct unwind_mapping *m;

	if (u->at->fp & 7 || (is_elsewhere && (!file || u->at->sp - u->at->fp <= MAX_FRAME_BYTES)))
		return 0;
	if (READ_WALKED(u, words, sizeof(words), (void *)u->at->fp))
		return 0;
	go_on_at(u, words[1], u->at->fp + 8);
	m = find_mapping(u);
	if ((m ? is_elsewhere && m->file != file : is_elsewhere || code_at(u, u->at->pc - 1) != CODE_MADE) ||
	    !follows_call(u, u->at->pc)) {
		u->at->pc = pc;
		u->at->is_return = was_return;
		return 0;
	}
	u->at->sp = u->at->fp + 16;
	u->at->fp = words[0];
	return 1;
}

#define JIT_WITHOUT_FRAME_POINTERS 14 /* CPython 3.14's keeps none and has no tables; 3.15's does keep them */

/* Leaves code that was made at run time, which no table describes. */
static __always_inline int step_from_made_code(struct unwind *u)
{
	const struct py_layout *py = &u->process->py;
	int may_leap = u->at->here.frame && py->entry_rule == PY_SHIM && py->marker_to_cfa;

	if (!(may_leap && py->minor == JIT_WITHOUT_FRAME_POINTERS) && step_by_frame_pointer(u, 0))
		return 0;
	if (!may_leap)
		return stop(u, STOP_FRAME_POINTER);
	u->at->phase = PHASE_LEAP;
	return 0;
}

/* The registers that a signal interrupted: struct ucontext at sp, its mcontext at 40. */
#define SIGNAL_FP (40 + 10 * 8)
#define SIGNAL_SP (40 + 15 * 8)

static __always_inline int step_over_signal(struct unwind *u)
{
	u64 fp, words[2]; /* rsp, rip */

	if (READ_WALKED(u, &fp, sizeof(fp), (void *)(u->at->sp + SIGNAL_FP)) ||
	    READ_WALKED(u, words, sizeof(words), (void *)(u->at->sp + SIGNAL_SP)))
		return stop(u, STOP_UNREADABLE);
	u->at->fp = fp;
	u->at->sp = words[0];
	u->at->pc = words[1];
	u->at->is_return = 0;
	return 0;
}

static __always_inline int step_by_row(struct unwind *u, const struct unwind_row *row)
{
	s64 offset = row->cfa_offset;
	u64 cfa, ra, base;

	switch (row->kind) {
	case ROW_SP:
		cfa = u->at->sp + offset;
		break;
	case ROW_FP:
		cfa = u->at->fp + offset;
		break;
	case ROW_PLT:
		cfa = u->at->sp + 8 + ((u->at->pc & 15) >= (u64)offset ? 8 : 0);
		break;
	case ROW_DEREF_SP:
	case ROW_DEREF_FP:
		base = (row->kind == ROW_DEREF_SP ? u->at->sp : u->at->fp) + (offset >> 4) * 8;
		if (READ_WALKED(u, &cfa, sizeof(cfa), (void *)base))
			return stop(u, STOP_UNREADABLE);
		cfa += (offset & 15) * 8;
		break;
	case ROW_SIGNAL:
		return step_over_signal(u);
	case ROW_OUTERMOST:
		return stop(u, STOP_OUTERMOST);
	case ROW_SP_LARGE:
		cfa = u->at->sp + (u64)(u16)offset * 8;
		break;
	case ROW_UNSUPPORTED:
		return stop(u, STOP_UNSUPPORTED);
	default:
		return stop(u, STOP_NO_ROW);
	}
	if (cfa <= u->at->sp)
		return stop(u, STOP_STUCK);
	if (READ_WALKED(u, &ra, sizeof(ra), (void *)(cfa - 8)))
		return stop(u, STOP_UNREADABLE);
	if (row->fp_offset == 1)
		base = u->at->fp;
	else
		base = cfa + row->fp_offset * 8L;
	if (row->fp_offset && READ_WALKED(u, &u->at->fp, sizeof(u->at->fp), (void *)base))
		return stop(u, STOP_UNREADABLE);
	if (!ra)
		return stop(u, STOP_OUTERMOST);
	u->at->sp = cfa;
	go_on_at(u, ra, cfa - 8);
	return 0;
}

/* Whether the frames just taken are those of the activation that was left. */
static __always_inline int is_own_group(struct unwind *u)
{
	const struct py_layout *py = &u->process->py;

	if (!u->at->group_frame)
		return 0;
	/* Only the innermost activation may be about to link its frame, or to end; for the others look no further. */
	if (py->entry_rule == PY_EACH && py->marker_to_cfa && u->at->activations == 1)
		return keeps_locals_of(u, u->at->group_frame);
	if (py->entry_rule == PY_EACH && py->tstate_cframe == PY_ABSENT)
		return u->at->interpreters != SEVERAL_INTERPRETERS || is_frame_of_activation(u, u->at->group_frame);
	return !u->at->marker || is_in_activation(u, u->at->marker);
}

/* An activation that has only begun, or is about to end, has no Python frame of its own, and one of another interpreter
 * has others: then those just taken belong to one further out. */
static __always_inline int check_group(struct unwind *u)
{
	const struct py_layout *py = &u->process->py;
	int own;

	u->at->phase = PHASE_NATIVE;
	own = is_own_group(u);
	if (py->entry_rule != PY_SHIM && is_in_activation(u, u->at->here.cframe) &&
	    READ_WALKED(u, &u->at->here.cframe, sizeof(u->at->here.cframe),
			(void *)(u->at->here.cframe + py->cframe_previous)))
		u->at->here.cframe = 0;
	if (own)
		return 0;
	/* 3.15: a chain ends in a shim of no activation. */
	if (!u->at->here.frame && u->sample->frames == u->at->group_at)
		u->at->group_frame = 0;
	u->sample->frames = u->at->group_at;
	u->at->here.frame = u->at->group_frame;
	if (u->at->is_left)
		return try_next(u);
	if (has_subinterpreters(u))
		return start_search(u);
	return u->at->here.frame ? 0 : stop(u, STOP_CHAIN_ENDED);
}

/* Leaves code of a file that says nothing of its frames, for the reason given. */
static __always_inline int step_without_rules(struct unwind *u, const struct unwind_mapping *m, enum stop why)
{
	u64 outer = 0;

	if (!(m->flags & MAPPING_FRAME_POINTERS))
		return stop(u, why);
	/* The ABI marks the outermost frame so. */
	if (!u->at->fp)
		return stop(u, STOP_OUTERMOST);
	if (step_by_frame_pointer(u, m->file))
		return 0;
	/* Or what lies below it: Go has the return address there that ends a goroutine, and which no call left. */
	if (!READ_WALKED(u, &outer, sizeof(outer), (void *)u->at->fp) && !outer)
		return stop(u, STOP_OUTERMOST);
	return stop(u, STOP_FRAME_POINTER);
}

/* One round: a Python frame, or a native frame and the way out of it. Returns 1 to end the walk. */
static long step(u64 round, struct unwind *u)
{
	struct unwind_mapping *m;
	struct unwind_row *row;
	int made;
	u64 kind;

	if (u->at->phase == PHASE_GROUP || u->at->phase == PHASE_LEAP)
		return python_frame(u);
	if (u->at->phase == PHASE_CHECK)
		return check_group(u);
	if (u->at->phase == PHASE_SEARCH)
		return search(u);
	m = find_mapping(u);
	made = m && m->flags & MAPPING_MADE;
	if (!m) {
		enum code code = code_at(u, u->at->pc - u->at->is_return);
		if (code == CODE_NONE)
			return stop(u, STOP_NO_CODE);
		made = code == CODE_MADE;
	}
	if (u->at->phase != PHASE_TAKEN) {
		if (m && u->process->eval_ranges && in_eval(u->process, u->at->pc - u->at->is_return)) {
			if (!u->at->here.frame && !has_subinterpreters(u))
				return stop(u, STOP_CHAIN_ENDED);
			u->at->phase = u->at->here.frame ? PHASE_GROUP : PHASE_TAKEN;
			u->at->group_frame = u->at->here.frame;
			u->at->group_at = u->sample->frames;
			u->at->is_left = 0;
			u->at->activations = u->at->activations + 1;
			return 0;
		}
		kind = made ? FRAME_MADE : u->at->is_return ? FRAME_NATIVE : FRAME_EXACT;
		if (!put_frame(u, u->at->pc, kind << FRAME_KIND_SHIFT | (m ? m->file : 0)))
			return 1;
	}
	u->at->phase = u->at->phase == PHASE_TAKEN ? PHASE_CHECK : PHASE_NATIVE;
	u->at->low = u->at->sp;
	if (made)
		return step_from_made_code(u);
	if (!m)
		return stop(u, STOP_NO_MAPPING);
	if (!m->rows)
		return step_without_rules(u, m, m->flags & MAPPING_NO_TABLE ? STOP_FRAME_POINTER : STOP_NO_TABLE);
	row = find_row(m, (u32)(u->at->pc - u->at->is_return - m->bias));
	if (!row || row->kind == ROW_END)
		return step_without_rules(u, m, STOP_NO_ROW);
	if (row->kind == ROW_UNREAD)
		return stop(u, STOP_NO_TABLE);
	return step_by_row(u, row);
}

/* Finds the innermost Python frame of the calling thread, if it has one. */
static __always_inline void find_python_frame(struct unwind *u)
{
	const struct unwind_process *p = u->process;
	const struct py_layout *py = &p->py;
	u64 base = WALKED(u)->thread.fsbase, state = 0;

	if (p->thread_state == THREAD_STATE_SLOT) {
		READ_WALKED(u, &state, sizeof(state), (void *)(base + p->thread_offset));
	} else if (p->thread_state == THREAD_STATE_DTV) {
		u64 dtv = 0, block = 0;
		READ_WALKED(u, &dtv, sizeof(dtv), (void *)(base + 8));
		READ_WALKED(u, &block, sizeof(block), (void *)(dtv + 16 * p->thread_module));
		if (block && block != ~0ULL)
			READ_WALKED(u, &state, sizeof(state), (void *)(block + p->thread_offset));
	}
	if (state)
		read_cursor(u, state, &u->at->here);
	if (py->entry_rule == PY_EACH && py->tstate_cframe == PY_ABSENT)
		has_subinterpreters(u);
}

/* Walks a thread's stack from the given registers into the sample. */
static __always_inline void unwind(OF_TASK struct stack_sample *sample, struct unwind_process *process, u64 pc, u64 sp,
				   u64 fp, int is_return)
{
	struct unwind u = {
#ifdef WALKS_OTHERS
		.task = task,
#endif
		.sample = sample,
		.process = process,
		.at = &sample->at,
	};

#ifdef WALKS_OTHERS
	bpf_probe_read_kernel(&walked_address, sizeof(walked_address), &u.task);
#endif
	__builtin_memset(u.at, 0, sizeof(*u.at));
	u.at->pc = pc;
	u.at->sp = sp;
	u.at->fp = fp;
	u.at->is_return = is_return;
	u.at->mapping = process->first_mapping;
	u.at->trampoline = find_trampoline(ADDRESS_OF_WALKED(&u));
	if (is_return && pc == u.at->trampoline)
		go_on_at(&u, pc, sp - 8);
	if (process->eval_ranges)
		find_python_frame(&u);
	bpf_loop(MAX_ROUNDS, step, &u, 0);
	if (sample->stop == STOP_NONE)
		sample->stop = STOP_FULL;
	/* Up to 3.10, an activation that is about to end may be without its frame: the others have each other's then. */
	if (sample->stop == STOP_OUTERMOST && process->py.entry_rule == PY_EACH && has_frames_left(&u))
		sample->stop = STOP_FRAMES_LEFT;
}

#endif
