/* Calls that wait: the program drives its runtime until the operation has ended. An operation has a deadline of its
 * own, so that the waiting has none. */
#include "params/publication/waiter.h"

static bool is_known(void *data)
{
    return ((const struct muster_publication_outcome *)data)->is_known;
}

static uint64_t deadline_after(const struct muster_env *env, uint64_t timeout_ns)
{
    uint64_t now_ns = muster_loop_now_ns(env->loop);

    return timeout_ns < UINT64_MAX - now_ns ? now_ns + timeout_ns : UINT64_MAX;
}

static enum muster_rc runtime_enter(struct muster_runtime *runtime, const char *call,
                                    const char *connect, struct muster_error *ret_error)
{
    if (runtime == NULL)
        return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION, "%s needs what %s has made",
                                call, connect);
    return muster_runtime_enter_as(runtime, call, ret_error);
}

static void outcome_await(struct muster_runtime *runtime,
                          struct muster_publication_outcome *outcome)
{
    enum muster_rc rc = muster_runtime_wait(runtime, is_known, outcome, UINT64_MAX);

    MUSTER_ASSERT(rc == MUSTER_OK); /* the caller is in the seat */
}

#define TELLING_NS MUSTER_NS_PER_S

/* The program may close its environment next. */
static void closing_await(struct muster_runtime *runtime, struct muster_loop *loop,
                          struct muster_publication_outcome *outcome)
{
    outcome_await(runtime, outcome);
    muster_loop_turn_closing(loop);
}

/* --- The publisher --- */

static void on_publication(struct muster_publication *publication, enum muster_rc rc)
{
    *muster_publication_waiter(publication)->outcome =
        (struct muster_publication_outcome){true, rc};
}

static void publication_end(struct muster_publication *publication)
{
    struct muster_publication_outcome outcome = {.is_known = false};
    struct muster_publication_waiter *waiter = muster_publication_waiter(publication);
    struct muster_runtime *runtime = waiter->runtime;
    struct muster_loop *loop = muster_publication_env(publication)->loop;

    waiter->outcome = &outcome;
    muster_publication_close(publication, on_publication);
    closing_await(runtime, loop, &outcome);
}

static enum muster_rc opening_await(struct muster_publication *publication,
                                    struct muster_runtime *runtime, struct muster_error *ret_error)
{
    struct muster_publication_outcome outcome = {.is_known = false};
    struct muster_publication_waiter *waiter = muster_publication_waiter(publication);

    waiter->runtime = runtime;
    waiter->outcome = &outcome;
    outcome_await(runtime, &outcome);
    if (outcome.rc == MUSTER_OK)
        return MUSTER_OK;
    if (ret_error != NULL)
        *ret_error = *muster_publication_error(publication);
    publication_end(publication);
    return outcome.rc;
}

enum muster_rc muster_publication_connect(struct muster_runtime *runtime,
                                          const struct muster_publication_options *options,
                                          uint64_t timeout_ns,
                                          struct muster_publication **ret_publication,
                                          struct muster_error *ret_error)
{
    struct muster_publication_options timed = *options;
    struct muster_env *env = muster_runtime_env(runtime);
    struct muster_publication *publication;
    struct muster_error error;
    enum muster_rc rc = muster_runtime_enter_as(runtime, "muster_publication_connect", ret_error);

    if (rc != MUSTER_OK)
        return rc;
    timed.deadline_ns = deadline_after(env, timeout_ns);
    rc = muster_publication_open(env, &timed, on_publication, &publication,
                                 ret_error != NULL ? ret_error : &error);
    if (rc == MUSTER_OK)
        rc = opening_await(publication, runtime, ret_error);
    if (rc == MUSTER_OK)
        *ret_publication = publication;
    muster_runtime_leave(runtime);
    return rc;
}

enum muster_rc muster_publication_disconnect(struct muster_publication *publication,
                                             struct muster_error *ret_error)
{
    struct muster_runtime *runtime = muster_publication_waiter(publication)->runtime;
    enum muster_rc rc = runtime_enter(runtime, "muster_publication_disconnect",
                                      "muster_publication_connect", ret_error);

    if (rc != MUSTER_OK)
        return rc;
    publication_end(publication);
    muster_runtime_leave(runtime);
    return MUSTER_OK;
}

static void on_put(struct muster_publication_op *op, enum muster_rc rc)
{
    *(struct muster_publication_outcome *)op->data = (struct muster_publication_outcome){true, rc};
}

enum muster_rc muster_publication_publish(struct muster_publication *publication,
                                          const struct muster_publication_put *put,
                                          uint64_t timeout_ns, uint64_t *ret_version,
                                          struct muster_error *ret_error)
{
    struct muster_publication_outcome outcome = {.is_known = false};
    struct muster_publication_op op = {.data = &outcome};
    struct muster_publication_put timed = *put;
    struct muster_runtime *runtime = muster_publication_waiter(publication)->runtime;
    enum muster_rc rc = runtime_enter(runtime, "muster_publication_publish",
                                      "muster_publication_connect", ret_error);

