/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Where does a message of HTTP/1 end, in one direction of a connection (RFC 9112)? Byte by byte in heads and between chunks,
 * at once through bodies. A message whose end servers may see in different places is in doubt. */
#ifndef OTEL_GPU_INFERENCE_HTTP1_BPF_H
#define OTEL_GPU_INFERENCE_HTTP1_BPF_H

#include "inference/kernel_sockets.h"
#include "inference/tables.bpf.h"

enum message_state {
	MESSAGE_START, /* between messages */
	MESSAGE_HEAD,
	MESSAGE_BODY,
	MESSAGE_UNTIL_CLOSE,
	MESSAGE_CHUNK_SIZE,
	MESSAGE_CHUNK_REST, /* of the line with the size */
	MESSAGE_CHUNK_DATA,
	MESSAGE_CHUNK_END, /* the line's end behind the data */
	MESSAGE_TRAILERS,
	MESSAGE_END,
	MESSAGE_DOUBTFUL,
	MESSAGE_OTHER, /* it is none of HTTP/1, or no more of it comes */
};
#define MESSAGE_IS_RESPONSE 1
#define MESSAGE_HAS_LENGTH 2
#define MESSAGE_IS_CHUNKED 4
#define MESSAGE_HAS_CODING 8 /* other than chunked */
#define MESSAGE_HAS_DIGITS 16

#define HEAD_MOST 65536 /* bytes; servers take no more */
#define LINE_BYTES (8 * LINE_WORDS)
#define VALUE_LENGTH 1
#define VALUE_CODING 2
#define LETTERS_TOO_MANY 255
#define MOST_DIGITS 15	/* of a length */
#define STEP_BYTES 64	/* looked at in one step */
#define MOST_STEPS 2048 /* of one call: what is longer is in doubt */
#define WORD(a, b, c, d, e, f, g, h)                                                                                   \
	((u64)(a) | (u64)(b) << 8 | (u64)(c) << 16 | (u64)(d) << 24 | (u64)(e) << 32 | (u64)(f) << 40 |                \
	 (u64)(g) << 48 | (u64)(h) << 56)

static __always_inline u8 lower(u8 c)
{
	return c >= 'A' && c <= 'Z' ? c | 0x20 : c;
}

static __always_inline u8 line_byte(const struct message *m, u32 at)
{
	asm volatile("" : "+r"(at)); /* the verifier must see the bound */
	return at < LINE_BYTES ? ((const u8 *)m->line)[at] : 0;
}

/* What stands behind a header's name, byte by byte, blanks around it: digits, or one word. */
static __always_inline void take_value(struct message *m, u8 c)
{
	if (c == '\r')
		return;
	if (c == ' ' || c == '\t') {
		m->is_over = m->letters != 0;
		return;
	}
	if (m->is_over || m->letters == LETTERS_TOO_MANY) {
		m->letters = LETTERS_TOO_MANY;
		return;
	}
	m->letters++;
	if (m->value == VALUE_CODING) {
		m->word = m->word >> 8 | (u64)lower(c) << 56;
		if (m->letters > 8)
			m->letters = LETTERS_TOO_MANY;
	} else if (c < '0' || c > '9' || m->letters > MOST_DIGITS) {
		m->letters = LETTERS_TOO_MANY;
	} else {
		m->word = m->word * 10 + (c - '0');
	}
}

static __always_inline void first_line(struct message *m)
{
	u64 bits = (1ULL << 48) - 1;

	if (m->flags & MESSAGE_IS_RESPONSE) {
		u32 hundreds = line_byte(m, 9) - '0', tens = line_byte(m, 10) - '0', ones = line_byte(m, 11) - '0';
		if ((m->line[0] & (1ULL << 56) - 1) != WORD('h', 't', 't', 'p', '/', '1', '.', 0) ||
		    line_byte(m, 8) != ' ' || hundreds > 9 || tens > 9 || ones > 9)
			m->state = MESSAGE_OTHER;
		m->status = hundreds * 100 + tens * 10 + ones;
	} else if ((m->tail & bits) != WORD('T', 'T', 'P', '/', '1', '.', 0, 0)) {
		m->state = MESSAGE_OTHER; /* behind this there is a digit, and the carriage return */
	}
}

