/* A store of metadata: what came from the wire decoded, or what goes to the wire encoded ("-bin"
 * values are base64 there, PROTOCOL-HTTP2.md). Each call has some; texts lie in blocks that do not
 * move, so that the session may send from them, and one block stays for the next call. */
#include "net/grpc/metadata.h"

#include <string.h>

#include "net/stream/base64.h"
#include "runtime/value/array.h"

/* A usual call has a few hundred bytes of headers: one block, which has 1 KiB with its own fields.
 */
#define BLOCK_BYTES_MIN 1000

struct muster_grpc_metadata_block {
    struct muster_grpc_metadata_block *next;
    size_t bytes;
    size_t used;
    char room[];
};

const struct muster_metadata_entry *muster_metadata_find(const struct muster_metadata *metadata,
                                                         const char *name)
{
    for (size_t i = 0; i < metadata->count; i++) {
        if (strcmp(metadata->entries[i].name, name) == 0)
            return &metadata->entries[i];
    }
    return NULL;
}

void muster_grpc_metadata_init(struct muster_grpc_metadata *store, struct muster_mem *mem)
{
    memset(store, 0, sizeof(*store));
    store->mem = mem;
}

static void blocks_free(struct muster_mem *mem, struct muster_grpc_metadata_block *block)
{
    while (block != NULL) {
        struct muster_grpc_metadata_block *next = block->next;

        muster_mem_free(mem, block);
        block = next;
    }
}

void muster_grpc_metadata_fini(struct muster_grpc_metadata *store)
{
    blocks_free(store->mem, store->blocks);
    muster_mem_free(store->mem, store->entries);
    muster_grpc_metadata_init(store, store->mem);
}

void muster_grpc_metadata_reset(struct muster_grpc_metadata *store)
{
    store->count = 0;
    if (store->blocks == NULL)
        return;
    blocks_free(store->mem, store->blocks->next);
    store->blocks->next = NULL;
    store->blocks->used = 0;
}

/* Room that is not used any more is not given back before the reset: a store lives as long as one
 * call. */
static char *room_take(struct muster_grpc_metadata *store, size_t bytes)
{
    struct muster_grpc_metadata_block *block = store->blocks;
    size_t room = bytes > BLOCK_BYTES_MIN ? bytes : BLOCK_BYTES_MIN;

    if (block == NULL || bytes > block->bytes - block->used) {
        block = muster_mem_alloc(store->mem, sizeof(*block) + room);
        if (block == NULL)
            return NULL;
        block->next = store->blocks;
        block->bytes = room;
        block->used = 0;
        store->blocks = block;
    }
    block->used += bytes;
    return block->room + block->used - bytes;
}

static char *text_take(struct muster_grpc_metadata *store, const void *text, size_t bytes)
{
    char *copy = room_take(store, bytes + 1);

    if (copy == NULL)
        return NULL;
    if (bytes > 0)
        memcpy(copy, text, bytes);
    copy[bytes] = '\0';
    return copy;
}

