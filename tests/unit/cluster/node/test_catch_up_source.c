/* A joiner before a member that is played by hand, and lies. */
#include "torture.h"

#include <string.h>

#include <muster/stream.h>

#include "cluster/node/catch_up.h"
#include "cluster/node/state_manifest.h"

#define STEP        5
#define CHUNK_COUNT (MUSTER_STATE_CHUNK_BYTES / sizeof(float))
#define CHUNKS      2  /* of which the last alone differs */
#define CHUNKS_MAX  70 /* more than are compared in a turn */

enum answer {
    TRUE,
    OTHER_STEP,
    OTHER_COUNT,
    NO_HASHES,
    OTHER_TENSORS,
    UNREADABLE,
    CUT_OFF,    /* after its first byte */
    REFUSED,    /* with the row's code, on every link */
    LATER,      /* UNAVAILABLE, on the first link */
    LATER_VIEW, /* the manifest says so, on the first link */
    SILENT,
    WRONG,      /* other bytes, on every link */
    WRONG_ONCE, /* on the first link */
    STRAY,      /* true, behind frames that nobody has asked for */
};

struct row {
    const char *name;
    enum answer manifest, chunk;
    enum muster_rc refusal;
    enum muster_rc rc;
    const char *text;
};

struct member {
    struct muster_state_chunks chunks, others;
    uint8_t hashes[CHUNKS_MAX + 1][MUSTER_HASH128_BYTES];
    struct muster_peer_hello hello;
    struct muster_listener *listener;
    struct muster_peer_link *links[8];
    unsigned link_count;
    uint8_t request[4096];
};

struct stand {
    struct test_env test;
    const struct row *row;
    size_t count; /* of the numbers */
    float *theirs, *ours;
    struct muster_state_chunks chunks;
    struct member member;
    struct muster_member entry;
    struct muster_view *view;
    struct muster_catch_up catch_up;
    bool is_done;
    enum muster_rc rc;
};

static struct stand stand; /* of the case that runs */

/* --- The member --- */

static void send_frame(struct muster_peer_link *link, struct muster_frame_header header,
                       const void *payload, size_t size)
{
    header.channel = MUSTER_FRAME_STATE;
    header.payload_bytes = (uint32_t)size;
    assert_int_equal(muster_peer_link_send_copy(link, &header, payload), MUSTER_OK);
}

static void send_refusal(struct muster_peer_link *link, enum muster_rc rc)
{
    const struct muster_error error = {.rc = rc, .text = "so"};
    void *bytes = NULL;
    size_t size = 0;

    assert_int_equal(muster_state_refusal_pack(stand.test.env.mem, &error, &bytes, &size),
                     MUSTER_OK);
    send_frame(link, (struct muster_frame_header){.type = MUSTER_STATE_REFUSED}, bytes, size);
    muster_mem_free(stand.test.env.mem, bytes);
}

static void send_manifest(struct muster_peer_link *link, enum answer answer)
{
    const struct muster_state_answer content = {
        .hashes = (const uint8_t(*)[MUSTER_HASH128_BYTES])stand.member.hashes};
    struct muster_state_chunks chunks =
        answer == OTHER_TENSORS ? stand.member.others : stand.member.chunks;
    struct muster_frame_header header = {.type = MUSTER_STATE_MANIFEST, .epoch = 1};
    void *bytes = NULL;
    size_t size = 0;

    if (answer == OTHER_COUNT)
        chunks.chunk_count++;
    if (answer == LATER_VIEW)
        header.epoch++;
    assert_int_equal(muster_state_manifest_pack(&chunks, answer == OTHER_STEP ? STEP + 1 : STEP,
                                                answer == NO_HASHES ? NULL : &content, &bytes,
                                                &size),
                     MUSTER_OK);
    if (answer == UNREADABLE)
        memset(bytes, 0xff, size);
    if (answer == CUT_OFF)
        size = 1;
    send_frame(link, header, bytes, size);
    muster_mem_free(stand.test.env.mem, bytes);
}

static void answer_manifest(struct muster_peer_link *link)
{
    bool is_first = link == stand.member.links[0];
    enum answer answer = stand.row->manifest;

    if (answer == REFUSED)
        send_refusal(link, stand.row->refusal);
    else if (answer == LATER && is_first)
        send_refusal(link, MUSTER_UNAVAILABLE);
    else if (answer == LATER_VIEW && !is_first)
        send_manifest(link, TRUE);
    else if (answer != SILENT)
        send_manifest(link, answer);
}

