/* The bytes of hellos and frame headers: little endian, fixed places (docs/protocol.md, "Links"). A
 * change here is a new MUSTER_PEER_VERSION. Bytes come from strangers: what is shown to people, and
 * what every user would have to check, is checked here; numbers of stripes, lanes and chunks are
 * checked by those who know how many there are. */
#include "net/link/peer_link_internal.h"

#include <string.h>

static void put_u16(uint8_t *at, uint16_t value)
{
    at[0] = (uint8_t)value;
    at[1] = (uint8_t)(value >> 8);
}

static void put_u32(uint8_t *at, uint32_t value)
{
    for (size_t i = 0; i < 4; i++)
        at[i] = (uint8_t)(value >> (8 * i));
}

static void put_u64(uint8_t *at, uint64_t value)
{
    for (size_t i = 0; i < 8; i++)
        at[i] = (uint8_t)(value >> (8 * i));
}

static uint16_t get_u16(const uint8_t *at)
{
    return (uint16_t)(at[0] | at[1] << 8);
}

static uint32_t get_u32(const uint8_t *at)
{
    return (uint32_t)get_u16(at) | (uint32_t)get_u16(at + 2) << 16;
}

static uint64_t get_u64(const uint8_t *at)
{
    return get_u32(at) | (uint64_t)get_u32(at + 4) << 32;
}

/* Hello: magic 0, version 4, purpose 8, stripe 12, their count 14, incarnation 16, job 32, session
 * 96, received 104, intent 112, connection 116, target 120. */

void muster_peer_hello_pack(const struct muster_peer_hello *hello,
                            uint8_t ret_bytes[MUSTER_HELLO_BYTES])
{
    memcpy(ret_bytes, MUSTER_PEER_MAGIC, 4);
    put_u32(ret_bytes + 4, hello->version);
    put_u32(ret_bytes + 8, (uint32_t)hello->purpose);
    put_u16(ret_bytes + 12, hello->stripe);
    put_u16(ret_bytes + 14, hello->stripe_count);
    memcpy(ret_bytes + 16, hello->incarnation.bytes, sizeof(hello->incarnation.bytes));
    memset(ret_bytes + 32, 0, MUSTER_JOB_NAME_BYTES);
    memcpy(ret_bytes + 32, hello->job, strnlen(hello->job, MUSTER_JOB_NAME_BYTES - 1));
    put_u64(ret_bytes + 96, hello->session);
    put_u64(ret_bytes + 104, hello->received);
    put_u32(ret_bytes + 112, (uint32_t)hello->intent);
    put_u32(ret_bytes + 116, hello->connection);
    memcpy(ret_bytes + 120, hello->target.bytes, sizeof(hello->target.bytes));
}

enum muster_rc muster_peer_hello_check_start(const uint8_t *bytes, struct muster_error *ret_error)
{
    uint32_t version = get_u32(bytes + 4);

    if (memcmp(bytes, MUSTER_PEER_MAGIC, 4) != 0)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the peer must speak muster's protocol: its first bytes are not "
                                "\"" MUSTER_PEER_MAGIC "\"");
    if (version != MUSTER_PEER_VERSION)
        return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                                "protocol versions differ: %u here, %u there", MUSTER_PEER_VERSION,
                                version);
    return MUSTER_OK;
}

/* A job name is shown to people and compared: printable ASCII or UTF-8 bytes, no control
 * characters. */
static bool is_job_valid(const uint8_t *job)
{
    size_t length = strnlen((const char *)job, MUSTER_JOB_NAME_BYTES);

    if (length == MUSTER_JOB_NAME_BYTES) /* without its NUL it would be read beyond its end */
        return false;
    for (size_t i = 0; i < length; i++)
        if (job[i] < 0x20 || job[i] == 0x7f)
            return false;
    return true;
}

