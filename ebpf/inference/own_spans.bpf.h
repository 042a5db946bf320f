/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which span of the program's own tracing is current in this thread? As the program publishes it (OTEP 4947), as
 * opentelemetry-python has it in the thread's context, or as OBI says. What a program says of itself is believed of itself
 * only: a forged one misnames its own spans. Where anything is not as it has to be, there is none. */
#ifndef OTEL_GPU_INFERENCE_OWN_SPANS_BPF_H
#define OTEL_GPU_INFERENCE_OWN_SPANS_BPF_H

#include "inference/python.bpf.h"

/* OBI's map, pinned as otel/traces_ctx_v1: by thread, as bpf_get_current_pid_tgid() has it. Put here by the agent. */
struct obi_context {
	u64 trace[2];
	u64 span;
};

struct obi_contexts {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__uint(key_size, sizeof(u64));
	__uint(value_size, sizeof(struct obi_context));
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(u32));
	__array(values, struct obi_contexts);
} obi_map SEC(".maps");

/* ---- what is published ---- */

/* The Thread-Local Context Record of OTEP 4947, as far as it is read. */
struct published_record {
	u64 trace[2];
	u64 span;
	u8 valid;
	u8 trace_flags;
	u16 attributes;
} __attribute__((packed));

static __always_inline int published_span(const struct span_source *s, struct own_span *found)
{
	u64 at = thread_local_word(s->published, s->published_offset, s->published_module);
	struct published_record record;

	if (!at || bpf_probe_read_user(&record, sizeof(record), (void *)at) || record.valid != 1)
		return 0;
	if (!record.span || !(record.trace[0] | record.trace[1]))
		return 0;
	found->trace[0] = record.trace[0];
	found->trace[1] = record.trace[1];
	found->span = record.span;
	found->trace_flags = record.trace_flags;
	found->flags = SPAN_KNOWS_FLAGS;
	found->says = SPAN_SAYS_PUBLISHED;
	return 1;
}

/* ---- CPython ---- */

/* The same from 3.8 to 3.15, but for what asks for the version. Include/cpython, Include/internal, Python/hamt.c. */
#define OBJECT_TYPE 8
#define TYPE_NAME 24
#define CONTEXT_VARS 24
#define HAMT_ROOT 16
#define HAMT_BITMAP 24
#define HAMT_ENTRIES 32
#define HAMT_CHILDREN 16
#define HAMT_LEVELS 7
#define HAMT_BITS 5
#define DICT_KEYS 32
#define DICT_VALUES 40
#define DICT_MOST 7 /* 1 << that many slots: larger ones are not looked into */
#define DICT_TRIES 8
#define STR_HASH 24
#define LONG_SIZE 16
#define LONG_DIGITS 24
#define LONG_BITS 30
#define ID_DIGITS 5

static __always_inline u32 bits_of(u32 word)
{
	word = word - ((word >> 1) & 0x55555555);
	word = (word & 0x33333333) + ((word >> 2) & 0x33333333);
	return (((word + (word >> 4)) & 0x0f0f0f0f) * 0x01010101) >> 24;
}

/* The first letters of a HAMT node's type that tell it: "hamt_bitmap_node", "hamt_array_node". */
static __always_inline u64 kind_of_node(u64 node)
{
	return read_word(read_word(read_word(node + OBJECT_TYPE) + TYPE_NAME) + 5);
}
#define LETTERS(a, b, c, d, e, f, g, h)                                                                                \
	((u64)(a) | (u64)(b) << 8 | (u64)(c) << 16 | (u64)(d) << 24 | (u64)(e) << 32 | (u64)(f) << 40 |                \
	 (u64)(g) << 48 | (u64)(h) << 56)
#define BITMAP_NODE LETTERS('b', 'i', 't', 'm', 'a', 'p', '_', 'n')
#define ARRAY_NODE LETTERS('a', 'r', 'r', 'a', 'y', '_', 'n', 'o')

/* What follows are functions of their own, that their stacks do not add up, nor the paths through them. */

/* The value of a variable in a context; 0 where it has none there, or where two have the same hash. */
RARE u64 value_in_context(u64 context, u64 variable, u32 hash)
{
	u64 node = read_word(read_word(context + CONTEXT_VARS) + HAMT_ROOT), kind, pair[2];
	u32 bitmap, bit;

	for (u32 level = 0; level < HAMT_LEVELS; level++) {
		bit = hash >> HAMT_BITS * level & 31;
		kind = kind_of_node(node);
		if (kind == ARRAY_NODE) {
			node = read_word(node + HAMT_CHILDREN + 8 * bit);
			if (!node)
				return 0;
			continue;
		}
		if (kind != BITMAP_NODE)
			return 0;
		bitmap = read_word(node + HAMT_BITMAP);
		if (!(bitmap & 1U << bit))
			return 0;
		bit = bits_of(bitmap & ((1U << bit) - 1));
		if (bpf_probe_read_user(pair, sizeof(pair), (void *)(node + HAMT_ENTRIES + 16 * bit)))
			return 0;
		if (pair[0])
			return pair[0] == variable ? pair[1] : 0;
		node = pair[1];
	}
	return 0;
}