static void answer_chunk(struct muster_peer_link *link, uint32_t chunk)
{
    static const uint8_t garbage[MUSTER_STATE_CHUNK_BYTES] = {1};
    struct muster_frame_header header = {
        .type = MUSTER_STATE_CHUNK, .op.step = STEP, .chunk = chunk};
    const enum answer answer = stand.row->chunk;
    uint32_t bytes = 0;
    const void *at = muster_state_chunk_at(&stand.member.chunks, chunk, &bytes);

    assert_int_equal(chunk, stand.member.chunks.chunk_count - 1);
    if (answer == WRONG || (answer == WRONG_ONCE && link == stand.member.links[0]))
        at = garbage;
    if (answer == STRAY) {
        send_frame(link, (struct muster_frame_header){.type = MUSTER_STATE_CHUNK, .op.step = STEP},
                   garbage, sizeof(garbage));
        send_frame(link,
                   (struct muster_frame_header){
                       .type = MUSTER_STATE_CHUNK, .op.step = STEP, .chunk = UINT32_MAX},
                   garbage, sizeof(garbage)); /* also the number of no chunk */
        send_frame(link, header, garbage, bytes - 1);
        header.op.step = STEP + 1;
        send_frame(link, header, garbage, bytes);
        header.op.step = STEP;
        send_frame(link, header, NULL, 0);
        send_frame(link, (struct muster_frame_header){.type = MUSTER_STATE_MANIFEST}, NULL, 0);
        send_frame(link, (struct muster_frame_header){.type = 99}, garbage, 8);
    }
    if (answer != SILENT)
        send_frame(link, header, at, bytes);
}

static void on_ready(struct muster_peer_link *link)
{
    (void)link;
}

static void *on_frame(struct muster_peer_link *link, const struct muster_frame_header *header)
{
    (void)link;
    assert_true(header->payload_bytes <= sizeof(stand.member.request));
    return stand.member.request;
}

static void on_payload(struct muster_peer_link *link, const struct muster_frame_header *header,
                       void *buffer)
{
    (void)buffer;
    assert_int_equal(header->op.step, STEP);
    if (header->type == MUSTER_STATE_MANIFEST_REQUEST)
        answer_manifest(link);
    else
        answer_chunk(link, header->chunk);
}

static void on_down(struct muster_peer_link *link, const struct muster_error *error)
{
    (void)link;
    (void)error;
}

static const struct muster_peer_link_events events = {
    .on_ready = on_ready, .on_frame = on_frame, .on_payload = on_payload, .on_down = on_down};

static void on_accept(struct muster_listener *listener, struct muster_stream *stream)
{
    struct muster_env *env = &stand.test.env;
    struct member *member = &stand.member;

    (void)listener;
    assert_true(member->link_count < sizeof(member->links) / sizeof(member->links[0]));
    assert_int_equal(muster_peer_link_accept(env, stream, &member->hello,
                                             muster_loop_after_ns(env->loop, 30 * MUSTER_NS_PER_S),
                                             &events, &stand, &member->links[member->link_count++]),
                     MUSTER_OK);
}

/* --- The stand --- */

static void hello_init(struct muster_peer_hello *hello, int id)
{
    *hello = (struct muster_peer_hello){.job = "test", .version = MUSTER_PEER_VERSION};
    memset(hello->incarnation.bytes, id, sizeof(hello->incarnation.bytes));
}

static void chunks_init(struct muster_state_chunks *chunks, const char *name, float *numbers)
{
    const struct muster_node_tensor tensor = {name, {numbers, stand.count, MUSTER_F32}, NULL};

    assert_int_equal(muster_state_chunks_init(chunks, stand.test.env.mem, &tensor, 1), MUSTER_OK);
}

static struct muster_view *view_of(uint64_t epoch, uint32_t count)
{
    struct muster_view fields = {
        .epoch = epoch, .member_count = count, .members = &stand.entry, .job = "test"};
    struct muster_view *view = NULL;

    assert_int_equal(muster_view_new(stand.test.env.mem, &fields, &view), MUSTER_OK);
    return view;
}

static void stand_open_large(const struct row *row, uint32_t chunks)
{
    struct muster_env *env = &stand.test.env;
    struct member *member = &stand.member;
    struct muster_address any;

    memset(&stand, 0, sizeof(stand));
    stand.row = row;
    stand.count = chunks * CHUNK_COUNT - 10;
    test_env_open(&stand.test);
    assert_int_equal(muster_net_system_open(env, &env->net), MUSTER_OK);
    stand.theirs = muster_mem_alloc_zero(env->mem, stand.count, sizeof(float));
    stand.ours = muster_mem_alloc_zero(env->mem, stand.count, sizeof(float));
    stand.theirs[stand.count - 1] = 7;
    chunks_init(&member->chunks, "numbers", stand.theirs);
    chunks_init(&member->others, "others", stand.theirs);
    chunks_init(&stand.chunks, "numbers", stand.ours);
    for (uint32_t i = 0; i < chunks; i++)
        muster_state_chunk_hash(&member->chunks, i, member->hashes[i]);
    hello_init(&member->hello, 1);
    stand.entry.incarnation = member->hello.incarnation;
    strcpy(stand.entry.task_type, "worker");
    assert_int_equal(muster_address_parse("127.0.0.1:0", &any, NULL), MUSTER_OK);
    assert_int_equal(
        muster_listener_open(env->net, &any, NULL, on_accept, &stand, &member->listener, NULL),
        MUSTER_OK);
    stand.entry.address = *muster_listener_address(member->listener);
    stand.view = view_of(1, 1);
}

