/* A network in memory whose connections break after a given number of bytes: for tests. */
#ifndef MUSTER_TEST_CUT_NET_H
#define MUSTER_TEST_CUT_NET_H

#include <muster/stream.h>

struct cut_connection;

/** One listener, at whatever address. What a stream takes leaves at once; what lies behind the
 * limit of its direction is lost, and both sides are reset when it is reached. */
struct cut_net {
    struct muster_net net;
    struct muster_env *env;
    muster_listener_accept_fn *on_accept; /* listener is the one below */
    struct muster_listener listener;
    /* Bytes that the next connection carries [from the connecting side, to it]; UINT64_MAX: all. */
    uint64_t limits[2];
    size_t take_max;     /* bytes that a stream takes in one turn; 0: all */
    unsigned dial_count; /* connections made */
    bool is_refusing;
    struct muster_list connections;
};

void cut_net_init(struct cut_net *net, struct muster_env *env, muster_listener_accept_fn *on_accept,
                  void *data);
/** Frees what both sides have closed by now; the rest is a leak. */
void cut_net_fini(struct cut_net *net);
/** Reset the latest connection now; what is under way is lost. */
void cut_net_reset(struct cut_net *net);

#endif
