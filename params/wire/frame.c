/* The bytes of parameter exchange. Keys, runs and values are used where they arrive, so they have
 * the byte order of the machines that muster runs on: little endian. */
#include "params/wire/frame.h"

#include <math.h>
#include <math.h>
#include <string.h>

#include "runtime/value/utf8.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "keys and values travel in the machine's byte order");

/* --- A cursor over fixed fields --- */

static uint8_t *put_bytes(uint8_t *at, const void *from, size_t bytes)
{
    memcpy(at, from, bytes);
    return at + bytes;
}

static uint8_t *put_u32(uint8_t *at, uint32_t value)
{
    return put_bytes(at, &value, sizeof(value));
}

static uint8_t *put_u64(uint8_t *at, uint64_t value)
{
    return put_bytes(at, &value, sizeof(value));
}

static uint8_t *put_f32(uint8_t *at, float value)
{
    return put_bytes(at, &value, sizeof(value));
}

static uint8_t *put_f64(uint8_t *at, double value)
{
    return put_bytes(at, &value, sizeof(value));
}

static const uint8_t *get_bytes(const uint8_t *at, void *ret_to, size_t bytes)
{
    memcpy(ret_to, at, bytes);
    return at + bytes;
}

static enum muster_rc size_check(const char *message, size_t bytes, size_t expected,
                                 struct muster_error *ret_error)
{
    if (bytes == expected)
        return MUSTER_OK;
    return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                            "message %s of parameters must have %zu bytes, got %zu", message,
                            expected, bytes);
}

bool muster_params_name_is_valid(const char name[MUSTER_PARAMS_NAME_BYTES])
{
    size_t length = strnlen(name, MUSTER_PARAMS_NAME_BYTES), character;

    if (length == MUSTER_PARAMS_NAME_BYTES)
        return false;
    for (size_t i = 0; i < length; i += character) {
        character = muster_utf8_length((const unsigned char *)name + i);
        if (character == 0 || (uint8_t)name[i] < 0x20 || name[i] == 0x7f)
            return false;
    }
    return true;
}

static uint8_t *put_name(uint8_t *at, const char *name)
{
    memset(at, 0, MUSTER_PARAMS_NAME_BYTES);
    memcpy(at, name, strnlen(name, MUSTER_PARAMS_NAME_BYTES - 1));
    return at + MUSTER_PARAMS_NAME_BYTES;
}

/* --- Opening --- */

void muster_params_open_pack(const struct muster_params_open *open,
                             uint8_t ret_bytes[MUSTER_PARAMS_OPEN_BYTES])
{
    uint8_t *at = put_bytes(ret_bytes, open->source.bytes, sizeof(open->source.bytes));

    at = put_name(at, open->name);
    at = put_u64(at, open->generation);
    at = put_u64(at, open->process);
    at = put_u32(at, open->link);
    put_u32(at, MUSTER_PARAMS_MESSAGES_VERSION);
}

enum muster_rc muster_params_open_unpack(const void *payload, size_t bytes,
                                         struct muster_params_open *ret_open,
                                         struct muster_error *ret_error)
{
    enum muster_rc rc = size_check("OPEN", bytes, MUSTER_PARAMS_OPEN_BYTES, ret_error);
    const uint8_t *at = payload;
    uint32_t version;

    if (rc != MUSTER_OK)
        return rc;
    at = get_bytes(at, ret_open->source.bytes, sizeof(ret_open->source.bytes));
    at = get_bytes(at, ret_open->name, sizeof(ret_open->name));
    at = get_bytes(at, &ret_open->generation, sizeof(ret_open->generation));
    at = get_bytes(at, &ret_open->process, sizeof(ret_open->process));
    at = get_bytes(at, &ret_open->link, sizeof(ret_open->link));
    get_bytes(at, &version, sizeof(version));
    if (version != MUSTER_PARAMS_MESSAGES_VERSION)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "messages of parameters must be of version %u, got version %u",
                                MUSTER_PARAMS_MESSAGES_VERSION, version);
    if (muster_incarnation_is_zero(&ret_open->source))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "message OPEN of parameters has no source");
    if (!muster_params_name_is_valid(ret_open->name))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "message OPEN of parameters has a malformed name of its source");
    return MUSTER_OK;
}

