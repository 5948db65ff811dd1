/* The rules of redirects (RFC 9110 15.4), for requests that may carry secrets. */
#ifndef MUSTER_NET_HTTP_REDIRECT_H
#define MUSTER_NET_HTTP_REDIRECT_H

#include <muster/http.h>

/** The answer is a redirect, if it has a location, and the request wants to follow it. */
bool muster_http_redirect_is_due(const struct muster_http_request *request);

/** May the request go to next_text, an absolute URL? Errors: FAILED_PRECONDITION (from https to
 * http, secrets to another server, too many redirects). */
MUSTER_MUST_CHECK enum muster_rc
muster_http_redirect_check(const struct muster_http_request *request, const char *next_text,
                           struct muster_error *ret_error);

/** Choose the method of the next exchange by the status of this answer: some make a GET without a
 * body of it. */
void muster_http_redirect_apply(struct muster_http_request *request);

#endif
