/* A peer link lets in those whose hello agrees; strangers and the silent are refused. */
#include "link_pair.h"

#include <string.h>

#include <muster/log.h>
#include <muster/tls.h>

#include "net/stream/socket_internal.h"

static void both_sides_learn_who_the_other_is(void **state)
{
    struct link_pair pair;

    (void)state;
    link_pair_open(&pair);

    for (size_t i = 0; i < 2; i++) {
        const struct muster_peer_hello *hello = muster_peer_link_hello(pair.ends[i].link);

        assert_true(muster_peer_link_is_ready(pair.ends[i].link));
        assert_true(
            muster_incarnation_is_equal(&hello->incarnation, &pair.hellos[1 - i].incarnation));
        assert_string_equal(hello->job, "job");
        assert_int_equal(hello->version, MUSTER_PEER_VERSION);
        assert_int_equal(muster_peer_link_is_opener(pair.ends[i].link), i == 0);
    }
    assert_int_equal(muster_peer_link_hello(pair.ends[1].link)->stripe, 3);
    assert_int_equal(muster_peer_link_hello(pair.ends[1].link)->purpose, MUSTER_LINK_DATA);
    link_pair_close(&pair);
}

static bool is_prompt(const struct link_end *end)
{
    return muster_stream_socket_of(end->link->stream)->is_prompt;
}

static void answers_to_clients_of_parameters_alone_are_prompt(void **state)
{
    (void)state;
    for (enum muster_link_purpose purpose = MUSTER_LINK_CONTROL; purpose <= MUSTER_LINK_PUBLICATION;
         purpose++) {
        struct link_pair pair;

        link_pair_init(&pair);
        pair.hellos[0].purpose = purpose;
        link_pair_connect(&pair);
        test_env_run_until(&pair.test.env, link_pair_is_settled, &pair);

        assert_false(is_prompt(&pair.ends[0]));
        assert_int_equal(is_prompt(&pair.ends[1]), purpose == MUSTER_LINK_PARAMS);
        link_pair_close(&pair);
    }
}

static void another_job_is_refused_on_both_sides_and_both_are_named(void **state)
{
    struct link_pair pair;

    (void)state;
    link_pair_init(&pair);
    snprintf(pair.hellos[1].job, sizeof(pair.hellos[1].job), "other");
    link_pair_connect(&pair);
    test_env_run_until(&pair.test.env, link_pair_is_settled, &pair);

    for (size_t i = 0; i < 2; i++) {
        assert_false(pair.ends[i].is_ready);
        assert_int_equal(pair.ends[i].error.rc, MUSTER_FAILED_PRECONDITION);
        assert_non_null(strstr(pair.ends[i].error.text, "\"job\""));
        assert_non_null(strstr(pair.ends[i].error.text, "\"other\""));
    }
    link_pair_close(&pair);
}

static void a_process_refuses_itself(void **state)
{
    struct link_pair pair;

    (void)state;
    link_pair_init(&pair);
    pair.hellos[1].incarnation = pair.hellos[0].incarnation;
    link_pair_connect(&pair);
    test_env_run_until(&pair.test.env, link_pair_is_settled, &pair);

    assert_int_equal(pair.ends[0].error.rc, MUSTER_FAILED_PRECONDITION);
    link_pair_close(&pair);
}

static void nobody_listening_is_unavailable(void **state)
{
    struct link_pair pair;
    struct muster_address address;

    (void)state;
    link_pair_init(&pair);
    address = *muster_listener_address(pair.listener);
    muster_listener_close(pair.listener, NULL);
    test_env_turn(&pair.test.env, 2);
    assert_int_equal(muster_peer_link_open(&pair.test.env, &address, &pair.hellos[0],
                                           link_pair_soon(&pair), &link_pair_events, &pair.ends[0],
                                           &pair.ends[0].link),
                     MUSTER_OK);
    test_env_run_until(&pair.test.env, test_env_is_true, &pair.ends[0].is_down);

    assert_int_equal(pair.ends[0].error.rc, MUSTER_UNAVAILABLE);
    assert_int_equal(muster_peer_link_send_copy(
                         pair.ends[0].link,
                         &(struct muster_frame_header){.channel = MUSTER_FRAME_MEMBERSHIP}, NULL),
                     MUSTER_FAILED_PRECONDITION);
    muster_peer_link_close(pair.ends[0].link);
    test_env_turn(&pair.test.env, 3);
    muster_net_system_close(pair.test.env.net);
    test_env_close(&pair.test);
}

