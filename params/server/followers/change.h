/* Changes of a primary as records for its followers. */
#ifndef MUSTER_PARAMS_SERVER_CHANGE_H
#define MUSTER_PARAMS_SERVER_CHANGE_H

#include "params/server/core/push.h"
#include "params/server/core/server_internal.h"
#include "params/store/turnover.h"

/** A push on its way to the followers of its shards. */
struct muster_params_forward {
    uint64_t mask;                        /* of these followers; 0: none */
    struct muster_list pushes, turnovers; /* a record for each of them */
};
/** Make the records of a push, and of up to turned_max keys that it turns. RESOURCE_EXHAUSTED: there are
 * none. Otherwise muster_params_forward_send follows in the same turn. */
MUSTER_MUST_CHECK enum muster_rc muster_params_forward_prepare(
    struct muster_params_server *server, const struct muster_params_push *push, size_t turned_max,
    struct muster_params_forward *ret_forward);
/** Send them, those with keys that were turned first. The push is applied here in the same turn. */
void muster_params_forward_send(struct muster_params_server *server,
                                const struct muster_params_push *push,
                                struct muster_params_forward *forward,
                                const struct muster_params_turned *turned, uint32_t turned_count);
/** Tell all followers that the source was opened. As muster_params_forward_prepare. */
MUSTER_MUST_CHECK enum muster_rc muster_params_source_forward(struct muster_params_server *server,
                                                              uint64_t slot);
/** Tell all followers that this server has forgotten what the source has pushed to its shards. As
 * muster_params_forward_prepare. */
MUSTER_MUST_CHECK enum muster_rc muster_params_forget_forward(struct muster_params_server *server,
                                                              uint64_t slot);
/** Followers answer, in this turn or the next, whether they still follow this server: what they have
 * when they do is record_count. As muster_params_forward_prepare. */
MUSTER_MUST_CHECK enum muster_rc muster_params_mark_forward(struct muster_params_server *server);

#endif
