/* A link that broke: who connects again, who asks, how often, how long, and what people are told. */
#include "net/link/heal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cut_net.h"
#include "net/link/peer_link_internal.h"
#include "test_env.h"
#include "virtual_loop.h"

#define SPAN_NS  (2 * MUSTER_NS_PER_S)
#define HELD_MAX 64
#define BREAKS   16
#define LATE     "the peer did not say hello in time"

/* A process: its link to the other one, and the healer of it. */
struct side {
    struct muster_peer_hello hello; /* of the process: says nothing of a link */
    struct muster_peer_link *link;
    struct muster_link_heal heal;
    struct muster_link_heal_goal goal;
    unsigned broken_count, resumed_count, given_up_count;
    uint64_t given_up_ns, broken_ns[BREAKS];
    struct muster_error error;
    bool is_passive; /* leaves a broken link alone */
};

static struct scene {
    struct test_env test;
    struct muster_loop *real_loop;
    struct virtual_loop loop;
    struct cut_net net;
    struct muster_log log;
    struct side sides[2]; /* opener, acceptor */
    unsigned called;      /* the side that is reached by who dials */
    bool is_silent;       /* … and does not answer */
    bool is_forgotten;    /* … and knows no session */
    bool is_cutting;      /* connections break in their first bytes */
    struct muster_stream *held[HELD_MAX];
    unsigned held_count;
    uint64_t dialled_ns[HELD_MAX];  /* of silent ones */
    struct muster_peer_hello asked; /* of the last that says RESUME or PROBE */
    enum muster_rc accept_rc;
    struct muster_error accept_error;
    char logged[512]; /* "link_resumed link=… peer=… reason=…", several */
} scene;

static const struct muster_address anywhere = {.family = MUSTER_ADDRESS_IPV4, .port = 1};

static uint64_t time_after(uint64_t span_ns)
{
    return muster_loop_after_ns(scene.test.env.loop, span_ns);
}

static void write_log(struct muster_log *log, enum muster_log_level level, uint64_t wall_ns,
                      const char *event, const struct muster_field *fields, size_t count)
{
    size_t length = strlen(scene.logged);

    (void)log;
    (void)wall_ns;
    assert_int_equal(level, MUSTER_LOG_WARN);
    length += (size_t)snprintf(scene.logged + length, sizeof(scene.logged) - length, "%s", event);
    for (size_t i = 0; i < count; i++)
        length += (size_t)snprintf(scene.logged + length, sizeof(scene.logged) - length, " %s=%s",
                                   fields[i].name, fields[i].text);
}

/* --- The two processes --- */

static void on_given_up(struct muster_link_heal *heal, struct muster_peer_link *link,
                        const struct muster_error *why)
{
    struct side *side = heal->data;

    assert_ptr_equal(link, side->link);
    assert_false(muster_link_heal_is_busy(heal));
    side->given_up_count++;
    side->given_up_ns = scene.loop.now_ns;
    side->error = *why;
    side->link = NULL;
    muster_peer_link_close(link);
}

static void on_ready(struct muster_peer_link *link)
{
    (void)link;
}

static void *on_frame(struct muster_peer_link *link, const struct muster_frame_header *header)
{
    (void)link;
    (void)header;
    return NULL;
}

static void on_payload(struct muster_peer_link *link, const struct muster_frame_header *header,
                       void *buffer)
{
    (void)link;
    (void)header;
    (void)buffer;
}

static void on_down(struct muster_peer_link *link, const struct muster_error *error)
{
    (void)link;
    fail_msg("down: %s", error->text);
}

static void on_broken(struct muster_peer_link *link, const struct muster_error *error)
{
    struct side *side = muster_peer_link_data(link);

    if (side->broken_count < BREAKS)
        side->broken_ns[side->broken_count] = scene.loop.now_ns;
    side->broken_count++;
    side->error = *error;
    if (!side->is_passive)
        muster_link_heal_broken(&side->heal, link, &side->goal, error);
}

static void on_resumed(struct muster_peer_link *link)
{
    struct side *side = muster_peer_link_data(link);

    side->resumed_count++;
    muster_link_heal_resumed(&side->heal, link, side == &scene.sides[0] ? "b" : "a");
}

