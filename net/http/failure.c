/* Failures of a server, by what went wrong: nothing came, a refusal, or what cannot be read. The
 * caller knows what helps against each; this file finds out which it was and fits it into one
 * text. */
#include "net/http/failure.h"

#include <stdio.h>
#include <string.h>

#include "net/http/url.h"

#define URL_BYTES 112 /* leaves half of an error's text for its cause and its remedy */

/* Codes say less than the status: without one no answer came, and the same code means another thing
 * (UNAUTHENTICATED: the server's certificate, not our token). */
static const char *remedy_of(const struct muster_http_request *request,
                             const struct muster_http_remedies *remedies, enum muster_rc rc)
{
    switch (rc) {
    case MUSTER_UNAUTHENTICATED:
        return request->status == 0 ? remedies->untrusted : remedies->refused;
    case MUSTER_PERMISSION_DENIED:
        return remedies->forbidden;
    case MUSTER_NOT_FOUND:
        return remedies->missing;
    case MUSTER_UNAVAILABLE:
    case MUSTER_DEADLINE_EXCEEDED:
        return request->status == 0 || muster_http_status_rc(request->status) == MUSTER_OK
                   ? remedies->unreachable
                   : "try again later";
    case MUSTER_INTERNAL:
        return "try again later";
    case MUSTER_RESOURCE_EXHAUSTED:
        return request->status == 429 ? "try again later" : remedies->malformed;
    case MUSTER_INVALID_ARGUMENT:
        return remedies->malformed;
    case MUSTER_FAILED_PRECONDITION:
        return request->status == 0 ? "mend that file"
                                    : "name the address that it leads to, if you trust it";
    default:
        return NULL;
    }
}

void muster_http_failure_explain(const struct muster_http_call *call,
                                const struct muster_http_remedies *remedies,
                                struct muster_error *error)
{
    const struct muster_http_request *request = &call->request;
    const char *remedy = remedy_of(request, remedies, error->rc);
    char url[URL_BYTES], text[MUSTER_ERROR_TEXT_BYTES + URL_BYTES + 16];
    size_t room;

    if (call->is_token_missing || remedy == NULL || request->current_url == NULL)
        return;
    (void)muster_http_url_redact_short(request->current_url, url, sizeof(url));
    if (strstr(error->text, "://") != NULL)
        snprintf(text, sizeof(text), "%s", error->text);
    else
        snprintf(text, sizeof(text), "%s %s: %s", request->current_method, url, error->text);
    MUSTER_ASSERT(strlen(remedy) < sizeof(error->text) - sizeof("; "));
    room = sizeof(error->text) - strlen(remedy) - sizeof("; ");
    (void)muster_error_set(error, error->rc, "%.*s; %s", (int)room, text, remedy);
}
