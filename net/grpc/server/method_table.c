/* A hash table from the path of a request to its method. Services fill it when they are added,
 * before and between calls; server_headers.c looks up each request in it. The paths are borrowed
 * from the services, which live as long as the server. */
#include "net/grpc/server/method_table.h"

#include <string.h>

/* This is a power of two, as all capacities are: the mask in slot_find needs it. */
#define CAPACITY_MIN 16

/* FNV-1a. The stored paths are the program's own, so no peer can make them collide. */
static uint64_t hash_path(const char *path, size_t bytes)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ (uint8_t)path[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* The slot of the path, or the free one where it would go. The table is at most half full, so the
 * search ends. */
static struct muster_rpc_method_slot *slot_find(const struct muster_rpc_method_table *table,
                                                const char *path, size_t bytes, uint64_t hash)
{
    size_t at = (size_t)hash & (table->capacity - 1);

    while (table->slots[at].method != NULL) {
        if (table->slots[at].hash == hash && table->slots[at].path_bytes == bytes &&
            memcmp(table->slots[at].method->path, path, bytes) == 0)
            break;
        at = (at + 1) & (table->capacity - 1);
    }
    return &table->slots[at];
}

enum muster_rc muster_rpc_method_table_reserve(struct muster_rpc_method_table *table, size_t more)
{
    struct muster_rpc_method_table grown = *table;

    grown.capacity = CAPACITY_MIN;
    while (grown.capacity < 2 * (table->count + more))
        grown.capacity *= 2;
    if (grown.capacity <= table->capacity)
        return MUSTER_OK;
    grown.slots = muster_mem_alloc_zero(table->mem, grown.capacity, sizeof(*grown.slots));
    if (grown.slots == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < table->capacity; i++) {
        const struct muster_rpc_method_slot *old = &table->slots[i];

        if (old->method != NULL)
            *slot_find(&grown, old->method->path, old->path_bytes, old->hash) = *old;
    }
    muster_mem_free(table->mem, table->slots);
    *table = grown;
    return MUSTER_OK;
}

static bool are_new(const struct muster_rpc_method_table *table,
                    const struct muster_rpc_method *methods, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (muster_rpc_method_table_find(table, methods[i].path, strlen(methods[i].path)) != NULL)
            return false;
        for (size_t k = 0; k < i; k++) {
            if (strcmp(methods[i].path, methods[k].path) == 0)
                return false;
        }
    }
    return true;
}

/* Open addressing forgets a slot without a mark only because the latest ones go first: nothing was
 * placed after them. */
static void take_back(struct muster_rpc_method_table *table,
                      const struct muster_rpc_method *methods, size_t count)
{
    while (count-- > 0) {
        const char *path = methods[count].path;
        size_t bytes = strlen(path);
        struct muster_rpc_method_slot *slot = slot_find(table, path, bytes, hash_path(path, bytes));

        muster_mem_free(table->mem, slot->open_count);
        memset(slot, 0, sizeof(*slot));
        table->count--;
    }
}

enum muster_rc muster_rpc_method_table_add(struct muster_rpc_method_table *table,
                                           const struct muster_rpc_method *methods, size_t count,
                                           void *service)
{
    if (!are_new(table, methods, count))
        return MUSTER_ALREADY_EXISTS;
    if (muster_rpc_method_table_reserve(table, count) != MUSTER_OK)
        return MUSTER_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < count; i++) {
        size_t bytes = strlen(methods[i].path);
        uint64_t hash = hash_path(methods[i].path, bytes);
        struct muster_rpc_method_slot *slot = slot_find(table, methods[i].path, bytes, hash);

        MUSTER_ASSERT(methods[i].path[0] == '/');
        slot->method = &methods[i];
        slot->service = service;
        slot->hash = hash;
        slot->path_bytes = bytes;
        table->count++;
        if (methods[i].concurrent_calls_max == 0)
            continue;
        slot->open_count = muster_mem_alloc_zero(table->mem, 1, sizeof(*slot->open_count));
        if (slot->open_count == NULL) {
            take_back(table, methods, i + 1);
            return MUSTER_RESOURCE_EXHAUSTED;
        }
    }
    return MUSTER_OK;
}

const struct muster_rpc_method_slot *muster_rpc_method_table_find(
    const struct muster_rpc_method_table *table, const char *path, size_t path_bytes)
{
    const struct muster_rpc_method_slot *slot;

    if (table->capacity == 0)
        return NULL;
    slot = slot_find(table, path, path_bytes, hash_path(path, path_bytes));
    return slot->method != NULL ? slot : NULL;
}

void muster_rpc_method_table_count(struct muster_rpc_method_table *table, const char *path,
                                   struct muster_rpc_series *series)
{
    size_t bytes = strlen(path);

    slot_find(table, path, bytes, hash_path(path, bytes))->series = series;
}

void muster_rpc_method_table_fini(struct muster_rpc_method_table *table)
{
    for (size_t i = 0; i < table->capacity; i++)
        muster_mem_free(table->mem, table->slots[i].open_count);
    muster_mem_free(table->mem, table->slots);
    table->slots = NULL;
    table->capacity = 0;
    table->count = 0;
}
