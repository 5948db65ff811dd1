/* The other side of muster/http.h: what a provider of HTTP implements and calls (curl; tests). */
#ifndef MUSTER_NET_HTTP_PROVIDER_H
#define MUSTER_NET_HTTP_PROVIDER_H

#include <muster/http.h>

/** The contract of a provider: one exchange at a time per request, no redirects, no deadline. */
struct muster_http_ops {
    /** Begin to send request->current_method, current_url, headers, body. Ends in
     * muster_http_provide_end, later. Anything but OK: nothing began, and request->error says why.
     */
    enum muster_rc (*start)(struct muster_http *http, struct muster_http_request *request);
    /** Give the exchange up: provide_end follows soon, not inside this call. May come inside
     * provide_body.
     */
    void (*cancel)(struct muster_http *http, struct muster_http_request *request);
    /** Free the client; nothing is active. */
    void (*close)(struct muster_http *http);
};

/** Fill the common part. Borrows env. */
void muster_http_init(struct muster_http *http, struct muster_env *env,
                      const struct muster_http_ops *ops);

/* An answer arrives: status (again after a 1xx), headers, pieces of the body, the end. Anything but
 * OK from these means: give the exchange up and hand that code to provide_end. */
void muster_http_provide_status(struct muster_http_request *request, int status);
MUSTER_MUST_CHECK enum muster_rc muster_http_provide_header(struct muster_http_request *request,
                                                            const char *name, size_t name_length,
                                                            const char *value, size_t value_length);
MUSTER_MUST_CHECK enum muster_rc muster_http_provide_body(struct muster_http_request *request,
                                                          const void *bytes, size_t count);
/** Within done: another status and body instead of those that came; copies. Errors:
 * RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_http_replace_answer(struct muster_http_request *request,
                                                            int status, const void *bytes,
                                                            size_t count);
/** On the loop, never inside ops->start or ops->cancel. With a failure of the provider's own
 * request->error tells it. The request may be gone, or running anew, when this returns. */
void muster_http_provide_end(struct muster_http_request *request, enum muster_rc rc);

#endif
