/* The time of an all-reduce on machines that are not at hand: the plans that the library runs,
 * played through a model of the network. */
#ifndef MUSTER_BENCH_MODEL_H
#define MUSTER_BENCH_MODEL_H

#include <muster/base.h>
#include <muster/mem.h>
#include <muster/view.h>

/**
 * The model: a message of b bytes leaves when its sender's port is free, keeps it for overhead +
 * b / bandwidth, is at the receiver `latency` after it began, and has arrived when the receiver's
 * port has been free for b / bandwidth since. A port takes one message at a time in each direction.
 * Between hosts the port is the host's, within a host the member's own, with the `local` numbers.
 * Adding costs nothing. All members start at 0; START frames are messages, COMPLETE frames are left
 * out. A time is from 0 until the last member has the whole result.
 */
struct bench_model {
    uint32_t n;
    uint32_t ranks_per_host;         /* 0: 1 */
    uint64_t bytes;                  /* of the tensor, f32 */
    enum muster_algorithm algorithm; /* AUTO: what the parameters choose */
    struct muster_plan_parameters parameters;
    double latency_us, local_latency_us;
    double gbps, local_gbps; /* 10^9 bits per second */
    double overhead_us;      /* per message, at its sender */
};

struct bench_model_result {
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
enum muster_algorithm bench_model_choose(const struct bench_model *model);

/** Errors: INVALID_ARGUMENT (no members, no bandwidth, an algorithm that cannot run it),
 * RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc bench_model_run(struct muster_mem *mem,
                                                 const struct bench_model *model,
                                                 struct bench_model_result *ret_result,
                                                 struct muster_error *ret_error);

#endif
