/* Messages of parameter exchange; the first byte says which. What was read must survive the way
 * out. */
#include <stdlib.h>
#include <string.h>

#include "net/link/peer_link_internal.h"
#include "params/wire/range.h"

#define SHARDS 16u

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void read_open(const void *payload, size_t size)
{
    struct muster_params_open open, again;
    uint8_t packed[MUSTER_PARAMS_OPEN_BYTES];

    if (muster_params_open_unpack(payload, size, &open, NULL) != MUSTER_OK)
        return;
    muster_params_open_pack(&open, packed);
    if (muster_params_open_unpack(packed, sizeof(packed), &again, NULL) != MUSTER_OK ||
        !muster_incarnation_is_equal(&again.source, &open.source) ||
        strcmp(again.name, open.name) != 0 || again.generation != open.generation ||
        again.process != open.process || again.link != open.link)
        abort();
}

static void read_opened(const void *payload, size_t size)
{
    struct muster_params_opened opened, again;
    uint8_t packed[MUSTER_PARAMS_OPENED_BYTES];

    if (muster_params_opened_unpack(payload, size, &opened, NULL) != MUSTER_OK)
        return;
    muster_params_opened_pack(&opened, packed);
    if (muster_params_opened_unpack(packed, sizeof(packed), &again, NULL) != MUSTER_OK ||
        again.slot != opened.slot || again.generation != opened.generation ||
        again.shard_count != opened.shard_count || again.sequence != opened.sequence)
        abort();
}

static void read_schema(const void *payload, size_t size)
{
    struct muster_params_schema schema;
    struct muster_error error;
    uint8_t packed[MUSTER_PARAMS_SCHEMA_BYTES], again[MUSTER_PARAMS_SCHEMA_BYTES];

    if (muster_params_schema_unpack(payload, size, &schema, NULL) != MUSTER_OK)
        return;
    (void)!muster_params_schema_check(&schema, &error);
    muster_params_schema_pack(&schema, packed);
    if (muster_params_schema_unpack(packed, sizeof(packed), &schema, NULL) != MUSTER_OK)
        abort();
    muster_params_schema_pack(&schema, again);
    if (memcmp(packed, again, sizeof(packed)) != 0)
        abort();
}

/* Table 1 is as wide as a row may be; there are no tables from 3 on. */
static uint32_t width_of(const void *data, uint32_t table)
{
    static const uint32_t widths[] = {1, 16384, 3};

    (void)data;
    return table < 3 ? widths[table] : 0;
}

/* The store relies on these. */
static void check_runs(const struct muster_params_rows_frame *frame)
{
    uint32_t rows = 0, next_shard = 0;

    for (uint32_t i = 0; i < frame->run_count; i++) {
        uint32_t shard = muster_params_run_shard(&frame->runs[i]);

        if (shard < next_shard || shard >= SHARDS || frame->runs[i].rows == 0)
            abort();
        next_shard = shard + 1;
        rows += frame->runs[i].rows;
    }
    if (frame->row_count == 0 || (frame->run_count > 0 && rows != frame->row_count))
        abort();
}

static void read_rows(const void *payload, size_t size, bool has_runs)
{
    struct muster_params_rows_frame frame, again;
    struct muster_params_run *runs;
    uint64_t *keys;
    void *values, *packed;
    size_t value_bytes;

    if (muster_params_rows_unpack(payload, size, has_runs, SHARDS, width_of, NULL, &frame, NULL) !=
        MUSTER_OK)
        return;
    check_runs(&frame);
    value_bytes = has_runs ? (size_t)frame.row_count * width_of(NULL, frame.table) *
                                 muster_dtype_bytes((enum muster_dtype)frame.dtype)
                           : 0;
    packed = malloc(size);
    if (packed == NULL)
        abort();
    muster_params_rows_pack(&frame, packed, &runs, &keys, &values);
    memcpy(runs, frame.runs, frame.run_count * sizeof(*runs));
    memcpy(keys, frame.keys, frame.row_count * sizeof(*keys));
    if (has_runs)
        memcpy(values, frame.values, value_bytes);
    if (muster_params_rows_unpack(packed, size, has_runs, SHARDS, width_of, NULL, &again, NULL) !=
            MUSTER_OK ||
        again.slot != frame.slot || again.clock != frame.clock ||
        again.run_count != frame.run_count ||
        memcmp(again.keys, frame.keys, frame.row_count * sizeof(*keys)) != 0 ||
        (has_runs && memcmp(again.values, frame.values, value_bytes) != 0))
        abort();
    free(packed);
}

