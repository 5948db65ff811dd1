/* Links that are half open: a reset was lost, and one end waits for bytes that will never come. Whoever
 * waits on a silent link asks its peer, and gives the link up when nothing comes. Pure: the owner has
 * the clock. */
#ifndef MUSTER_PARAMS_PULSE_H
#define MUSTER_PARAMS_PULSE_H

#include <stdbool.h>
#include <stddef.h>

#include <muster/base.h>

/* Where something is awaited: a server that is slow, or that waits for its map, answers meanwhile. */
#define MUSTER_PARAMS_PULSE_NS      MUSTER_NS_PER_S
#define MUSTER_PARAMS_PULSE_LOST_NS (5 * MUSTER_NS_PER_S)
/* Where nothing is: a server must know at last which clients have gone. */
#define MUSTER_PARAMS_IDLE_NS      (30 * MUSTER_NS_PER_S)
#define MUSTER_PARAMS_IDLE_LOST_NS (90 * MUSTER_NS_PER_S)

/* header.flags of ALIVE and COPY_ALIVE: the peer is asked for one without it. */
#define MUSTER_PARAMS_ALIVE_ASKS 1u
/* … of ALIVE from a client: all its pushes are acknowledged, and it ends. */
#define MUSTER_PARAMS_ALIVE_LEAVES 2u

struct muster_params_pulse {
    uint64_t heard_ns;   /* bytes came, or waiting began */
    size_t queued_bytes; /* that had not left when it was checked last */
    uint64_t asked_ns;   /* 0: not since then */
};

enum muster_params_pulse_verdict {
    MUSTER_PARAMS_PULSE_BEATS,
    MUSTER_PARAMS_PULSE_ASK, /* once for each silence */
    MUSTER_PARAMS_PULSE_LOST,
};

static inline void muster_params_pulse_hear(struct muster_params_pulse *pulse, uint64_t now_ns)
{
    pulse->heard_ns = now_ns;
    pulse->asked_ns = 0;
}

/** Check a link. is_awaited: an answer is. Bytes that leave a full queue count as heard: the peer's
 * kernel takes them. */
enum muster_params_pulse_verdict muster_params_pulse_check(struct muster_params_pulse *pulse,
                                                           uint64_t now_ns, size_t queued_bytes,
                                                           bool is_awaited);

#endif
