/* Messages and headers of the programs under connectconformance. */
#include "conformance_wire.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "net/stream/base64.h"
#include "proto/guard.h"

struct block {
    struct muster_list node;
    void *message; /* of the guard; or NULL */
    max_align_t bytes[];
};

void conformance_arena_init(struct conformance_arena *arena, struct muster_mem *mem)
{
    arena->mem = mem;
    muster_list_init(&arena->blocks);
}

void conformance_arena_fini(struct conformance_arena *arena)
{
    struct muster_list *node;

    while ((node = muster_list_pop(&arena->blocks)) != NULL) {
        struct block *block = MUSTER_CONTAINER_OF(node, struct block, node);

        muster_proto_free(block->message);
        muster_mem_free(arena->mem, block);
    }
}

static void give_up(const char *text)
{
    fprintf(stderr, "conformance: %s\n", text);
    exit(1);
}

static struct block *block_new(struct conformance_arena *arena, size_t bytes)
{
    struct block *block = muster_mem_alloc_zero(arena->mem, 1, sizeof(*block) + bytes);

    if (block == NULL)
        give_up("no memory");
    muster_list_init(&block->node);
    muster_list_append(&arena->blocks, &block->node);
    return block;
}

void *conformance_alloc(struct conformance_arena *arena, size_t count, size_t bytes)
{
    return block_new(arena, count * bytes)->bytes;
}

void *conformance_copy(struct conformance_arena *arena, const void *bytes, size_t size)
{
    void *copy = block_new(arena, size + 1)->bytes;

    if (size > 0)
        memcpy(copy, bytes, size);
    return copy;
}

/* False at the end of the input. */
static bool read_whole(void *bytes, size_t size)
{
    for (size_t at = 0; at < size;) {
        ssize_t count = read(STDIN_FILENO, (char *)bytes + at, size - at);

        if (count == 0)
            return false;
        if (count < 0 && errno != EINTR)
            give_up("standard input cannot be read");
        at += count > 0 ? (size_t)count : 0;
    }
    return true;
}

void *conformance_unpack(struct conformance_arena *arena,
                         const ProtobufCMessageDescriptor *descriptor, const void *bytes,
                         size_t size)
{
    struct block *block = block_new(arena, 0);
    struct muster_error error;

    if (muster_proto_unpack(arena->mem, descriptor, bytes, size, NULL, &block->message, &error) !=
        MUSTER_OK)
        give_up(error.text);
    return block->message;
}

bool conformance_read(struct conformance_arena *arena, const ProtobufCMessageDescriptor *descriptor,
                      void *ret_message)
{
    uint8_t head[4];
    size_t size;
    void *bytes;

    if (!read_whole(head, sizeof(head)))
        return false;
    size = (size_t)head[0] << 24 | (size_t)head[1] << 16 | (size_t)head[2] << 8 | head[3];
    bytes = conformance_alloc(arena, 1, size);
    if (!read_whole(bytes, size))
        return false;
    *(void **)ret_message = conformance_unpack(arena, descriptor, bytes, size);
    return true;
}

void conformance_write(struct muster_mem *mem, const void *message)
{
    void *bytes = NULL;
    size_t size = 0;
    uint8_t head[4];

    if (muster_proto_pack(mem, message, &bytes, &size) != MUSTER_OK)
        give_up("no memory");
    for (unsigned i = 0; i < 4; i++)
        head[i] = (uint8_t)(size >> (24 - 8 * i));
    if (fwrite(head, sizeof(head), 1, stdout) != 1 || fwrite(bytes, 1, size, stdout) != size ||
        fflush(stdout) != 0)
        give_up("standard output cannot be written");
    muster_mem_free(mem, bytes);
}

static bool is_binary(const char *name)
{
    size_t length = strlen(name);

    return length > 4 && strcmp(name + length - 4, "-bin") == 0;
}

struct muster_metadata conformance_metadata(struct conformance_arena *arena,
                                            Conformance__Header *const *headers, size_t count)
{
    struct muster_metadata_entry *entries =
        conformance_alloc(arena, CONFORMANCE_HEADERS_MAX, sizeof(*entries));
    struct muster_metadata metadata = {entries, 0};

    for (size_t i = 0; i < count; i++) {
        char *name = conformance_copy(arena, headers[i]->name, strlen(headers[i]->name));

        for (char *at = name; *at != '\0'; at++)
            *at = (char)(*at >= 'A' && *at <= 'Z' ? *at - 'A' + 'a' : *at);
        for (size_t k = 0; k < headers[i]->n_value; k++) {
            struct muster_metadata_entry *entry = &entries[metadata.count++];
            char *value = headers[i]->value[k];

            if (metadata.count == CONFORMANCE_HEADERS_MAX)
                give_up("too many headers");
            *entry = (struct muster_metadata_entry){name, value, strlen(value)};
            if (!is_binary(name))
                continue;
            entry->value =
                conformance_alloc(arena, muster_base64_decoded_bytes_max(strlen(value)) + 1, 1);
            if (muster_base64_decode(value, strlen(value), (void *)(uintptr_t)entry->value,
                                     &entry->value_bytes) != MUSTER_OK)
                give_up("a header is not base64");
        }
    }
    return metadata;
}

static Conformance__Header *header_of(struct conformance_arena *arena, Conformance__Header **list,
                                      size_t *count, const char *name)
{
    for (size_t i = 0; i < *count; i++) {
        if (strcmp(list[i]->name, name) == 0)
            return list[i];
    }
    list[*count] = conformance_alloc(arena, 1, sizeof(**list));
    conformance__header__init(list[*count]);
    list[*count]->name = conformance_copy(arena, name, strlen(name));
    list[*count]->value =
        conformance_alloc(arena, CONFORMANCE_HEADERS_MAX + 1, sizeof(*list[*count]->value));
    return list[(*count)++];
}

Conformance__Header **conformance_headers(struct conformance_arena *arena,
                                          const struct muster_metadata *metadata, size_t *ret_count)
{
    Conformance__Header **list =
        conformance_alloc(arena, CONFORMANCE_HEADERS_MAX + 1, sizeof(*list));
    size_t count = 0;

    for (size_t i = 0; i < metadata->count && i < CONFORMANCE_HEADERS_MAX; i++) {
        const struct muster_metadata_entry *entry = &metadata->entries[i];
        Conformance__Header *header = header_of(arena, list, &count, entry->name);
        char *value;

        if (is_binary(entry->name)) {
            value =
                conformance_alloc(arena, muster_base64_encoded_bytes(entry->value_bytes) + 1, 1);
            (void)muster_base64_encode(entry->value, entry->value_bytes, value);
        } else {
            value = conformance_copy(arena, entry->value, entry->value_bytes);
        }
        header->value[header->n_value++] = value;
    }
    *ret_count = count;
    return list;
}
