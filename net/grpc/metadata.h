/* A store of metadata: what came from the wire decoded, or what goes to the wire encoded. */
#ifndef MUSTER_NET_GRPC_METADATA_H
#define MUSTER_NET_GRPC_METADATA_H

#include <string.h>

#include <muster/mem.h>
#include <muster/rpc.h>

/* Entries of one call: bounds the work for many tiny headers, and with gRPC's own headers stays
 * below MUSTER_H2_HEADERS_MAX. */
#define MUSTER_GRPC_METADATA_ENTRIES_MAX 100

struct muster_grpc_metadata_block;

/** Entries in order of arrival; their texts do not move. Caller's memory. */
struct muster_grpc_metadata {
    struct muster_mem *mem;
    struct muster_metadata_entry *entries;
    size_t count;
    size_t capacity;
    struct muster_grpc_metadata_block *blocks;
};

void muster_grpc_metadata_init(struct muster_grpc_metadata *store, struct muster_mem *mem);
void muster_grpc_metadata_fini(struct muster_grpc_metadata *store);
/** Forgets the entries; one block of memory stays for the next call. */
void muster_grpc_metadata_reset(struct muster_grpc_metadata *store);

/** Copy one header from the wire; a "-bin" value is split at commas and decoded.
 *  Errors: INVALID_ARGUMENT (bad base64), RESOURCE_EXHAUSTED (too many entries, no memory). */
MUSTER_MUST_CHECK enum muster_rc muster_grpc_metadata_add_wire(struct muster_grpc_metadata *store,
                                                               const char *name, size_t name_bytes,
                                                               const void *value,
                                                               size_t value_bytes);

/** Copy the user's metadata in wire form. Errors: INVALID_ARGUMENT (a name or value that gRPC does
 * not allow; nothing of this call stays), RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_grpc_metadata_add_user(
    struct muster_grpc_metadata *store, const struct muster_metadata *metadata,
    struct muster_error *ret_error);

struct muster_metadata muster_grpc_metadata_view(const struct muster_grpc_metadata *store);

/** A name the user may send: 0-9 a-z _ - . and not reserved. */
bool muster_grpc_metadata_name_is_valid(const char *name);

/** Whether `bytes` of text, not NUL-terminated, are the whole of expected. */
static inline bool muster_grpc_is_text(const char *text, size_t bytes, const char *expected)
{
    return strlen(expected) == bytes && memcmp(text, expected, bytes) == 0;
}

#endif