/* --- Cases: strangers --- */

/* A stranger connects and says these bytes. */
static void pair_say(struct link_pair *pair, const void *bytes, size_t count)
{
    link_pair_init(pair);
    link_pair_dial(pair);
    link_pair_say(pair, bytes, count);
    test_env_run_until(&pair->test.env, link_pair_is_settled, pair);
    test_env_turn(&pair->test.env, 10);
}

/* A good hello of another process, and a frame header behind it. */
static void make_greeting(uint8_t bytes[MUSTER_HELLO_BYTES + MUSTER_FRAME_HEADER_BYTES],
                          const struct muster_frame_header *header)
{
    struct muster_peer_hello hello = {.version = MUSTER_PEER_VERSION,
                                      .purpose = MUSTER_LINK_DATA,
                                      .incarnation = {.bytes = {42}},
                                      .job = "job"};

    muster_peer_hello_pack(&hello, bytes);
    muster_frame_header_pack(header, bytes + MUSTER_HELLO_BYTES);
}

struct stranger {
    const char *name;
    size_t at; /* the bytes that are changed, from here … */
    uint8_t value;
    size_t until; /* … to before there; 0: one */
    size_t count; /* how much is said */
    enum muster_rc rc;
    const char *text;
};

static void strangers_are_refused_with_a_reason(void **state)
{
    static const struct stranger strangers[] = {
        {"no magic", 0, 'X', 0, 136, MUSTER_INVALID_ARGUMENT, "must speak muster's"},
        {"another end of the magic", 3, 'X', 0, 136, MUSTER_INVALID_ARGUMENT,
         "must speak muster's"},
        {"newer version", 4, 9, 0, 136, MUSTER_FAILED_PRECONDITION, " here, 9 there"},
        {"newer version, shorter hello", 4, 9, 0, 8, MUSTER_FAILED_PRECONDITION, " here, 9 there"},
        {"no purpose", 8, 0, 0, 136, MUSTER_INVALID_ARGUMENT, "does not say what the link is for"},
        {"the first unknown purpose", 8, 8, 0, 136, MUSTER_INVALID_ARGUMENT, "purpose 8"},
        {"unknown purpose", 8, 77, 0, 136, MUSTER_INVALID_ARGUMENT, "purpose 77"},
        {"no incarnation", 16, 0, 0, 136, MUSTER_INVALID_ARGUMENT, "no incarnation"},
        {"control character in the job", 33, '\n', 0, 136, MUSTER_INVALID_ARGUMENT,
         "malformed job"},
        {"the last control character", 33, 0x1f, 0, 136, MUSTER_INVALID_ARGUMENT, "malformed job"},
        {"DEL in the job", 34, 0x7f, 0, 136, MUSTER_INVALID_ARGUMENT, "malformed job"},
        {"a job without end", 32, 'j', 96, 136, MUSTER_INVALID_ARGUMENT, "malformed job"},
        {"another job", 34, 'x', 0, 136, MUSTER_FAILED_PRECONDITION, "\"job\" here, \"jox\" at"},
        {"a longer job", 35, ' ', 0, 136, MUSTER_FAILED_PRECONDITION, "\"job \" at"},
        {"unknown intent", 112, 3, 0, 136, MUSTER_INVALID_ARGUMENT, "intent 3"},
        {"meant for another", 120, 9, 0, 136, MUSTER_FAILED_PRECONDITION, "another process"},
        {"ourselves", 16, 2, 0, 136, MUSTER_FAILED_PRECONDITION, "has met itself"},
        {"no channel", 136, 0, 0, 200, MUSTER_INVALID_ARGUMENT, "channel 0"},
        {"the first unknown channel", 136, 8, 0, 200, MUSTER_INVALID_ARGUMENT, "channel 8"},
        {"unknown channel", 136, 9, 0, 200, MUSTER_INVALID_ARGUMENT, "channel 9"},
        {"a frame of a link without session", 136, 4, 0, 200, MUSTER_INVALID_ARGUMENT,
         "must belong to a session"},
        {"a payload above the limit", 140, 1, 144, 200, MUSTER_INVALID_ARGUMENT,
         "must be at most 16777216 bytes, got 16843009"},
        {"huge payload", 143, 0x7f, 0, 200, MUSTER_INVALID_ARGUMENT, "must be at most"},
    };
    const struct muster_frame_header header = {.channel = MUSTER_FRAME_COLLECTIVE};

    (void)state;
    for (size_t i = 0; i < sizeof(strangers) / sizeof(strangers[0]); i++) {
        uint8_t bytes[MUSTER_HELLO_BYTES + MUSTER_FRAME_HEADER_BYTES];
        struct link_pair pair;
        size_t more = 0;

        make_greeting(bytes, &header);
        do
            bytes[strangers[i].at + more] = strangers[i].value;
        while (strangers[i].at + ++more < strangers[i].until);
        pair_say(&pair, bytes, strangers[i].count);
        if (!pair.ends[1].is_down || pair.ends[1].error.rc != strangers[i].rc ||
            strstr(pair.ends[1].error.text, strangers[i].text) == NULL)
            fail_msg("%s: %d %s", strangers[i].name, (int)pair.ends[1].error.rc,
                     pair.ends[1].error.text);
        link_pair_close(&pair);
    }
}

