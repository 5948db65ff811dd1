/* Several resolvers as one: their clusters joined (TensorFlow's UnionResolver). */
#ifndef MUSTER_UNION_RESOLVER_H
#define MUSTER_UNION_RESOLVER_H

#include <muster/resolver.h>

MUSTER_BEGIN

#define MUSTER_UNION_MEMBERS_MAX 64

struct muster_union_resolver_options {
    struct muster_resolver_options common; /* environment must be NULL: the first member's counts */
    struct muster_resolver **members;      /* the array is borrowed during the call */
    size_t member_count;
};

/**
 * Every cluster question goes to all members at once; their jobs are joined.
 *
 * The tasks of a job that several members have stand one behind the other, in the order of the
 * members. If one member gives the job by index, all do, and an index given twice is an error. What
 * the union itself does not know (task, rpc_layer, master, accelerators) the first member answers.
 *
 * Owns:    takes the members, also on failure; they are closed with the union.
 * Errors:  INVALID_ARGUMENT (no member, a NULL member, an environment), RESOURCE_EXHAUSTED. A
 *          cluster question: ALREADY_EXISTS (an index given twice), and what a member answers.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_union_resolver_open(
    struct muster_env *env, const struct muster_union_resolver_options *options,
    struct muster_resolver **ret_resolver, struct muster_error *ret_error);

MUSTER_END

#endif
