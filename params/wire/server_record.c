/* The bytes of a server's record, little endian. */
#include "params/wire/server_record.h"

#include <string.h>

#define RECORD_MAGIC   0x56525350u /* "PSRV" */
#define RECORD_VERSION 1u
#define FLAG_LEAVING   1u
#define FLAG_FULL      2u

struct packed_record {
    uint32_t magic;
    uint32_t version;
    uint8_t id[16];
    char address[MUSTER_PARAMS_ADDRESS_BYTES];
    char host_key[MUSTER_HOST_KEY_BYTES];
    int64_t pid;
    uint64_t started;
    uint32_t shard_count;
    uint32_t replicas;
    uint32_t flags;
    uint32_t cut_hash; /* 0 in records of servers that knew no cuts here */
    uint64_t cut;
};
_Static_assert(sizeof(struct packed_record) == MUSTER_PARAMS_SERVER_RECORD_BYTES, "no padding");

void muster_params_server_record_pack(const struct muster_params_server_record *record,
                                      uint8_t ret_bytes[MUSTER_PARAMS_SERVER_RECORD_BYTES])
{
    const struct muster_params_map_server *server = &record->server;
    struct packed_record packed = {.magic = RECORD_MAGIC,
                                   .version = RECORD_VERSION,
                                   .pid = record->pid,
                                   .started = record->started,
                                   .shard_count = record->shard_count,
                                   .replicas = record->replicas,
                                   .cut = record->cut,
                                   .cut_hash = record->cut_hash,
                                   .flags = (server->is_leaving ? FLAG_LEAVING : 0) |
                                            (record->is_full ? FLAG_FULL : 0)};

    memcpy(packed.id, server->id.bytes, sizeof(packed.id));
    memcpy(packed.address, server->address, strnlen(server->address, sizeof(server->address)));
    memcpy(packed.host_key, server->host_key, strnlen(server->host_key, sizeof(server->host_key)));
    memcpy(ret_bytes, &packed, sizeof(packed));
}

enum muster_rc muster_params_server_record_unpack(const void *bytes, size_t size,
                                                  struct muster_params_server_record *ret_record,
                                                  struct muster_error *ret_error)
{
    struct packed_record packed;

    if (size != sizeof(packed))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the record of a server must have %zu bytes, got %zu",
                                sizeof(packed), size);
    memcpy(&packed, bytes, sizeof(packed));
    if (packed.magic != RECORD_MAGIC)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the record of a server does not begin with PSRV");
    if (packed.version != RECORD_VERSION)
        return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                                "the record of a server has version %u, this program reads %u",
                                packed.version, RECORD_VERSION);
    if (packed.address[sizeof(packed.address) - 1] != '\0' ||
        packed.host_key[sizeof(packed.host_key) - 1] != '\0')
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "a text in the record of a server has no NUL");
    memset(ret_record, 0, sizeof(*ret_record));
    memcpy(ret_record->server.id.bytes, packed.id, sizeof(packed.id));
    /* Bytes after the texts are nobody's: equal records are equal in all bytes. */
    memcpy(ret_record->server.address, packed.address, strlen(packed.address));
    memcpy(ret_record->server.host_key, packed.host_key, strlen(packed.host_key));
    ret_record->server.is_leaving = (packed.flags & FLAG_LEAVING) != 0;
    ret_record->is_full = (packed.flags & FLAG_FULL) != 0;
    ret_record->pid = packed.pid;
    ret_record->started = packed.started;
    ret_record->shard_count = packed.shard_count;
    ret_record->replicas = packed.replicas;
    ret_record->cut = packed.cut;
    ret_record->cut_hash = packed.cut_hash;
    return MUSTER_OK;
}
