/* Wrappers of the C library's functions, for the files of this folder. */
#ifndef MUSTER_TESTS_FAULTS_WRAP_H
#define MUSTER_TESTS_FAULTS_WRAP_H

#include <dlfcn.h>
#include <errno.h>

#include "faults.h"
#include "torture_failures.h"

/* It has a name of its own in C, since headers declare some of them with other types, and the function's
 * name for the linker. The next library's is NEXT(name). */
#define WRAP(type, name, ...)                                                                      \
    typedef type name##_fn(__VA_ARGS__);                                                           \
    static name##_fn *next_##name;                                                                 \
    name##_fn wrap_##name __asm__(#name);                                                          \
    type wrap_##name(__VA_ARGS__)

/* The same function under the name that programs with large files call. */
#define WRAP_64(name) name##_fn wrap_##name##64 __asm__(#name "64") __attribute__((alias(#name)))

#define NEXT(name)                                                                                 \
    (next_##name != NULL ? next_##name                                                             \
                         : (*(void **)&next_##name = dlsym(RTLD_NEXT, #name), next_##name))

#define DRAW(name, ...)                                                                            \
    faults_draw(FAULT_CALL, #name, __builtin_return_address(0), (const int[]){__VA_ARGS__},        \
                sizeof((const int[]){__VA_ARGS__}) / sizeof(int))

/* Returned by a call that fails so; sets errno. */
static inline int fail_with(int failure)
{
    errno = failure;
    return -1;
}

static inline void *fail_without(int failure)
{
    errno = failure;
    return NULL;
}

#define FAIL_OR(failure, call) ((failure) != 0 ? fail_with(failure) : (call))
#define NULL_OR(failure, call) ((failure) != 0 ? fail_without(failure) : (call))

#endif
