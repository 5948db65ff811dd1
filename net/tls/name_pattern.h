/* Names against patterns with a star at one end. */
#ifndef MUSTER_NET_NAME_PATTERN_H
#define MUSTER_NET_NAME_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

typedef int muster_name_compare_fn(const char *left, const char *right, size_t count);

/** compare is strncmp or strncasecmp. */
static inline bool muster_name_matches(const char *name, const char *pattern,
                                       muster_name_compare_fn *compare)
{
    size_t length = strlen(pattern);
    size_t name_length = strlen(name);

    if (length > 0 && pattern[length - 1] == '*')
        return name_length >= length - 1 && compare(name, pattern, length - 1) == 0;
    if (pattern[0] == '*')
        return name_length >= length - 1 &&
               compare(name + name_length - (length - 1), pattern + 1, length - 1) == 0;
    return name_length == length && compare(name, pattern, length) == 0;
}

#endif
