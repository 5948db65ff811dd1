/* A client for servers that forward the pushes of others: the owner of the source numbers its
 * pushes, and may have opened it through another server. */
#ifndef MUSTER_PARAMS_CLIENT_FORWARD_H
#define MUSTER_PARAMS_CLIENT_FORWARD_H

#include <muster/incarnation.h>
#include <muster/params.h>
#include <muster/stream.h>

/** A source whose pushes are forwarded. */
struct muster_params_origin {
    struct muster_incarnation source;
    uint64_t generation; /* that the source has; 0: the client opens it, as for a new process */
};

/** A server in the process of the client, which meets it without a connection. */
struct muster_params_home {
    void *data;
    struct muster_incarnation id; /* of its memory */
    const char *address;          /* by which others reach it */
    /** Gives the client's end. Errors: RESOURCE_EXHAUSTED, UNAVAILABLE. */
    enum muster_rc (*connect)(void *data, struct muster_stream **ret_stream);
};

/**
 * As muster_params_open, for this source; options->source is ignored. origin NULL: for a source of the client's own.
 *
 * Owns:    borrows home until the client is closed; NULL: all servers are met by connections.
 * Errors:  those of muster_params_open; by opened also ABORTED (a younger process has opened the
 *          source).
 */
MUSTER_MUST_CHECK enum muster_rc muster_params_forward_open(
    struct muster_env *env, const struct muster_params_options *options,
    const struct muster_params_origin *origin, const struct muster_params_home *home,
    muster_params_fn *opened, struct muster_params **ret_params, struct muster_error *ret_error);
/** The generation of the source, once opened came with OK. It counts processes: 1 to 2^32 - 1. */
uint64_t muster_params_forward_generation(const struct muster_params *params);

/** A push of the source's owner. */
struct muster_params_forward_push {
    struct muster_params_rows rows;
    void *ret_values;  /* NULL: a push; else a push_pull */
    uint64_t sequence; /* from 1; the same for a repetition, whichever server forwards it */
    uint64_t clock;
};
/**
 * As muster_params_push_start, with a sequence number of the caller's for all rows: servers that have applied
 * some of them under it do not apply these again. Rows for which a server has no memory are not an
 * error: op->refused counts them. All rows for one server must fit into a frame.
 *
 * Order: a push of a source begins after those of lower numbers were acknowledged.
 */
MUSTER_MUST_CHECK enum muster_rc muster_params_forward_start(
    struct muster_params_op *op, struct muster_params_table *table,
    const struct muster_params_forward_push *push, uint64_t deadline_ns, muster_params_op_fn *done);

/** As muster_params_pull_after_start; rows may be blocks of a tensor, as those of a push. */
MUSTER_MUST_CHECK enum muster_rc muster_params_forward_pull(
    struct muster_params_op *op, struct muster_params_table *table,
    const struct muster_params_rows *rows, uint64_t min_clock, uint64_t deadline_ns,
    muster_params_op_fn *done);

/** How many sources tick, before muster_params_tick_start: options->clock_sources of the owner. */
void muster_params_forward_expect(struct muster_params *params, uint32_t clock_sources);

#endif
