/* Functions that see each call of a channel or a server, add metadata to it, or refuse it.
 *
 * A chain is an array of pointers in the options of the channel or server. on_start and on_send
 * run in the order of the array, all others in the opposite one. A chain of none costs nothing,
 * and none allocates. */
#ifndef MUSTER_INTERCEPTOR_H
#define MUSTER_INTERCEPTOR_H

#include <muster/base.h>
#include <muster/rpc.h>
#include <muster/status.h>

MUSTER_BEGIN

#define MUSTER_INTERCEPTORS_MAX 8

struct muster_interceptor;

/** One call as an interceptor sees it. Valid during the function that gets it; what it points to
 * as well. */
struct muster_intercepted {
    void *data; /* of this interceptor and this call: NULL in on_start, then what it left there */
    const struct muster_interceptor *interceptor;
    struct muster_env *env;
    const char *method;              /* "/package.Service/Method" */
    struct muster_metadata metadata; /* of the request, decoded; at a client in on_start only */
    uint64_t start_ns;               /* loop time of on_start */
    uint64_t deadline_ns;            /* absolute loop time; UINT64_MAX: none */
    struct muster_call *call;        /* at a client, else NULL */
    struct muster_rpc *rpc;          /* at a server, else NULL: muster_rpc_peer and the like */
    /* private */
    struct muster_grpc_metadata *added;
};

struct muster_intercepted_message {
    const struct iovec *pieces; /* in order; plain, whatever goes over the wire */
    size_t count;
    size_t bytes;      /* of all pieces */
    size_t wire_bytes; /* as sent or received: compressed or not, without its prefix */
};

struct muster_intercepted_end {
    enum muster_rc rc;    /* client: the outcome. Server: the status sent; when none was, why */
    const char *text;     /* grpc-message; at a server "" */
    uint64_t duration_ns; /* since on_start */
    struct muster_metadata trailing; /* client: received. Server: sent */
};

/** Each function may be NULL. The struct is borrowed until the channel or server is closed. The
 * functions run on the loop and must not end or start anything of the call that they see. */
struct muster_interceptor {
    void *data; /* the owner's */
    /* A client's call before anything is sent, a server's before its method sees it. Other than
     * OK: the call ends with that status and the error's text; of the interceptors before this one
     * on_end runs, of this one and those behind it nothing more. */
    enum muster_rc (*on_start)(struct muster_intercepted *call, struct muster_error *ret_error);
    /* A message is queued (client: of the request; server: of the response), or is shown next. */
    void (*on_send)(struct muster_intercepted *call,
                    const struct muster_intercepted_message *message);
    void (*on_receive)(struct muster_intercepted *call,
                       const struct muster_intercepted_message *message);
    /* Client: the call goes to a connection (attempt 1, 2, ...), and what became of that. */
    void (*on_attempt)(struct muster_intercepted *call, unsigned attempt);
    void (*on_attempt_end)(struct muster_intercepted *call, enum muster_rc rc);
    /* Exactly once for each on_start that gave OK; just before the call's own done or on_end. */
    void (*on_end)(struct muster_intercepted *call, const struct muster_intercepted_end *end);
};

/** In on_start: metadata (copied) of the request at a client; at a server of the response, sent
 * with its headers when it has any. Errors: INVALID_ARGUMENT (a name or value that gRPC does not
 * allow), RESOURCE_EXHAUSTED, FAILED_PRECONDITION (not in on_start). */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_intercepted_add(struct muster_intercepted *call,
                                                                   const char *name,
                                                                   const void *value,
                                                                   size_t value_bytes);

MUSTER_END

#endif
