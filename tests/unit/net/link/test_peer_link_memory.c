/* A link over sockets whose connection breaks while each allocation of one of its processes fails in turn: it goes
 * on where it was, or both are told why it does not; frames are neither lost nor doubled. */
#include <stdio.h>
#include <string.h>

#include "careful_mem.h"
#include "net/link/heal.h"
#include "net/link/peer_link.h"
#include "test_env.h"
#include "torture.h"

/* That a link may be broken: with memory nothing waits for it. */
#define SPAN_NS        (30 * MUSTER_NS_PER_S)
#define HUNGRY_SPAN_NS (300 * MUSTER_NS_PER_MS)
#define BATCH          3
#define FRAMES         (3 * BATCH) /* of the opener: before it is ready, before the link breaks, after it */

#define PAYLOAD_BYTES 8
static const char payloads[FRAMES][PAYLOAD_BYTES + 1] = {"frame 0.", "frame 1.", "frame 2.",
                                                         "frame 3.", "frame 4.", "frame 5.",
                                                         "frame 6.", "frame 7.", "frame 8."};

struct row {
    const char *name;
    unsigned hungry, breaks; /* a side: 0 has opened the link, 1 has accepted it */
    bool is_new;             /* memory fails while the link is made, which does not break then */
};

/* A process. */
struct side {
    struct scene *scene;
    struct muster_env env;
    struct muster_mem_limited mem;
    size_t block_count; /* of the network */
    struct muster_listener *listener;
    struct muster_peer_hello hello;
    struct muster_peer_link *link;
    struct muster_link_heal heal;
    struct muster_frame frames[FRAMES];
    char room[PAYLOAD_BYTES];
    unsigned sent_count, finished_count, arrived_count, ready_count, end_count;
    struct muster_error error; /* of its end */
};

struct scene {
    struct test_env test;
    struct side sides[2];
    uint64_t span_ns;
};

static struct side *other_of(struct side *side)
{
    return &side->scene->sides[side == &side->scene->sides[0]];
}

/* --- What a side is told --- */

static void side_end(struct side *side, const struct muster_error *error)
{
    struct muster_peer_link *link = side->link;

    assert_int_equal(side->end_count++, 0);
    assert_true(error->rc != MUSTER_OK && error->text[0] != '\0');
    side->error = *error;
    side->link = NULL;
    muster_link_heal_stop(&side->heal);
    muster_peer_link_close(link);
}

static void on_given_up(struct muster_link_heal *heal, struct muster_peer_link *link,
                        const struct muster_error *why)
{
    struct side *side = heal->data;

    assert_ptr_equal(link, side->link);
    side_end(side, why);
}

static void on_ready(struct muster_peer_link *link)
{
    ((struct side *)muster_peer_link_data(link))->ready_count++;
}

static void *on_frame(struct muster_peer_link *link, const struct muster_frame_header *header)
{
    struct side *side = muster_peer_link_data(link);

    assert_int_equal(header->chunk, side->arrived_count);
    return side->room;
}

static void on_payload(struct muster_peer_link *link, const struct muster_frame_header *header,
                       void *buffer)
{
    struct side *side = muster_peer_link_data(link);

    (void)buffer;
    assert_memory_equal(side->room, payloads[header->chunk], PAYLOAD_BYTES);
    side->arrived_count++;
}

static void on_down(struct muster_peer_link *link, const struct muster_error *error)
{
    side_end(muster_peer_link_data(link), error);
}

static void on_broken(struct muster_peer_link *link, const struct muster_error *error)
{
    struct side *side = muster_peer_link_data(link), *other = other_of(side);
    const struct muster_link_heal_goal goal = {.target = other->hello.incarnation,
                                               .address = muster_listener_address(other->listener),
                                               .span_ns = side->scene->span_ns};

    muster_link_heal_broken(&side->heal, link, &goal, error);
}

static void on_resumed(struct muster_peer_link *link)
{
    struct side *side = muster_peer_link_data(link);

    muster_link_heal_resumed(&side->heal, link, "peer");
}

static const struct muster_peer_link_events events = {.on_ready = on_ready,
                                                      .on_frame = on_frame,
                                                      .on_payload = on_payload,
                                                      .on_down = on_down,
                                                      .on_broken = on_broken,
                                                      .on_resumed = on_resumed};

