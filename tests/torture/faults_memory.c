/* The C library's heap, which is sometimes full. */
#include "faults.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>

/* The heap below: that of a sanitizer, where there is one. */
#define HEAP(type, name, ...)                                                                      \
    type __libc_##name(__VA_ARGS__);                                                               \
    type __interceptor_##name(__VA_ARGS__) __attribute__((weak));                                  \
    type name(__VA_ARGS__)

HEAP(void *, malloc, size_t bytes);
HEAP(void *, calloc, size_t count, size_t bytes);
HEAP(void *, realloc, void *ptr, size_t bytes);
HEAP(void *, memalign, size_t alignment, size_t bytes);

void *reallocarray(void *ptr, size_t count, size_t bytes);
void *aligned_alloc(size_t alignment, size_t bytes);
int posix_memalign(void **ret_ptr, size_t alignment, size_t bytes);
char *strndup(const char *text, size_t length);
char *strdup(const char *text);

#define BELOW(name, ...)                                                                           \
    (__interceptor_##name != NULL ? __interceptor_##name(__VA_ARGS__) : __libc_##name(__VA_ARGS__))

/* errno is set as the C library sets it. */
static bool heap_refuses(const char *name, const void *caller)
{
    int failure = faults_draw(FAULT_MEMORY, name, caller, (const int[]){ENOMEM}, 1);

    if (failure != 0)
        errno = failure;
    return failure != 0;
}

#define REFUSES(name) heap_refuses(name, __builtin_return_address(0))

void *malloc(size_t bytes)
{
    return REFUSES("malloc") ? NULL : BELOW(malloc, bytes);
}

void *calloc(size_t count, size_t bytes)
{
    return REFUSES("calloc") ? NULL : BELOW(calloc, count, bytes);
}

void *realloc(void *ptr, size_t bytes)
{
    if (bytes != 0 && REFUSES("realloc"))
        return NULL;
    return BELOW(realloc, ptr, bytes);
}

void *reallocarray(void *ptr, size_t count, size_t bytes)
{
    size_t total;

    if (__builtin_mul_overflow(count, bytes, &total) || (total != 0 && REFUSES("reallocarray"))) {
        errno = ENOMEM;
        return NULL;
    }
    return BELOW(realloc, ptr, total);
}

void *memalign(size_t alignment, size_t bytes)
{
    return REFUSES("memalign") ? NULL : BELOW(memalign, alignment, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return REFUSES("aligned_alloc") ? NULL : BELOW(memalign, alignment, bytes);
}

int posix_memalign(void **ret_ptr, size_t alignment, size_t bytes)
{
    int errno_before = errno;
    void *ptr = REFUSES("posix_memalign") ? NULL : BELOW(memalign, alignment, bytes);

    errno = errno_before;
    if (ptr == NULL)
        return ENOMEM;
    *ret_ptr = ptr;
    return 0;
}

static char *copy_text(const char *text, size_t length)
{
    char *copy = BELOW(malloc, length + 1);

    if (copy == NULL)
        return NULL;
    memcpy(copy, text, length);
    copy[length] = '\0';
    return copy;
}

char *strndup(const char *text, size_t length)
{
    return REFUSES("strndup") ? NULL : copy_text(text, strnlen(text, length));
}

char *strdup(const char *text)
{
    return REFUSES("strdup") ? NULL : copy_text(text, strlen(text));
}
