/* State catch-up: a joiner against real state servers over loopback. */
#include "test_env.h"
#include "torture.h"

#include <string.h>

#include <muster/stream.h>

#include "cluster/node/catch_up.h"
#include "cluster/node/state_server.h"
#include "runtime/value/far_memory.h"

enum { MEMBERS = 3, WEIGHTS = 300000, BIASES = 7 };

/* The registered state of one process: a tensor of several chunks and a small one. */
struct state {
    float *weights;
    int64_t biases[BIASES];
    struct muster_node_tensor tensors[2];
    struct muster_state_chunks chunks;
};

struct member {
    struct state state;
    struct muster_state_server *server;
    struct muster_listener *listener;
    struct muster_peer_hello hello;
    struct muster_peer_link *greeting; /* accepted, hello not there yet */
    unsigned links;
};

struct world {
    struct test_env test;
    struct member members[MEMBERS];
    struct state joiner;
    struct muster_member entries[MEMBERS]; /* of the view */
    struct muster_view *view;
    struct muster_catch_up catch_up;
    enum muster_rc rc;
    bool is_done, is_first;
};

/* The world of the case that runs. */
static struct world world;

/* Memory that the host does not reach: its addresses are nobody's. */
#define FAR_SHIFT ((uintptr_t)1 << 60)

static bool is_far; /* the weights of all lie there */

static enum muster_rc far_read(struct muster_far_memory *memory, void *to, const void *from,
                               size_t bytes)
{
    (void)memory;
    memcpy(to, (const void *)((uintptr_t)from - FAR_SHIFT), bytes);
    return MUSTER_OK;
}

static enum muster_rc far_write(struct muster_far_memory *memory, void *to, const void *from,
                                size_t bytes)
{
    (void)memory;
    memcpy((void *)((uintptr_t)to - FAR_SHIFT), from, bytes);
    return MUSTER_OK;
}

static enum muster_rc far_write_fails(struct muster_far_memory *memory, void *to, const void *from,
                                      size_t bytes)
{
    (void)memory;
    (void)to;
    (void)from;
    (void)bytes;
    return MUSTER_UNAVAILABLE;
}

static enum muster_rc far_read_fails(struct muster_far_memory *memory, void *to, const void *from,
                                     size_t bytes)
{
    return far_write_fails(memory, to, from, bytes);
}

static struct muster_far_memory far_memory = {.read = far_read, .write = far_write};
static struct muster_far_memory unreadable = {.read = far_read_fails, .write = far_write};
static struct muster_far_memory unwritable = {.read = far_read, .write = far_write_fails};

static void state_init(struct state *state, struct muster_env *env, float seed)
{
    state->weights = muster_mem_alloc(env->mem, WEIGHTS * sizeof(float));
    assert_non_null(state->weights);
    for (int i = 0; i < WEIGHTS; i++)
        state->weights[i] = seed + (float)i;
    for (int i = 0; i < BIASES; i++)
        state->biases[i] = (int64_t)seed * 100 + i;
    state->tensors[0] =
        (struct muster_node_tensor){"weights", {state->weights, WEIGHTS, MUSTER_F32}, NULL};
    state->tensors[1] =
        (struct muster_node_tensor){"biases", {state->biases, BIASES, MUSTER_I64}, NULL};
    if (is_far) {
        state->tensors[0].memory = &far_memory;
        state->tensors[0].tensor.data = (void *)((uintptr_t)state->weights + FAR_SHIFT);
    }
    assert_int_equal(muster_state_chunks_init(&state->chunks, env->mem, state->tensors, 2),
                     MUSTER_OK);
}

static void state_fini(struct state *state, struct muster_env *env)
{
    muster_state_chunks_fini(&state->chunks);
    muster_mem_free(env->mem, state->weights);
}

static void on_ready(struct muster_peer_link *link)
{
    struct member *member = muster_peer_link_data(link);

    assert_int_equal(muster_peer_link_hello(link)->purpose, MUSTER_LINK_STATE);
    member->greeting = NULL;
    member->links++;
    muster_state_server_accept(member->server, link);
}

static void on_down(struct muster_peer_link *link, const struct muster_error *error)
{
    struct member *member = muster_peer_link_data(link);

    (void)error;
    member->greeting = NULL;
    muster_peer_link_close(link);
}

static const struct muster_peer_link_events greeting_events = {.on_ready = on_ready,
                                                               .on_down = on_down};

