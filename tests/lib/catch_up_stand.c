/* The members' greetings, and what all cases do. */
#include "catch_up_stand.h"

#include <string.h>

#define BOARD_BYTES 4096

static void on_ready(struct muster_peer_link *link)
{
    struct catch_up_member *member = muster_peer_link_data(link);

    member->greeting = NULL;
    member->links++;
    muster_state_server_accept(member->server, link);
}

static void on_down(struct muster_peer_link *link, const struct muster_error *error)
{
    struct catch_up_member *member = muster_peer_link_data(link);

    (void)error;
    member->greeting = NULL;
    muster_peer_link_close(link);
}

static const struct muster_peer_link_events greeting_events = {.on_ready = on_ready,
                                                               .on_down = on_down};

/* The environment that the listener was opened with. */
static struct muster_env *listening_env;

static void on_accept(struct muster_listener *listener, struct muster_stream *stream)
{
    struct catch_up_member *member = listener->data;
    struct muster_env *env = listening_env;

    if (muster_peer_link_accept(env, stream, &member->hello,
                                muster_loop_after_ns(env->loop, 10 * MUSTER_NS_PER_S),
                                &greeting_events, member, &member->greeting) != MUSTER_OK)
        member->greeting = NULL; /* no memory: the joiner comes again */
}

static void hello_init(struct muster_peer_hello *hello, uint8_t id)
{
    memset(hello, 0, sizeof(*hello));
    memcpy(hello->job, "test", 5);
    hello->version = MUSTER_PEER_VERSION;
    memset(hello->incarnation.bytes, id, sizeof(hello->incarnation.bytes));
}

static void state_init(struct catch_up_stand *stand, struct muster_node_tensor *tensor,
                       struct muster_state_chunks *chunks, uint32_t seed)
{
    struct muster_mem *mem = stand->test.env.mem;
    uint32_t *words = muster_mem_alloc(mem, CATCH_UP_BYTES);

    assert_non_null(words);
    for (size_t i = 0; i < CATCH_UP_BYTES / sizeof(*words); i++)
        words[i] = seed + (uint32_t)i;
    *tensor = (struct muster_node_tensor){"state", {words, CATCH_UP_BYTES, MUSTER_U8}, NULL};
    assert_int_equal(muster_state_chunks_init(chunks, mem, tensor, 1), MUSTER_OK);
}

static void member_open(struct catch_up_stand *stand, int index)
{
    struct catch_up_member *member = &stand->members[index];
    struct muster_member *entry = &stand->entries[index];
    struct muster_address any;

    assert_int_equal(muster_address_parse("127.0.0.1:0", &any, NULL), MUSTER_OK);
    hello_init(&member->hello, (uint8_t)(index + 1));
    state_init(stand, &member->tensor, &member->chunks, 1);
    assert_int_equal(muster_state_server_open(&stand->test.env, &member->server), MUSTER_OK);
    muster_state_server_set_chunks(member->server, &member->chunks);
    assert_int_equal(muster_listener_open(stand->test.env.net, &any, NULL, on_accept, member,
                                          &member->listener, NULL),
                     MUSTER_OK);
    entry->incarnation = member->hello.incarnation;
    memcpy(entry->task_type, "worker", 7);
    entry->task_index = (uint32_t)index;
    entry->address = *muster_listener_address(member->listener);
}

static struct muster_view *view_of(struct catch_up_stand *stand, uint64_t epoch, uint32_t first,
                                   uint32_t count)
{
    struct muster_view fields = {
        .epoch = epoch, .member_count = count, .members = &stand->entries[first], .job = "test"};
    struct muster_view *view = NULL;

    assert_int_equal(muster_view_new(stand->test.env.mem, &fields, &view), MUSTER_OK);
    return view;
}

void catch_up_stand_open(struct catch_up_stand *stand)
{
    memset(stand, 0, sizeof(*stand));
    test_env_open(&stand->test);
    assert_int_equal(muster_net_system_open(&stand->test.env, &stand->test.env.net), MUSTER_OK);
    listening_env = &stand->test.env;
    sim_board_world_init(&stand->boards, &stand->test.env);
    for (int i = 0; i < CATCH_UP_MEMBERS; i++)
        member_open(stand, i);
    stand->view = view_of(stand, 2, 0, CATCH_UP_MEMBERS);
    memset(stand->self.bytes, 99, sizeof(stand->self.bytes));
    state_init(stand, &stand->tensor, &stand->chunks, 9);
}

