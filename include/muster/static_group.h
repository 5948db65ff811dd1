/* A group of fixed members without registry or healing: for benchmarks, tests and simple programs.
 */
#ifndef MUSTER_STATIC_GROUP_H
#define MUSTER_STATIC_GROUP_H

#include <muster/address.h>
#include <muster/base.h>
#include <muster/collective.h>
#include <muster/env.h>
#include <muster/status.h>

MUSTER_BEGIN

struct muster_static_group;

/** Listen on 127.0.0.1 (a free port); how the members learn each other's addresses is the program's
 * business. Borrows env, which needs loop and net, until close. Errors as muster_listener_open, and
 * INVALID_ARGUMENT (the job's name, MUSTER_WIRE). Gives. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_static_group_open(
    struct muster_env *env, const char *job, struct muster_static_group **ret_static_group,
    struct muster_error *ret_error);
MUSTER_API const struct muster_address *muster_static_group_address(
    const struct muster_static_group *static_group);

/**
 * Become member `rank` of the `count` members that listen at addresses[0 … count - 1], the same
 * list everywhere. parameters NULL: the defaults. A member that dies is not replaced: operations
 * end by their deadline.
 *
 * Errors: INVALID_ARGUMENT, FAILED_PRECONDITION (joined already), RESOURCE_EXHAUSTED.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_static_group_join(
    struct muster_static_group *static_group, uint32_t rank, const struct muster_address *addresses,
    uint32_t count, const struct muster_plan_parameters *parameters);

/** For muster_all_reduce_start and the others; NULL before join. Borrowed until close. */
MUSTER_API struct muster_group *muster_static_group_group(
    const struct muster_static_group *static_group);

/** All members have all results: closing now costs nobody anything. */
MUSTER_API bool muster_static_group_is_idle(const struct muster_static_group *static_group);

/** Open operations end with CANCELLED. Memory goes in later turns of the loop. NULL is accepted. */
MUSTER_API void muster_static_group_close(struct muster_static_group *static_group);

MUSTER_END

#endif
