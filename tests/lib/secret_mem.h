/* An allocator that looks for a secret in all that is given back: what held one must be wiped first. */
#ifndef MUSTER_TEST_SECRET_MEM_H
#define MUSTER_TEST_SECRET_MEM_H

#include <muster/list.h>
#include <muster/mem.h>

struct secret_mem {
    struct muster_mem mem;
    struct muster_mem *base;
    struct muster_list blocks;
    char secret[128];
    size_t secret_bytes;
    unsigned leaked_count; /* blocks that still held it when they were given back, or moved */
};

/** Borrows base, copies the secret: at most 128 bytes. */
void secret_mem_init(struct secret_mem *memory, struct muster_mem *base, const void *secret,
                     size_t secret_bytes);
/** A piece of a PEM's text, of its private key: what no certificate holds. */
void secret_mem_init_pem(struct secret_mem *memory, struct muster_mem *base, const char *key_pem);

/** Some live block holds the secret: what the case is about has happened. */
bool secret_mem_is_held(const struct secret_mem *memory);

#endif
