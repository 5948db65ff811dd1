/* The interceptors of a channel or server, and their run over one call. Calls of both sides embed
 * an interception and report each step; the links see starts and sends in order, receives and ends
 * in reverse, like nested functions. started says how many links know the call: a link that refuses
 * it sees nothing more of it. */
#include "net/grpc/interceptor.h"

#include <string.h>

#include "net/grpc/metadata.h"

enum muster_rc muster_interceptor_chain_init(struct muster_interceptor_chain *chain,
                                             const struct muster_interceptor *const *interceptors,
                                             size_t count, struct muster_error *ret_error)
{
    if (count > MUSTER_INTERCEPTORS_MAX)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "interceptors must be at most %d, got %zu",
                                MUSTER_INTERCEPTORS_MAX, count);
    for (size_t i = 0; i < count; i++)
        chain->links[i] = interceptors[i];
    chain->count = count;
    return MUSTER_OK;
}

/* Shows the call as link i sees it, with the data that this link stored. */
static const struct muster_interceptor *chain_enter(struct muster_interception *interception,
                                                    size_t i)
{
    interception->call.interceptor = interception->chain->links[i];
    interception->call.data = interception->data[i];
    return interception->call.interceptor;
}

static void chain_leave(struct muster_interception *interception, size_t i)
{
    interception->data[i] = interception->call.data;
}

/* The link's data is stored even when it refuses, as it may have been set by then. */
static enum muster_rc start_link(struct muster_interception *interception, size_t i,
                                 struct muster_error *error)
{
    const struct muster_interceptor *link = chain_enter(interception, i);
    enum muster_rc rc = MUSTER_OK;

    if (link->on_start != NULL)
        rc = link->on_start(&interception->call, error);
    chain_leave(interception, i);
    return rc;
}

enum muster_rc muster_interception_start(struct muster_interception *interception,
                                         const struct muster_interceptor_chain *chain,
                                         const struct muster_intercepted *call,
                                         struct muster_error *ret_error)
{
    enum muster_rc rc = MUSTER_OK;

    memset(ret_error, 0, sizeof(*ret_error));
    interception->chain = chain;
    interception->call = *call;
    interception->call.start_ns = muster_loop_now_ns(call->env->loop);
    interception->is_attempting = false;
    memset(interception->data, 0, sizeof(interception->data));
    for (size_t i = 0; i < chain->count && rc == MUSTER_OK; i++) {
        rc = start_link(interception, i, ret_error);
        if (rc == MUSTER_OK)
            interception->started = i + 1;
    }
    /* Metadata may be added only while the call starts; afterwards the headers are on their way. */
    interception->call.added = NULL;
    if (rc != MUSTER_OK)
        /* The links that had agreed hear of the end. */
        muster_interception_end(interception, rc, ret_error->text,
                                (struct muster_metadata){NULL, 0});
    return rc;
}

void muster_interception_send(struct muster_interception *interception, const struct iovec *pieces,
                              size_t count, size_t wire_bytes)
{
    struct muster_intercepted_message message = {pieces, count, 0, wire_bytes};

    for (size_t i = 0; i < count && interception->started > 0; i++)
        message.bytes += pieces[i].iov_len;
    for (size_t i = 0; i < interception->started; i++) {
        const struct muster_interceptor *link = chain_enter(interception, i);

        if (link->on_send != NULL)
            link->on_send(&interception->call, &message);
        chain_leave(interception, i);
    }
}

void muster_interception_receive(struct muster_interception *interception,
                                 struct muster_bytes message, size_t wire_bytes)
{
    const struct iovec piece = {(void *)(uintptr_t)message.data, message.size};
    const struct muster_intercepted_message seen = {&piece, 1, message.size, wire_bytes};

    for (size_t i = interception->started; i-- > 0;) {
        const struct muster_interceptor *link = chain_enter(interception, i);

        if (link->on_receive != NULL)
            link->on_receive(&interception->call, &seen);
        chain_leave(interception, i);
    }
}

void muster_interception_attempt(struct muster_interception *interception, unsigned attempt)
{
    interception->is_attempting = true;
    for (size_t i = 0; i < interception->started; i++) {
        const struct muster_interceptor *link = chain_enter(interception, i);

        if (link->on_attempt != NULL)
            link->on_attempt(&interception->call, attempt);
        chain_leave(interception, i);
    }
}

void muster_interception_attempt_end(struct muster_interception *interception, enum muster_rc rc)
{
    /* An attempt that never had a stream has no end either. */
    if (interception->started == 0 || !interception->is_attempting)
        return;
    interception->is_attempting = false;
    for (size_t i = interception->started; i-- > 0;) {
        const struct muster_interceptor *link = chain_enter(interception, i);

        if (link->on_attempt_end != NULL)
            link->on_attempt_end(&interception->call, rc);
        chain_leave(interception, i);
    }
}

void muster_interception_end(struct muster_interception *interception, enum muster_rc rc,
                             const char *text, struct muster_metadata trailing)
{
    struct muster_intercepted_end end = {.rc = rc, .text = text, .trailing = trailing};
    size_t count = interception->started;

    if (count == 0)
        return;
    muster_interception_attempt_end(interception, rc);
    /* It is cleared first: a link may end the call from on_end, which must not come here again. */
    interception->started = 0;
    end.duration_ns =
        muster_loop_now_ns(interception->call.env->loop) - interception->call.start_ns;
    while (count-- > 0) {
        const struct muster_interceptor *link = chain_enter(interception, count);

        if (link->on_end != NULL)
            link->on_end(&interception->call, &end);
    }
}

enum muster_rc muster_intercepted_add(struct muster_intercepted *call, const char *name,
                                      const void *value, size_t value_bytes)
{
    const struct muster_metadata_entry entry = {name, value, value_bytes};
    const struct muster_metadata one = {&entry, 1};

    if (call->added == NULL)
        return MUSTER_FAILED_PRECONDITION;
    return muster_grpc_metadata_add_user(call->added, &one, NULL);
}
