/* Redirects: whether an answer is one, where it must not lead, and which method goes there. The
 * request itself is sent on by net/http/http.c. */
#include "net/http/redirect.h"

#include <string.h>

#include "net/http/url.h"

bool muster_http_redirect_is_due(const struct muster_http_request *request)
{
    int status = request->status;

    return (status == 301 || status == 302 || status == 303 || status == 307 || status == 308) &&
           request->redirects_max != MUSTER_HTTP_REDIRECTS_NONE;
}

/* A redirect must not carry these to another server. The caller may know of more, in the URL or in
 * the body, and says so by has_credentials. */
static bool carries_credentials(const struct muster_http_request *request)
{
    if (request->has_credentials)
        return true;
    if (request->tls != NULL && (request->tls->cert_file != NULL || request->tls->cert_pem != NULL))
        return true;
    for (size_t i = 0; i < request->header_count; i++)
        if (muster_http_is_secret_header(request->headers[i].name))
            return true;
    return false;
}

/* A redirect may be forged where plain http was used: it must not lead out of TLS, take secrets
 * along to another server, or go on for ever. */
enum muster_rc muster_http_redirect_check(const struct muster_http_request *request,
                                          const char *next_text, struct muster_error *ret_error)
{
    uint32_t limit =
        request->redirects_max != 0 ? request->redirects_max : MUSTER_HTTP_REDIRECTS_DEFAULT;
    struct muster_http_url from = {.port = 0}, next = {.port = 0};
    char url[160];

    if (muster_http_url_parse(request->current_url, &from, ret_error) != MUSTER_OK ||
        muster_http_url_parse(next_text, &next, ret_error) != MUSTER_OK)
        return MUSTER_FAILED_PRECONDITION;
    (void)muster_http_url_redact_short(request->current_url, url, sizeof(url));
    if (request->redirect_count >= limit)
        return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION, "%s: more than %u redirects",
                                url, limit);
    if (from.is_https && !next.is_https)
        return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                                "%s: redirected from https to http, which is refused", url);
    if (carries_credentials(request) && !muster_http_url_is_same_origin(&from, &next))
        return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                                "%s: redirected to %.*s, where credentials must not go", url,
                                (int)next.host_length, next.host);
    return MUSTER_OK;
}

/* RFC 9110 15.4: 303 asks for a GET; after 301 and 302 a POST becomes one by custom. */
void muster_http_redirect_apply(struct muster_http_request *request)
{
    bool is_post = strcmp(request->current_method, "POST") == 0;

    MUSTER_ASSERT(muster_http_redirect_is_due(request));
    if (strcmp(request->current_method, "HEAD") == 0)
        return;
    if (request->status == 303 || ((request->status == 301 || request->status == 302) && is_post)) {
        request->current_method = "GET";
        request->is_body_dropped = true;
    }
}
