/* Attributes and limits that every muster header uses. */
#ifndef MUSTER_BASE_H
#define MUSTER_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MUSTER_VERSION_MAJOR 0
#define MUSTER_VERSION_MINOR 1
#define MUSTER_VERSION_PATCH 0
#define MUSTER_VERSION       "0.1.0"

#define MUSTER_API                __attribute__((visibility("default")))
#define MUSTER_MUST_CHECK         __attribute__((warn_unused_result))
#define MUSTER_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))

#define MUSTER_NS_PER_US UINT64_C(1000)
#define MUSTER_NS_PER_MS UINT64_C(1000000)
#define MUSTER_NS_PER_S  UINT64_C(1000000000)

#ifdef __cplusplus
#define MUSTER_BEGIN extern "C" {
#define MUSTER_END   }
#else
#define MUSTER_BEGIN
#define MUSTER_END
#endif

/** The object that contains `member` at address `ptr`. */
/* clang-format off */
#define MUSTER_CONTAINER_OF(ptr, type, member) \
    ((type *)(void *)((char *)(void *)(ptr) - offsetof(type, member)))
/* clang-format on */

MUSTER_BEGIN

/**
 * Check a condition that muster's own code guarantees, in release builds too: a violated one is a bug
 * of muster or of the program that calls it, never bad input. The condition must have no side effects.
 * A failure writes the condition, its place and the newest events of the flight recorder to standard
 * error, and aborts; the handler of SIGABRT then writes the recorder's file.
 */
#define MUSTER_ASSERT(condition)                                                                   \
    ((condition) ? (void)0 : muster_assert_failed(#condition, __FILE__, __LINE__, __func__))

/** Report a failed MUSTER_ASSERT and abort. */
MUSTER_API __attribute__((noreturn, cold)) void
muster_assert_failed(const char *condition, const char *file, int line, const char *function);

MUSTER_END

#endif