/* Where a dict's keys have a name: the entry's number, and 1 << 32; 0 where they do not. */
#define IS_THERE (1ULL << 32)
struct dict_keys {
	u64 indices;
	u64 mask;
	u64 entries;
	u32 wide; /* entries have a hash before the key */
};

static __always_inline int look_at_keys(u32 minor, u64 keys, struct dict_keys *k)
{
	u64 word = keys ? read_word(keys + 8) : 0;
	u32 log;

	if (minor >= 11) {
		log = (u8)word;
		if ((u8)(word >> 8) != log) /* indices of more than a byte, or none */
			return 0;
		k->wide = (u8)(word >> 16) == 0;
		k->indices = keys + 32;
	} else {
		k->wide = 1;
		k->indices = keys + 40;
		log = word == 8 ? 3 : word == 16 ? 4 : word == 32 ? 5 : word == 64 ? 6 : word == 128 ? 7 : 0;
	}
	if (log < 3 || log > DICT_MOST)
		return 0;
	k->mask = (1ULL << log) - 1;
	k->entries = k->indices + k->mask + 1;
	return 1;
}

RARE u64 find_key(u32 minor, u64 keys, u64 text, u64 hash)
{
	struct dict_keys k;
	u64 perturb = hash, at = hash;
	u8 index;

	if (!look_at_keys(minor, keys, &k))
		return 0;
	for (u32 i = 0; i < DICT_TRIES; i++) {
		if (bpf_probe_read_user(&index, sizeof(index), (void *)(k.indices + (at & k.mask))) || index == 0xff)
			return 0;
		if (index < 0xfe && read_word(k.entries + index * (k.wide ? 24 : 16) + (k.wide ? 8 : 0)) == text)
			return index | IS_THERE;
		perturb >>= 5;
		at = at * 5 + perturb + 1;
	}
	return 0;
}

/* The value that keys hold themselves. */
RARE u64 value_at(u32 minor, u64 keys, u32 number)
{
	struct dict_keys k;

	if (!look_at_keys(minor, keys, &k))
		return 0;
	return read_word(k.entries + number * (k.wide ? 24 : 16) + (k.wide ? 16 : 8));
}

/* Where an object of a class has the values of its attributes; 0 where they are in a dict. */
RARE u64 values_of(u32 minor, u64 object, s64 place)
{
	u64 word;

	if (minor >= 13) {
		word = read_word(object + place);
		/* capacity, size, whether they are in the object, whether they are valid */
		return word >> 24 & 0xff ? object + place + 8 : 0;
	}
	word = minor == 12 ? read_word(object - 24) : minor == 11 ? read_word(object - 32) : 0;
	return minor == 12 ? (word & 1 ? word + 1 : 0) : word;
}

/* An attribute of a span, of one of the types that are known. */
static __always_inline u64 attribute_of(const struct span_source *s, u64 object, const struct span_type *type,
					const struct span_name *name)
{
	u64 values = values_of(s->minor, object, type->place), dict, keys, number;

	if (values) {
		number = find_key(s->minor, type->keys, name->text, name->hash);
		return number ? read_word(values + 8 * (u32)number) : 0;
	}
	dict = read_word(s->minor >= 11 ? object - 24 : object + type->place);
	if (!dict)
		return 0;
	keys = read_word(dict + DICT_KEYS);
	number = find_key(s->minor, keys, name->text, name->hash);
	if (!number)
		return 0;
	values = read_word(dict + DICT_VALUES);
	if (!values)
		return value_at(s->minor, keys, number);
	return read_word(values + (s->minor >= 13 ? 8 : 0) + 8 * (u32)number);
}

/* How many digits an int has; 0 for zero and what is negative, or no id. */
static __always_inline u32 digits_of(u32 minor, u64 object)
{
	u64 count = read_word(object + LONG_SIZE);

	if (minor >= 12)
		count = count & 3 ? 0 : count >> 3;
	return count > ID_DIGITS ? 0 : count;
}

/* Two digits of an int, of which it has so many; what is behind the last one is its allocation's, up to 16 bytes. */
static __always_inline u64 digit_pair(u64 object, u32 count, u32 first)
{
	u64 word = count > first ? read_word(object + LONG_DIGITS + 4 * first) : 0;

	return count > first + 1 ? word : (u32)word;
}