static void on_accept(struct muster_listener *listener, struct muster_stream *stream)
{
    struct member *member = listener->data;
    struct muster_env *env = &world.test.env;
    enum muster_rc rc;

    rc = muster_peer_link_accept(env, stream, &member->hello,
                                 muster_loop_after_ns(env->loop, 10 * MUSTER_NS_PER_S),
                                 &greeting_events, member, &member->greeting);
    if (rc != MUSTER_OK) {
        member->greeting = NULL;
        assert_int_equal(rc, MUSTER_RESOURCE_EXHAUSTED);
    }
}

static void hello_init(struct muster_peer_hello *hello, uint8_t id)
{
    memset(hello, 0, sizeof(*hello));
    memcpy(hello->job, "test", 5);
    hello->version = MUSTER_PEER_VERSION;
    memset(hello->incarnation.bytes, id, sizeof(hello->incarnation.bytes));
}

static struct muster_view *view_of(uint64_t epoch, uint32_t first, uint32_t count)
{
    struct muster_view fields = {
        .epoch = epoch, .member_count = count, .members = &world.entries[first], .job = "test"};
    struct muster_view *view = NULL;

    assert_int_equal(muster_view_new(world.test.env.mem, &fields, &view), MUSTER_OK);
    return view;
}

/* A later view with only `count` members from `first` on. */
static void follow_view(uint64_t epoch, uint32_t first, uint32_t count)
{
    struct muster_view *view = view_of(epoch, first, count);

    muster_catch_up_follow(&world.catch_up, view);
    muster_view_unref(view);
}

static void world_open(void)
{
    struct muster_member *entries = world.entries;
    struct muster_address any;

    memset(&world, 0, sizeof(world));
    test_env_open(&world.test);
    assert_int_equal(muster_net_system_open(&world.test.env, &world.test.env.net), MUSTER_OK);
    assert_int_equal(muster_address_parse("127.0.0.1:0", &any, NULL), MUSTER_OK);
    for (uint8_t i = 0; i < MEMBERS; i++) {
        struct member *member = &world.members[i];

        hello_init(&member->hello, (uint8_t)(i + 1));
        state_init(&member->state, &world.test.env, 1);
        assert_int_equal(muster_state_server_open(&world.test.env, &member->server), MUSTER_OK);
        muster_state_server_set_chunks(member->server, &member->state.chunks);
        assert_int_equal(muster_listener_open(world.test.env.net, &any, NULL, on_accept, member,
                                              &member->listener, NULL),
                         MUSTER_OK);
        entries[i].incarnation = member->hello.incarnation;
        memcpy(entries[i].task_type, "worker", 7);
        entries[i].task_index = i;
        entries[i].address = *muster_listener_address(member->listener);
    }
    world.view = view_of(2, 0, MEMBERS);
    state_init(&world.joiner, &world.test.env, 9);
}

static void member_close(struct member *member)
{
    if (member->listener == NULL)
        return;
    if (member->greeting != NULL)
        muster_peer_link_close(member->greeting);
    muster_state_server_close(member->server);
    muster_listener_close(member->listener, NULL);
    member->listener = NULL;
}

static void world_close(void)
{
    struct muster_env *env = &world.test.env;

    for (int i = 0; i < MEMBERS; i++)
        member_close(&world.members[i]);
    test_env_turn(env, 10);
    for (int i = 0; i < MEMBERS; i++)
        state_fini(&world.members[i].state, env);
    state_fini(&world.joiner, env);
    muster_view_unref(world.view);
    muster_net_system_close(env->net);
    test_env_close(&world.test);
}

static void on_caught_up(struct muster_catch_up *catch_up, enum muster_rc rc)
{
    (void)catch_up;
    world.is_done = true;
    world.rc = rc;
}

static void world_open_far(void)
{
    is_far = true;
    world_open();
    is_far = false;
}

TEST_SET_UP(set_up, world_open())
TEST_SET_UP(set_up_far, world_open_far())
TEST_SET_UP(tear_down, world_close())
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
/* The same, where the host does not reach the weights. */
#define FAR_CASE(name)                                                                             \
    {                                                                                              \
#name "_far", name, set_up_far, tear_down, NULL                                            \
    }

