/* Between the files of rings: ring.c is the stream, ring_host.c what two processes say over their socket. */
#ifndef MUSTER_NET_STREAM_RING_INTERNAL_H
#define MUSTER_NET_STREAM_RING_INTERNAL_H

#include <stdatomic.h>

#include "net/stream/ring.h"
#include "net/stream/unread.h"
#include "runtime/system/host_share.h"

/** A side's memory, in whole pages. The other side reads it. Positions count bytes from the beginning. */
struct muster_ring_memory {
    /* Written by its side with release, after the bytes; read by the other with acquire. */
    _Atomic uint64_t tail; /* that it has written */
    _Atomic uint64_t head; /* that it has taken from the other's ring */
    _Atomic uint64_t is_ended; /* it writes nothing more */
    uint8_t padding[104];
    /* Each counts how often its side has gone to sleep for want of that. A side that has changed its tail or its head
     * looks at them after a fence, and wakes the other once for each number; a side that goes to sleep looks at the
     * other's positions after a fence. So one of the two sees the other. */
    _Atomic uint64_t data_sleeps;
    _Atomic uint64_t room_sleeps;
    uint8_t rest[4096 - 144];
    uint8_t bytes[MUSTER_RING_BYTES];
};
_Static_assert(sizeof(struct muster_ring_memory) == 4096 + MUSTER_RING_BYTES, "whole pages");

/** Two sides of one process: freed with the second one. */
struct muster_ring_pair {
    struct muster_ring_memory memories[2];
    uint32_t refs;
};

struct muster_ring {
    struct muster_stream stream;
    struct muster_env *env;
    struct muster_ring_memory *own;
    const struct muster_ring_memory *other; /* NULL: not known yet */
    struct muster_shared_memory shared;     /* own, of a process of two */
    struct muster_ring_pair *pair;          /* NULL: the other side is another process */
    struct muster_ring *twin;               /* in this process; NULL: it is closed, or there is none */
    struct muster_fd_watch watch;           /* of the socket; fd -1: none */
    uint64_t tail, head;                    /* as in own, which the other side may have seen by any time */
    uint64_t data_woken, room_woken;        /* the newest sleeps of the other side that were ended */
    bool sleeps_for_data, sleeps_for_room;  /* the other side knows */
    uint32_t looks, looks_left;             /* turns in which it looks for data before it sleeps */
    uint32_t sleep_count;                   /* after so few looks as can be */
    struct muster_list writes;
    size_t iov_index, iov_done; /* of the first write: where the next byte is */
    bool is_torn; /* a write that was partly put was taken back: its rest comes before all others */
    struct muster_stream_read *read;
    struct muster_stream_unread unread;
    struct muster_task task;
    bool is_pumping;
    bool is_gone;    /* the other side is closed, or dead: what it has written can still be read */
    bool is_ending;  /* this side writes nothing after what is queued … */
    bool is_told_so; /* … and the other one knows */
    bool is_broken;
    bool is_closing;
    muster_stream_close_fn *closed;
};

/* --- ring_host.c --- */

/** Send what the other process needs to read this side's ring. False: it is gone. */
bool muster_ring_introduce(struct muster_ring *ring);
/** The socket is readable. False: nothing has come. */
bool muster_ring_hear(struct muster_ring *ring);

#endif
