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

#endif