enum muster_rc muster_peer_hello_unpack(const uint8_t bytes[MUSTER_HELLO_BYTES],
                                        struct muster_peer_hello *ret_hello,
                                        struct muster_error *ret_error)
{
    uint32_t purpose = get_u32(bytes + 8), intent = get_u32(bytes + 112);
    enum muster_rc rc = muster_peer_hello_check_start(bytes, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    if (purpose > MUSTER_LINK_PARAMS_LEAVE)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the peer's hello has unknown purpose %u", purpose);
    if (intent > MUSTER_LINK_PROBE)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the peer's hello has unknown intent %u", intent);
    if (!is_job_valid(bytes + 32))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the peer's hello has a malformed job name");
    ret_hello->version = get_u32(bytes + 4);
    ret_hello->purpose = (enum muster_link_purpose)purpose;
    ret_hello->stripe = get_u16(bytes + 12);
    ret_hello->stripe_count = get_u16(bytes + 14);
    memcpy(ret_hello->incarnation.bytes, bytes + 16, sizeof(ret_hello->incarnation.bytes));
    memcpy(ret_hello->job, bytes + 32, sizeof(ret_hello->job));
    ret_hello->session = get_u64(bytes + 96);
    ret_hello->received = get_u64(bytes + 104);
    ret_hello->intent = (enum muster_link_intent)intent;
    ret_hello->connection = get_u32(bytes + 116);
    memcpy(ret_hello->target.bytes, bytes + 120, sizeof(ret_hello->target.bytes));
    if (muster_incarnation_is_zero(&ret_hello->incarnation))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the peer's hello has no incarnation");
    return MUSTER_OK;
}

/* Frame header: channel 0, type 1, flags 2, payload 4, epoch 8, step 16, lane 24, sequence 28,
 * phase 32, chunk 36, offset 40, descriptor 48, received 56. */

void muster_frame_header_pack(const struct muster_frame_header *header,
                              uint8_t ret_bytes[MUSTER_FRAME_HEADER_BYTES])
{
    ret_bytes[0] = header->channel;
    ret_bytes[1] = header->type;
    put_u16(ret_bytes + 2, header->flags);
    put_u32(ret_bytes + 4, header->payload_bytes);
    put_u64(ret_bytes + 8, header->epoch);
    put_u64(ret_bytes + 16, header->op.step);
    put_u32(ret_bytes + 24, header->op.lane);
    put_u32(ret_bytes + 28, header->op.sequence);
    put_u32(ret_bytes + 32, header->phase);
    put_u32(ret_bytes + 36, header->chunk);
    put_u64(ret_bytes + 40, header->offset);
    put_u64(ret_bytes + 48, header->descriptor);
    put_u64(ret_bytes + 56, header->received);
}

enum muster_rc muster_frame_header_unpack(const uint8_t bytes[MUSTER_FRAME_HEADER_BYTES],
                                          struct muster_frame_header *ret_header,
                                          struct muster_error *ret_error)
{
    uint32_t payload_bytes = get_u32(bytes + 4);

    if (bytes[0] < MUSTER_FRAME_COLLECTIVE || bytes[0] > MUSTER_FRAME_PUBLICATION)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "a frame of unknown channel %u arrived", bytes[0]);
    /* The bound comes before any room is made: it is what one frame can make a receiver take. */
    if (payload_bytes > MUSTER_FRAME_PAYLOAD_MAX)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the payload of a frame must be at most %u bytes, got %u",
                                MUSTER_FRAME_PAYLOAD_MAX, payload_bytes);
    ret_header->channel = bytes[0];
    ret_header->type = bytes[1];
    ret_header->flags = get_u16(bytes + 2);
    ret_header->payload_bytes = payload_bytes;
    ret_header->epoch = get_u64(bytes + 8);
    ret_header->op.step = get_u64(bytes + 16);
    ret_header->op.lane = get_u32(bytes + 24);
    ret_header->op.sequence = get_u32(bytes + 28);
    ret_header->phase = get_u32(bytes + 32);
    ret_header->chunk = get_u32(bytes + 36);
    ret_header->offset = get_u64(bytes + 40);
    ret_header->descriptor = get_u64(bytes + 48);
    ret_header->received = get_u64(bytes + 56);
    return MUSTER_OK;
}
