/* No case passes without an assertion: the assertions of cmocka are counted (ld --wrap, tests/CMakeLists.txt). */
#ifndef MUSTER_ASSERTION_COUNT_H
#define MUSTER_ASSERTION_COUNT_H

#include <stddef.h>

/** Assertions that ran in this process. A fixture whose own assertions prove nothing about the case takes them back. */
extern _Atomic size_t assertion_count; /* Cases start threads that assert, too. */

/** An assertion with a text of its own: fail_if(rc != MUSTER_OK, "%s", error.text). */
#define fail_if(condition, ...)                                                                    \
    do {                                                                                           \
        assertion_count++;                                                                         \
        if (condition)                                                                             \
            fail_msg(__VA_ARGS__);                                                                 \
    } while (0)

/** Skip the case and say why; before it has started anything. */
_Noreturn void skip_with_reason(const char *reason);

#endif