void muster_params_copied_source_pack(const struct muster_params_copied_source *source,
                                      uint8_t ret_bytes[MUSTER_PARAMS_COPIED_SOURCE_BYTES])
{
    uint8_t *at = ret_bytes + MUSTER_PARAMS_OPEN_BYTES;

    muster_params_open_pack(&source->open, ret_bytes);
    at = put_u64(at, source->rounds);
    at = put_bytes(at, &source->weight, sizeof(source->weight));
    put_u64(at, source->clock_sources | (uint64_t)source->pushed_clock << 32);
}

enum muster_rc muster_params_copied_source_unpack(const void *payload, size_t bytes,
                                                  struct muster_params_copied_source *ret_source,
                                                  struct muster_error *ret_error)
{
    enum muster_rc rc =
        size_check("COPY_SOURCE", bytes, MUSTER_PARAMS_COPIED_SOURCE_BYTES, ret_error);
    const uint8_t *at = (const uint8_t *)payload + MUSTER_PARAMS_OPEN_BYTES;

    if (rc == MUSTER_OK)
        rc = muster_params_open_unpack(payload, MUSTER_PARAMS_OPEN_BYTES, &ret_source->open,
                                       ret_error);
    if (rc != MUSTER_OK)
        return rc;
    at = get_bytes(at, &ret_source->rounds, sizeof(ret_source->rounds));
    at = get_bytes(at, &ret_source->weight, sizeof(ret_source->weight));
    at = get_bytes(at, &ret_source->clock_sources, sizeof(ret_source->clock_sources));
    get_bytes(at, &ret_source->pushed_clock, sizeof(ret_source->pushed_clock));
    if (!isfinite(ret_source->weight) || ret_source->weight < 0)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "message COPY_SOURCE of parameters has a malformed weight");
    return MUSTER_OK;
}

void muster_params_opened_pack(const struct muster_params_opened *opened,
                               uint8_t ret_bytes[MUSTER_PARAMS_OPENED_BYTES])
{
    uint8_t *at = put_u64(ret_bytes, opened->slot);

    at = put_u64(at, opened->generation);
    at = put_u32(at, opened->shard_count);
    at = put_u32(at, opened->lease_s);
    put_u64(at, opened->sequence);
}

enum muster_rc muster_params_opened_unpack(const void *payload, size_t bytes,
                                           struct muster_params_opened *ret_opened,
                                           struct muster_error *ret_error)
{
    enum muster_rc rc = size_check("OPENED", bytes, MUSTER_PARAMS_OPENED_BYTES, ret_error);
    const uint8_t *at = payload;
    uint32_t shards;

    if (rc != MUSTER_OK)
        return rc;
    at = get_bytes(at, &ret_opened->slot, sizeof(ret_opened->slot));
    at = get_bytes(at, &ret_opened->generation, sizeof(ret_opened->generation));
    get_bytes(at, &shards, sizeof(shards));
    if (shards == 0 || shards > MUSTER_PARAMS_SHARD_COUNT_MAX || (shards & (shards - 1)) != 0)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "message OPENED of parameters names %u shards", shards);
    ret_opened->shard_count = shards;
    at = get_bytes(at + sizeof(shards), &ret_opened->lease_s, sizeof(ret_opened->lease_s));
    get_bytes(at, &ret_opened->sequence, sizeof(ret_opened->sequence));
    if (ret_opened->sequence == 0)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "message OPENED of parameters names no sequence number");
    return MUSTER_OK;
}

/* --- Schemas: name 0, row_elements 64, wire_dtype 68, optimizer 72, init 76, numbers 80 to 107,
 * flags 108, their upper half admit_share, init_seed 112, round_grace_ns 120, round_quorum 128, admit_after 132,
 * ttl_clocks 136, rows_max 144, tensor_elements 152 to 159 --- */

#define SCHEMA_BY_ROUND   1u
#define SCHEMA_ROUND_MEAN 2u
#define SCHEMA_CARRIED    4u
#define SCHEMA_EVICT_LFU  8u

