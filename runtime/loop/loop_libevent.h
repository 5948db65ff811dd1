/* The part of the real loop that is for files that use libevent themselves. */
#ifndef MUSTER_RUNTIME_LOOP_LIBEVENT_H
#define MUSTER_RUNTIME_LOOP_LIBEVENT_H

#include <muster/loop.h>

/** The loop's base, for libevent's own servers (evhttp). Borrowed. A loop that was asked for it is
 * turned at least every 10 ms by an owner that embeds it by descriptor. */
struct event_base *muster_loop_event_base(struct muster_loop *loop);

#endif