/* MUSTER_STATE_STABLE: ahead of the admission. */
static enum muster_rc try_start(uint64_t step)
{
    struct muster_catch_up_options options = {
        .is_first = world.is_first,
        .env = &world.test.env,
        .chunks = &world.joiner.chunks,
        .view = world.view,
        .step = step,
        .deadline_ns = muster_loop_after_ns(world.test.env.loop, 30 * MUSTER_NS_PER_S),
    };

    hello_init(&options.hello, 99);
    return muster_catch_up_start(&world.catch_up, &options, on_caught_up);
}

static void start_fetch(uint64_t step)
{
    assert_int_equal(try_start(step), MUSTER_OK);
    assert_false(world.is_done);
}

static void commit_all(uint64_t step)
{
    for (int i = 0; i < MEMBERS; i++)
        muster_state_server_commit(world.members[i].server, step);
}

static void finish_fetch(enum muster_rc expected)
{
    test_env_run_until(&world.test.env, test_env_is_true, &world.is_done);
    if (world.rc != expected)
        fail_msg("%s: %s", muster_rc_name(world.rc), world.catch_up.error.text);
}

static void assert_same_state(void)
{
    const struct state *theirs = &world.members[1].state;

    assert_memory_equal(world.joiner.weights, theirs->weights, WEIGHTS * sizeof(float));
    assert_memory_equal(world.joiner.biases, theirs->biases, sizeof(theirs->biases));
}

static void assert_fetched(void)
{
    finish_fetch(MUSTER_OK);
    assert_same_state();
}

static void await_links(void)
{
    while (world.members[0].links + world.members[1].links + world.members[2].links < MEMBERS)
        test_env_turn(&world.test.env, 1);
}

/* --- Memory that the host does not reach --- */

static void a_member_that_cannot_read_its_state_is_not_waited_for(void **state)
{
    (void)state;
    world.members[1].state.chunks.tensors[0].memory = &unreadable;
    commit_all(5);
    start_fetch(5);
    await_links();
    test_env_turn(&world.test.env, 10);
    assert_false(world.is_done); /* it has not told its hashes */

    world.entries[1] = world.entries[2];
    follow_view(3, 0, 2);
    finish_fetch(MUSTER_OK);
    assert_memory_equal(world.joiner.weights, world.members[0].state.weights,
                        WEIGHTS * sizeof(float));
}

static void a_chunk_that_cannot_be_read_is_fetched_from_another_member(void **state)
{
    (void)state;
    commit_all(5);
    for (int i = 0; i < MEMBERS; i++)
        while (!muster_state_hashes_is_whole(&world.members[i].state.chunks))
            muster_state_hashes_compute(&world.members[i].state.chunks, 64);
    world.members[1].state.chunks.tensors[0].memory = &unreadable;
    start_fetch(5);
    assert_fetched();
}

static void a_joiner_that_cannot_write_its_state_fails(void **state)
{
    (void)state;
    world.joiner.chunks.tensors[0].memory = &unwritable;
    commit_all(5);
    start_fetch(5);
    finish_fetch(MUSTER_INTERNAL);
    assert_non_null(strstr(world.catch_up.error.text, "of the state cannot be written"));
}

/* --- Ahead of the admission --- */

/* A step of all members that changes count weights from `from` on, and nothing else. */
static void change_weights(uint64_t step, size_t from, size_t count)
{
    for (int i = 0; i < MEMBERS; i++) {
        struct state *state = &world.members[i].state;
        struct muster_tensor part = {(float *)state->tensors[0].tensor.data + from, count,
                                     MUSTER_F32};

        muster_state_server_touch(world.members[i].server);
        assert_int_equal(muster_state_hashes_change(&state->chunks, &part, 1), MUSTER_OK);
        for (size_t at = from; at < from + count; at++)
            state->weights[at] += 1;
    }
    commit_all(step);
}

static void start_ahead(bool is_first)
{
    world.is_first = is_first;
    world.is_done = false;
    start_fetch(MUSTER_STATE_STABLE);
}

static uint64_t fetch_ahead(bool is_first)
{
    start_ahead(is_first);
    finish_fetch(MUSTER_OK);
    return world.catch_up.bytes_fetched;
}

static const uint64_t all_bytes = WEIGHTS * sizeof(float) + BIASES * sizeof(int64_t);