void muster_params_schema_pack(const struct muster_params_schema *schema,
                               uint8_t ret_bytes[MUSTER_PARAMS_SCHEMA_BYTES])
{
    uint8_t *at = put_name(ret_bytes, schema->name);

    at = put_u32(at, schema->row_elements);
    at = put_u32(at, (uint32_t)schema->wire_dtype);
    at = put_u32(at, (uint32_t)schema->optimizer);
    at = put_u32(at, (uint32_t)schema->init);
    at = put_f32(at, schema->learning_rate);
    at = put_f32(at, schema->beta1);
    at = put_f32(at, schema->beta2);
    at = put_f32(at, schema->epsilon);
    at = put_f32(at, schema->l1);
    at = put_f32(at, schema->l2);
    at = put_f32(at, schema->init_scale);
    at = put_u32(at, (schema->is_by_round ? SCHEMA_BY_ROUND : 0) |
                         (schema->is_round_mean ? SCHEMA_ROUND_MEAN : 0) |
                         (schema->is_round_carried ? SCHEMA_CARRIED : 0) |
                         (schema->evict_by == MUSTER_PARAMS_EVICT_LFU ? SCHEMA_EVICT_LFU : 0) |
                         schema->admit_share << 16);
    at = put_u64(at, schema->init_seed);
    at = put_u64(at, schema->round_grace_ns);
    at = put_u32(at, schema->round_quorum);
    at = put_u32(at, schema->admit_after);
    at = put_u64(at, schema->ttl_clocks);
    at = put_u64(at, schema->rows_max);
    put_u64(at, schema->tensor_elements);
}

enum muster_rc muster_params_schema_unpack(const void *payload, size_t bytes,
                                           struct muster_params_schema *ret_schema,
                                           struct muster_error *ret_error)
{
    enum muster_rc rc = size_check("TABLE", bytes, MUSTER_PARAMS_SCHEMA_BYTES, ret_error);
    const uint8_t *at = payload;
    uint32_t numbers[3], flags;

    if (rc != MUSTER_OK)
        return rc;
    if (!muster_params_name_is_valid(payload))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "message TABLE of parameters has a malformed name of its table");
    *ret_schema = (struct muster_params_schema){.name = payload};
    at = get_bytes(at + MUSTER_PARAMS_NAME_BYTES, &ret_schema->row_elements, 4);
    at = get_bytes(at, numbers, sizeof(numbers));
    ret_schema->wire_dtype = (enum muster_dtype)numbers[0];
    ret_schema->optimizer = (enum muster_params_optimizer)numbers[1];
    ret_schema->init = (enum muster_params_init)numbers[2];
    at = get_bytes(at, &ret_schema->learning_rate, 4);
    at = get_bytes(at, &ret_schema->beta1, 4);
    at = get_bytes(at, &ret_schema->beta2, 4);
    at = get_bytes(at, &ret_schema->epsilon, 4);
    at = get_bytes(at, &ret_schema->l1, 4);
    at = get_bytes(at, &ret_schema->l2, 4);
    at = get_bytes(at, &ret_schema->init_scale, 4);
    at = get_bytes(at, &flags, 4);
    ret_schema->admit_share = flags >> 16;
    flags &= UINT16_MAX;
    if ((flags & ~(SCHEMA_BY_ROUND | SCHEMA_ROUND_MEAN | SCHEMA_CARRIED |
                   SCHEMA_EVICT_LFU)) != 0)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "message TABLE of parameters has flags %x, which this version does "
                                "not know",
                                flags);
    ret_schema->is_by_round = (flags & SCHEMA_BY_ROUND) != 0;
    ret_schema->is_round_mean = (flags & SCHEMA_ROUND_MEAN) != 0;
    ret_schema->is_round_carried = (flags & SCHEMA_CARRIED) != 0;
    ret_schema->evict_by = (flags & SCHEMA_EVICT_LFU) != 0 ? MUSTER_PARAMS_EVICT_LFU
                                                           : MUSTER_PARAMS_EVICT_LRU;
    at = get_bytes(at, &ret_schema->init_seed, 8);
    at = get_bytes(at, &ret_schema->round_grace_ns, 8);
    at = get_bytes(at, &ret_schema->round_quorum, 4);
    at = get_bytes(at, &ret_schema->admit_after, 4);
    at = get_bytes(at, &ret_schema->ttl_clocks, 8);
    at = get_bytes(at, &ret_schema->rows_max, 8);
    get_bytes(at, &ret_schema->tensor_elements, 8);
    return MUSTER_OK;
}

/* --- Clocks and rounds --- */

static enum muster_rc weight_check(const char *message, double weight,
                                   struct muster_error *ret_error)
{
    if (isfinite(weight) && weight >= 0)
        return MUSTER_OK;
    return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                            "message %s of parameters: a weight must be finite and not negative",
                            message);
}

