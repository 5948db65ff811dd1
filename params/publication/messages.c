/* Records and messages, little endian. */
#include "params/publication/messages.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define RECORD_MAGIC   0x42555050u /* "PPUB" */
#define RECORD_VERSION 1u

struct packed_record {
    uint32_t magic;
    uint32_t format;
    uint64_t version;
    uint64_t bytes;
    uint8_t root[MUSTER_HASH128_BYTES];
    uint8_t publisher[16];
    char address[MUSTER_ADDRESS_TEXT_BYTES];
    uint32_t reserved[2];
};
_Static_assert(sizeof(struct packed_record) == MUSTER_PUBLICATION_RECORD_BYTES, "no padding");

struct packed_join {
    char name[MUSTER_PUBLICATION_NAME_BYTES];
    char host_key[MUSTER_HOST_KEY_BYTES];
    char address[MUSTER_ADDRESS_TEXT_BYTES];
    uint8_t reader[16];
    uint32_t flags;
    uint32_t reserved;
};
#define JOIN_FOLLOWS 1u
_Static_assert(sizeof(struct packed_join) == MUSTER_PUBLICATION_JOIN_BYTES, "no padding");

enum muster_rc muster_publication_name_check(const char *name, struct muster_error *ret_error)
{
    size_t length = name != NULL ? strlen(name) : 0;
    bool is_good = length > 0 && length < MUSTER_PUBLICATION_NAME_BYTES;

    for (size_t i = 0; i < length && is_good; i++)
        is_good = isalnum((unsigned char)name[i]) || strchr("._-", name[i]) != NULL;
    if (is_good)
        return MUSTER_OK;
    return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                            "the name of a publication must be 1 to %u letters, digits, '.', '_' "
                            "and '-', got \"%.80s\"",
                            MUSTER_PUBLICATION_NAME_BYTES - 1, name != NULL ? name : "");
}

void muster_publication_key(const char *job, const char *name,
                            char ret_key[MUSTER_PUBLICATION_KEY_BYTES])
{
    snprintf(ret_key, MUSTER_PUBLICATION_KEY_BYTES, "/muster/%s/publications/%s", job, name);
}

void muster_publication_record_pack(const struct muster_publication_record *record,
                                    uint8_t ret_bytes[MUSTER_PUBLICATION_RECORD_BYTES])
{
    struct packed_record packed = {.magic = RECORD_MAGIC,
                                   .format = RECORD_VERSION,
                                   .version = record->version,
                                   .bytes = record->bytes};

    memcpy(packed.root, record->root, sizeof(packed.root));
    memcpy(packed.publisher, record->publisher.bytes, sizeof(packed.publisher));
    memcpy(packed.address, record->address, strnlen(record->address, sizeof(record->address) - 1));
    memcpy(ret_bytes, &packed, sizeof(packed));
}

enum muster_rc muster_publication_record_unpack(const void *bytes, size_t size,
                                                struct muster_publication_record *ret_record,
                                                struct muster_error *ret_error)
{
    struct packed_record packed;

    if (size != sizeof(packed) || memcmp(bytes, &(uint32_t){RECORD_MAGIC}, sizeof(uint32_t)) != 0)
        return muster_error_set(ret_error, MUSTER_DATA_LOSS,
                                "the key is not the record of a publication");
    memcpy(&packed, bytes, sizeof(packed));
    if (packed.format != RECORD_VERSION)
        return muster_error_set(
            ret_error, MUSTER_FAILED_PRECONDITION,
            "the record of the publication has format %u, this program reads %u", packed.format,
            RECORD_VERSION);
    if (memchr(packed.address, '\0', sizeof(packed.address)) == NULL)
        return muster_error_set(ret_error, MUSTER_DATA_LOSS,
                                "the record of the publication has a damaged address");
    ret_record->version = packed.version;
    ret_record->bytes = packed.bytes;
    memcpy(ret_record->root, packed.root, sizeof(packed.root));
    memcpy(ret_record->publisher.bytes, packed.publisher, sizeof(packed.publisher));
    memcpy(ret_record->address, packed.address, sizeof(packed.address));
    return MUSTER_OK;
}

void muster_publication_join_pack(const struct muster_publication_join *join,
                                  uint8_t ret_bytes[MUSTER_PUBLICATION_JOIN_BYTES])
{
    struct packed_join packed = {.flags = join->is_following ? JOIN_FOLLOWS : 0};

    memcpy(packed.name, join->name, strnlen(join->name, sizeof(join->name) - 1));
    memcpy(packed.host_key, join->host_key, strnlen(join->host_key, sizeof(join->host_key) - 1));
    memcpy(packed.address, join->address, strnlen(join->address, sizeof(join->address) - 1));
    memcpy(packed.reader, join->reader.bytes, sizeof(packed.reader));
    memcpy(ret_bytes, &packed, sizeof(packed));
}

static bool is_text(const char *bytes, size_t size)
{
    return memchr(bytes, '\0', size) != NULL;
}

enum muster_rc muster_publication_join_unpack(const uint8_t bytes[MUSTER_PUBLICATION_JOIN_BYTES],
                                              struct muster_publication_join *ret_join,
                                              struct muster_error *ret_error)
{
    struct packed_join packed;
    struct muster_address address;

    memcpy(&packed, bytes, sizeof(packed));
    if (!is_text(packed.name, sizeof(packed.name)) ||
        !is_text(packed.host_key, sizeof(packed.host_key)) ||
        !is_text(packed.address, sizeof(packed.address)) || (packed.flags & ~JOIN_FOLLOWS) != 0)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the introduction of a reader is damaged");
    if (packed.address[0] != '\0' &&
        muster_address_parse(packed.address, &address, ret_error) != MUSTER_OK)
        return ret_error->rc;
    memcpy(ret_join->name, packed.name, sizeof(packed.name));
    memcpy(ret_join->host_key, packed.host_key, sizeof(packed.host_key));
    memcpy(ret_join->address, packed.address, sizeof(packed.address));
    memcpy(ret_join->reader.bytes, packed.reader, sizeof(packed.reader));
    ret_join->is_following = (packed.flags & JOIN_FOLLOWS) != 0;
    return MUSTER_OK;
}

void muster_publication_sources_unpack(const void *bytes, size_t size, uint32_t first_count,
                                       struct muster_publication_sources *ret_sources)
{
    const char *text = bytes, *end = text + size;
    struct muster_error error;

    ret_sources->counts[0] = ret_sources->counts[1] = 0;
    for (uint32_t i = 0; text < end && is_text(text, (size_t)(end - text)); i++) {
        uint32_t tree = i < first_count ? 0 : 1;
        size_t *count = &ret_sources->counts[tree];

        if (*count < MUSTER_PUBLICATION_SOURCES_MAX &&
            muster_address_parse(text, &ret_sources->addresses[tree][*count], &error) == MUSTER_OK)
            ++*count;
        text += strlen(text) + 1;
    }
}

bool muster_publication_send(struct muster_peer_link *link, struct muster_frame_header header,
                             const void *payload, size_t bytes)
{
    header.channel = MUSTER_FRAME_PUBLICATION;
    header.payload_bytes = (uint32_t)bytes;
    return muster_peer_link_send_copy(link, &header, payload) == MUSTER_OK;
}
