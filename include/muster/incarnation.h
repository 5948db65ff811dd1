/* The identity of a process: 128 random bits made at its start. */
#ifndef MUSTER_INCARNATION_H
#define MUSTER_INCARNATION_H

#include <muster/base.h>
#include <muster/status.h>

MUSTER_BEGIN

/** The only identity that is compared; names, ranks and addresses are labels. All zero: none. */
struct muster_incarnation {
    uint8_t bytes[16];
};

#define MUSTER_INCARNATION_TEXT_BYTES 33
#define MUSTER_JOB_NAME_BYTES         64 /* with its NUL */

MUSTER_API bool muster_incarnation_is_equal(const struct muster_incarnation *a,
                                            const struct muster_incarnation *b);
MUSTER_API bool muster_incarnation_is_zero(const struct muster_incarnation *a);
/** 32 hexadecimal digits. Returns ret_text. */
MUSTER_API const char *muster_incarnation_format(const struct muster_incarnation *a,
                                                 char ret_text[MUSTER_INCARNATION_TEXT_BYTES]);
/** 32 hexadecimal digits, not all zero. INVALID_ARGUMENT. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_incarnation_parse(
    const char *text, struct muster_incarnation *ret_incarnation);

/** INVALID_ARGUMENT, with the reason, unless a job may have this name: 1 to MUSTER_JOB_NAME_BYTES - 1 bytes of
 * UTF-8 without control characters, and without '/', which parts the names of the registry's keys. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_job_name_check(const char *name,
                                                                  struct muster_error *ret_error);

MUSTER_END

#endif