void muster_params_tick_pack(const struct muster_params_tick *tick,
                             uint8_t ret_bytes[MUSTER_PARAMS_TICK_BYTES])
{
    uint8_t *at = put_u64(ret_bytes, tick->clock);

    at = put_u32(at, tick->source_count);
    at = put_u32(at, 0);
    put_f64(at, tick->weight);
}

enum muster_rc muster_params_tick_unpack(const void *payload, size_t bytes,
                                         struct muster_params_tick *ret_tick,
                                         struct muster_error *ret_error)
{
    enum muster_rc rc = size_check("TICK", bytes, MUSTER_PARAMS_TICK_BYTES, ret_error);
    const uint8_t *at = payload;

    if (rc != MUSTER_OK)
        return rc;
    at = get_bytes(at, &ret_tick->clock, 8);
    at = get_bytes(at, &ret_tick->source_count, 4);
    get_bytes(at + 4, &ret_tick->weight, 8);
    return weight_check("TICK", ret_tick->weight, ret_error);
}

#define ROUND_HAS_ORIGINS (UINT32_C(1) << 31) /* in the number of sources */

size_t muster_params_round_bytes(const struct muster_params_round *round)
{
    return 16 + (size_t)round->source_count *
                    (sizeof(round->sources[0]) +
                     (round->origins != NULL ? sizeof(round->origins[0]) : 0));
}

void muster_params_round_pack(const struct muster_params_round *round, void *ret_bytes)
{
    uint8_t *at = put_u64(ret_bytes, round->round);

    at = put_u32(at, round->table);
    at = put_u32(at, round->source_count | (round->origins != NULL ? ROUND_HAS_ORIGINS : 0));
    at = put_bytes(at, round->sources, round->source_count * sizeof(round->sources[0]));
    if (round->origins != NULL)
        put_bytes(at, round->origins, round->source_count * sizeof(round->origins[0]));
}

static enum muster_rc round_sources_check(const struct muster_params_round *round,
                                          struct muster_error *ret_error)
{
    enum muster_rc rc = MUSTER_OK;

    for (uint32_t i = 0; i < round->source_count && rc == MUSTER_OK; i++) {
        const struct muster_params_round_source *source = &round->sources[i];

        rc = weight_check("ROUND", source->weight, ret_error);
        if (rc == MUSTER_OK && i > 0 &&
            memcmp(source[-1].id.bytes, source->id.bytes, sizeof(source->id.bytes)) >= 0)
            rc = muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                  "message ROUND of parameters: the ids of sources must rise");
    }
    return rc;
}

static enum muster_rc round_origins_check(const struct muster_params_round *round,
                                          struct muster_error *ret_error)
{
    for (uint32_t i = 0; i < round->source_count && round->origins != NULL; i++) {
        if (round->origins[i].from > round->round || round->origins[i].counts > 1)
            return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                    "message ROUND of parameters: round %llu has pushes since round %u "
                                    "with mark %u",
                                    (unsigned long long)round->round, round->origins[i].from,
                                    round->origins[i].counts);
    }
    return MUSTER_OK;
}

enum muster_rc muster_params_round_unpack(const void *payload, size_t bytes,
                                          struct muster_params_round *ret_round,
                                          struct muster_error *ret_error)
{
    const uint8_t *at = payload;
    enum muster_rc rc;
    bool has_origins;

    if (bytes < 16)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "message ROUND of parameters must have 16 bytes or more, got %zu",
                                bytes);
    at = get_bytes(at, &ret_round->round, 8);
    at = get_bytes(at, &ret_round->table, 4);
    at = get_bytes(at, &ret_round->source_count, 4);
    has_origins = (ret_round->source_count & ROUND_HAS_ORIGINS) != 0;
    ret_round->source_count &= ~ROUND_HAS_ORIGINS;
    if (ret_round->source_count > MUSTER_PARAMS_ROUND_SOURCES_MAX)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "message ROUND of parameters has %u sources, the limit is %u",
                                ret_round->source_count, MUSTER_PARAMS_ROUND_SOURCES_MAX);
    if (ret_round->round >= MUSTER_PARAMS_ROUND_MAX)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "message ROUND of parameters is for round %llu, the limit is %llu",
                                (unsigned long long)ret_round->round,
                                (unsigned long long)MUSTER_PARAMS_ROUND_MAX);
    ret_round->sources = (const struct muster_params_round_source *)(const void *)at;
    at += ret_round->source_count * sizeof(ret_round->sources[0]);
    ret_round->origins =
        has_origins ? (const struct muster_params_round_origin *)(const void *)at : NULL;
    rc = size_check("ROUND", bytes, muster_params_round_bytes(ret_round), ret_error);
    if (rc == MUSTER_OK)
        rc = round_sources_check(ret_round, ret_error);
    return rc == MUSTER_OK ? round_origins_check(ret_round, ret_error) : rc;
}