/* A header's name is over: is it one that tells how long the body is? */
static __always_inline void name_ends(struct message *m, u8 c)
{
	u64 first = m->line[0], second = m->line[1];
	u8 value = 0;

	if (m->at == 14 && first == WORD('c', 'o', 'n', 't', 'e', 'n', 't', '-') &&
	    (second & (1ULL << 48) - 1) == WORD('l', 'e', 'n', 'g', 't', 'h', 0, 0))
		value = VALUE_LENGTH;
	else if (m->at == 17 && first == WORD('t', 'r', 'a', 'n', 's', 'f', 'e', 'r') &&
		 second == WORD('-', 'e', 'n', 'c', 'o', 'd', 'i', 'n') && (u8)m->line[2] == 'g')
		value = VALUE_CODING;
	if (value && c != ':')
		m->state = MESSAGE_DOUBTFUL;
	m->value = value;
}

static __always_inline void header_line(struct message *m)
{
	u8 begin = m->line[0];

	if (begin == ' ' || begin == '\t')
		m->state = MESSAGE_DOUBTFUL;
	if (m->value == VALUE_LENGTH) {
		if (!m->letters || m->letters == LETTERS_TOO_MANY || m->flags & MESSAGE_HAS_LENGTH)
			m->state = MESSAGE_DOUBTFUL;
		m->length = m->word;
		m->flags |= MESSAGE_HAS_LENGTH;
	} else if (m->value == VALUE_CODING) {
		if (m->flags & (MESSAGE_IS_CHUNKED | MESSAGE_HAS_CODING))
			m->state = MESSAGE_DOUBTFUL;
		if (m->letters == 7 && m->word >> 8 == WORD('c', 'h', 'u', 'n', 'k', 'e', 'd', 0))
			m->flags |= MESSAGE_IS_CHUNKED;
		else
			m->flags |= MESSAGE_HAS_CODING;
	}
}

/* The empty line behind the head: what follows? */
static __always_inline void head_ends(struct message *m, u8 method)
{
	int has_length = m->flags & MESSAGE_HAS_LENGTH, has_coding = m->flags & MESSAGE_HAS_CODING;
	int is_in_chunks = m->flags & MESSAGE_IS_CHUNKED;

	m->left = 0;
	if (has_length && (is_in_chunks || has_coding)) {
		m->state = MESSAGE_DOUBTFUL;
	} else if (!(m->flags & MESSAGE_IS_RESPONSE)) {
		if (has_coding) {
			m->state = MESSAGE_DOUBTFUL;
		} else if (is_in_chunks) {
			m->state = MESSAGE_CHUNK_SIZE;
		} else {
			m->left = has_length ? m->length : 0;
			m->state = m->left ? MESSAGE_BODY : MESSAGE_END;
		}
	} else if (m->status == 101 || (method == METHOD_CONNECT && m->status / 100 == 2)) {
		m->state = MESSAGE_OTHER;
	} else if (m->status < 200) {
		m->state = MESSAGE_START;
	} else if (method == METHOD_HEAD || m->status == 204 || m->status == 304) {
		m->state = MESSAGE_END;
	} else if (is_in_chunks) {
		m->state = MESSAGE_CHUNK_SIZE;
	} else if (has_length) {
		m->left = m->length;
		m->state = m->left ? MESSAGE_BODY : MESSAGE_END;
	} else {
		m->state = MESSAGE_UNTIL_CLOSE;
	}
	m->length = 0;
}

static __always_inline void begin_line(struct message *m)
{
	m->at = 0;
	m->tail = 0;
	m->line[0] = m->line[1] = m->line[2] = 0;
	m->word = 0;
	m->value = m->letters = m->is_over = 0;
}

RARE int end_line(struct message *m, u32 method)
{
	if (!m)
		return 0;
	if (m->at == 0 || (u8)(m->tail >> 56) != '\r') {
		m->state = MESSAGE_DOUBTFUL;
	} else if (m->at == 1) {
		if (m->state == MESSAGE_TRAILERS)
			m->state = MESSAGE_END;
		else
			head_ends(m, method);
	} else if (m->state == MESSAGE_HEAD) {
		if (!m->lines)
			first_line(m);
		else
			header_line(m);
		m->lines++;
	}
	begin_line(m);
	return 0;
}

