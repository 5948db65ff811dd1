/* How long an all_reduce would take on machines that one does not have: the plans that the library
 * runs, played through a model of the network. */
#ifndef MUSTER_PLAN_MODEL_H
#define MUSTER_PLAN_MODEL_H

#include <muster/base.h>
#include <muster/mem.h>
#include <muster/view.h>

MUSTER_BEGIN

/**
 * The model: a message of b bytes leaves when its sender's port is free, keeps it for overhead +
 * b / bandwidth, is at the receiver `latency` after it began, and has arrived when the receiver's
 * port has been free for b / bandwidth since. A port takes one message at a time in each direction.
 * Between hosts the port is the host's, within a host the member's own, with the `local` numbers.
 * Adding costs nothing. All members start at 0; START frames are messages, COMPLETE frames are left
 * out. A time is from 0 until the last member has the whole result.
 */
struct muster_plan_model {
    uint32_t n;
    uint32_t ranks_per_host;         /* 0: 1 */
    uint64_t bytes;                  /* of the tensor, f32 */
    enum muster_algorithm algorithm; /* AUTO: what the parameters choose */
    struct muster_plan_parameters parameters;
    double latency_us, local_latency_us;
    double gbps, local_gbps; /* 10^9 bits per second */
    double overhead_us;      /* per message, at its sender */
};

struct muster_plan_model_result {
    enum muster_algorithm algorithm;
    double time_us;
    /* No plan can be faster: the larger of one latency and log2(hosts) overheads, and of 2 (hosts -
     * 1) / hosts of the bytes through a host's port; of one host: the same of its members. (A model
     * in which a message keeps its sender for the whole latency has latency 0 here.) */
    double bound_us;
    uint64_t messages;           /* of all members */
    uint64_t bytes_per_rank_max; /* that one member sends */
};

/** Algorithm that AUTO would choose there. Pure. */
MUSTER_API enum muster_algorithm muster_plan_model_choose(const struct muster_plan_model *model);

/** Errors: INVALID_ARGUMENT (no members, no bandwidth, an algorithm that cannot run it),
 * RESOURCE_EXHAUSTED. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_plan_model_run(
    struct muster_mem *mem, const struct muster_plan_model *model,
    struct muster_plan_model_result *ret_result, struct muster_error *ret_error);

MUSTER_END

#endif