/* --- Cuts --- */

void muster_params_hold_pack(const struct muster_params_hold *hold,
                             uint8_t ret_bytes[MUSTER_PARAMS_HOLD_BYTES])
{
    uint8_t *at = put_u64(ret_bytes, hold->number);

    at = put_u64(at, hold->clock);
    put_u64(at, hold->timeout_ns);
}

enum muster_rc muster_params_hold_unpack(const void *payload, size_t bytes,
                                         struct muster_params_hold *ret_hold,
                                         struct muster_error *ret_error)
{
    const uint8_t *at = payload;

    if (bytes != MUSTER_PARAMS_HOLD_BYTES)
        return size_check("HOLD", bytes, MUSTER_PARAMS_HOLD_BYTES, ret_error);
    at = get_bytes(at, &ret_hold->number, 8);
    at = get_bytes(at, &ret_hold->clock, 8);
    get_bytes(at, &ret_hold->timeout_ns, 8);
    return MUSTER_OK;
}

void muster_params_mark_pack(const struct muster_params_mark *mark,
                             uint8_t ret_bytes[MUSTER_PARAMS_MARK_BYTES])
{
    put_u64(put_u64(ret_bytes, mark->number), mark->pushed);
}

enum muster_rc muster_params_mark_unpack(const void *payload, size_t bytes,
                                         struct muster_params_mark *ret_mark,
                                         struct muster_error *ret_error)
{
    if (bytes != MUSTER_PARAMS_MARK_BYTES)
        return size_check("MARK", bytes, MUSTER_PARAMS_MARK_BYTES, ret_error);
    get_bytes(get_bytes(payload, &ret_mark->number, 8), &ret_mark->pushed, 8);
    return MUSTER_OK;
}

size_t muster_params_saved_bytes(uint32_t table_count, uint32_t entry_count)
{
    return MUSTER_PARAMS_SAVED_HEAD_BYTES + (size_t)table_count * MUSTER_PARAMS_SCHEMA_BYTES +
           entry_count * sizeof(struct muster_params_saved_shard);
}

_Static_assert(MUSTER_PARAMS_SCHEMA_BYTES % 8 == 0, "entries behind schemas are aligned");

void muster_params_saved_pack(const struct muster_params_saved *saved, uint8_t *ret_bytes,
                              uint8_t **ret_schemas, struct muster_params_saved_shard **ret_entries)
{
    uint8_t *at = put_u64(ret_bytes, saved->number);

    at = put_u64(at, saved->map);
    at = put_u64(at, saved->clock);
    at = put_u32(at, saved->shard_count);
    at = put_u32(at, saved->table_count);
    at = put_u32(at, saved->entry_count);
    at = put_u32(at, 0);
    at = put_u64(at, saved->sources);
    at = put_u64(at, saved->pushed);
    *ret_schemas = at;
    *ret_entries = (struct muster_params_saved_shard *)(void *)(at + (size_t)saved->table_count *
                                                                        MUSTER_PARAMS_SCHEMA_BYTES);
}

static enum muster_rc saved_check(const struct muster_params_saved *saved,
                                  struct muster_error *ret_error)
{
    if (saved->shard_count == 0 || saved->shard_count > MUSTER_PARAMS_SHARD_COUNT_MAX ||
        saved->entry_count > saved->shard_count)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "message SAVED of parameters names %u entries of %u shards",
                                saved->entry_count, saved->shard_count);
    for (uint32_t i = 0; i < saved->entry_count; i++) {
        if (saved->entries[i].shard >= saved->shard_count)
            return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                    "message SAVED of parameters names shard %u of %u",
                                    saved->entries[i].shard, saved->shard_count);
    }
    return MUSTER_OK;
}

