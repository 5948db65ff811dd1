/* Why a server gave no answer that is of use, and what to do about it, in one text. */
#ifndef MUSTER_HTTP_FAILURE_H
#define MUSTER_HTTP_FAILURE_H

#include <muster/http.h>

/** Advice by kind of failure; static texts without a full stop. */
struct muster_http_remedies {
    const char *refused;     /* 401 */
    const char *forbidden;   /* 403 */
    const char *missing;     /* 404 */
    const char *untrusted;   /* the server's certificate does not hold */
    const char *unreachable; /* no answer, or not in time */
    const char *malformed;   /* an answer that is none, or too much */
};

/**
 * After a call that failed with error: its text names the server that was asked and ends with the
 * remedy; what is too long is shortened before it. A failure of the credentials names its own
 * source and stays as it is.
 */
void muster_http_failure_explain(const struct muster_http_call *call,
                                 const struct muster_http_remedies *remedies,
                                 struct muster_error *error);

#endif