static void an_observer_fetches_ahead_and_little_afterwards(void **state)
{
    (void)state;
    commit_all(5);
    change_weights(6, 0, 0);

    assert_int_equal(fetch_ahead(true), all_bytes);
    assert_same_state();
    assert_int_equal(fetch_ahead(false), 0);
    change_weights(7, 0, 1);
    assert_int_equal(fetch_ahead(false), MUSTER_STATE_CHUNK_BYTES);
    change_weights(8, 0, 1);
    world.is_done = false;
    start_fetch(8);
    assert_fetched();
    assert_int_equal(world.catch_up.bytes_fetched, MUSTER_STATE_CHUNK_BYTES);
}

static void what_the_step_changes_is_left_out(void **state)
{
    struct state *first = &world.members[0].state;
    struct muster_tensor part = {first->weights, 1, MUSTER_F32};

    (void)state;
    for (int is_first = 0; is_first < 2; is_first++) {
        muster_state_hashes_forget_all(&world.joiner.chunks);
        memset(world.joiner.weights, 0, WEIGHTS * sizeof(float));
        commit_all(5);
        change_weights(6, 0, 0);
        for (int i = 0; i < MEMBERS; i++) {
            part.data = world.members[i].state.tensors[0].tensor.data;
            assert_int_equal(muster_state_hashes_change(&world.members[i].state.chunks, &part, 1),
                             MUSTER_OK);
        }
        (void)fetch_ahead(is_first != 0);
        assert_true(world.joiner.weights[0] == 0);
        assert_memory_equal(world.joiner.weights + MUSTER_STATE_CHUNK_BYTES / sizeof(float),
                            first->weights + MUSTER_STATE_CHUNK_BYTES / sizeof(float),
                            WEIGHTS * sizeof(float) - MUSTER_STATE_CHUNK_BYTES);
    }
}

/* Equal bytes are not fetched, once the members have hashed them. */
static void an_observer_that_has_all_fetches_nothing_ahead(void **state)
{
    (void)state;
    memcpy(world.joiner.weights, world.members[0].state.weights, WEIGHTS * sizeof(float));
    memcpy(world.joiner.biases, world.members[0].state.biases, sizeof(world.joiner.biases));
    commit_all(5);
    change_weights(6, 0, 0);

    assert_int_equal(fetch_ahead(false), 0);
}

static void without_parts_only_the_own_memory_is_hashed(void **state)
{
    (void)state;
    commit_all(5);

    assert_int_equal(fetch_ahead(true), 0);
    assert_true(muster_state_hashes_is_whole(&world.joiner.chunks));
}

/* One chunk is torn as it is sent: the manifests after the admission find it. */
static void what_is_wrong_ahead_is_fetched_again(void **state)
{
    (void)state;
    commit_all(5);
    change_weights(6, 0, 0);
    (void)fetch_ahead(true);
    for (int i = 0; i < MEMBERS; i++)
        world.members[i].state.weights[3] = -3; /* after it was sent, and before the next commit */
    commit_all(7);

    world.is_done = false;
    start_fetch(7);
    assert_fetched();
    assert_int_equal(world.catch_up.bytes_fetched, MUSTER_STATE_CHUNK_BYTES);
}

static void death_of_a_source_ahead_is_made_up_by_the_others(void **state)
{
    (void)state;
    commit_all(5);
    change_weights(6, 0, 0);
    start_ahead(true);
    await_links();
    member_close(&world.members[0]);
    follow_view(3, 1, 2);

    finish_fetch(MUSTER_OK);
    assert_same_state();
}

static void without_a_source_it_ends_ahead(void **state)
{
    (void)state;
    commit_all(5);
    change_weights(6, 0, 0);
    start_ahead(true);
    await_links();
    for (int i = 0; i < MEMBERS; i++)
        member_close(&world.members[i]);
    follow_view(3, 0, 0);

    finish_fetch(MUSTER_OK);
}

static void other_tensors_are_told_ahead(void **state)
{
    (void)state;
    commit_all(5);
    muster_state_chunks_fini(&world.joiner.chunks);
    world.joiner.tensors[1].tensor.count = BIASES - 1;
    assert_int_equal(
        muster_state_chunks_init(&world.joiner.chunks, world.test.env.mem, world.joiner.tensors, 2),
        MUSTER_OK);

    start_ahead(true);
    finish_fetch(MUSTER_INVALID_ARGUMENT);
    assert_non_null(strstr(world.catch_up.error.text, "\"biases\""));
}

/* --- After it --- */