enum muster_rc muster_params_saved_unpack(const void *payload, size_t bytes,
                                          struct muster_params_saved *ret_saved,
                                          struct muster_error *ret_error)
{
    const uint8_t *at = payload;

    if (bytes < MUSTER_PARAMS_SAVED_HEAD_BYTES)
        return size_check("SAVED", bytes, MUSTER_PARAMS_SAVED_HEAD_BYTES, ret_error);
    at = get_bytes(at, &ret_saved->number, 8);
    at = get_bytes(at, &ret_saved->map, 8);
    at = get_bytes(at, &ret_saved->clock, 8);
    at = get_bytes(at, &ret_saved->shard_count, 4);
    at = get_bytes(at, &ret_saved->table_count, 4);
    at = get_bytes(at, &ret_saved->entry_count, 4);
    at = get_bytes(at + 4, &ret_saved->sources, 8);
    get_bytes(at, &ret_saved->pushed, 8);
    if (bytes != muster_params_saved_bytes(ret_saved->table_count, ret_saved->entry_count))
        return size_check("SAVED", bytes,
                          muster_params_saved_bytes(ret_saved->table_count,
                                                    ret_saved->entry_count),
                          ret_error);
    at = (const uint8_t *)payload + MUSTER_PARAMS_SAVED_HEAD_BYTES;
    ret_saved->schemas = at;
    ret_saved->entries =
        (const struct muster_params_saved_shard *)(const void *)(at +
                                                                (size_t)ret_saved->table_count *
                                                                    MUSTER_PARAMS_SCHEMA_BYTES);
    return saved_check(ret_saved, ret_error);
}

/* --- Acknowledgements --- */

void muster_params_ack_pack(const struct muster_params_ack *ack,
                            uint8_t ret_bytes[MUSTER_PARAMS_ACK_BYTES])
{
    uint8_t *at = put_u64(ret_bytes, ack->sequence);

    at = put_u32(at, ack->piece);
    at = put_u32(at, ack->rc);
    at = put_u32(at, ack->refused);
    put_u32(at, 0);
}

void muster_params_ack_unpack(const uint8_t bytes[MUSTER_PARAMS_ACK_BYTES],
                              struct muster_params_ack *ret_ack)
{
    const uint8_t *at = get_bytes(bytes, &ret_ack->sequence, 8);

    at = get_bytes(at, &ret_ack->piece, 4);
    at = get_bytes(at, &ret_ack->rc, 4);
    get_bytes(at, &ret_ack->refused, 4);
}

/* --- Rows: slot 0, clock 8, table 16, row_count 20, run_count 24, dtype 26, reserved 27 to 31 --- */

static size_t runs_bytes(uint32_t run_count)
{
    return (run_count * sizeof(struct muster_params_run) + 7) / 8 * 8;
}

size_t muster_params_rows_bytes(uint32_t run_count, uint32_t row_count, uint32_t row_elements,
                                enum muster_dtype dtype)
{
    return MUSTER_PARAMS_ROWS_HEAD_BYTES + runs_bytes(run_count) +
           (size_t)row_count * (sizeof(uint64_t) + row_elements * muster_dtype_bytes(dtype));
}

void muster_params_rows_pack(const struct muster_params_rows_frame *frame, void *payload,
                             struct muster_params_run **ret_runs, uint64_t **ret_keys,
                             void **ret_values)
{
    uint8_t *at = put_u64(payload, frame->slot);

    at = put_u64(at, frame->clock);
    at = put_u32(at, frame->table);
    at = put_u32(at, frame->row_count);
    at = put_bytes(at, &frame->run_count, 2);
    memset(at, 0, 6);
    *at = frame->dtype;
    at += 6;
    *ret_runs = (struct muster_params_run *)(void *)at;
    memset(at, 0, runs_bytes(frame->run_count));
    at += runs_bytes(frame->run_count);
    *ret_keys = (uint64_t *)(void *)at;
    *ret_values = at + (size_t)frame->row_count * sizeof(uint64_t);
}

void muster_params_rows_address(void *payload, uint64_t slot, uint32_t table)
{
    put_u64(payload, slot);
    put_u32((uint8_t *)payload + 16, table);
}

static enum muster_rc runs_check(const struct muster_params_rows_frame *frame, uint32_t shard_count,
                                 struct muster_error *ret_error)
{
    uint32_t sum = 0;
    int32_t last = -1;

