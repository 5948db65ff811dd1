/* The check of deadlines in `_start` functions: one that cannot be met is refused. */
#ifndef MUSTER_RUNTIME_DEADLINE_H
#define MUSTER_RUNTIME_DEADLINE_H

#include <muster/env.h>
#include <muster/status.h>

/** As muster_deadline_check, without the log. */
MUSTER_MUST_CHECK enum muster_rc muster_deadline_judge(const struct muster_loop *loop,
                                                       const char *operation, uint64_t deadline_ns,
                                                       struct muster_error *ret_error);
/** INVALID_ARGUMENT for a deadline_ns that is zero or past, which is a mistake of the caller; operation is
 * the function's name. The text says so with the remedy; it is also logged, because many operations
 * have nowhere to put it. ret_error may be NULL. */
MUSTER_MUST_CHECK enum muster_rc muster_deadline_check(const struct muster_env *env,
                                                       const char *operation, uint64_t deadline_ns,
                                                       struct muster_error *ret_error);

/** deadline_ns for a part of an operation under way: when time has run out meanwhile, a deadline that
 * is over in a moment, so that the part ends DEADLINE_EXCEEDED and is not refused as a mistake. */
uint64_t muster_deadline_inherit(const struct muster_loop *loop, uint64_t deadline_ns);

#endif