/* The frame's own header stands before the payload. The server relies on what is checked here. */
static void read_range(enum muster_params_message type, const uint8_t *bytes, size_t size)
{
    static const struct muster_params_tensor tensor = {
        .elements = 1000000, .block_elements = 1024, .dtype = MUSTER_F32};
    struct muster_params_range_frame range, again;
    struct muster_frame_header header;
    uint8_t payload[MUSTER_PARAMS_PULL_RANGE_BYTES];
    uint64_t extent = (uint64_t)tensor.block_elements * MUSTER_PARAMS_EXTENT_BLOCKS;

    if (size < MUSTER_FRAME_HEADER_BYTES ||
        muster_frame_header_unpack(bytes, &header, NULL) != MUSTER_OK)
        return;
    header.type = (uint8_t)type;
    if (type == MUSTER_PARAMS_PULL_RANGE && header.payload_bytes > size - MUSTER_FRAME_HEADER_BYTES)
        return; /* the values of a push are not read here */
    if (muster_params_range_unpack(&header, bytes + MUSTER_FRAME_HEADER_BYTES, &tensor, &range,
                                   NULL) != MUSTER_OK)
        return;
    if (range.count == 0 || range.count > extent || range.offset >= tensor.elements ||
        range.offset + range.count > tensor.elements ||
        muster_params_range_blocks(&tensor, &range) > MUSTER_PARAMS_EXTENT_BLOCKS)
        abort();
    header.flags = 0;
    muster_params_range_pack(&range, &header, payload);
    if (muster_params_range_unpack(&header, payload, &tensor, &again, NULL) != MUSTER_OK ||
        again.clock != range.clock || again.offset != range.offset || again.count != range.count ||
        again.table != range.table || again.is_first != range.is_first)
        abort();
}

static void read_staged(const uint8_t *bytes, size_t size)
{
    static const struct muster_params_tensor tensor = {
        .elements = 1000000, .block_elements = 1024, .dtype = MUSTER_F32};
    struct muster_params_range_frame range;
    struct muster_frame_header header;
    size_t at = 0;

    if (size < MUSTER_FRAME_HEADER_BYTES + MUSTER_PARAMS_STAGED_BYTES ||
        muster_frame_header_unpack(bytes, &header, NULL) != MUSTER_OK ||
        muster_params_staged_unpack(&header, bytes + MUSTER_FRAME_HEADER_BYTES, &tensor, &range, &at,
                                    NULL) != MUSTER_OK)
        return;
    if (at > MUSTER_PARAMS_STAGE_BYTES ||
        range.count * sizeof(float) + muster_params_range_padding(&tensor, &range) >
            MUSTER_PARAMS_STAGE_BYTES - at)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    uint8_t *payload; /* aligned, and no byte longer than the message */

    if (size == 0)
        return 0;
    payload = malloc(size - 1 > 0 ? size - 1 : 1);
    if (payload == NULL)
        abort();
    memcpy(payload, bytes + 1, size - 1);
    switch (bytes[0]) {
    case MUSTER_PARAMS_OPEN:
        read_open(payload, size - 1);
        break;
    case MUSTER_PARAMS_OPENED:
        read_opened(payload, size - 1);
        break;
    case MUSTER_PARAMS_TABLE:
        read_schema(payload, size - 1);
        break;
    case MUSTER_PARAMS_PUSH:
        read_rows(payload, size - 1, true);
        break;
    case MUSTER_PARAMS_PULL:
        read_rows(payload, size - 1, false);
        break;
    case MUSTER_PARAMS_PUSH_RANGE:
    case MUSTER_PARAMS_PULL_RANGE:
        read_range((enum muster_params_message)bytes[0], payload, size - 1);
        break;
    case MUSTER_PARAMS_PUSH_STAGED:
        read_staged(payload, size - 1);
        break;
    default:
        break;
    }
    free(payload);
    return 0;
}