    for (uint32_t i = 0; i < frame->run_count; i++) {
        const struct muster_params_run *run = &frame->runs[i];
        uint16_t shard = muster_params_run_shard(run);

        if (shard >= shard_count || run->rows == 0 || shard <= last)
            return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                    "run %u of a push names shard %u of %u with %u rows; runs must "
                                    "have rows and rising shards",
                                    i, shard, shard_count, run->rows);
        sum += run->rows;
        last = shard;
    }
    if (sum != frame->row_count)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the runs of a push have %u rows, the push has %u", sum,
                                frame->row_count);
    return MUSTER_OK;
}

static void head_read(const uint8_t *at, struct muster_params_rows_frame *ret_frame)
{
    at = get_bytes(at, &ret_frame->slot, 8);
    at = get_bytes(at, &ret_frame->clock, 8);
    at = get_bytes(at, &ret_frame->table, 4);
    at = get_bytes(at, &ret_frame->row_count, 4);
    at = get_bytes(at, &ret_frame->run_count, 2);
    ret_frame->dtype = *at;
    ret_frame->skip = ret_frame->element_count = 0;
}

static enum muster_rc head_unpack(const uint8_t *at, size_t bytes,
                                  struct muster_params_rows_frame *ret_frame,
                                  struct muster_error *ret_error)
{
    if (bytes < MUSTER_PARAMS_ROWS_HEAD_BYTES)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "a message with rows must have at least %u bytes, got %zu",
                                MUSTER_PARAMS_ROWS_HEAD_BYTES, bytes);
    head_read(at, ret_frame);
    if (ret_frame->row_count == 0 || ret_frame->row_count > MUSTER_PARAMS_FRAME_ROWS_MAX)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "a message must have 1 to %u rows, got %u",
                                MUSTER_PARAMS_FRAME_ROWS_MAX, ret_frame->row_count);
    if (ret_frame->dtype != MUSTER_F32 && ret_frame->dtype != MUSTER_F16 &&
        ret_frame->dtype != MUSTER_BF16)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "values of rows must be f32, f16 or bf16, got %s",
                                muster_dtype_name((enum muster_dtype)ret_frame->dtype));
    return MUSTER_OK;
}

static void parts_find(const uint8_t *at, bool has_runs, struct muster_params_rows_frame *frame)
{
    at += MUSTER_PARAMS_ROWS_HEAD_BYTES;
    frame->runs = (const struct muster_params_run *)(const void *)at;
    at += runs_bytes(frame->run_count);
    frame->keys = (const uint64_t *)(const void *)at;
    frame->values = has_runs ? at + (size_t)frame->row_count * sizeof(uint64_t) : NULL;
}

void muster_params_rows_view(const void *payload, bool has_runs,
                             struct muster_params_rows_frame *ret_frame)
{
    head_read(payload, ret_frame);
    parts_find(payload, has_runs, ret_frame);
}

uint32_t muster_params_rows_table(const void *payload)
{
    struct muster_params_rows_frame frame;

    head_read(payload, &frame);
    return frame.table;
}

enum muster_rc muster_params_rows_unpack(const void *payload, size_t bytes, bool has_runs,
                                         uint32_t shard_count, muster_params_width_fn *width,
                                         const void *width_data,
                                         struct muster_params_rows_frame *ret_frame,
                                         struct muster_error *ret_error)
{
    struct muster_params_rows_frame *frame = ret_frame;
    const uint8_t *at = payload;
    enum muster_rc rc = head_unpack(at, bytes, frame, ret_error);
    uint32_t elements;
    size_t expected;

    if (rc != MUSTER_OK)
        return rc;
    elements = width(width_data, frame->table);
    if (elements == 0)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the server has no table of number %u", frame->table);
    expected = muster_params_rows_bytes(frame->run_count, frame->row_count, has_runs ? elements : 0,
                                        (enum muster_dtype)frame->dtype);
    if (bytes != expected || (frame->run_count > 0) != has_runs)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "a message with %u rows of %u elements in %u runs must have %zu "
                                "bytes, got %zu",
                                frame->row_count, elements, frame->run_count, expected, bytes);
    parts_find(at, has_runs, frame);
    return has_runs ? runs_check(frame, shard_count, ret_error) : MUSTER_OK;
}