static void stand_open(const struct row *row)
{
    stand_open_large(row, CHUNKS);
}

static void stand_close(void)
{
    struct muster_env *env = &stand.test.env;

    for (unsigned i = 0; i < stand.member.link_count; i++)
        muster_peer_link_close(stand.member.links[i]);
    muster_listener_close(stand.member.listener, NULL);
    test_env_turn(env, 10);
    muster_view_unref(stand.view);
    muster_state_chunks_fini(&stand.member.chunks);
    muster_state_chunks_fini(&stand.member.others);
    muster_state_chunks_fini(&stand.chunks);
    muster_mem_free(env->mem, stand.theirs);
    muster_mem_free(env->mem, stand.ours);
    muster_net_system_close(env->net);
    test_env_close(&stand.test);
}

static void on_caught_up(struct muster_catch_up *catch_up, enum muster_rc rc)
{
    (void)catch_up;
    stand.is_done = true;
    stand.rc = rc;
}

static enum muster_rc stand_start(uint64_t span_ns)
{
    struct muster_catch_up_options options = {
        .env = &stand.test.env,
        .chunks = &stand.chunks,
        .view = stand.view,
        .step = STEP,
        .deadline_ns = muster_loop_after_ns(stand.test.env.loop, span_ns)};

    hello_init(&options.hello, 99);
    stand.catch_up.data = &stand;
    return muster_catch_up_start(&stand.catch_up, &options, on_caught_up);
}

/* --- Cases --- */

static const struct row rows[] = {
    {"the truth", TRUE, TRUE, 0, MUSTER_OK, ""},
    {"another step", OTHER_STEP, TRUE, 0, MUSTER_DATA_LOSS, "a manifest of another state"},
    {"another count", OTHER_COUNT, TRUE, 0, MUSTER_DATA_LOSS, "a manifest of another state"},
    {"no hashes", NO_HASHES, TRUE, 0, MUSTER_DATA_LOSS, "a manifest of another state"},
    {"other tensors", OTHER_TENSORS, TRUE, 0, MUSTER_INVALID_ARGUMENT, "\"others\""},
    {"what cannot be read", UNREADABLE, TRUE, 0, MUSTER_INVALID_ARGUMENT, "worker:0: "},
    {"a single byte", CUT_OFF, TRUE, 0, MUSTER_INVALID_ARGUMENT, "worker:0: "},
    {"it refuses", REFUSED, TRUE, MUSTER_INVALID_ARGUMENT, MUSTER_INVALID_ARGUMENT,
     "worker:0 refuses: so"},
    {"it is past", REFUSED, TRUE, MUSTER_OUT_OF_RANGE, MUSTER_UNAVAILABLE,
     "no member is left that has state 5: so"},
    {"later", LATER, TRUE, 0, MUSTER_OK, ""},
    {"a later view", LATER_VIEW, TRUE, 0, MUSTER_OK, ""},
    {"other bytes", TRUE, WRONG, 0, MUSTER_DATA_LOSS, "other bytes of chunk 1 than it announced"},
    {"other bytes once", TRUE, WRONG_ONCE, 0, MUSTER_OK, ""},
    {"bytes that nobody wants", TRUE, STRAY, 0, MUSTER_OK, ""},
};

static void only_what_was_announced_is_taken(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        stand_open(&rows[i]);
        assert_int_equal(stand_start(30 * MUSTER_NS_PER_S), MUSTER_OK);
        test_env_run_until(&stand.test.env, test_env_is_true, &stand.is_done);

        if (stand.rc != rows[i].rc || strstr(stand.catch_up.error.text, rows[i].text) == NULL)
            fail_msg("%s: %s '%s'", rows[i].name, muster_rc_name(stand.rc),
                     stand.catch_up.error.text);
        if (rows[i].rc == MUSTER_OK) {
            assert_memory_equal(stand.ours, stand.theirs, stand.count * sizeof(float));
            assert_int_equal(stand.catch_up.bytes_fetched,
                             stand.count * sizeof(float) - MUSTER_STATE_CHUNK_BYTES);
            assert_int_equal(stand.catch_up.sources, 1);
        }
        stand_close();
    }
}