static __always_inline void move_on(struct message *m, u8 c, u32 method)
{
	u32 digit;

	switch (m->state) {
	case MESSAGE_START:
		if (c == '\r' || c == '\n')
			return;
		m->state = MESSAGE_HEAD;
		m->lines = m->head_bytes = 0;
		m->length = 0;
		m->flags &= MESSAGE_IS_RESPONSE;
		begin_line(m);
		/* fall through */
	case MESSAGE_HEAD:
	case MESSAGE_TRAILERS:
		if (++m->head_bytes > HEAD_MOST) {
			m->state = MESSAGE_DOUBTFUL;
		} else if (c == '\n') {
			end_line(m, method);
		} else {
			u32 at = m->at;
			m->tail = m->tail >> 8 | (u64)c << 56;
			if (m->value)
				take_value(m, c);
			else if (m->lines && (c == ':' || c == ' ' || c == '\t'))
				name_ends(m, c);
			asm volatile("" : "+r"(at)); /* the verifier must see the bound */
			if (at < LINE_BYTES)
				((u8 *)m->line)[at] = lower(c);
			m->at++;
		}
		return;
	case MESSAGE_CHUNK_SIZE:
		c = lower(c);
		digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : 16;
		if (digit < 16) {
			if (m->length >> (4 * MOST_DIGITS - 4))
				m->state = MESSAGE_DOUBTFUL;
			m->length = m->length << 4 | digit;
			m->flags |= MESSAGE_HAS_DIGITS;
			return;
		}
		if (!(m->flags & MESSAGE_HAS_DIGITS) || (c != '\r' && c != ';')) {
			m->state = MESSAGE_DOUBTFUL;
			return;
		}
		m->state = MESSAGE_CHUNK_REST;
		return;
	case MESSAGE_CHUNK_REST:
		if (c != '\n')
			return;
		m->flags &= ~MESSAGE_HAS_DIGITS;
		m->left = m->length;
		m->length = 0;
		m->state = m->left ? MESSAGE_CHUNK_DATA : MESSAGE_TRAILERS;
		begin_line(m);
		return;
	case MESSAGE_CHUNK_END:
		if (c == '\n')
			m->state = MESSAGE_CHUNK_SIZE;
		else if (c != '\r')
			m->state = MESSAGE_DOUBTFUL;
		return;
	}
}

#define KEEP_BYTE(kept, size, room, byte)                                                                              \
	({                                                                                                             \
		u32 kept_at_ = (size);                                                                                 \
		if (kept_at_ < (room)) {                                                                               \
			(kept)[kept_at_] = (byte);                                                                     \
			(size) = kept_at_ + 1;                                                                         \
		}                                                                                                      \
	})

static __always_inline void keep_byte(struct request *r, int is_response, int is_first, u8 c)
{
	if (is_response) {
		if (is_first)
			r->response_size = 0;
		KEEP_BYTE(r->response, r->response_size, RESPONSE_HEAD, c);
	} else {
		KEEP_BYTE(r->head, r->head_size, REQUEST_HEAD, c);
	}
}

/* Takes one byte of a head, of trailers or of what lies between chunks; a request keeps the beginning of its heads. A
 * function that the verifier looks at by itself, once, and not for each byte of a step. */
RARE int take_byte(struct message *m, struct request *r, u32 byte, u32 method)
{
	u8 before;

	if (!m)
		return 0;
	before = m->state;
	move_on(m, byte, method);
	if (r && (before == MESSAGE_HEAD || (before == MESSAGE_START && m->state != before)))
		keep_byte(r, m->flags & MESSAGE_IS_RESPONSE, before == MESSAGE_START, byte);
	return 0;
}

static __always_inline int is_data(u8 state)
{
	return state == MESSAGE_BODY || state == MESSAGE_CHUNK_DATA || state == MESSAGE_UNTIL_CLOSE;
}

static __always_inline int is_settled(u8 state)
{
	return state >= MESSAGE_END;
}

/* What takes the bytes that were given to it. */
struct feeding {
	struct message *message;
	struct request *request; /* which keeps the beginning of its heads; NULL: none does */
};

static __always_inline int next_piece(struct message *m)
{
	struct given *g = &m->given;
	struct io_vector v;

	if (!g->vectors || bpf_probe_read_user(&v, sizeof(v), (void *)(g->vectors + sizeof(v) * g->vector))) {
		m->state = MESSAGE_DOUBTFUL;
		return 1;
	}
	g->vector++;
	g->from = v.base;
	g->piece = v.bytes < g->left ? v.bytes : g->left;
	return 0;
}

