/* What a client wants of the calls of a method, a service, or all methods. */
#ifndef MUSTER_METHOD_POLICY_H
#define MUSTER_METHOD_POLICY_H

#include <muster/base.h>
#include <muster/retry_policy.h>

MUSTER_BEGIN

#define MUSTER_METHOD_POLICIES_MAX 1024

/** Of several that fit a call, the most precise one holds alone: method, then service, then all. */
struct muster_method_policy {
    const char *method;        /* "/package.Service/Method", "/package.Service/", or NULL: all */
    uint64_t timeout_ns;       /* 0: none. Of this and the call's own deadline the earlier holds */
    bool wait_for_ready;       /* also for calls that do not ask for it */
    size_t request_max_bytes;  /* of one message, 0: no limit; a larger send: RESOURCE_EXHAUSTED */
    size_t response_max_bytes; /* of one message, 0: as the channel; larger: RESOURCE_EXHAUSTED */
    struct muster_retry_policy retry;
};

MUSTER_END

#endif