void catch_up_stand_close_member(struct catch_up_stand *stand, int index)
{
    struct catch_up_member *member = &stand->members[index];

    (void)stand;
    if (member->listener == NULL)
        return;
    if (member->greeting != NULL)
        muster_peer_link_close(member->greeting);
    muster_state_server_close(member->server);
    muster_listener_close(member->listener, NULL);
    member->listener = NULL;
}

void catch_up_stand_close(struct catch_up_stand *stand)
{
    struct muster_env *env = &stand->test.env;

    for (int i = 0; i < CATCH_UP_MEMBERS; i++)
        catch_up_stand_close_member(stand, i);
    test_env_turn(env, 10);
    for (int i = 0; i < CATCH_UP_MEMBERS; i++) {
        if (stand->members[i].board != NULL)
            muster_board_close(stand->members[i].board);
        muster_state_chunks_fini(&stand->members[i].chunks);
        muster_mem_free(env->mem, stand->members[i].tensor.tensor.data);
    }
    if (stand->board != NULL)
        muster_board_close(stand->board);
    muster_state_chunks_fini(&stand->chunks);
    muster_mem_free(env->mem, stand->tensor.tensor.data);
    muster_view_unref(stand->view);
    muster_net_system_close(env->net);
    test_env_close(&stand->test);
}

uint8_t *catch_up_stand_bytes(struct catch_up_stand *stand, int member)
{
    return stand->members[member].tensor.tensor.data;
}

static void connect_pair(struct muster_board *from, const struct muster_incarnation *to)
{
    struct muster_member member = {.incarnation = *to};
    struct muster_board_peer *peer = NULL;

    assert_int_equal(muster_board_connect(from, &member, &peer), MUSTER_OK);
}

void catch_up_stand_connect(struct catch_up_stand *stand)
{
    stand->board = sim_board_open(&stand->boards, &stand->self, BOARD_BYTES);
    for (int i = 0; i < CATCH_UP_MEMBERS; i++) {
        struct catch_up_member *member = &stand->members[i];

        member->board = sim_board_open(&stand->boards, &member->hello.incarnation, BOARD_BYTES);
        muster_state_server_set_board(member->server, member->board);
        connect_pair(member->board, &stand->self);
        connect_pair(stand->board, &member->hello.incarnation);
    }
}

void catch_up_stand_commit(struct catch_up_stand *stand, uint64_t step)
{
    for (int i = 0; i < CATCH_UP_MEMBERS; i++)
        muster_state_server_commit(stand->members[i].server, step);
}

static void on_caught_up(struct muster_catch_up *catch_up, enum muster_rc rc)
{
    struct catch_up_stand *stand = catch_up->data;

    stand->is_done = true;
    stand->rc = rc;
}

void catch_up_stand_start(struct catch_up_stand *stand, uint64_t step)
{
    struct muster_catch_up_options options = {
        .env = &stand->test.env,
        .chunks = &stand->chunks,
        .view = stand->view,
        .board = stand->board,
        .step = step,
        .deadline_ns = muster_loop_after_ns(stand->test.env.loop, 60 * MUSTER_NS_PER_S),
    };

    hello_init(&options.hello, 99);
    stand->catch_up.data = stand;
    stand->is_done = false;
    assert_int_equal(muster_catch_up_start(&stand->catch_up, &options, on_caught_up), MUSTER_OK);
}

void catch_up_stand_finish(struct catch_up_stand *stand, enum muster_rc expected)
{
    test_env_run_until(&stand->test.env, test_env_is_true, &stand->is_done);
    if (stand->rc != expected)
        fail_msg("%s: %s", muster_rc_name(stand->rc), stand->catch_up.error.text);
    if (stand->rc == MUSTER_OK)
        assert_memory_equal(stand->tensor.tensor.data, catch_up_stand_bytes(stand, 1),
                            CATCH_UP_BYTES);
}

void catch_up_stand_view(struct catch_up_stand *stand, uint32_t first, uint32_t count)
{
    muster_view_unref(stand->view);
    stand->view = view_of(stand, 2, first, count);
}

void catch_up_stand_follow(struct catch_up_stand *stand, uint64_t epoch, uint32_t first,
                           uint32_t count)
{
    struct muster_view *view = view_of(stand, epoch, first, count);

    muster_catch_up_follow(&stand->catch_up, view);
    muster_view_unref(view);
}

uint32_t catch_up_stand_hashed(struct catch_up_stand *stand, int member)
{
    return stand->members[member].chunks.hashes.known_count;
}
