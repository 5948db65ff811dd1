/* Status codes, their texts, and errors by value. */
#include <muster/status.h>

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "runtime/value/errno_text.h"

const char *muster_rc_name(enum muster_rc rc)
{
    switch (rc) {
    case MUSTER_OK:
        return "OK";
#define X(name, num, text)                                                                         \
    case MUSTER_##name:                                                                            \
        return #name;
        MUSTER_RC_MAP(X)
#undef X
    }
    return "UNKNOWN";
}

const char *muster_rc_text(enum muster_rc rc)
{
    switch (rc) {
    case MUSTER_OK:
        return "ok";
#define X(name, num, text)                                                                         \
    case MUSTER_##name:                                                                            \
        return text;
        MUSTER_RC_MAP(X)
#undef X
    }
    return "unknown error";
}

MUSTER_PRINTF(2, 0) static void set_text(struct muster_error *error, const char *fmt, va_list args)
{
    int length = vsnprintf(error->text, sizeof(error->text), fmt, args);

    if (length < 0)
        error->text[0] = '\0';
}

/* Returns rc, so that a function can fail in one statement. NULL is accepted: not every caller has
 * room for a text. */
enum muster_rc muster_error_set(struct muster_error *ret_error, enum muster_rc rc, const char *fmt,
                                ...)
{
    va_list args;

    if (ret_error == NULL)
        return rc;
    ret_error->rc = rc;
    ret_error->sys = 0;
    va_start(args, fmt);
    set_text(ret_error, fmt, args);
    va_end(args);
    return rc;
}

enum muster_rc muster_error_set_sys(struct muster_error *ret_error, enum muster_rc rc, int sys,
                                    const char *fmt, ...)
{
    char reason[96];
    va_list args;
    size_t length;

    if (ret_error == NULL)
        return rc;
    ret_error->rc = rc;
    ret_error->sys = sys;
    va_start(args, fmt);
    set_text(ret_error, fmt, args);
    va_end(args);
    length = strlen(ret_error->text);
    snprintf(ret_error->text + length, sizeof(ret_error->text) - length, ": %s%s",
             strerror_r(sys, reason, sizeof(reason)), muster_errno_remedy(sys));
    return rc;
}

/* By what a caller can do about it: UNAVAILABLE is worth another attempt, INVALID_ARGUMENT and
 * PERMISSION_DENIED are not, RESOURCE_EXHAUSTED is after something was freed. */
enum muster_rc muster_rc_from_errno(int sys)
{
    switch (sys) {
    case 0:
        return MUSTER_OK;
    case ECANCELED:
        return MUSTER_CANCELLED;
    case EINVAL:
    case EAFNOSUPPORT:
    case EISDIR:
    case ENAMETOOLONG:
        return MUSTER_INVALID_ARGUMENT;
    case ETIMEDOUT:
    case ECONNREFUSED:
    case ECONNRESET:
    case ECONNABORTED:
    case EPIPE:
    case ENETUNREACH:
    case EHOSTUNREACH:
    case ENETDOWN:
    case EHOSTDOWN:
    case ENOTCONN:
        return MUSTER_UNAVAILABLE;
    case ENOENT:
    case ESRCH:
    case ENOTDIR:
        return MUSTER_NOT_FOUND;
    case EEXIST:
    case EADDRINUSE:
        return MUSTER_ALREADY_EXISTS;
    case EACCES:
    case EPERM:
    case EROFS:
        return MUSTER_PERMISSION_DENIED;
    case ENOMEM:
    case EMFILE:
    case ENFILE:
    case ENOBUFS:
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        return MUSTER_RESOURCE_EXHAUSTED;
    case ENOSYS:
    case EOPNOTSUPP:
        return MUSTER_UNIMPLEMENTED;
    case EADDRNOTAVAIL:
        return MUSTER_FAILED_PRECONDITION;
    default:
        return MUSTER_INTERNAL;
    }
}