/* --- Whom it has accepted, before it says what it wants --- */

static void on_stranger_ready(struct muster_peer_link *link)
{
    const struct muster_peer_hello *hello = muster_peer_link_hello(link);
    struct side *side = muster_peer_link_data(link);
    bool is_known = side->link != NULL && muster_peer_link_session(side->link) == hello->session;
    struct muster_error error;

    if (hello->intent == MUSTER_LINK_NEW) {
        assert_null(side->link);
        side->link = link;
        side->ready_count++;
        muster_peer_link_set_owner(link, &events, side);
    } else if (hello->intent == MUSTER_LINK_PROBE) {
        muster_link_heal_answer_probe(is_known ? side->link : NULL, link);
    } else if (!is_known) {
        muster_peer_link_answer(link, MUSTER_LINK_IS_UNKNOWN);
    } else if (muster_link_heal_accept(&side->heal, side->link, link, &error) != MUSTER_OK) {
        side_end(side, &error);
    }
}

static void on_stranger_down(struct muster_peer_link *link, const struct muster_error *error)
{
    assert_true(error->rc != MUSTER_OK && error->text[0] != '\0');
    muster_peer_link_close(link);
}

static const struct muster_peer_link_events stranger_events = {.on_ready = on_stranger_ready,
                                                               .on_frame = on_frame,
                                                               .on_payload = on_payload,
                                                               .on_down = on_stranger_down};

static void on_accept(struct muster_listener *listener, struct muster_stream *stream)
{
    struct side *side = listener->data;
    struct muster_peer_link *link = NULL;
    enum muster_rc rc = muster_peer_link_accept(
        &side->env, stream, &side->hello,
        muster_loop_after_ns(side->env.loop, side->scene->span_ns), &stranger_events, side, &link);

    assert_true(rc == MUSTER_OK || rc == MUSTER_RESOURCE_EXHAUSTED);
}

/* --- The scene --- */

static void side_open(struct scene *scene, unsigned index)
{
    struct side *side = &scene->sides[index];
    struct muster_address any;
    struct muster_error error;

    side->scene = scene;
    muster_mem_limited_init(&side->mem, careful_mem(), 0);
    side->env = scene->test.env;
    side->env.mem = &side->mem.mem;
    assert_int_equal(muster_net_system_open(&side->env, &side->env.net), MUSTER_OK);
    side->block_count = side->mem.block_count;
    (void)snprintf(side->hello.job, sizeof(side->hello.job), "job");
    side->hello.incarnation.bytes[0] = (uint8_t)(index + 1);
    side->hello.purpose = MUSTER_LINK_DATA;
    muster_link_heal_init(&side->heal, &side->env, &side->hello, on_given_up, side);
    assert_int_equal(muster_address_parse("127.0.0.1:0", &any, &error), MUSTER_OK);
    assert_int_equal(
        muster_listener_open(side->env.net, &any, NULL, on_accept, side, &side->listener, &error),
        MUSTER_OK);
}

static enum muster_rc link_open(struct scene *scene)
{
    struct side *opener = &scene->sides[0];

    return muster_peer_link_open(
        &opener->env, muster_listener_address(scene->sides[1].listener), &opener->hello,
        muster_loop_after_ns(opener->env.loop, scene->span_ns), &events, opener, &opener->link);
}

static void on_finished(struct muster_frame *frame, enum muster_rc rc)
{
    struct side *side = frame->data;

    assert_true(rc == MUSTER_OK || side->link == NULL); /* it has ended */
    side->finished_count++;
}

static void send_frames(struct side *side, unsigned count)
{
    for (unsigned i = 0; i < count && side->link != NULL; i++) {
        struct muster_frame *frame = &side->frames[side->sent_count];

        *frame = (struct muster_frame){.data = side,
                                       .header = {.channel = MUSTER_FRAME_COLLECTIVE,
                                                  .type = 1,
                                                  .payload_bytes = PAYLOAD_BYTES,
                                                  .epoch = 1,
                                                  .chunk = side->sent_count},
                                       .payload = payloads[side->sent_count]};
        assert_int_equal(muster_peer_link_send(frame, side->link, on_finished), MUSTER_OK);
        side->sent_count++;
    }
}

