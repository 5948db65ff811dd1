/* For functions that stand in place of the C library's: a sanitizer calls them before it can be called. */
#ifndef MUSTER_TEST_UNINSTRUMENTED_H
#define MUSTER_TEST_UNINSTRUMENTED_H

#ifdef __clang__
#define UNINSTRUMENTED __attribute__((disable_sanitizer_instrumentation))
#else
#define UNINSTRUMENTED
#endif

/** For loops over numbers of the test itself, whose time is mostly that of the checks of a sanitizer. */
#define UNWATCHED __attribute__((no_sanitize("address", "undefined")))

/** Whether the thread sanitizer is in the program: its frames lie between those of the program. */
#ifdef __has_feature
#define HAS_THREAD_SANITIZER __has_feature(thread_sanitizer)
#else
#define HAS_THREAD_SANITIZER 0
#endif

#endif