static const struct muster_peer_link_events events = {.on_ready = on_ready,
                                                      .on_frame = on_frame,
                                                      .on_payload = on_payload,
                                                      .on_down = on_down,
                                                      .on_broken = on_broken,
                                                      .on_resumed = on_resumed};

static void on_strange_ready(struct muster_peer_link *link)
{
    const struct muster_peer_hello *hello = muster_peer_link_hello(link);
    struct side *side = muster_peer_link_data(link);

    if (hello->intent == MUSTER_LINK_NEW) {
        side->link = link;
        muster_peer_link_set_owner(link, &events, side);
        return;
    }
    scene.asked = *hello;
    if (hello->intent == MUSTER_LINK_PROBE)
        muster_link_heal_answer_probe(scene.is_forgotten ? NULL : side->link, link);
    else if (scene.is_forgotten)
        muster_peer_link_answer(link, MUSTER_LINK_IS_UNKNOWN);
    else
        scene.accept_rc =
            muster_link_heal_accept(&side->heal, side->link, link, &scene.accept_error);
}

static void on_strange_down(struct muster_peer_link *link, const struct muster_error *error)
{
    (void)error;
    muster_peer_link_close(link);
}

static const struct muster_peer_link_events strange_events = {.on_ready = on_strange_ready,
                                                              .on_frame = on_frame,
                                                              .on_payload = on_payload,
                                                              .on_down = on_strange_down};

static void on_accept(struct muster_listener *listener, struct muster_stream *stream)
{
    struct side *side = &scene.sides[scene.called];
    struct muster_peer_link *link = NULL;

    (void)listener;
    if (scene.is_cutting)
        scene.net.limits[0] = scene.net.limits[1] = 1;
    if (scene.is_silent) {
        assert_true(scene.held_count < HELD_MAX);
        scene.dialled_ns[scene.held_count] = scene.loop.now_ns;
        scene.held[scene.held_count++] = stream;
        return;
    }
    assert_int_equal(muster_peer_link_accept(&scene.test.env, stream, &side->hello,
                                             time_after(MUSTER_NS_PER_S), &strange_events, side,
                                             &link),
                     MUSTER_OK);
}

static void side_init(struct side *side, uint8_t name)
{
    snprintf(side->hello.job, sizeof(side->hello.job), "job");
    side->hello.incarnation.bytes[0] = name;
    side->goal.address = &anywhere;
    side->goal.span_ns = SPAN_NS;
    side->goal.target.bytes[0] = (uint8_t)(3 - name);
    memset(&side->heal, 0xaa, sizeof(side->heal)); /* it expects nothing of its memory */
    muster_link_heal_init(&side->heal, &scene.test.env, &side->hello, on_given_up, side);
}

/* The two are joined by a link of that purpose. */
static void scene_open(enum muster_link_purpose purpose)
{
    static const struct muster_log_ops log_ops = {.write = write_log};
    struct muster_peer_hello hello;

    memset(&scene, 0, sizeof(scene));
    test_env_open(&scene.test);
    virtual_loop_init(&scene.loop);
    scene.real_loop = scene.test.env.loop;
    scene.test.env.loop = &scene.loop.loop;
    cut_net_init(&scene.net, &scene.test.env, on_accept, NULL);
    scene.test.env.net = &scene.net.net;
    for (uint8_t i = 0; i < 2; i++)
        side_init(&scene.sides[i], (uint8_t)(i + 1));
    scene.called = 1;
    hello = scene.sides[0].hello;
    hello.purpose = purpose;
    hello.stripe = 2;
    hello.stripe_count = 3;
    assert_int_equal(muster_peer_link_open(&scene.test.env, &anywhere, &hello,
                                           time_after(MUSTER_NS_PER_S), &events, &scene.sides[0],
                                           &scene.sides[0].link),
                     MUSTER_OK);
    virtual_loop_advance(&scene.loop, 0);
    assert_non_null(scene.sides[1].link);
    scene.log = (struct muster_log){.ops = &log_ops, .level_max = MUSTER_LOG_WARN};
    scene.test.env.log = &scene.log;
}

static void scene_close(void)
{
    for (unsigned i = 0; i < 2; i++) {
        muster_link_heal_stop(&scene.sides[i].heal);
        muster_peer_link_close(scene.sides[i].link);
    }
    for (unsigned i = 0; i < scene.held_count; i++)
        muster_stream_close(scene.held[i], NULL);
    virtual_loop_advance(&scene.loop, 0);
    cut_net_fini(&scene.net);
    scene.test.env.loop = scene.real_loop;
    test_env_close(&scene.test);
}