/* Of data, how many bytes there are is enough. */
static __always_inline u32 skip_data(struct message *m, u32 size)
{
	if (m->state != MESSAGE_UNTIL_CLOSE) {
		if (size > m->left)
			size = m->left;
		m->left -= size;
		if (!m->left)
			m->state = m->state == MESSAGE_BODY ? MESSAGE_END : MESSAGE_CHUNK_END;
	}
	m->given.body += size;
	return size;
}

static long feed_step(u32 step, struct feeding *f)
{
	struct message *m = f->message;
	struct given *g = &m->given;
	u8 buffer[STEP_BYTES] = {};
	u32 size, at;

	if (!g->left || is_settled(m->state))
		return 1;
	if (!g->piece)
		return next_piece(m);
	size = g->piece;
	if (is_data(m->state)) {
		at = skip_data(m, size);
	} else {
		if (size > STEP_BYTES)
			size = STEP_BYTES;
		/* No further than what arrived: the next page may not be there. */
		if (!g->from || bpf_probe_read_user(buffer, size, (void *)g->from)) {
			m->state = MESSAGE_DOUBTFUL;
			return 1;
		}
		for (at = 0; at < STEP_BYTES && at < size; at++) {
			if (is_data(m->state) || is_settled(m->state))
				break;
			take_byte(m, f->request, buffer[at], g->method);
		}
	}
	if (g->from)
		g->from += at;
	g->left -= at;
	g->piece -= at;
	return 0;
}

/* ---- heads that come in one piece ---- */

#define SCANNED_WORDS 128
#define SCANNED (8 * SCANNED_WORDS)
#define MOST_LINES 128

/* Where a head is read as a whole. What takes messages of sockets runs with preemption off, so that each CPU needs one. Not
 * on the stack, where the verifier would follow every value, and want words to be aligned. */
struct scan {
	u32 size;
	u32 line; /* where the present line begins */
	u32 lines;
	u32 end; /* of the head; 0: not seen */
	u32 is_doubtful;
	u32 at;
	char bytes[SCANNED + 64]; /* zeros behind the end */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct scan);
} scans SEC(".maps");

static __always_inline u64 scanned_word(const struct scan *s, u32 at)
{
	asm volatile("" : "+r"(at)); /* the verifier must see the bound */
	return at < SCANNED ? *(const u64 *)(s->bytes + at) : 0;
}

static __always_inline u64 lower_word(u64 word)
{
	return word | 0x2020202020202020ULL;
}

/* Takes one byte of a header's line. */
RARE int take_header_byte(struct message *m, u32 byte)
{
	u8 c = byte;
	u32 at;

	if (!m)
		return 0;
	at = m->at++;
	if (m->value) {
		take_value(m, c);
	} else if (c == ':' || c == ' ' || c == '\t') {
		m->at = at;
		name_ends(m, c);
		m->at = at + 1;
	}
	asm volatile("" : "+r"(at)); /* the verifier must see the bound */
	if (at < LINE_BYTES)
		((u8 *)m->line)[at] = lower(c);
	return 0;
}

#define HEADER_BYTES 64 /* that a length or a coding takes at most */

/* Takes a header's line, for its value. */
RARE int scan_header(struct message *m, struct scan *s, u32 at, u32 end)
{
	if (!m || !s)
		return 0;
	begin_line(m);
	for (u32 i = 0; i < HEADER_BYTES && at + i < end; i++)
		take_header_byte(m, (u8)scanned_word(s, at + i));
	if (m->value && end - at > HEADER_BYTES)
		m->state = MESSAGE_DOUBTFUL;
	header_line(m);
	return 0;
}

/* One line of a head that ends, with its carriage return, before a newline. */
RARE int scan_line(struct message *m, struct scan *s, u32 newline)
{
	u64 first, last;
	u32 at;

	if (!m || !s)
		return 0;
	at = s->line;
	s->line = newline + 1;
	if (newline <= at || (u8)scanned_word(s, newline - 1) != '\r') {
		s->is_doubtful = 1;
		return 0;
	}
	if (newline == at + 1) {
		s->end = newline + 1;
		return 0;
	}
	first = scanned_word(s, at);
	if (!s->lines++) {
		m->line[0] = lower_word(first);
		m->line[1] = scanned_word(s, at + 8);
		if (newline >= 8)
			m->tail = scanned_word(s, newline - 8);
		first_line(m);
		return 0;
	}
	last = lower_word(first);
	if ((u8)first == ' ' || (u8)first == '\t')
		s->is_doubtful = 1;
	else if (last == WORD('c', 'o', 'n', 't', 'e', 'n', 't', '-') ||
		 last == WORD('t', 'r', 'a', 'n', 's', 'f', 'e', 'r'))
		scan_header(m, s, at, newline);
	return 0;
}