static void joiner_gets_every_byte_from_all_members(void **state)
{
    (void)state;
    commit_all(5);

    start_fetch(5);
    assert_fetched();
    assert_int_equal(world.catch_up.sources, MEMBERS);
    assert_int_equal(world.catch_up.bytes_fetched,
                     WEIGHTS * sizeof(float) + BIASES * sizeof(int64_t));
}

/* One of each member, and of the joiner, which is never asked for it. */
static void show_blobs(const struct muster_node_blob *blobs, size_t joiner_count)
{
    for (int i = 0; i < MEMBERS; i++) {
        world.members[i].state.chunks.blobs = &blobs[i];
        world.members[i].state.chunks.blob_count = 1;
    }
    world.joiner.chunks.blobs = blobs;
    world.joiner.chunks.blob_count = joiner_count;
}

static void blobs_come_with_the_state(void **state)
{
    static const struct muster_node_blob blobs[MEMBERS] = {{"same", 4}, {"same", 4}, {"same", 4}};

    (void)state;
    show_blobs(blobs, 1);
    commit_all(5);

    start_fetch(5);
    assert_fetched();

    assert_int_equal(world.catch_up.blob_count, 1);
    assert_int_equal(world.catch_up.blobs[0].size, 4);
    assert_memory_equal(world.catch_up.blobs[0].bytes, "same", 4);
    muster_state_blobs_free(world.test.env.mem, world.catch_up.blobs, 1);
}

static void members_whose_blobs_differ_are_named(void **state)
{
    static const struct muster_node_blob blobs[MEMBERS] = {{"same", 4}, {"same", 4}, {"sane", 4}};

    (void)state;
    show_blobs(blobs, 1);
    commit_all(5);

    start_fetch(5);
    finish_fetch(MUSTER_DATA_LOSS);
    assert_non_null(strstr(world.catch_up.error.text, "hold different bytes of state 5"));
}

static void another_number_of_blobs_is_told(void **state)
{
    static const struct muster_node_blob blobs[MEMBERS] = {{"same", 4}, {"same", 4}, {"same", 4}};

    (void)state;
    show_blobs(blobs, 0);
    commit_all(5);

    start_fetch(5);
    finish_fetch(MUSTER_INVALID_ARGUMENT);
    assert_non_null(strstr(world.catch_up.error.text, "0 blobs are registered here and 1 on"));
}

static void equal_chunks_are_not_fetched(void **state)
{
    (void)state;
    memcpy(world.joiner.weights, world.members[0].state.weights, WEIGHTS * sizeof(float));
    world.joiner.weights[0] += 1; /* one chunk differs, and the biases */
    commit_all(5);

    start_fetch(5);
    assert_fetched();
    assert_int_equal(world.catch_up.bytes_fetched,
                     MUSTER_STATE_CHUNK_BYTES + BIASES * sizeof(int64_t));
}

static void request_waits_for_the_commit(void **state)
{
    (void)state;
    commit_all(4);

    start_fetch(5);
    await_links();
    test_env_turn(&world.test.env, 20);
    assert_false(world.is_done);
    for (int i = 0; i < MEMBERS; i++) {
        muster_state_server_touch(world.members[i].server);
        world.members[i].state.weights[7] = 77;
    }
    commit_all(5);
    assert_fetched();
}

static void death_of_a_source_is_made_up_by_the_others(void **state)
{
    (void)state;
    commit_all(5);

    start_fetch(5);
    while (world.members[2].links == 0)
        test_env_turn(&world.test.env, 1);
    member_close(&world.members[2]);
    follow_view(3, 0, 2);
    assert_fetched();
}

static void death_of_all_sources_is_unavailable_when_the_view_says_so(void **state)
{
    (void)state;

    start_fetch(5); /* nobody has committed yet */
    await_links();
    for (int i = 0; i < MEMBERS; i++)
        member_close(&world.members[i]);
    test_env_turn(&world.test.env, 50);
    assert_false(world.is_done);
    follow_view(3, 0, 0);

    finish_fetch(MUSTER_UNAVAILABLE);
}

/* As after a reset: the member lives on, and its links are gone. */
static void break_links(struct member *member)
{
    struct muster_env *env = &world.test.env;

    muster_state_server_close(member->server);
    assert_int_equal(muster_state_server_open(env, &member->server), MUSTER_OK);
    muster_state_server_set_chunks(member->server, &member->state.chunks);
}

