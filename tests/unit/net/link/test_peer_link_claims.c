/* A peer's claims when a link is to go on by another connection, and those that are believed. */
#include <string.h>

#include "resume_rig.h"

static const uint32_t small[] = {5, 0, 64, 1, 100};
#define SMALL_COUNT 5

/* Frames have gone both ways and are confirmed, then the connection breaks. */
static void exchange_and_break(void)
{
    resume_open(small, SMALL_COUNT);
    resume_join();
    resume_send_all();
    resume_run_through();
    resume_rig.is_waiting = true;
    cut_net_reset(&resume_rig.net);
    test_env_turn(&resume_rig.test.env, 5);
    assert_int_equal(resume_rig.ends[0].broken_count, 1);
}

struct answer_row {
    const char *name;
    uint8_t channel, type; /* 0: those of an answer */
    uint16_t flags;
    uint64_t session_change;
    int received_more; /* than the peer has */
    const char *words; /* NULL: it goes on */
};

static const struct answer_row answer_rows[] = {
    {.name = "it is known", .flags = MUSTER_LINK_IS_KNOWN},
    {.name = "another channel",
     .channel = MUSTER_FRAME_COLLECTIVE,
     .flags = MUSTER_LINK_IS_KNOWN,
     .words = "the peer must answer first"},
    {.name = "another frame of the link",
     .type = MUSTER_LINK_FRAME_RECEIVED,
     .flags = MUSTER_LINK_IS_KNOWN,
     .words = "the peer must answer first"},
    {.name = "frames were recalled there",
     .flags = MUSTER_LINK_IS_LACKING,
     .words = "frames that this process still needs were recalled"},
    {.name = "it is not known", .flags = MUSTER_LINK_IS_UNKNOWN, .words = "does not know"},
    {.name = "of another session",
     .flags = MUSTER_LINK_IS_KNOWN,
     .session_change = 1,
     .words = "does not know"},
    {.name = "of a session that differs at its end",
     .flags = MUSTER_LINK_IS_KNOWN,
     .session_change = 1ull << 63,
     .words = "does not know"},
    {.name = "less than was confirmed",
     .flags = MUSTER_LINK_IS_KNOWN,
     .received_more = -1,
     .words = "frames that the peer still needs were recalled"},
    {.name = "more than was sent",
     .flags = MUSTER_LINK_IS_KNOWN,
     .received_more = 1,
     .words = "frames that the peer still needs were recalled"},
};

static void check_answer(const struct answer_row *row)
{
    struct muster_frame_header answer = {
        .channel = MUSTER_FRAME_LINK, .type = MUSTER_LINK_FRAME_ANSWER, .flags = row->flags};
    struct resume_end *opener = &resume_rig.ends[0];

    exchange_and_break();
    if (row->channel != 0)
        answer.channel = row->channel;
    if (row->type != 0)
        answer.type = row->type;
    answer.descriptor = opener->link->session ^ row->session_change;
    answer.received = resume_rig.ends[1].link->received + (uint64_t)row->received_more;
    answer.offset = opener->link->received;
    resume_rig.played = &answer;
    resume_reopen(opener);
    test_env_turn(&resume_rig.test.env, 20);

    if (opener->resumed_count != (row->words == NULL))
        fail_msg("%s: resumed %u times", row->name, opener->resumed_count);
    if (row->words != NULL && (opener->error.rc != MUSTER_FAILED_PRECONDITION ||
                               strstr(opener->error.text, row->words) == NULL))
        fail_msg("%s: %d %s", row->name, (int)opener->error.rc, opener->error.text);
    resume_close();
}

static void an_answer_to_something_else_resumes_nothing(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(answer_rows) / sizeof(answer_rows[0]); i++)
        check_answer(&answer_rows[i]);
}

struct claim_row {
    const char *name;
    uint64_t session_change;
    int received_more;    /* than it has */
    bool is_of_opener;    /* the link that would go on has opened the connection itself */
    bool was_never_ready; /* the link that would go on */
    bool is_good;
};

