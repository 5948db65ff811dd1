/* Status codes of the whole program (equal to gRPC's) and errors by value. */
#ifndef MUSTER_STATUS_H
#define MUSTER_STATUS_H

#include <muster/base.h>

MUSTER_BEGIN

/* name, number (= gRPC and absl status), text */
#define MUSTER_RC_MAP(X)                                                                           \
    X(CANCELLED, 1, "cancelled")                                                                   \
    X(UNKNOWN, 2, "unknown error")                                                                 \
    X(INVALID_ARGUMENT, 3, "invalid argument")                                                     \
    X(DEADLINE_EXCEEDED, 4, "deadline exceeded")                                                   \
    X(NOT_FOUND, 5, "not found")                                                                   \
    X(ALREADY_EXISTS, 6, "already exists")                                                         \
    X(PERMISSION_DENIED, 7, "permission denied")                                                   \
    X(RESOURCE_EXHAUSTED, 8, "resource exhausted")                                                 \
    X(FAILED_PRECONDITION, 9, "failed precondition")                                               \
    X(ABORTED, 10, "aborted")                                                                      \
    X(OUT_OF_RANGE, 11, "out of range")                                                            \
    X(UNIMPLEMENTED, 12, "not implemented")                                                        \
    X(INTERNAL, 13, "internal error")                                                              \
    X(UNAVAILABLE, 14, "unavailable")                                                              \
    X(DATA_LOSS, 15, "data loss")                                                                  \
    X(UNAUTHENTICATED, 16, "unauthenticated")

enum muster_rc {
    MUSTER_OK = 0,
#define X(name, num, text) MUSTER_##name = (num),
    MUSTER_RC_MAP(X)
#undef X
};

#define MUSTER_ERROR_TEXT_BYTES 240

/** An error with its detail, passed by value. Every `ret_error` parameter may be NULL. All zero
 * means "no error". */
struct muster_error {
    enum muster_rc rc;
    int sys; /* errno where one was the cause, else 0 */
    char text[MUSTER_ERROR_TEXT_BYTES];
};

/** "INVALID_ARGUMENT" for MUSTER_INVALID_ARGUMENT; "UNKNOWN" for a code out of range. Static
 * text. */
MUSTER_API const char *muster_rc_name(enum muster_rc rc);

/** A few lower-case words on `rc`. Static text. */
MUSTER_API const char *muster_rc_text(enum muster_rc rc);

/**
 * Fill `*ret_error` (may be NULL) with rc and formatted text, cut to fit, and return rc,
 * so that a failing function ends in `return muster_error_set(...)`.
 */
MUSTER_API enum muster_rc muster_error_set(struct muster_error *ret_error, enum muster_rc rc,
                                           const char *fmt, ...) MUSTER_PRINTF(3, 4);

/** As muster_error_set, and appends ": <strerror(sys)>", for EFBIG with a remedy. Records sys. */
MUSTER_API enum muster_rc muster_error_set_sys(struct muster_error *ret_error, enum muster_rc rc,
                                               int sys, const char *fmt, ...) MUSTER_PRINTF(4, 5);

/** The status code that stands for an errno (ECONNREFUSED is UNAVAILABLE, ENOENT is NOT_FOUND
 * …). */
MUSTER_API enum muster_rc muster_rc_from_errno(int sys);

MUSTER_END

#endif