static void all_chunks_of_a_large_state_are_compared(void **state)
{
    (void)state;
    stand_open_large(&rows[0], CHUNKS_MAX);
    assert_int_equal(stand_start(30 * MUSTER_NS_PER_S), MUSTER_OK);
    test_env_run_until(&stand.test.env, test_env_is_true, &stand.is_done);

    assert_int_equal(stand.rc, MUSTER_OK);
    assert_true(stand.ours[stand.count - 1] == 7);
}

/* The first deadline that leaves time for a connection and a question decides: a busy machine needs a
 * long one. */
static void check_silence(const struct row *row)
{
    bool is_told = false;

    for (uint64_t span_ns = 50 * MUSTER_NS_PER_MS; !is_told; span_ns *= 4) {
        stand_open(row);
        assert_int_equal(stand_start(span_ns), MUSTER_OK);
        test_env_run_until(&stand.test.env, test_env_is_true, &stand.is_done);

        assert_int_equal(stand.rc, row->rc);
        is_told = strstr(stand.catch_up.error.text, row->text) != NULL;
        if (!is_told && span_ns > 20 * MUSTER_NS_PER_S)
            fail_msg("'%s'", stand.catch_up.error.text);
        stand_close();
    }
}

static void who_is_silent_is_named_at_the_deadline(void **state)
{
    static const struct row silent[] = {
        {"", SILENT, TRUE, 0, MUSTER_DEADLINE_EXCEEDED, "it has not committed that step"},
        {"", TRUE, SILENT, 0, MUSTER_DEADLINE_EXCEEDED,
         "worker:0 did not send state 5 in time: its bytes are too slow"},
    };

    (void)state;
    for (size_t i = 0; i < 2; i++)
        check_silence(&silent[i]);
}

static bool has_been_asked_twice(void *data)
{
    return ((struct stand *)data)->member.link_count >= 2;
}

static void another_process_at_the_address_is_not_asked(void **state)
{
    struct muster_view *empty;

    (void)state;
    stand_open(&rows[0]);
    hello_init(&stand.member.hello, 2); /* the view knows 1 */
    assert_int_equal(stand_start(30 * MUSTER_NS_PER_S), MUSTER_OK);
    test_env_run_until(&stand.test.env, has_been_asked_twice, &stand);
    assert_false(stand.is_done);
    empty = view_of(2, 0);
    muster_catch_up_follow(&stand.catch_up, empty);
    muster_view_unref(empty);
    test_env_run_until(&stand.test.env, test_env_is_true, &stand.is_done);

    assert_int_equal(stand.rc, MUSTER_UNAVAILABLE);
    assert_int_equal(stand.ours[stand.count - 1], 0);
}

static void run_start(struct torture *torture, const void *data)
{
    enum muster_rc rc;

    (void)data;
    stand_open(&rows[0]);
    torture_arm_limited(torture, &stand.test.mem);
    rc = stand_start(30 * MUSTER_NS_PER_S);
    torture_disarm(torture);
    if (rc != MUSTER_OK) {
        assert_true(rc == MUSTER_RESOURCE_EXHAUSTED && torture->refused > 0);
        test_env_turn(&stand.test.env, 10);
        assert_false(stand.is_done);
        assert_int_equal(stand_start(30 * MUSTER_NS_PER_S), MUSTER_OK);
    }
    test_env_run_until(&stand.test.env, test_env_is_true, &stand.is_done);
    stand_close();
}

static void no_memory_to_start_leaves_nothing(void **state)
{
    (void)state;
    torture_run(&(struct torture_scenario){.name = "start", .run = run_start});
}

static void where_nobody_is_to_be_asked_it_is_over(void **state)
{
    struct muster_view *empty;

    (void)state;
    stand_open(&rows[0]);
    empty = view_of(1, 0);
    muster_view_unref(stand.view);
    stand.view = empty;
    assert_int_equal(stand_start(30 * MUSTER_NS_PER_S), MUSTER_OK);
    assert_false(stand.is_done);
    test_env_run_until(&stand.test.env, test_env_is_true, &stand.is_done);

    assert_int_equal(stand.rc, MUSTER_UNAVAILABLE);
    assert_string_equal(stand.catch_up.error.text, "no member is left that has state 5");
}

TEST_SET_UP(tear_down, stand_close())
#define CASE(name) cmocka_unit_test_teardown(name, tear_down)

int main(void)
{
    const struct CMUnitTest catch_up_source[] = {
        cmocka_unit_test(only_what_was_announced_is_taken),
        CASE(all_chunks_of_a_large_state_are_compared),
        cmocka_unit_test(who_is_silent_is_named_at_the_deadline),
        CASE(another_process_at_the_address_is_not_asked),
        cmocka_unit_test(no_memory_to_start_leaves_nothing),
        CASE(where_nobody_is_to_be_asked_it_is_over),
    };

    return cmocka_run_group_tests(catch_up_source, NULL, NULL);
}