static const struct claim_row claim_rows[] = {
    {.name = "the opener comes back", .is_good = true},
    {.name = "with another session", .session_change = 1},
    {.name = "with a session that differs at its end", .session_change = 1ull << 63},
    {.name = "with less than it has confirmed", .received_more = -1},
    {.name = "with more than was sent", .received_more = 1},
    {.name = "to a link that opens itself", .is_of_opener = true},
    {.name = "to a link that was never ready", .was_never_ready = true},
};

static void a_hello_that_claims_what_is_not_so_takes_nothing_over(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(claim_rows) / sizeof(claim_rows[0]); i++) {
        const struct claim_row *row = &claim_rows[i];
        struct resume_end *opener = &resume_rig.ends[0];

        exchange_and_break();
        opener->link->self.session ^= row->session_change;
        opener->link->received += (uint64_t)row->received_more;
        if (row->is_of_opener)
            resume_rig.taker = opener;
        if (row->was_never_ready)
            resume_rig.ends[1].link->is_met = false;
        resume_rig.taken = MUSTER_INTERNAL;
        resume_reopen(opener);
        test_env_turn(&resume_rig.test.env, 20);

        if (resume_rig.taken != (row->is_good ? MUSTER_OK : MUSTER_FAILED_PRECONDITION) ||
            opener->resumed_count != row->is_good ||
            resume_rig.ends[1].resumed_count != row->is_good)
            fail_msg("%s: %d", row->name, (int)resume_rig.taken);
        resume_close();
    }
}

/* Two frames have left, and the second was taken back: only a peer that has all of the first can go
 * on, at the end of the second. */
static void a_frame_before_a_recalled_one_must_have_arrived(void **state)
{
    static const struct {
        uint64_t received;
        bool is_resumed;
    } rows[] = {{0, false}, {68, false}, {69, true}, {70, true}, {133, true}, {134, false}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_frame_header answer = {.channel = MUSTER_FRAME_LINK,
                                             .type = MUSTER_LINK_FRAME_ANSWER,
                                             .flags = MUSTER_LINK_IS_KNOWN,
                                             .received = rows[i].received};
        struct resume_end *opener = &resume_rig.ends[0];

        resume_open(small, SMALL_COUNT);
        resume_join();
        resume_rig.is_waiting = true;
        resume_send_frame(opener, 0, 9);
        resume_send_frame(opener, 1, 1);
        test_env_turn(&resume_rig.test.env, 5);
        muster_peer_link_recall(opener->link, 2);
        cut_net_reset(&resume_rig.net);
        test_env_turn(&resume_rig.test.env, 5);
        answer.descriptor = opener->link->session;
        resume_rig.played = &answer;
        resume_reopen(opener);
        test_env_turn(&resume_rig.test.env, 20);

        if (opener->resumed_count != rows[i].is_resumed)
            fail_msg("%u bytes: %s", (unsigned)rows[i].received, opener->error.text);
        assert_int_equal(opener->sent_count, rows[i].is_resumed);
        resume_close();
    }
}

/* The opener hears where the acceptor goes on, but then frames are taken back and it goes on
 * further behind: only another connection can tell that. */
static void frames_that_are_taken_back_amid_a_resumption_are_told_by_another(void **state)
{
    struct resume_end *opener = &resume_rig.ends[0], *acceptor = &resume_rig.ends[1];

    (void)state;
    resume_open(small, SMALL_COUNT);
    resume_rig.net.limits[1] = MUSTER_HELLO_BYTES + 80;
    resume_rig.is_waiting = true;
    resume_join();
    for (unsigned i = 0; i < resume_rig.count; i++)
        resume_send_frame(acceptor, i, 1);
    test_env_turn(&resume_rig.test.env, 5);
    assert_int_equal(opener->arrived_count, 1);
    resume_rig.is_recalling = true;
    resume_rig.is_waiting = false;
    resume_reopen(opener);
    for (unsigned i = 0; i < 50; i++)
        test_env_turn(&resume_rig.test.env, 1);

    assert_int_equal(resume_rig.net.dial_count, 3);
    assert_int_equal(acceptor->broken_count, 2);
    assert_int_equal(acceptor->error.rc, MUSTER_UNAVAILABLE);
    assert_int_equal(acceptor->resumed_count, 1);
    assert_int_equal(opener->link->received, acceptor->link->submitted);
    acceptor->sent_count = 1;
    for (unsigned i = 1; i < resume_rig.count; i++)
        resume_send_frame(acceptor, i, 2);
    for (unsigned i = 0; i < 50; i++)
        test_env_turn(&resume_rig.test.env, 1);
    assert_int_equal(opener->arrived_count, resume_rig.count);
    resume_close();
}