static enum muster_rc entry_add(struct muster_grpc_metadata *store, const char *name,
                                const char *value, size_t value_bytes)
{
    struct muster_metadata_entry *entry;

    /* HTTP/2's limit of the header list bounds the bytes; this bounds the work for many tiny
     * entries. */
    if (store->count == MUSTER_GRPC_METADATA_ENTRIES_MAX)
        return MUSTER_RESOURCE_EXHAUSTED;
    entry = muster_array_reserve(store->mem, store->entries, store->count, &store->capacity,
                                 sizeof(*entry));
    if (entry == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    store->entries = entry;
    entry = &store->entries[store->count++];
    entry->name = name;
    entry->value = value;
    entry->value_bytes = value_bytes;
    return MUSTER_OK;
}

static bool is_binary(const char *name, size_t name_bytes)
{
    return name_bytes > 4 && memcmp(name + name_bytes - 4, "-bin", 4) == 0;
}

static enum muster_rc add_decoded(struct muster_grpc_metadata *store, const char *name,
                                  const char *text, size_t length)
{
    char *room = room_take(store, muster_base64_decoded_bytes_max(length) + 1);
    size_t size = 0;
    enum muster_rc rc;

    if (room == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    rc = muster_base64_decode(text, length, room, &size);
    if (rc != MUSTER_OK)
        return rc;
    room[size] = '\0';
    return entry_add(store, name, room, size);
}

/* Senders may join values of one name by commas (PROTOCOL-HTTP2.md), and commas are not base64.
 * Texts are not split: a comma may be part of them. */
static enum muster_rc add_binary(struct muster_grpc_metadata *store, const char *name,
                                 const char *text, size_t length)
{
    const char *end = text + length;
    enum muster_rc rc = MUSTER_OK;

    while (rc == MUSTER_OK) {
        const char *comma = length > 0 ? memchr(text, ',', (size_t)(end - text)) : NULL;
        const char *stop = comma != NULL ? comma : end;

        rc = add_decoded(store, name, text, (size_t)(stop - text));
        if (comma == NULL)
            break;
        text = comma + 1;
        while (text < end && *text == ' ')
            text++;
    }
    return rc;
}

enum muster_rc muster_grpc_metadata_add_wire(struct muster_grpc_metadata *store, const char *name,
                                             size_t name_bytes, const void *value,
                                             size_t value_bytes)
{
    char *name_copy = text_take(store, name, name_bytes);
    char *value_copy;

    if (name_copy == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    if (is_binary(name_copy, name_bytes))
        return add_binary(store, name_copy, value, value_bytes);
    value_copy = text_take(store, value, value_bytes);
    if (value_copy == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    return entry_add(store, name_copy, value_copy, value_bytes);
}

/* The names of HTTP/2 and of gRPC itself could change how a call is understood, so users may not send
 * them, but for two of gRPC's that are meant for them. */
bool muster_grpc_metadata_name_is_valid(const char *name)
{
    static const char *const reserved[] = {
        "te",         "content-type",      "user-agent", "connection",       "host",
        "keep-alive", "transfer-encoding", "upgrade",    "proxy-connection", "content-length"};
    size_t length = strlen(name);

    /* A header's name has 16 bits of length in muster_h2_header: a longer one would be cut. */
    if (length == 0 || length > UINT16_MAX ||
        strspn(name, "0123456789abcdefghijklmnopqrstuvwxyz_-.") != length)
        return false;
    if (strncmp(name, "grpc-", 5) == 0)
        return strcmp(name, "grpc-status-details-bin") == 0 ||
               strcmp(name, "grpc-retry-pushback-ms") == 0;
    for (size_t i = 0; i < sizeof(reserved) / sizeof(reserved[0]); i++) {
        if (strcmp(name, reserved[i]) == 0)
            return false;
    }
    return true;
}

static bool is_printable(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (text[i] < 0x20 || text[i] > 0x7e)
            return false;
    }
    return true;
}

static enum muster_rc add_encoded(struct muster_grpc_metadata *store,
                                  const struct muster_metadata_entry *entry)
{
    size_t name_bytes = strlen(entry->name);
    size_t length = entry->value_bytes;
    char *name = text_take(store, entry->name, name_bytes);
    char *value = NULL;

    if (is_binary(entry->name, name_bytes)) {
        length = muster_base64_encoded_bytes(entry->value_bytes);
        value = room_take(store, length + 1);
        if (value != NULL) {
            (void)muster_base64_encode(entry->value, entry->value_bytes, value);
            value[length] = '\0';
        }
    } else {
        value = text_take(store, entry->value, length);
    }
    if (name == NULL || value == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    return entry_add(store, name, value, length);
}

enum muster_rc muster_grpc_metadata_add_user(struct muster_grpc_metadata *store,
                                             const struct muster_metadata *metadata,
                                             struct muster_error *ret_error)
{
    size_t count = store->count;

    for (size_t i = 0; i < metadata->count; i++) {
        const struct muster_metadata_entry *entry = &metadata->entries[i];

        if (!muster_grpc_metadata_name_is_valid(entry->name))
            return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                    "a metadata name must consist of 0-9 a-z _ - . and not be one "
                                    "of HTTP/2's or gRPC's own, got \"%.64s\"",
                                    entry->name);
        if (!is_binary(entry->name, strlen(entry->name)) &&
            !is_printable(entry->value, entry->value_bytes))
            return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                    "the value of metadata \"%.64s\" must be printable ASCII: send "
                                    "other bytes under a name that ends in -bin",
                                    entry->name);
    }
    for (size_t i = 0; i < metadata->count; i++) {
        enum muster_rc rc = add_encoded(store, &metadata->entries[i]);

        if (rc != MUSTER_OK) {
            bool is_full = store->count == MUSTER_GRPC_METADATA_ENTRIES_MAX;

            /* The entries of this call go together: the caller decides by the return value. */
            store->count = count;
            if (!is_full)
                return muster_error_set(ret_error, rc, "out of memory");
            return muster_error_set(ret_error, rc, "metadata must have at most %d entries, got %zu",
                                    MUSTER_GRPC_METADATA_ENTRIES_MAX, count + metadata->count);
        }
    }
    return MUSTER_OK;
}

struct muster_metadata muster_grpc_metadata_view(const struct muster_grpc_metadata *store)
{
    struct muster_metadata view = {store->entries, store->count};

    return view;
}