/* Both see the connection break; `active` heals. */
static void tear_down_rest(unsigned active)
{
    scene.sides[1 - active].is_passive = true;
    scene.called = 1 - active;
    cut_net_reset(&scene.net);
}

static uint64_t torn_ns(void)
{
    return MUSTER_NS_PER_S; /* time has not moved before */
}

/* --- Cases: the opener --- */

static void its_opener_connects_again_and_people_are_told_why(void **state)
{
    static const struct {
        enum muster_link_purpose purpose;
        const char *logged[2];
    } rows[] = {
        {MUSTER_LINK_CONTROL,
         {"link_resumed link=control peer=a reason=the connection was lost",
          "link_resumed link=control peer=b reason=the connection was lost"}},
        {MUSTER_LINK_DATA,
         {"link_resumed link=data peer=a reason=the connection was lost",
          "link_resumed link=data peer=b reason=the connection was lost"}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        scene_open(rows[i].purpose);
        scene.sides[1].goal.address = NULL; /* it waits */
        cut_net_reset(&scene.net);
        virtual_loop_advance(&scene.loop, 0);

        assert_int_equal(scene.asked.intent, MUSTER_LINK_RESUME);
        for (unsigned k = 0; k < 2; k++) {
            assert_int_equal(scene.sides[k].resumed_count, 1);
            assert_false(muster_link_heal_is_busy(&scene.sides[k].heal));
            assert_true(muster_peer_link_is_ready(scene.sides[k].link));
            if (strstr(scene.logged, rows[i].logged[k]) == NULL)
                fail_msg("logged: %s", scene.logged);
        }
        virtual_loop_advance(&scene.loop, 2 * SPAN_NS);
        assert_int_equal(scene.sides[0].given_up_count + scene.sides[1].given_up_count, 0);
        scene_close();
    }
}

/* An opener that hears nothing gives the attempt up and dials again: the kernel repeats what opens a
 * connection too late. Attempts grow; the last one ends with the time that the link may be broken. */
static void attempts_without_an_answer_grow_and_end_in_time(void **state)
{
    static const uint64_t lasting_ms[] = {150, 225, 337};
    static const struct {
        const char *name;
        uint64_t span_ns, lasts_ns;
        unsigned dial_count;
        const char *text;
    } rows[] = {
        {"shorter than an attempt", 100 * MUSTER_NS_PER_MS, 100 * MUSTER_NS_PER_MS, 1, LATE},
        {"the end in a pause", SPAN_NS, SPAN_NS, 5, "no connection in time"},
        {"the default", 0, 3 * MUSTER_NS_PER_S, 6, LATE},
        {"attempts of a second at most", 10 * MUSTER_NS_PER_S, 10 * MUSTER_NS_PER_S, 13, LATE},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct side *side = NULL;

        scene_open(MUSTER_LINK_DATA);
        side = &scene.sides[0];
        side->goal.span_ns = rows[i].span_ns;
        scene.is_silent = true;
        tear_down_rest(0);
        virtual_loop_advance(&scene.loop, 60 * MUSTER_NS_PER_S);

        if (side->given_up_count != 1 || side->given_up_ns != torn_ns() + rows[i].lasts_ns ||
            scene.held_count != rows[i].dial_count)
            fail_msg("%s: given up %u times, after %llu ms, %u attempts", rows[i].name,
                     side->given_up_count,
                     (unsigned long long)((side->given_up_ns - torn_ns()) / MUSTER_NS_PER_MS),
                     scene.held_count);
        assert_int_equal(side->error.rc, MUSTER_DEADLINE_EXCEEDED);
        assert_ptr_equal(strstr(side->error.text, "the connection was lost; it could not be "
                                                  "resumed: "),
                         side->error.text);
        assert_non_null(strstr(side->error.text, rows[i].text));
        for (unsigned k = 0; k < 3 && k + 2 < scene.held_count; k++) {
            uint64_t took_ms = (scene.dialled_ns[k + 1] - scene.dialled_ns[k]) / MUSTER_NS_PER_MS;

            /* and a pause behind it */
            if (took_ms < lasting_ms[k] || took_ms > lasting_ms[k] + (UINT64_C(1) << k))
                fail_msg("%s: attempt %u took %llu ms", rows[i].name, k,
                         (unsigned long long)took_ms);
        }
        scene_close();
    }
}

/* The network fails each attempt at once: pauses double up to 100 ms. */
static void pauses_between_attempts_grow(void **state)
{
    struct side *side = &scene.sides[0];

    (void)state;
    scene_open(MUSTER_LINK_DATA);
    scene.is_cutting = true;
    scene.net.limits[0] = scene.net.limits[1] = 1;
    tear_down_rest(0);
    virtual_loop_advance(&scene.loop, SPAN_NS - 1);

    assert_true(side->broken_count >= 12);
    for (unsigned i = 2; i < 12; i++) {
        uint64_t expected_ms = UINT64_C(1) << (i - 2);

        expected_ms = expected_ms < 100 ? expected_ms : 100;
        assert_int_equal(side->broken_ns[i] - side->broken_ns[i - 1],
                         expected_ms * MUSTER_NS_PER_MS);
    }
    assert_int_equal(side->given_up_count, 0);
    scene_close();
}

static void on_said(struct muster_stream_write *write, enum muster_rc rc)
{
    (void)write;
    (void)rc;
}

static void a_loss_that_is_final_is_given_up_at_once(void **state)
{
    static char words[] = "HTTP/1.1 400 Bad Request";
    static const struct {
        const char *name;
        enum muster_link_purpose purpose;
        unsigned active;
        bool is_refusing, is_forgotten, is_foreign;
        enum muster_rc rc;
        const char *text;
    } rows[] = {
        {"nobody listens", MUSTER_LINK_DATA, 0, true, false, false, MUSTER_UNAVAILABLE, ""},
        {"the opener is not known any more", MUSTER_LINK_CONTROL, 0, false, true, false,
         MUSTER_FAILED_PRECONDITION, "does not know the connection"},
        {"the other side is not known any more", MUSTER_LINK_CONTROL, 1, false, true, false,
         MUSTER_FAILED_PRECONDITION, "does not know the connection"},
        {"another program has its address", MUSTER_LINK_DATA, 1, false, false, true,
         MUSTER_INVALID_ARGUMENT, "must speak muster's protocol"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct side *side = &scene.sides[rows[i].active];
        struct iovec iov = {.iov_base = words, .iov_len = sizeof(words)};
        struct muster_stream_write write = {.data = NULL};

        scene_open(rows[i].purpose);
        scene.net.is_refusing = rows[i].is_refusing;
        scene.is_forgotten = rows[i].is_forgotten;
        scene.is_silent = rows[i].is_foreign;
        tear_down_rest(rows[i].active);
        virtual_loop_advance(&scene.loop, 0);
        if (rows[i].is_foreign)
            assert_int_equal(muster_stream_submit(&write, scene.held[0], &iov, 1, on_said),
                             MUSTER_OK);
        virtual_loop_advance(&scene.loop, 0);

        if (side->given_up_count != 1 || side->error.rc != rows[i].rc ||
            strstr(side->error.text, rows[i].text) == NULL)
            fail_msg("%s: given up %u times, %s", rows[i].name, side->given_up_count,
                     side->error.text);
        scene_close();
    }
}

static void whose_address_is_not_known_is_waited_for(void **state)
{
    (void)state;
    for (unsigned active = 0; active < 2; active++) {
        struct side *side = &scene.sides[active];

        scene_open(MUSTER_LINK_DATA);
        side->goal.address = NULL;
        tear_down_rest(active);
        virtual_loop_advance(&scene.loop, SPAN_NS - 1);
        assert_int_equal(side->given_up_count, 0);
        assert_true(muster_link_heal_is_of(&side->heal, side->link));
        virtual_loop_advance(&scene.loop, 1);

        assert_int_equal(side->given_up_count, 1);
        assert_int_equal(side->error.rc, MUSTER_DEADLINE_EXCEEDED);
        assert_int_equal(scene.net.dial_count, 1);
        scene_close();
    }
}

static void a_healer_that_is_stopped_leaves_the_link_alone(void **state)
{
    struct side *side = &scene.sides[0];

    (void)state;
    for (unsigned active = 0; active < 2; active++) {
        side = &scene.sides[active];
        scene_open(MUSTER_LINK_DATA);
        scene.is_silent = true;
        tear_down_rest(active);
        virtual_loop_advance(&scene.loop, 0);
        assert_true(muster_link_heal_is_busy(&side->heal));
        assert_false(muster_link_heal_is_of(&side->heal, NULL));
        muster_link_heal_stop(&side->heal);
        assert_false(muster_link_heal_is_busy(&side->heal));
        assert_false(muster_link_heal_is_of(&side->heal, side->link));
        side->is_passive = true;
        virtual_loop_advance(&scene.loop, 2 * SPAN_NS);

        assert_int_equal(side->given_up_count, 0);
        assert_int_equal(scene.net.dial_count, 2);
        scene_close();
    }
}

/* --- Cases: the other side asks --- */

static void who_does_not_connect_asks_for_its_own_link(void **state)
{
    const struct muster_peer_hello *asked = &scene.asked;

    (void)state;
    scene_open(MUSTER_LINK_CONTROL);
    scene.sides[1].link->connection = 4; /* it has come back before */
    tear_down_rest(1);
    virtual_loop_advance(&scene.loop, 0);

    assert_int_equal(asked->intent, MUSTER_LINK_PROBE);
    assert_int_equal(asked->purpose, MUSTER_LINK_CONTROL);
    assert_int_equal(asked->stripe, 2);
    assert_int_equal(asked->stripe_count, 3);
    assert_int_equal(asked->session, muster_peer_link_session(scene.sides[0].link));
    assert_int_equal(asked->connection, 4);
    assert_true(muster_incarnation_is_equal(&asked->target, &scene.sides[0].hello.incarnation));
    scene_close();
}

/* The opener may come until the time is over, whatever the side that asks hears. */
static void the_side_that_asks_tries_to_the_end(void **state)
{
    static const struct {
        const char *name;
        bool is_silent, lacks_key;
        unsigned dial_count, held_count;
    } rows[] = {
        {"it is known there", false, false, 2, 0},
        {"no answer comes", true, false, 6, 5},
        {"it cannot even ask, as its key is gone", false, true, 1, 0},
    };
    struct side *side = &scene.sides[1];

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        scene_open(MUSTER_LINK_DATA);
        scene.is_silent = rows[i].is_silent;
        if (rows[i].lacks_key)
            side->hello.keys = muster_link_keys_new(scene.test.env.mem);
        tear_down_rest(1);
        virtual_loop_advance(&scene.loop, SPAN_NS - 1);
        assert_int_equal(side->given_up_count, 0);
        virtual_loop_advance(&scene.loop, 60 * MUSTER_NS_PER_S);

        if (side->given_up_count != 1 || side->given_up_ns != torn_ns() + SPAN_NS ||
            strstr(side->error.text, "no connection in time") == NULL ||
            scene.net.dial_count != rows[i].dial_count || scene.held_count != rows[i].held_count)
            fail_msg("%s: given up %u times, %u dials, %u without an answer, %s", rows[i].name,
                     side->given_up_count, scene.net.dial_count, scene.held_count,
                     side->error.text);
        muster_link_keys_free(side->hello.keys);
        scene_close();
    }
}

/* The opener has seen nothing: the question tells it, and it connects again. */
static void a_question_tells_who_has_not_noticed(void **state)
{
    struct side *opener = &scene.sides[0], *asker = &scene.sides[1];
    struct muster_error why;

    (void)state;
    scene_open(MUSTER_LINK_DATA);
    scene.called = 0;
    opener->is_passive = true;
    muster_error_set(&why, MUSTER_UNAVAILABLE, "torn by the test");
    muster_link_heal_broken(&asker->heal, asker->link, &asker->goal, &why);
    assert_int_equal(opener->broken_count, 0);
    virtual_loop_advance(&scene.loop, 0);

    assert_int_equal(opener->broken_count, 1);
    assert_int_equal(opener->error.rc, MUSTER_UNAVAILABLE);
    assert_string_equal(opener->error.text, "the peer has lost the connection");
    scene_close();
}

static void a_question_about_a_connection_before_this_one_breaks_nothing(void **state)
{
    struct side *opener = &scene.sides[0], *asker = &scene.sides[1];
    struct muster_error why;

    (void)state;
    scene_open(MUSTER_LINK_DATA);
    scene.called = 0;
    opener->link->connection = 5; /* it has come back meanwhile */
    muster_error_set(&why, MUSTER_UNAVAILABLE, "torn by the test");
    muster_link_heal_broken(&asker->heal, asker->link, &asker->goal, &why);
    virtual_loop_advance(&scene.loop, 0);

    assert_int_equal(scene.asked.intent, MUSTER_LINK_PROBE);
    assert_int_equal(opener->broken_count, 0);
    scene_close();
}

/* --- Cases: who is resumed --- */

/* The opener alone has noticed, then the connection ends on the other side too. */
static void who_is_taken_over_tells_people_that_the_peer_lost_it(void **state)
{
    struct muster_error why;

    (void)state;
    scene_open(MUSTER_LINK_DATA);
    scene.sides[1].is_passive = true;
    muster_error_set(&why, MUSTER_UNAVAILABLE, "torn by the test");
    muster_peer_link_break(scene.sides[0].link, &why);
    virtual_loop_advance(&scene.loop, 0);

    assert_int_equal(scene.sides[1].resumed_count, 1);
    assert_int_equal(scene.accept_rc, MUSTER_OK);
    assert_non_null(strstr(scene.logged, "peer=b reason=torn by the test"));
    assert_non_null(strstr(scene.logged, "peer=a reason=the peer has lost the connection"));
    scene_close();
}

/* An attempt that its maker has given up for a later one may arrive behind that: it ends nothing. */
static void only_a_newer_connection_is_taken_over(void **state)
{
    static const struct {
        uint32_t here, then;
    } rows[] = {{0, 1}, {1, 1}, {3, 3}}; /* the attempt is number 1 */

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        bool is_taken = rows[i].here != rows[i].then;

        scene_open(MUSTER_LINK_DATA);
        scene.sides[1].link->connection = rows[i].here;
        tear_down_rest(0);
        virtual_loop_advance(&scene.loop, 0);

        assert_int_equal(scene.asked.connection, 1);
        assert_int_equal(scene.accept_rc, MUSTER_OK);
        assert_int_equal(scene.sides[1].resumed_count, is_taken);
        assert_int_equal(muster_peer_link_connection(scene.sides[1].link), rows[i].then);
        assert_int_equal(scene.sides[0].given_up_count, !is_taken);
        scene_close();
    }
}