static void a_broken_link_is_opened_again(void **state)
{
    (void)state;

    start_fetch(5);
    await_links();
    for (int i = 0; i < MEMBERS; i++)
        break_links(&world.members[i]);
    test_env_turn(&world.test.env, 20);
    commit_all(5);
    assert_fetched();
}

static void who_is_silent_and_left_out_is_not_waited_for(void **state)
{
    (void)state;
    muster_state_server_commit(world.members[1].server, 5);
    muster_state_server_commit(world.members[2].server, 5);

    start_fetch(5);
    await_links();
    test_env_turn(&world.test.env, 50);
    assert_false(world.is_done);
    follow_view(3, 1, 2);
    assert_fetched();
}

static void a_joiner_that_has_the_state_serves_it(void **state)
{
    (void)state;
    world.entries[1].from_step = 6; /* needs state 5, as we do */
    muster_view_unref(world.view);
    world.view = view_of(2, 1, 1);
    muster_state_server_commit(world.members[1].server, 5);

    start_fetch(5);
    assert_fetched();
}

static void a_joiner_without_the_state_is_not_waited_for(void **state)
{
    (void)state;
    world.entries[2].from_step = 6;
    muster_view_unref(world.view);
    world.view = view_of(2, 0, MEMBERS);
    muster_state_server_commit(world.members[0].server, 5);
    muster_state_server_commit(world.members[1].server, 5);

    start_fetch(5);
    assert_fetched();
}

/* It will have the state, or others will. */
static void a_joiner_is_waited_for_where_nobody_else_is_left(void **state)
{
    (void)state;
    world.entries[1].from_step = world.entries[2].from_step = 6;
    muster_view_unref(world.view);
    world.view = view_of(2, 0, MEMBERS);
    start_fetch(5);
    await_links();
    follow_view(3, 1, 1);
    test_env_turn(&world.test.env, 50);
    assert_false(world.is_done);
    muster_state_server_commit(world.members[1].server, 5);
    assert_fetched();
}

static void an_answer_of_a_later_epoch_waits_for_its_view(void **state)
{
    (void)state;
    world.members[0].state.biases[3]++; /* left out of epoch 3 for it */
    commit_all(5);
    muster_state_server_set_epoch(world.members[0].server, 2);
    muster_state_server_set_epoch(world.members[1].server, 3);
    muster_state_server_set_epoch(world.members[2].server, 3);

    start_fetch(5);
    await_links();
    test_env_turn(&world.test.env, 50);
    assert_false(world.is_done);
    follow_view(3, 1, 2);
    assert_fetched();
}

static void members_that_disagree_are_named(void **state)
{
    (void)state;
    world.members[1].state.biases[3]++;
    commit_all(5);

    start_fetch(5);
    finish_fetch(MUSTER_DATA_LOSS);

    assert_non_null(strstr(world.catch_up.error.text, "worker:0"));
    assert_non_null(strstr(world.catch_up.error.text, "worker:1"));
}

/* The hashes of a step are computed once: a first catch-up fixes them, then the bytes change. */
static void other_bytes_than_announced_are_fetched_from_the_others(void **state)
{
    (void)state;
    commit_all(5);
    start_fetch(5);
    finish_fetch(MUSTER_OK);
    for (int i = 0; i < WEIGHTS; i++)
        world.members[0].state.weights[i] = world.joiner.weights[i] = -1;
    muster_state_hashes_forget_all(&world.joiner.chunks); /* the program has had it since */
    world.is_done = false;

    start_fetch(5);
    assert_fetched();
}

static void tensor_of_another_shape_is_named(void **state)
{
    (void)state;
    commit_all(5);
    muster_state_chunks_fini(&world.joiner.chunks);
    world.joiner.tensors[1].tensor.count = BIASES - 1;
    assert_int_equal(
        muster_state_chunks_init(&world.joiner.chunks, world.test.env.mem, world.joiner.tensors, 2),
        MUSTER_OK);

    start_fetch(5);
    finish_fetch(MUSTER_INVALID_ARGUMENT);

    assert_non_null(strstr(world.catch_up.error.text, "\"biases\""));
    assert_int_equal(world.joiner.weights[5], 9 + 5); /* untouched */
}

static void state_that_is_past_is_refused(void **state)
{
    (void)state;
    commit_all(5);
    for (int i = 0; i < MEMBERS; i++)
        muster_state_server_touch(world.members[i].server);

    start_fetch(5);
    finish_fetch(MUSTER_UNAVAILABLE);

    assert_non_null(strstr(world.catch_up.error.text, "past"));
}

