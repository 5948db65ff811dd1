/* The registry's key /muster/<job>/params/servers/<id>: a server that is there, under its lease. */
#ifndef MUSTER_PARAMS_SERVER_RECORD_H
#define MUSTER_PARAMS_SERVER_RECORD_H

#include "params/wire/map.h"

struct muster_params_server_record {
    struct muster_params_map_server server;
    int64_t pid; /* of its process on the host of server.host_key */
    uint64_t started;
    uint32_t shard_count;
    uint32_t replicas; /* that it was started with */
    bool is_full;      /* it has no memory for what it was to copy */
    uint64_t cut;      /* that it restores in a new job */
    uint32_t cut_hash; /* of what the cut has; 0: it restores none */
};
#define MUSTER_PARAMS_SERVER_RECORD_BYTES 192u

void muster_params_server_record_pack(const struct muster_params_server_record *record,
                                      uint8_t ret_bytes[MUSTER_PARAMS_SERVER_RECORD_BYTES]);
/** Errors: INVALID_ARGUMENT, FAILED_PRECONDITION (another version). */
MUSTER_MUST_CHECK enum muster_rc muster_params_server_record_unpack(
    const void *bytes, size_t size, struct muster_params_server_record *ret_record,
    struct muster_error *ret_error);

#endif
