/* One rank of gpu_check. */
#ifndef MUSTER_TEST_GPU_CHECK_RANK_H
#define MUSTER_TEST_GPU_CHECK_RANK_H

#include "gpu_check.h"

#include <muster/gpu.h>
#include <muster/stream.h>

#include "collective/gpu/gpu_internal.h"
#include "collective/group/group.h"

#define LINKS  (4 * CHECK_RANKS_MAX)
#define VALUES 1000u

struct rank {
    struct check_options options;
    struct muster_env *env;
    struct muster_backend *backend;
    struct muster_cuda *cuda;
    struct muster_cuda_stream *stream;
    struct muster_listener *listener;
    struct muster_peer_link *accepted[LINKS];
    struct muster_wire *wire;
    struct muster_view *view;
    struct muster_group *group;
    struct muster_fd_watch watch;
    char line[CHECK_LINE_BYTES];
    size_t line_bytes;
    enum check_phase phase;
    uint64_t step, step_epoch;
    bool is_frozen, is_quitting, is_done;
    enum muster_rc rc;
    struct muster_op op;
    void *memory[2];
    uint8_t *host;
};

/** A line to the parent. */
void check_say(struct rank *rank, const char *format, ...) MUSTER_PRINTF(2, 3);
/** The check has failed: ends the process. */
void check_give_up(struct rank *rank, const char *what, const char *text);
void check_need(struct rank *rank, enum muster_rc rc, const char *what,
                const struct muster_error *error);
/** One operation, to its end. */
enum muster_rc check_run(struct rank *rank, struct muster_device_call *call);
/** To (in) or from (out) rank->memory[which], and wait for it. */
void check_copy(struct rank *rank, unsigned which, void *in, void *out, size_t bytes);

/* gpu_check_values.c */
void check_rank_values(struct rank *rank);

#endif
