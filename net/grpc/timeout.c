/* The grpc-timeout header (PROTOCOL-HTTP2.md): at most eight digits and a unit. The client writes
 * it for each attempt, with what is left of the deadline; the server turns it into a deadline of
 * its own clock. */
#include "net/grpc/timeout.h"

#include <stdio.h>

#define DIGITS_MAX 8
#define VALUE_MAX  UINT64_C(99999999)

static const struct {
    char name;
    uint64_t ns;
} units[] = {
    {'n', 1},
    {'u', MUSTER_NS_PER_US},
    {'m', MUSTER_NS_PER_MS},
    {'S', MUSTER_NS_PER_S},
    {'M', 60 * MUSTER_NS_PER_S},
    {'H', 3600 * MUSTER_NS_PER_S},
};
#define UNIT_COUNT (sizeof(units) / sizeof(units[0]))

enum muster_rc muster_grpc_timeout_parse(const char *text, size_t length, uint64_t *ret_timeout_ns)
{
    uint64_t value = 0;

    if (length < 2 || length > DIGITS_MAX + 1)
        return MUSTER_INVALID_ARGUMENT;
    for (size_t i = 0; i + 1 < length; i++) {
        if (text[i] < '0' || text[i] > '9')
            return MUSTER_INVALID_ARGUMENT;
        value = value * 10 + (uint64_t)(text[i] - '0');
    }
    for (size_t i = 0; i < UNIT_COUNT; i++) {
        if (units[i].name != text[length - 1])
            continue;
        *ret_timeout_ns = value > UINT64_MAX / units[i].ns ? UINT64_MAX : value * units[i].ns;
        return MUSTER_OK;
    }
    return MUSTER_INVALID_ARGUMENT;
}

size_t muster_grpc_timeout_format(uint64_t timeout_ns,
                                  char ret_text[MUSTER_GRPC_TIMEOUT_TEXT_BYTES])
{
    uint64_t value = 0;
    size_t unit = 0;

    for (; unit < UNIT_COUNT; unit++) {
        /* The value is rounded up: a server that gives up a little late is better than one that
         * gives up first. */
        value = timeout_ns / units[unit].ns + (timeout_ns % units[unit].ns != 0);
        if (value <= VALUE_MAX)
            break;
    }
    return (size_t)snprintf(ret_text, MUSTER_GRPC_TIMEOUT_TEXT_BYTES, "%u%c",
                            (unsigned)(value % (VALUE_MAX + 1)), units[unit].name);
}
