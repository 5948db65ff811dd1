/* Memory of clients of this host, through which values of pushes to tensors come. The client may change it at any
 * time: sizes and places are taken from its messages, which are the server's, and the values are whatever they
 * are when they are read. */
#include "params/server/links/range.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "params/server/core/answer.h"
#include "params/server/seat/share.h"
#include "params/server/state/rows.h"
#include "runtime/system/host_share.h"

/* Reading beyond the end of a file that has shrunk raises SIGBUS. */
#define SEALS_NEEDED (F_SEAL_SHRINK | F_SEAL_GROW)

static const uint8_t *memory_map(int fd)
{
    struct stat status;
    int seals = fcntl(fd, F_GET_SEALS);

    if (seals < 0 || (seals & SEALS_NEEDED) != SEALS_NEEDED || fstat(fd, &status) != 0 ||
        status.st_size != (off_t)MUSTER_PARAMS_STAGE_BYTES)
        return NULL;
    return muster_shared_memory_map(fd, MUSTER_PARAMS_STAGE_BYTES, PROT_READ);
}

bool muster_params_handle_stage(struct muster_params_client *client,
                                const struct muster_frame_header *header, const uint8_t *payload)
{
    struct muster_params_server *server = client->server;
    struct muster_params_stage_token token;
    struct muster_error error;
    int fd = -1;

    if (header->payload_bytes == sizeof(token.bytes) && server->share != NULL &&
        client->stage == NULL) {
        memcpy(token.bytes, payload, sizeof(token.bytes));
        fd = muster_params_share_find(server->share, &token);
    }
    if (fd >= 0) {
        client->stage = memory_map(fd);
        close(fd);
    }
    if (fd >= 0 && client->stage != NULL)
        return muster_params_answer_send(
            muster_params_answer_new(client, MUSTER_PARAMS_STAGED, header->offset, 0), 0);
    muster_error_set(&error, MUSTER_UNAVAILABLE,
                     "the server has no memory of this token, of %zu bytes that cannot shrink",
                     MUSTER_PARAMS_STAGE_BYTES);
    return muster_params_refuse(client, header, &error);
}

void muster_params_stage_unmap(struct muster_params_client *client)
{
    if (client->stage != NULL)
        munmap((void *)(uintptr_t)client->stage, MUSTER_PARAMS_STAGE_BYTES);
    client->stage = NULL;
}

static enum muster_rc staged_judge(const struct muster_params_client *client,
                                   const struct muster_frame_header *header, const uint8_t *payload,
                                   struct muster_params_range_frame *ret_range, size_t *ret_at,
                                   struct muster_error *ret_error)
{
    struct muster_params_tensor tensor;
    enum muster_rc rc;

    if (client->stage == NULL || header->payload_bytes != MUSTER_PARAMS_STAGED_BYTES)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "message PUSH_STAGED of parameters must have %u bytes, and memory "
                                "of its client; got %u bytes",
                                MUSTER_PARAMS_STAGED_BYTES, header->payload_bytes);
    rc = muster_params_range_table_find(client, header, &tensor, ret_error);
    return rc != MUSTER_OK ? rc
                           : muster_params_staged_unpack(header, payload, &tensor, ret_range,
                                                         ret_at, ret_error);
}

/* Followers must get the same values as this server applies. */
static bool copy_push(struct muster_params_client *client, const struct muster_frame_header *header,
                      const struct muster_params_range_frame *range, const uint8_t *values,
                      size_t bytes)
{
    struct muster_params_server *server = client->server;
    void *copy = muster_mem_alloc(&server->pool.mem, bytes);
    bool is_answered;

    if (copy == NULL)
        return false;
    memcpy(copy, values, bytes);
    is_answered = muster_params_range_push(client, header, range, copy);
    muster_mem_free(&server->pool.mem, copy);
    return is_answered;
}

bool muster_params_handle_push_staged(struct muster_params_client *client,
                                      const struct muster_frame_header *header,
                                      const uint8_t *payload)
{
    const struct muster_params_server *server = client->server;
    struct muster_params_range_frame range;
    struct muster_params_tensor tensor;
    struct muster_error error;
    size_t at;

    if (staged_judge(client, header, payload, &range, &at, &error) != MUSTER_OK)
        return muster_params_range_refuse(client, header, &error);
    /* The answer does not wait for the end of the turn: the client fills the room while the next push is
     * applied. */
    if (muster_list_is_empty(&server->followers)) {
        if (!muster_params_range_push(client, header, &range, client->stage + at) ||
            !muster_params_acks_flush(client))
            return false;
        if (!client->is_marked) { /* the next message is read in the next turn */
            muster_peer_link_pause(client->link);
            muster_peer_link_resume(client->link);
        }
        return true;
    }
    tensor = muster_params_tensor_of(muster_params_server_table(server, range.table));
    return copy_push(client, header, &range, client->stage + at,
                     range.count * muster_dtype_bytes(tensor.dtype) +
                         muster_params_range_padding(&tensor, &range));
}
