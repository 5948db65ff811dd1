/* Frames of messages that nobody sends who follows the protocol: the link ends, and nothing of them goes
 * anywhere. */
#include "mail_stage.h"

#include <string.h>

#include "collective/group/group_internal.h"
#include "collective/group/pair.h"
#include "collective/group/shm/shm_internal.h"

#define COUNT 300u
#define WRONG "a frame belongs to no message"
#define PIECE "a piece of a message came that nobody awaits"

/* A piece of the first message of lane 0 from rank 1 to rank 0, as it should be. */
static struct muster_frame_header piece_of(const struct muster_message *message)
{
    struct muster_frame_header header = {
        .channel = MUSTER_FRAME_COLLECTIVE,
        .type = MUSTER_FRAME_MESSAGE,
        .flags = MUSTER_I32,
        .payload_bytes = 8,
        .epoch = mail_ring.view->epoch,
        .op = {.step = MUSTER_MESSAGE_STEP | UINT64_C(1) << 31},
        .offset = COUNT,
    };

    if (message != NULL)
        header.payload_bytes = (uint32_t)message->piece_bytes;
    return header;
}

static void *hear_frame(const struct muster_frame_header *header)
{
    return muster_group_wire_client.on_frame(mail_ring.members[0].group, 1, header);
}

static void finish_frame(const struct muster_frame_header *header, void *buffer)
{
    muster_group_wire_client.on_payload(mail_ring.members[0].group, 1, header, buffer);
}

static void be_an_offer(struct muster_frame_header *header)
{
    header->type = MUSTER_FRAME_OFFER;
}

static void be_a_withdrawal(struct muster_frame_header *header)
{
    header->type = MUSTER_FRAME_WITHDRAW;
}

static void be_empty(struct muster_frame_header *header)
{
    header->payload_bytes = 0;
}

static void be_in_no_lane(struct muster_frame_header *header)
{
    header->op.lane = MUSTER_LANES_MAX;
}

static void be_of_a_step(struct muster_frame_header *header)
{
    header->op.step &= ~MUSTER_MESSAGE_STEP;
}

static void be_our_own(struct muster_frame_header *header)
{
    header->op.step = MUSTER_MESSAGE_STEP | 1;
}

static void be_between_others(struct muster_frame_header *header)
{
    header->op.step = MUSTER_MESSAGE_STEP | UINT64_C(1) << 31 | 2;
}

static void take_from_the_receiver(struct muster_frame_header *header)
{
    header->type = MUSTER_FRAME_TAKE;
    header->payload_bytes = 0;
}

static void end_by_the_receiver(struct muster_frame_header *header)
{
    header->type = MUSTER_FRAME_OUTCOME;
    header->payload_bytes = 0;
}

static void frames_that_belong_to_no_message_end_the_link(void **state)
{
    static const struct {
        const char *name;
        void (*change)(struct muster_frame_header *header);
    } rows[] = {
        {"an offer with a payload", be_an_offer},
        {"a withdrawal with a payload", be_a_withdrawal},
        {"a piece without", be_empty},
        {"no such lane", be_in_no_lane},
        {"a step's operation", be_of_a_step},
        {"what goes the other way", be_our_own},
        {"between others", be_between_others},
        {"taking what is sent to us", take_from_the_receiver},
        {"an outcome of what is sent to us", end_by_the_receiver},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_frame_header header;

        mail_open(2);
        header = piece_of(NULL);
        rows[i].change(&header);

        if (hear_frame(&header) != NULL || mail_ring.members[0].suspect_count != 1 ||
            strstr(mail_ring.members[0].suspect_text, WRONG) == NULL)
            fail_msg("%s: %s", rows[i].name, mail_ring.members[0].suspect_text);
        mail_close();
    }
}

/* Before their time they are kept, so many bytes of them. */
static void early_pieces_are_bounded(void **state)
{
    struct muster_frame_header header;
    unsigned kept = 0;

    (void)state;
    mail_open(2);
    header = piece_of(NULL);
    header.payload_bytes = MUSTER_EAGER_BYTES_MAX / 2;
    while (mail_ring.members[0].suspect_count == 0) {
        void *buffer = hear_frame(&header);

        if (buffer == NULL)
            break;
        finish_frame(&header, buffer);
        header.op.sequence++;
        assert_true(++kept <= 4);
    }

    assert_int_equal(kept, 4);
    assert_int_equal(mail_ring.members[0].suspect_count, 1);
    assert_non_null(
        strstr(mail_ring.members[0].suspect_text, "too many messages that nobody awaits"));
}

/* --- of a message that is awaited --- */

static const struct muster_message *await_message(uint64_t count)
{
    struct muster_plan_parameters plan;
    const struct muster_pair *pair;

    mail_open(2);
    plan = mail_ring.plan;
    mail_close();
    plan.chunk_bytes = 64;
    mail_open_plan(2, &plan);
    mail_receive(&mails[0], 0, 1, count, 0);
    pair = muster_pair_get(mail_ring.members[0].group, 1);
    assert_non_null(pair);
    return muster_pair_find(&pair->receives[0], 0);
}

static uint32_t pieces_of(const struct muster_message *message)
{
    return (uint32_t)((message->bytes + message->piece_bytes - 1) / message->piece_bytes);
}

#define LAST   1000u /* piece */
#define BEHIND 1001u
#define WINDOW (2 * MUSTER_MESSAGE_WINDOW)

struct wrong {
    const char *name;
    uint64_t count;
    uint32_t chunk;
    int32_t more; /* bytes than it should have */
    bool is_wrong;
};

static void pieces_that_nobody_awaits_end_the_link(void **state)
{
    static const struct wrong rows[] = {
        {"the first", 100, 0, 0, false},
        {"the last", 100, LAST, 0, false},
        {"one behind the last", 100, BEHIND, 0, true},
        {"too short", 100, 0, -4, true},
        {"too long", 100, 0, 4, true},
        {"a last one that is too long", 100, LAST, 4, true},
        {"as far ahead as may be", COUNT, WINDOW - 1, 0, false},
        {"too far ahead", COUNT, WINDOW, 0, true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct muster_message *message = await_message(rows[i].count);
        struct muster_frame_header header = piece_of(message);
        uint32_t last = pieces_of(message) - 1;
        void *place;

        assert_int_equal(last < WINDOW, rows[i].count == 100);
        header.offset = rows[i].count;
        header.chunk = rows[i].chunk >= LAST ? last + (rows[i].chunk - LAST) : rows[i].chunk;
        if (header.chunk == last)
            header.payload_bytes = (uint32_t)(message->bytes - last * message->piece_bytes);
        header.payload_bytes = (uint32_t)((int32_t)header.payload_bytes + rows[i].more);
        place = hear_frame(&header);

        if ((place == NULL) != rows[i].is_wrong ||
            mail_ring.members[0].suspect_count != rows[i].is_wrong ||
            (rows[i].is_wrong && strstr(mail_ring.members[0].suspect_text, PIECE) == NULL) ||
            (place != NULL &&
             (uint8_t *)place != message->data + header.chunk * message->piece_bytes))
            fail_msg("%s: %s", rows[i].name, mail_ring.members[0].suspect_text);
        muster_op_cancel(&mails[0].op);
        group_ring_kill(&mail_ring, 1);
        group_ring_change(&mail_ring, UINT32_MAX);
        mail_run(&mails[0]);
        mail_close();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_that_belong_to_no_message_end_the_link),
        MAIL_CASE(early_pieces_are_bounded),
        cmocka_unit_test(pieces_that_nobody_awaits_end_the_link),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