static void who_lacks_what_was_taken_back_is_refused_for_good(void **state)
{
    (void)state;
    scene_open(MUSTER_LINK_DATA);
    scene.sides[1].link->acked = 1000; /* the opener had said that it has so much */
    tear_down_rest(0);
    virtual_loop_advance(&scene.loop, 0);

    assert_int_equal(scene.accept_rc, MUSTER_FAILED_PRECONDITION);
    assert_int_equal(scene.accept_error.rc, MUSTER_UNAVAILABLE);
    assert_string_equal(scene.accept_error.text,
                        "the peer has lost the connection, and frames that it lacks were recalled");
    assert_int_equal(scene.sides[0].given_up_count, 1);
    assert_int_equal(scene.sides[0].error.rc, MUSTER_FAILED_PRECONDITION);
    scene_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(its_opener_connects_again_and_people_are_told_why),
        cmocka_unit_test(attempts_without_an_answer_grow_and_end_in_time),
        cmocka_unit_test(pauses_between_attempts_grow),
        cmocka_unit_test(a_loss_that_is_final_is_given_up_at_once),
        cmocka_unit_test(whose_address_is_not_known_is_waited_for),
        cmocka_unit_test(a_healer_that_is_stopped_leaves_the_link_alone),
        cmocka_unit_test(who_does_not_connect_asks_for_its_own_link),
        cmocka_unit_test(the_side_that_asks_tries_to_the_end),
        cmocka_unit_test(a_question_tells_who_has_not_noticed),
        cmocka_unit_test(a_question_about_a_connection_before_this_one_breaks_nothing),
        cmocka_unit_test(who_is_taken_over_tells_people_that_the_peer_lost_it),
        cmocka_unit_test(only_a_newer_connection_is_taken_over),
        cmocka_unit_test(who_lacks_what_was_taken_back_is_refused_for_good),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
