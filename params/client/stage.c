/* Values of pushes to tensors for a server of this host: one copy to memory that it maps, instead of the way
 * through the kernel. What a server may read stays as it is until its answer is here. */
#include "params/client/stage.h"

#include <string.h>
#include <unistd.h>

#include "params/wire/host.h"
#include "runtime/system/host_share.h"

#define ASK_PAUSE_NS    (100 * MUSTER_NS_PER_MS)
#define SLOT_BYTES      ((size_t)1 << 20)
#define SLOTS           (MUSTER_PARAMS_STAGE_BYTES / SLOT_BYTES)
#define VALUE_BYTES_MIN ((size_t)64 << 10) /* less is as fast in the message */

struct muster_params_stage {
    struct muster_mem *mem;
    struct muster_shared_memory shared;
    uint64_t number; /* of the question */
    bool is_ready;   /* the server has it */
    bool is_used[SLOTS];
};

static void stage_free(struct muster_params_stage *stage)
{
    muster_shared_memory_close(&stage->shared);
    muster_mem_free(stage->mem, stage);
}

/* Takes the socket. NULL: there is no memory, or no such server. */
static struct muster_params_stage *stage_new(struct muster_params_way *way, int socket,
                                             const struct muster_params_stage_token *token)
{
    struct muster_mem *mem = way->params->env->mem;
    struct muster_params_stage *stage = muster_mem_alloc_zero(mem, 1, sizeof(*stage));
    bool is_given = false;

    if (stage != NULL) {
        stage->mem = mem;
        is_given = muster_shared_memory_open("muster-params-stage", MUSTER_PARAMS_STAGE_BYTES,
                                             &stage->shared) == MUSTER_OK &&
                   muster_params_host_stage_send(socket, token, stage->shared.fd);
    }
    close(socket);
    if (is_given) {
        muster_shared_memory_commit(&stage->shared);
        return stage;
    }
    if (stage != NULL)
        stage_free(stage);
    return NULL;
}

void muster_params_stage_offer(struct muster_params_way *way)
{
    struct muster_params *params = way->params;
    struct muster_params_stage_token token;
    struct muster_frame_header header = {.channel = MUSTER_FRAME_PARAMS,
                                         .type = MUSTER_PARAMS_STAGE,
                                         .payload_bytes = sizeof(token.bytes)};
    uint64_t now_ns = muster_loop_now_ns(params->env->loop);
    int socket = -1;

    if (way->stage != NULL || way->state != MUSTER_PARAMS_WAY_OPEN || now_ns < way->stage_ns ||
        params->options.no_host_memory || muster_host_shares(params->env->host) == NULL)
        return;
    way->stage_ns = now_ns + ASK_PAUSE_NS;
    if (muster_params_host_stage_connect(&way->id, &socket) != MUSTER_OK)
        return;
    muster_rng_fill(params->env->rng, token.bytes, sizeof(token.bytes));
    way->stage = stage_new(way, socket, &token);
    if (way->stage == NULL)
        return;
    way->stage->number = header.offset = params->number++;
    if (muster_peer_link_send_copy(way->link, &header, token.bytes) != MUSTER_OK)
        muster_params_stage_drop(way);
}

void muster_params_stage_accept(struct muster_params_way *way, uint64_t number)
{
    if (way->stage != NULL && way->stage->number == number)
        way->stage->is_ready = true;
}

void muster_params_stage_drop(struct muster_params_way *way)
{
    if (way->stage != NULL)
        stage_free(way->stage);
    way->stage = NULL;
}

/* The server reads whole blocks: what the tensor does not have of its last one is zero. */
void muster_params_stage_put(struct muster_params_request *request)
{
    struct muster_params_stage *stage = request->way->stage;
    size_t bytes = request->frame.header.payload_bytes;
    size_t padding = (size_t)muster_params_range_padding(&request->table->tensor, &request->range);
    uint32_t slot = 0;
    uint8_t *at;

    if (stage == NULL || !stage->is_ready || bytes < VALUE_BYTES_MIN ||
        bytes + padding > SLOT_BYTES)
        return;
    while (slot < SLOTS && stage->is_used[slot])
        slot++;
    if (slot == SLOTS)
        return;
    stage->is_used[slot] = true;
    request->slot = slot + 1;
    at = stage->shared.memory + slot * SLOT_BYTES;
    memcpy(at, request->frame.payload, bytes);
    memset(at + bytes, 0, padding);
    muster_params_staged_pack(slot * SLOT_BYTES, request->range.count, request->payload);
    request->frame.payload = request->payload;
    request->frame.header.type = MUSTER_PARAMS_PUSH_STAGED;
    request->frame.header.payload_bytes = MUSTER_PARAMS_STAGED_BYTES;
}

void muster_params_stage_take(struct muster_params_request *request)
{
    struct muster_params_stage *stage = request->way != NULL ? request->way->stage : NULL;

    if (request->slot == 0)
        return;
    if (stage != NULL)
        stage->is_used[request->slot - 1] = false;
    request->slot = 0;
    request->frame.payload = request->copy != NULL ? request->copy : request->parts[0].values;
    request->frame.header.type = MUSTER_PARAMS_PUSH_RANGE;
    request->frame.header.payload_bytes =
        (uint32_t)(request->range.count * muster_dtype_bytes(request->table->wire_dtype));
}