/* A payload of the largest size is none too large: it is awaited. */
static void the_largest_payload_is_awaited(void **state)
{
    const struct muster_frame_header header = {.channel = MUSTER_FRAME_COLLECTIVE,
                                               .payload_bytes = MUSTER_FRAME_PAYLOAD_MAX};
    uint8_t bytes[MUSTER_HELLO_BYTES + MUSTER_FRAME_HEADER_BYTES];
    struct link_pair pair;

    (void)state;
    make_greeting(bytes, &header);
    pair_say(&pair, bytes, sizeof(bytes));

    assert_false(pair.ends[1].is_down);
    assert_int_equal(pair.ends[1].asked_count, 1);
    link_pair_close(&pair);
}

/* Somebody else has the address of whom the opener means: both learn it. */
static void who_is_not_meant_is_refused_on_both_sides(void **state)
{
    struct link_pair pair;

    (void)state;
    link_pair_init(&pair);
    pair.hellos[0].target.bytes[0] = 99;
    link_pair_connect(&pair);
    test_env_run_until(&pair.test.env, link_pair_is_settled, &pair);

    for (size_t i = 0; i < 2; i++) {
        assert_false(pair.ends[i].is_ready);
        assert_int_equal(pair.ends[i].error.rc, MUSTER_FAILED_PRECONDITION);
        assert_string_equal(pair.ends[i].error.text, "another process answers at its address");
    }
    link_pair_close(&pair);
}

static unsigned refusal_count;

static void count_refusals(struct muster_log *log, enum muster_log_level level, uint64_t wall_ns,
                           const char *event, const struct muster_field *fields, size_t count)
{
    (void)log;
    (void)level;
    (void)wall_ns;
    (void)fields;
    (void)count;
    refusal_count += strcmp(event, "tls_peer_refused") == 0;
}