static void cancel_still_calls_back_once(void **state)
{
    (void)state;

    start_fetch(5);
    muster_catch_up_cancel(&world.catch_up);
    muster_catch_up_cancel(&world.catch_up);
    assert_false(world.is_done);

    finish_fetch(MUSTER_CANCELLED);
}

/* One allocation fails, of a member or of the joiner, who asks again or says that it has no memory. */
static void run_short(struct torture *torture, const void *data)
{
    bool is_from_start = *(const bool *)data;
    enum muster_rc rc = MUSTER_OK;

    world_open();
    commit_all(5);

    if (is_from_start) {
        torture_arm_limited(torture, &world.test.mem);
        rc = try_start(5);
    } else {
        start_fetch(5);
        torture_arm_limited(torture, &world.test.mem);
    }
    if (rc == MUSTER_OK)
        test_env_run_until(&world.test.env, test_env_is_true, &world.is_done);
    torture_disarm(torture);

    if (rc == MUSTER_OK)
        rc = world.rc;
    if (rc == MUSTER_OK)
        assert_same_state();
    else if (rc != MUSTER_RESOURCE_EXHAUSTED)
        fail_msg("%s: %s", muster_rc_name(rc), world.catch_up.error.text);
    world_close();
}

static void want_of_memory_keeps_no_joiner_waiting(void **state)
{
    static const bool is_from_start[] = {false, true};
    const struct torture_scenario scenarios[] = {
        {"catch-up", run_short, &is_from_start[0], 1, 0},
        {"catch-up, from its start", run_short, &is_from_start[1], 1, 0},
    };

    (void)state;
    torture_run_all(scenarios, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(joiner_gets_every_byte_from_all_members),
        CASE(blobs_come_with_the_state),
        CASE(members_whose_blobs_differ_are_named),
        CASE(another_number_of_blobs_is_told),
        CASE(equal_chunks_are_not_fetched),
        CASE(request_waits_for_the_commit),
        CASE(death_of_a_source_is_made_up_by_the_others),
        CASE(death_of_all_sources_is_unavailable_when_the_view_says_so),
        CASE(a_broken_link_is_opened_again),
        CASE(who_is_silent_and_left_out_is_not_waited_for),
        CASE(a_joiner_that_has_the_state_serves_it),
        CASE(a_joiner_without_the_state_is_not_waited_for),
        CASE(a_joiner_is_waited_for_where_nobody_else_is_left),
        CASE(an_answer_of_a_later_epoch_waits_for_its_view),
        CASE(members_that_disagree_are_named),
        CASE(other_bytes_than_announced_are_fetched_from_the_others),
        CASE(tensor_of_another_shape_is_named),
        CASE(an_observer_fetches_ahead_and_little_afterwards),
        CASE(what_the_step_changes_is_left_out),
        CASE(an_observer_that_has_all_fetches_nothing_ahead),
        CASE(without_parts_only_the_own_memory_is_hashed),
        CASE(what_is_wrong_ahead_is_fetched_again),
        CASE(death_of_a_source_ahead_is_made_up_by_the_others),
        CASE(without_a_source_it_ends_ahead),
        CASE(other_tensors_are_told_ahead),
        CASE(state_that_is_past_is_refused),
        CASE(cancel_still_calls_back_once),
        FAR_CASE(joiner_gets_every_byte_from_all_members),
        FAR_CASE(equal_chunks_are_not_fetched),
        FAR_CASE(death_of_a_source_is_made_up_by_the_others),
        FAR_CASE(other_bytes_than_announced_are_fetched_from_the_others),
        FAR_CASE(an_observer_fetches_ahead_and_little_afterwards),
        FAR_CASE(what_the_step_changes_is_left_out),
        FAR_CASE(what_is_wrong_ahead_is_fetched_again),
        FAR_CASE(cancel_still_calls_back_once),
        FAR_CASE(a_member_that_cannot_read_its_state_is_not_waited_for),
        FAR_CASE(a_chunk_that_cannot_be_read_is_fetched_from_another_member),
        FAR_CASE(a_joiner_that_cannot_write_its_state_fails),
        cmocka_unit_test_teardown(want_of_memory_keeps_no_joiner_waiting, torture_tell),
    };

    return cmocka_run_group_tests_name("catch_up", tests, NULL, NULL);
}