struct scanning {
	struct message *message;
	struct scan *scan;
};

/* Looks at eight bytes, up to the first newline among them. */
static long scan_word(u32 i, struct scanning *g)
{
	struct scan *s = g->scan;
	u64 word, newlines, below;
	u32 at = s->at;

	if (at >= s->size || s->end || s->is_doubtful)
		return 1;
	word = scanned_word(s, at) ^ 0x0a0a0a0a0a0a0a0aULL;
	newlines = (word - 0x0101010101010101ULL) & ~word & 0x8080808080808080ULL;
	if (!newlines) {
		s->at = at + 8;
		return 0;
	}
	below = (newlines & -newlines) - 1; /* all bits of the bytes before the first one, and seven of its own */
	at += ((below >> 7) & 0x0101010101010101ULL) * 0x0101010101010101ULL >> 56;
	s->at = at + 1;
	if (at < s->size)
		scan_line(g->message, s, at);
	return 0;
}

/* Takes a head that is whole in what was received or sent, as most are; leaves all others alone. */
static __always_inline void take_whole_head(struct message *m, struct request *r, struct scan *s)
{
	struct scanning scanning = { .message = m };
	struct given *g = &m->given;
	u64 size = g->piece, kept;

	if (!s || !r || m->state != MESSAGE_START || !g->from)
		return;
	asm volatile("" : "+r"(size)); /* the verifier must see that it is 32 bits */
	if (size > SCANNED)
		size = SCANNED;
	if (size < 16 || bpf_probe_read_user(s->bytes, size, (void *)g->from) || s->bytes[0] == '\r' ||
	    s->bytes[0] == '\n')
		return;
	s->size = size;
	s->at = s->line = s->lines = s->end = s->is_doubtful = 0;
	scanning.scan = s;
	m->length = 0;
	m->flags &= MESSAGE_IS_RESPONSE;
	m->state = MESSAGE_HEAD;
	bpf_loop(SCANNED_WORDS + MOST_LINES, scan_word, &scanning, 0);
	if (m->state != MESSAGE_HEAD || s->is_doubtful || !s->end || s->end > size) {
		m->state = MESSAGE_START; /* byte by byte it will be seen what is wrong, or what is missing */
		m->length = 0;
		m->flags &= MESSAGE_IS_RESPONSE;
		m->status = 0;
		begin_line(m);
		return;
	}
	size = kept = s->end;
	if (m->flags & MESSAGE_IS_RESPONSE) {
		if (kept > RESPONSE_HEAD)
			kept = RESPONSE_HEAD;
		if (!bpf_probe_read_kernel(r->response, kept, s->bytes))
			r->response_size = kept;
	} else {
		if (kept > REQUEST_HEAD)
			kept = REQUEST_HEAD;
		if (!bpf_probe_read_kernel(r->head, kept, s->bytes))
			r->head_size = kept;
	}
	head_ends(m, g->method);
	begin_line(m);
	g->from += size;
	g->left -= size;
	g->piece -= size;
}

static __always_inline struct scan *scan_of_cpu(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&scans, &zero);
}

static __always_inline void feed(struct message *m, struct request *r, struct scan *s)
{
	struct feeding f = { m, r };

	if (!m->given.piece && m->given.left && next_piece(m))
		return;
	take_whole_head(m, r, s);
	bpf_loop(MOST_STEPS, feed_step, &f, 0);
	if (m->given.left && !is_settled(m->state))
		m->state = MESSAGE_DOUBTFUL;
}

static __always_inline void begin_message(struct message *m, u8 flags)
{
	m->state = MESSAGE_START;
	m->flags = flags;
	m->left = m->length = 0;
	m->lines = m->head_bytes = 0;
	m->status = 0;
	begin_line(m);
}

#endif
