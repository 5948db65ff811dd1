/* Messages that have come on the stream of a call, until the application takes them: each is shown
 * when it is complete. While the application pauses, what comes waits here, and the stream's
 * window stays shut by as much; the connection's does not, so that other calls go on. */
#ifndef MUSTER_NET_RPC_INBOX_H
#define MUSTER_NET_RPC_INBOX_H

#include <muster/loop.h>

#include "net/grpc/frame.h"
#include "net/h2/session.h"
#include "net/grpc/inflation.h"

struct muster_rpc_inbox;

/** How far the end of the peer's stream has come. */
enum muster_rpc_inbox_end {
    MUSTER_RPC_INBOX_RECEIVING, /* the peer may send more */
    MUSTER_RPC_INBOX_ENDED,     /* it sends no more, and the owner has not been told */
    MUSTER_RPC_INBOX_END_TOLD,
};

/** Whether an event of the owner is under way, during which the inbox must not be freed. */
enum muster_rpc_inbox_turn {
    MUSTER_RPC_INBOX_IDLE,
    MUSTER_RPC_INBOX_TELLING,
    MUSTER_RPC_INBOX_RELEASING, /* the owner has asked for release meanwhile: on_idle follows */
};

/** The callbacks of its owner; the table is static. */
struct muster_rpc_inbox_events {
    /* Whether the call goes on. Otherwise nothing more is shown, and what comes is dropped. */
    bool (*is_open)(const struct muster_rpc_inbox *inbox);
    /* A message is complete; is_last says that the peer sends nothing after it. */
    void (*on_message)(struct muster_rpc_inbox *inbox, struct muster_bytes message, bool is_last);
    void (*on_refused)(struct muster_rpc_inbox *inbox, enum muster_grpc_parsed parsed);
    /* The peer sends no more, and all that it sent was shown. Also while paused. */
    void (*on_end)(struct muster_rpc_inbox *inbox);
    /* It holds more or less memory than before; not called from receive. */
    void (*on_change)(struct muster_rpc_inbox *inbox);
    /* The event in which release was refused is over: the owner may reset or free it now. */
    void (*on_idle)(struct muster_rpc_inbox *inbox);
};

/** Its owner embeds it beside its stream and its parser. */
struct muster_rpc_inbox {
    void *data;
    bool has_kept_message; /* the owner has a message that it has not shown yet: on_end waits while
                              paused */
    /* private */
    const struct muster_rpc_inbox_events *events;
    struct muster_loop *loop;
    struct muster_h2_stream *stream;
    struct muster_grpc_parser *parser;
    struct muster_task resume_task;
    struct muster_rpc_inflation *inflation;
    struct muster_rpc_inflating inflating; /* its place among those that wait for inflation */
    uint8_t *held;                         /* at most what the stream's window lets in */
    size_t held_at, held_bytes, held_capacity;
    bool is_paused;
    bool is_inflating; /* a message of which all has come; what is after it waits */
    enum muster_rpc_inbox_end end;
    enum muster_rpc_inbox_turn turn;
};

/** Borrows all that it is given until the owner frees it. */
void muster_rpc_inbox_init(struct muster_rpc_inbox *inbox,
                           const struct muster_rpc_inbox_events *events, void *data,
                           struct muster_loop *loop, struct muster_rpc_inflation *inflation,
                           struct muster_h2_stream *stream, struct muster_grpc_parser *parser);
/** Makes it as it was after init, for the next call. It gives back all that it holds. */
void muster_rpc_inbox_reset(struct muster_rpc_inbox *inbox);
/** As reset, but a pause stays, because the call is sent again on another stream. Not amid an
 * event. */
void muster_rpc_inbox_restart(struct muster_rpc_inbox *inbox);
/** Whether the owner may reset or free it now. False amid an event: on_idle follows. */
MUSTER_MUST_CHECK bool muster_rpc_inbox_release(struct muster_rpc_inbox *inbox);

/** From the stream's events. is_last: nothing follows these bytes (end is called as well). */
void muster_rpc_inbox_receive(struct muster_rpc_inbox *inbox, struct muster_bytes bytes,
                              bool is_last);
void muster_rpc_inbox_end(struct muster_rpc_inbox *inbox);
/** Whether the end has come but has not been told: the call then goes on without its stream. */
bool muster_rpc_inbox_is_holding_end(const struct muster_rpc_inbox *inbox);

/** Whether it is paused, has bytes that wait from a pause, or is inflating. */
bool muster_rpc_inbox_is_holding(const struct muster_rpc_inbox *inbox);
/** Whether the peer sends no more. */
bool muster_rpc_inbox_has_ended(const struct muster_rpc_inbox *inbox);
/** The memory of the bytes that wait. */
size_t muster_rpc_inbox_held_bytes(const struct muster_rpc_inbox *inbox);

/** Nothing is shown from the next message on, not even of what has come already. */
void muster_rpc_inbox_pause(struct muster_rpc_inbox *inbox);
/** Bytes that wait are shown from the loop. */
void muster_rpc_inbox_resume(struct muster_rpc_inbox *inbox);

#endif
