/* How much each call may inflate in a turn of the loop: a few compressed bytes hold a thousand
 * times as many, and others shall be served meanwhile. One for all calls of a server or channel. */
#ifndef MUSTER_NET_RPC_INFLATION_H
#define MUSTER_NET_RPC_INFLATION_H

#include <muster/list.h>
#include <muster/loop.h>

/** Caller's memory. */
struct muster_rpc_inflation {
    size_t left; /* work that may be done before the next turn; parsers point here */
    /* private */
    struct muster_loop *loop;
    struct muster_list waiting;
    struct muster_task task;
};

/** One that waits for its next turn. */
struct muster_rpc_inflating {
    struct muster_list node;
    void (*on_turn)(struct muster_rpc_inflating *inflating); /* may await again */
};

void muster_rpc_inflation_init(struct muster_rpc_inflation *inflation, struct muster_loop *loop);
void muster_rpc_inflation_fini(struct muster_rpc_inflation *inflation);
/** Waits for a turn: on_turn comes from the loop, in the order of these calls. */
void muster_rpc_inflation_await(struct muster_rpc_inflation *inflation,
                                struct muster_rpc_inflating *inflating);

#endif