    if (rc != MUSTER_OK)
        return rc;
    timed.deadline_ns = deadline_after(muster_publication_env(publication), timeout_ns);
    rc = muster_publication_put_start(&op, publication, &timed, on_put);
    if (rc == MUSTER_OK) {
        outcome_await(runtime, &outcome);
        rc = outcome.rc;
    }
    if (rc == MUSTER_OK && ret_version != NULL)
        *ret_version = op.version;
    if (rc != MUSTER_OK && ret_error != NULL)
        *ret_error = op.error;
    muster_runtime_leave(runtime);
    return rc;
}

/* --- A reader --- */

enum muster_rc muster_reader_connect(struct muster_runtime *runtime,
                                     const struct muster_reader_options *options,
                                     struct muster_reader **ret_reader,
                                     struct muster_error *ret_error)
{
    struct muster_reader *reader;
    struct muster_error error;
    enum muster_rc rc = muster_runtime_enter_as(runtime, "muster_reader_connect", ret_error);

    if (rc != MUSTER_OK)
        return rc;
    rc = muster_reader_open(muster_runtime_env(runtime), options, NULL, &reader,
                            ret_error != NULL ? ret_error : &error);
    if (rc == MUSTER_OK) {
        muster_reader_waiter(reader)->runtime = runtime;
        *ret_reader = reader;
    }
    muster_runtime_leave(runtime);
    return rc;
}

static void on_wait(struct muster_reader_op *op, enum muster_rc rc)
{
    *(struct muster_publication_outcome *)op->data = (struct muster_publication_outcome){true, rc};
}

enum muster_rc muster_reader_take(struct muster_reader *reader, uint64_t version,
                                  uint64_t timeout_ns, const struct muster_version **ret_version,
                                  struct muster_error *ret_error)
{
    struct muster_publication_outcome outcome = {.is_known = false};
    struct muster_reader_op op = {.data = &outcome};
    struct muster_runtime *runtime = muster_reader_waiter(reader)->runtime;
    enum muster_rc rc =
        runtime_enter(runtime, "muster_reader_take", "muster_reader_connect", ret_error);

    if (rc != MUSTER_OK)
        return rc;
    rc = muster_reader_wait_start(&op, reader, version,
                                  deadline_after(muster_reader_env(reader), timeout_ns), on_wait);
    if (rc == MUSTER_OK) {
        outcome_await(runtime, &outcome);
        rc = outcome.rc;
    }
    if (rc == MUSTER_OK)
        *ret_version = muster_reader_current(reader);
    else if (ret_error != NULL)
        *ret_error = op.error;
    muster_runtime_leave(runtime);
    return rc;
}

enum muster_rc muster_reader_put_back(struct muster_reader *reader,
                                      const struct muster_version *version,
                                      struct muster_error *ret_error)
{
    struct muster_runtime *runtime = muster_reader_waiter(reader)->runtime;
    enum muster_rc rc =
        runtime_enter(runtime, "muster_reader_put_back", "muster_reader_connect", ret_error);

    if (rc != MUSTER_OK)
        return rc;
    muster_reader_release(reader, version);
    muster_runtime_leave(runtime);
    return MUSTER_OK;
}

static void on_reader_closed(struct muster_reader *reader)
{
    *muster_reader_waiter(reader)->outcome = (struct muster_publication_outcome){true, MUSTER_OK};
}

static bool has_told(void *data)
{
    return muster_reader_has_told(data);
}

/* A put that waits for readers counts this one when it has been told, and the program has seen the version. */
enum muster_rc muster_reader_disconnect(struct muster_reader *reader,
                                        struct muster_error *ret_error)
{
    struct muster_publication_outcome outcome = {.is_known = false};
    struct muster_publication_waiter *waiter = muster_reader_waiter(reader);
    struct muster_runtime *runtime = waiter->runtime;
    struct muster_loop *loop = muster_reader_env(reader)->loop;
    enum muster_rc rc =
        runtime_enter(runtime, "muster_reader_disconnect", "muster_reader_connect", ret_error);

    if (rc != MUSTER_OK)
        return rc;
    if (muster_runtime_wait(runtime, has_told, reader, muster_loop_now_ns(loop) + TELLING_NS) !=
        MUSTER_OK)
        MUSTER_LOG(muster_reader_env(reader), DEBUG, "publication_not_told");
    waiter->outcome = &outcome;
    muster_reader_close(reader, on_reader_closed);
    closing_await(runtime, loop, &outcome);
    muster_runtime_leave(runtime);
    return MUSTER_OK;
}