/* Where the environment has a credential, and even if no port stood before: no link in plain text. */
static void plain_text_is_refused_where_there_is_a_credential(void **state)
{
    static const struct muster_log_ops log_ops = {.write = count_refusals};
    static const enum muster_link_purpose purposes[] = {MUSTER_LINK_CONTROL, MUSTER_LINK_DATA,
                                                        MUSTER_LINK_STATE};

    (void)state;
    for (size_t i = 0; i < sizeof(purposes) / sizeof(purposes[0]); i++) {
        struct muster_log log = {.ops = &log_ops, .level_max = MUSTER_LOG_WARN};
        const struct muster_frame_header header = {.channel = MUSTER_FRAME_COLLECTIVE};
        uint8_t bytes[MUSTER_HELLO_BYTES + MUSTER_FRAME_HEADER_BYTES];
        struct link_pair pair;

        refusal_count = 0;
        link_pair_init(&pair);
        pair.test.env.log = &log;
        assert_int_equal(muster_tls_open(&pair.test.env, NULL, &pair.test.env.tls, NULL),
                         MUSTER_OK);
        link_pair_dial(&pair);
        make_greeting(bytes, &header);
        bytes[8] = (uint8_t)purposes[i];
        link_pair_say(&pair, bytes, sizeof(bytes));
        test_env_run_until(&pair.test.env, link_pair_is_settled, &pair);

        assert_false(pair.ends[1].is_ready);
        assert_int_equal(pair.ends[1].error.rc, MUSTER_UNAUTHENTICATED);
        assert_string_equal(pair.ends[1].error.text, "plain text where TLS is demanded");
        assert_int_equal(refusal_count, 1); /* the operator is told */
        muster_tls_close(pair.test.env.tls);
        link_pair_close(&pair);
    }
}

static void on_raw_read(struct muster_stream_read *read, enum muster_rc rc)
{
    assert_int_equal(rc, MUSTER_OK);
    *(bool *)read->data = true;
}

/* A process of another version gets our hello, so that it can name both sides too. */
static void the_refused_side_still_hears_our_hello(void **state)
{
    uint8_t bytes[MUSTER_HELLO_BYTES + MUSTER_FRAME_HEADER_BYTES], answer[MUSTER_HELLO_BYTES];
    const struct muster_frame_header header = {.channel = MUSTER_FRAME_COLLECTIVE};
    const uint8_t expected[8] = {'M', 'S', 'T', 'R', MUSTER_PEER_VERSION};
    bool is_read = false;
    struct muster_stream_read read = {.data = &is_read};
    struct link_pair pair;

    (void)state;
    make_greeting(bytes, &header);
    bytes[4] = 1;
    pair_say(&pair, bytes, MUSTER_HELLO_BYTES);
    assert_int_equal(muster_stream_receive_into(&read, pair.raw, answer, sizeof(answer),
                                                sizeof(answer), on_raw_read),
                     MUSTER_OK);
    test_env_run_until(&pair.test.env, test_env_is_true, &is_read);

    assert_memory_equal(answer, expected, sizeof(expected));
    link_pair_close(&pair);
}

static void silence_ends_at_the_deadline(void **state)
{
    struct link_pair pair;

    (void)state;
    link_pair_init(&pair);
    link_pair_dial(&pair);
    for (unsigned i = 0; i < 100 && pair.ends[1].link == NULL; i++)
        test_env_turn(&pair.test.env, 1);
    /* The deadline is moved, not waited for. */
    muster_timer_start(&pair.ends[1].link->timer, pair.test.env.loop, 0);
    test_env_run_until(&pair.test.env, test_env_is_true, &pair.ends[1].is_down);

    assert_int_equal(pair.ends[1].error.rc, MUSTER_DEADLINE_EXCEEDED);
    link_pair_close(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_sides_learn_who_the_other_is),
        cmocka_unit_test(answers_to_clients_of_parameters_alone_are_prompt),
        cmocka_unit_test(another_job_is_refused_on_both_sides_and_both_are_named),
        cmocka_unit_test(a_process_refuses_itself),
        cmocka_unit_test(nobody_listening_is_unavailable),
        cmocka_unit_test(strangers_are_refused_with_a_reason),
        cmocka_unit_test(the_largest_payload_is_awaited),
        cmocka_unit_test(who_is_not_meant_is_refused_on_both_sides),
        cmocka_unit_test(plain_text_is_refused_where_there_is_a_credential),
        cmocka_unit_test(the_refused_side_still_hears_our_hello),
        cmocka_unit_test(silence_ends_at_the_deadline),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