static void send_both(struct scene *scene)
{
    send_frames(&scene->sides[0], BATCH);
    send_frames(&scene->sides[1], BATCH);
}

/* Ready on both sides and all is known to have arrived, or at an end on both. */
static bool is_settled(void *data)
{
    struct scene *scene = data;
    const struct side *a = &scene->sides[0], *b = &scene->sides[1];

    if (a->link == NULL || b->link == NULL)
        return a->link == b->link;
    return muster_peer_link_is_ready(a->link) && muster_peer_link_is_ready(b->link) &&
           !muster_link_heal_is_busy(&a->heal) && !muster_link_heal_is_busy(&b->heal) &&
           a->arrived_count == b->sent_count && b->arrived_count == a->sent_count &&
           a->finished_count == a->sent_count && b->finished_count == b->sent_count;
}

static void side_close(struct side *side)
{
    muster_link_heal_stop(&side->heal);
    muster_peer_link_close(side->link);
    muster_listener_close(side->listener, NULL);
}

static bool is_released(void *data)
{
    const struct side *sides = ((struct scene *)data)->sides;

    return sides[0].mem.block_count == sides[0].block_count &&
           sides[1].mem.block_count == sides[1].block_count;
}

static void scene_close(struct scene *scene)
{
    for (unsigned i = 0; i < 2; i++)
        side_close(&scene->sides[i]);
    test_env_run_until(&scene->test.env, is_released, scene);
    for (unsigned i = 0; i < 2; i++) {
        muster_net_system_close(scene->sides[i].env.net);
        assert_int_equal(muster_mem_limited_fini(&scene->sides[i].mem), 0);
    }
    test_env_close(&scene->test);
}

/* --- The scenarios --- */

static void run_link(struct torture *torture, const void *data)
{
    const struct row *row = data;
    const struct muster_error why = {.rc = MUSTER_UNAVAILABLE, .text = "says the test"};
    struct scene scene = {.span_ns = torture->fail_at == 0 ? SPAN_NS : HUNGRY_SPAN_NS};
    enum muster_rc rc;

    test_env_open(&scene.test);
    side_open(&scene, 0);
    side_open(&scene, 1);
    if (row->is_new)
        torture_arm_limited(torture, &scene.sides[row->hungry].mem);
    rc = link_open(&scene);
    if (rc == MUSTER_OK)
        send_frames(&scene.sides[0], BATCH);
    if (rc == MUSTER_OK)
        test_env_run_until(&scene.test.env, is_settled, &scene);
    if (!row->is_new) {
        send_both(&scene);
        torture_arm_limited(torture, &scene.sides[row->hungry].mem);
        muster_peer_link_break(scene.sides[row->breaks].link, &why);
        send_frames(&scene.sides[0], BATCH);
        test_env_run_until(&scene.test.env, is_settled, &scene);
    }
    torture_disarm(torture);

    for (unsigned i = 0; i < 2; i++) {
        const struct side *side = &scene.sides[i];
        bool has_begun = i == 0 ? rc == MUSTER_OK : side->ready_count > 0;

        assert_int_equal(side->finished_count, side->sent_count);
        assert_int_equal(side->end_count, has_begun && side->link == NULL);
    }
    if (torture->fail_at == 0)
        assert_non_null(scene.sides[0].link);
    else if (torture->is_lasting && torture->fail_at == 1 && row->hungry == 0 && !row->is_new)
        assert_non_null(strstr(scene.sides[0].error.text, "memory"));
    scene_close(&scene);
}

static void a_link_goes_on_or_says_why(void **state)
{
    static const struct row rows[] = {
        {"made by a hungry opener", 0, 0, true},
        {"made by a hungry acceptor", 1, 0, true},
        {"hungry opener, which breaks it", 0, 0, false},
        {"hungry opener, the other breaks it", 0, 1, false},
        {"hungry acceptor, which breaks it", 1, 1, false},
        {"hungry acceptor, the other breaks it", 1, 0, false},
    };

    (void)state;
    TORTURE_RUN_ROWS(run_link, rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_link_goes_on_or_says_why, torture_tell),
    };

    return cmocka_run_group_tests_name("peer_link_memory", tests, NULL, NULL);
}
