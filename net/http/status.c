/* The code that an answer's status stands for, and the text of an error: method, URL, status, and
 * the server's own message, with our secrets hidden in all of them. */
#include <muster/http.h>

#include <muster/json.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "net/http/url.h"

#define MESSAGE_BYTES 128
#define URL_BYTES     112

/* google.rpc.Code names these pairs, so an API answers the same code by HTTP and by gRPC. Other 5xx
 * are proxies in trouble: UNAVAILABLE, which may pass. */
enum muster_rc muster_http_status_rc(int status)
{
    static const struct {
        int status;
        enum muster_rc rc;
    } table[] = {
        {400, MUSTER_INVALID_ARGUMENT},   {401, MUSTER_UNAUTHENTICATED},
        {403, MUSTER_PERMISSION_DENIED},  {404, MUSTER_NOT_FOUND},
        {408, MUSTER_DEADLINE_EXCEEDED},  {409, MUSTER_ABORTED},
        {410, MUSTER_OUT_OF_RANGE},       {412, MUSTER_FAILED_PRECONDITION},
        {429, MUSTER_RESOURCE_EXHAUSTED}, {500, MUSTER_INTERNAL},
        {501, MUSTER_UNIMPLEMENTED},      {504, MUSTER_DEADLINE_EXCEEDED},
    };

    if (status >= 200 && status <= 299)
        return MUSTER_OK;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        if (table[i].status == status)
            return table[i].rc;
    return status >= 500 && status <= 599 ? MUSTER_UNAVAILABLE : MUSTER_UNKNOWN;
}

/* Our own secrets are wiped where the server echoes them. */
static void hide_own_secrets(const struct muster_http_request *request, char *message)
{
    for (size_t i = 0; i < request->header_count; i++) {
        const struct muster_http_header *header = &request->headers[i];
        const char *blank;

        if (!muster_http_is_secret_header(header->name))
            continue;
        /* "Bearer hush": only the word after the blank is a secret. */
        blank = strrchr(header->value, ' ');
        muster_http_redact_secret(message, blank != NULL ? blank + 1 : header->value);
    }
}

/* Google: {"error": {"message"}} or {"error_description"}; Kubernetes: {"kind": "Status",
 * "message"}. */
static void take_message(const struct muster_http_request *request, char *message)
{
    struct muster_json *root = NULL;
    const struct muster_json *error;
    const char *text;

    message[0] = '\0';
    if (request->answer == NULL || request->answer[0] != '{' ||
        muster_json_parse(request->answer, request->answer_bytes, &root, NULL) != MUSTER_OK)
        return;
    error = muster_json_member(root, "error");
    text = muster_json_text(muster_json_member(error, "message"));
    if (text == NULL)
        text = muster_json_text(muster_json_member(root, "error_description"));
    if (text == NULL)
        text = muster_json_text(muster_json_member(root, "message"));
    if (text == NULL)
        text = muster_json_text(error);
    if (text != NULL) {
        char *whole = muster_mem_strdup(muster_mem_system(), text);

        if (whole != NULL) { /* hidden before the cut: half a secret is one too */
            hide_own_secrets(request, whole);
            snprintf(message, MESSAGE_BYTES, ": %s", whole);
        }
        muster_mem_free(muster_mem_system(), whole);
    }
    /* The text goes to terminals and logs, where a server must not forge a line. */
    for (char *at = message; *at != '\0'; at++)
        if ((unsigned char)*at < ' ')
            *at = ' ';
    muster_json_free(root);
}

enum muster_rc muster_http_check(const struct muster_http_request *request,
                                 struct muster_error *ret_error)
{
    enum muster_rc rc = muster_http_status_rc(request->status);
    char url[URL_BYTES], message[MESSAGE_BYTES];

    if (rc == MUSTER_OK || ret_error == NULL)
        return rc;
    take_message(request, message);
    return muster_error_set(ret_error, rc, "%s %s: status %d%s", request->current_method,
                            muster_http_url_redact_short(request->current_url, url, sizeof(url)),
                            request->status, message);
}
