/* Names of jobs: what the keys of the registry, the hellos of links and people can bear. */
#include <string.h>

#include <muster/incarnation.h>

#include "runtime/value/utf8.h"

#define NAME_BYTES_MAX   (MUSTER_JOB_NAME_BYTES - 1)
#define QUOTED_BYTES_MAX 40u

/* The length of the part that may stand in a text, of at most so many bytes. */
static size_t prefix_length(const char *name, size_t bytes)
{
    size_t at = 0, length = 1;

    while (at < bytes && length > 0) {
        length = muster_utf8_length((const unsigned char *)name + at);
        if ((unsigned char)name[at] < 0x20 || name[at] == 0x7f || at + length > bytes)
            length = 0;
        at += length;
    }
    return at;
}

static enum muster_rc length_refuse(const char *name, size_t bytes, struct muster_error *ret_error)
{
    return bytes == 0
               ? muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                  "a job's name must have 1 to %d bytes, got 0", NAME_BYTES_MAX)
               : muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                  "a job's name must have 1 to %d bytes, got %zu: \"%.*s...\"",
                                  NAME_BYTES_MAX, bytes, (int)prefix_length(name, QUOTED_BYTES_MAX),
                                  name);
}

static enum muster_rc byte_refuse(const char *name, size_t at, struct muster_error *ret_error)
{
    unsigned byte = (unsigned char)name[at];

    return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                            "a job's name must be UTF-8 without control characters, got byte 0x%02x "
                            "behind \"%.*s\"",
                            byte, (int)at, name);
}

enum muster_rc muster_job_name_check(const char *name, struct muster_error *ret_error)
{
    size_t bytes = strlen(name), length;

    if (bytes == 0 || bytes > NAME_BYTES_MAX)
        return length_refuse(name, bytes, ret_error);
    for (size_t at = 0; at < bytes; at += length) {
        length = muster_utf8_length((const unsigned char *)name + at);
        if (length == 0 || (unsigned char)name[at] < 0x20 || name[at] == 0x7f)
            return byte_refuse(name, at, ret_error);
        if (name[at] == '/')
            return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                    "a job's name must not have a '/', got \"%s\"", name);
    }
    return MUSTER_OK;
}