/* The lower, or the higher 64 bits of an int, in the order of the wire. */
RARE u64 id_of(u32 minor, u64 object, u32 is_high)
{
	u32 count = digits_of(minor, object);
	u64 low = digit_pair(object, count, 0), middle = digit_pair(object, count, 2), high;

	if (!is_high)
		return __builtin_bswap64((u32)low | (low >> 32) << LONG_BITS | (u64)(u32)middle << 2 * LONG_BITS);
	high = digit_pair(object, count, 4);
	return __builtin_bswap64((u64)(u32)middle >> 4 | (middle >> 32) << 26 | high << 56);
}

/* The current span: the object, and its type's number in the three lowest bits, as objects lie at multiples of eight. */
static __always_inline u64 span_object(const struct span_source *s, u64 context)
{
	u64 held = value_in_context(context, s->variable, s->variable_hash), keys, number, span, type;

	if (!held)
		return 0;
	keys = read_word(held + DICT_KEYS);
	number = find_key(s->minor, keys, s->key.text, read_word(s->key.text + STR_HASH));
	span = number ? value_at(s->minor, keys, number) : 0;
	type = span ? read_word(span + OBJECT_TYPE) : 0;
	if (!type || span & 7)
		return 0;
	return type == s->types[0].type	  ? span
	       : type == s->types[1].type ? span | 1
	       : type == s->types[2].type ? span | 2
					  : 0;
}

static __always_inline const struct span_type *type_numbered(const struct span_source *s, u64 span)
{
	return (span & 7) == 1 ? &s->types[1] : (span & 7) == 2 ? &s->types[2] : &s->types[0];
}

/* Its ids: `_context` is a tuple of trace_id, span_id, is_remote, trace_flags. */
static __always_inline int python_span(const struct span_source *s, u64 context, struct own_span *found)
{
	u64 span = span_object(s, context), ids, item;

	ids = span ? attribute_of(s, span & ~7ULL, type_numbered(s, span), &s->context) : 0;
	if (!ids)
		return 0;
	ids += s->tuple_items;
	item = read_word(ids);
	found->trace[0] = id_of(s->minor, item, 1);
	found->trace[1] = id_of(s->minor, item, 0);
	found->span = id_of(s->minor, read_word(ids + 8), 0);
	if (!found->span || !(found->trace[0] | found->trace[1]))
		return 0;
	found->flags = SPAN_KNOWS_FLAGS | (read_word(ids + 16) == s->true_object ? SPAN_REMOTE : 0);
	found->trace_flags = __builtin_bswap64(id_of(s->minor, read_word(ids + 24), 0));
	found->says = SPAN_SAYS_PYTHON;
	return 1;
}

/* Of what kind it is, when it began, and whose child it is. */
static __always_inline void python_kind(const struct span_source *s, u64 context, struct own_span *found)
{
	u64 span = span_object(s, context), ids;

	if (!span)
		return;
	if (attribute_of(s, span & ~7ULL, type_numbered(s, span), &s->kind) == s->server)
		found->flags |= SPAN_SERVER;
	ids = attribute_of(s, span & ~7ULL, type_numbered(s, span), &s->start);
	found->began_ns = ids ? __builtin_bswap64(id_of(s->minor, ids, 0)) : 0;
	ids = attribute_of(s, span & ~7ULL, type_numbered(s, span), &s->parent);
	ids = ids ? ids + s->tuple_items : 0;
	found->parent = ids ? id_of(s->minor, read_word(ids + 8), 0) : 0;
	if (found->parent)
		found->flags |= SPAN_HAS_PARENT | (read_word(ids + 16) == s->true_object ? SPAN_PARENT_AFAR : 0);
}

/* ---- OBI ---- */

static __always_inline void *obi_contexts_now(void)
{
	u32 first = 0;

	return bpf_map_lookup_elem(&obi_map, &first);
}

static __always_inline int obi_span(struct own_span *found)
{
	u64 thread = bpf_get_current_pid_tgid();
	struct obi_context *context;
	void *map = obi_contexts_now();

	context = map ? bpf_map_lookup_elem(map, &thread) : NULL;
	if (!context || !context->span || !(context->trace[0] | context->trace[1]))
		return 0;
	found->trace[0] = context->trace[0];
	found->trace[1] = context->trace[1];
	found->span = context->span;
	found->says = SPAN_SAYS_OBI;
	return 1;
}

static __always_inline struct span_source *span_source_of(u32 tgid, u32 exec_id)
{
	struct span_source *s = bpf_map_lookup_elem(&span_sources, &tgid);

	return s && s->exec_id == exec_id ? s : NULL;
}

/* The one question. A CPython's context is asked first: it follows tasks, as what is published by thread may not. OBI's map
 * is kept by thread alone, so that nothing is taken from it where a thread works for many. */
static __always_inline int find_own_span(const struct span_source *s, u64 context, u32 is_shared,
					 struct own_span *found)
{
	if (s && s->minor && context && python_span(s, context, found))
		return 1;
	if (s && !s->minor && s->published && published_span(s, found))
		return 1;
	return !is_shared && obi_span(found);
}

#endif
