/* OpenSSL's own allocations, of which one fails when a case asks for it. */
#include "openssl_memory.h"

#include <openssl/crypto.h>
#include <stdlib.h>

#include "torture.h"

static uint64_t held, count, due; /* due 0: none is to fail */
static bool has_failed;

static bool is_due(void)
{
    if (++count != due)
        return false;
    has_failed = true;
    return true;
}

static void *on_malloc(size_t bytes, const char *file, int line)
{
    (void)file, (void)line;
    void *ptr = is_due() ? NULL : torture_malloc(bytes);

    held += ptr != NULL;
    return ptr;
}

static void *on_realloc(void *ptr, size_t bytes, const char *file, int line)
{
    void *moved = is_due() ? NULL : torture_library_realloc(ptr, bytes);

    (void)file, (void)line;
    held += ptr == NULL && moved != NULL;
    return moved;
}

static void on_free(void *ptr, const char *file, int line)
{
    (void)file, (void)line;
    held -= ptr != NULL;
    free(ptr);
}

bool openssl_memory_take_over(void)
{
    return CRYPTO_set_mem_functions(on_malloc, on_realloc, on_free) == 1;
}

void openssl_memory_fail_at(uint64_t fail_at)
{
    count = 0;
    due = fail_at;
    has_failed = false;
}

uint64_t openssl_memory_count(void)
{
    return count;
}

uint64_t openssl_memory_held(void)
{
    return held;
}

bool openssl_memory_has_failed(void)
{
    due = 0;
    return has_failed;
}