static void who_has_more_than_was_sent_is_not_believed(void **state)
{
    struct resume_end *opener = &resume_rig.ends[0];

    (void)state;
    resume_open(small, SMALL_COUNT);
    resume_join();
    resume_send_all();
    resume_run_through();
    resume_rig.ends[1].link->received++;
    resume_rig.is_closing = true;
    resume_send_frame(&resume_rig.ends[1], 0, 1);
    test_env_turn(&resume_rig.test.env, 5);

    assert_true(opener->is_down);
    assert_int_equal(opener->error.rc, MUSTER_INVALID_ARGUMENT);
    assert_non_null(strstr(opener->error.text, "more than was sent"));
    assert_int_equal(opener->arrived_count, resume_rig.count);
    resume_close();
}

static void a_frame_of_the_link_has_no_payload(void **state)
{
    static const struct muster_frame_header header = {
        .channel = MUSTER_FRAME_LINK, .type = MUSTER_LINK_FRAME_RECEIVED, .payload_bytes = 1};
    struct resume_end *opener = &resume_rig.ends[0];

    (void)state;
    resume_open(small, SMALL_COUNT);
    resume_join();
    resume_play_frame(resume_rig.ends[1].link, &header);
    test_env_turn(&resume_rig.test.env, 5);

    assert_true(opener->is_down);
    assert_int_equal(opener->error.rc, MUSTER_INVALID_ARGUMENT);
    assert_non_null(strstr(opener->error.text, "have no payload, got 1 bytes"));
    resume_close();
}

static void only_an_opener_whose_connection_broke_connects_again(void **state)
{
    struct muster_peer_link *opener;

    (void)state;
    resume_open(small, SMALL_COUNT);
    resume_join();
    opener = resume_rig.ends[0].link;

    assert_int_equal(muster_peer_link_reopen(opener, &resume_anywhere, resume_soon()),
                     MUSTER_FAILED_PRECONDITION);
    resume_rig.is_waiting = true;
    cut_net_reset(&resume_rig.net);
    test_env_turn(&resume_rig.test.env, 5);
    assert_int_equal(
        muster_peer_link_reopen(resume_rig.ends[1].link, &resume_anywhere, resume_soon()),
        MUSTER_FAILED_PRECONDITION);
    assert_int_equal(muster_peer_link_reopen(opener, &resume_anywhere, resume_soon()), MUSTER_OK);
    assert_int_equal(muster_peer_link_reopen(opener, &resume_anywhere, resume_soon()),
                     MUSTER_FAILED_PRECONDITION);
    assert_int_equal(resume_rig.net.dial_count, 1);
    resume_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_to_something_else_resumes_nothing),
        cmocka_unit_test(a_hello_that_claims_what_is_not_so_takes_nothing_over),
        cmocka_unit_test(a_frame_before_a_recalled_one_must_have_arrived),
        cmocka_unit_test(frames_that_are_taken_back_amid_a_resumption_are_told_by_another),
        cmocka_unit_test(who_has_more_than_was_sent_is_not_believed),
        cmocka_unit_test(a_frame_of_the_link_has_no_payload),
        cmocka_unit_test(only_an_opener_whose_connection_broke_connects_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
