/* The check of deadlines in `_start` functions: one that cannot be met is refused. */
#include "runtime/loop/deadline.h"

#include <inttypes.h>

static enum muster_rc deadline_refuse(const char *operation, uint64_t deadline_ns, uint64_t now_ns,
                                      struct muster_error *ret_error)
{
    const char remedy[] = "use muster_loop_after_ns(loop, NANOSECONDS)";

    if (deadline_ns == 0)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "%s: deadline_ns must be a time of the loop's clock in the future, "
                                "got 0; %s",
                                operation, remedy);
    return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                            "%s: deadline_ns must be a time of the loop's clock in the future, got "
                            "%" PRIu64 ", which was %" PRIu64 " ms ago; %s",
                            operation, deadline_ns, (now_ns - deadline_ns) / MUSTER_NS_PER_MS,
                            remedy);
}

enum muster_rc muster_deadline_judge(const struct muster_loop *loop, const char *operation,
                                     uint64_t deadline_ns, struct muster_error *ret_error)
{
    uint64_t now_ns = muster_loop_now_ns(loop);

    MUSTER_ASSERT(operation != NULL);
    if (deadline_ns != 0 && deadline_ns >= now_ns)
        return MUSTER_OK;
    return deadline_refuse(operation, deadline_ns, now_ns, ret_error);
}

enum muster_rc muster_deadline_check(const struct muster_env *env, const char *operation,
                                     uint64_t deadline_ns, struct muster_error *ret_error)
{
    struct muster_error own;
    struct muster_error *error = ret_error != NULL ? ret_error : &own;
    enum muster_rc rc = muster_deadline_judge(env->loop, operation, deadline_ns, error);

    if (rc != MUSTER_OK)
        MUSTER_LOG(env, WARN, "deadline_refused", "reason", error->text);
    return rc;
}

/* A part of an operation whose time has run out must still end with DEADLINE_EXCEEDED by its
 * callback, not by a refusal that looks like a mistake of the caller. */
uint64_t muster_deadline_inherit(const struct muster_loop *loop, uint64_t deadline_ns)
{
    uint64_t now_ns = muster_loop_now_ns(loop);

    return deadline_ns > now_ns ? deadline_ns : now_ns + 1;
}
