/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Header blocks of HTTP/2, whose compression only the agent follows. */
#ifndef OTEL_GPU_ABI_FRAMES_H
#define OTEL_GPU_ABI_FRAMES_H

#include "abi/types.h"

#define FRAME_PIECE_BYTES 768 /* bytes of a frame that are told at once */
#define FRAME_TOLD_MOST 16384 /* of one frame: what is longer is not told to its end */

/* Who sent a frame. */
enum frame_side {
	FRAME_CLIENT,
	FRAME_SERVER,
	FRAME_SIDES,
};

#define FRAME_GONE 255 /* as a type: the connection is no more */

/* A piece of a frame with a part of a header block. */
struct frame_piece {
	u32 tgid;
	u32 exec_id;
	u64 connection; /* its number */
	u64 request;	/* whose stream it is; 0: none that is followed */
	u64 time_ns;
	u32 number; /* counted by connection and side: a gap says what was lost */
	u32 stream;
	u32 size; /* of the frame's payload */
	u32 at;	  /* of the piece in it */
	u16 bytes;
	u8 side; /* enum frame_side */
	u8 type;
	u8 flags;
	u8 pad[3];
	char payload[FRAME_PIECE_BYTES]; /* last: what of it is used is sent */
};
_Static_assert(sizeof(struct frame_piece) == 56 + FRAME_PIECE_BYTES, "frame_piece crosses the border");

#endif
