/* A peer that is played by hand, on its control links to a node. */
#include "node_stand.h"

#include <stdio.h>
#include <string.h>

#include <muster/stream.h>

#include "cluster/membership/control_proto.h"
#include "cluster/node/node_internal.h"
#include "collective/group/group_internal.h"
#include "net/link/peer_link.h"

#define LINKS   2
#define STREAMS 8

struct stand {
    struct node_stand node;
    struct muster_peer_hello hello;
    struct muster_listener *listener;       /* where the node finds the peer; NULL: nowhere */
    struct muster_stream *streams[STREAMS]; /* the node's connections to it, not answered yet */
    struct muster_peer_link *greetings[STREAMS];
    size_t stream_count;
    struct muster_peer_link *links[LINKS];
    bool is_ready[LINKS];
    char log[LINKS][80]; /* "commit:1 " has come: view 1; "quit:0 ", "down:0 " */
    uint8_t received[65536];
};

static struct stand stand; /* of the case that runs */

static size_t index_of(const struct muster_peer_link *link)
{
    return link == stand.links[0] ? 0 : 1;
}

static void note_event(const struct muster_peer_link *link, const char *what, unsigned number)
{
    char *log = stand.log[index_of(link)];
    size_t length = strlen(log);

    (void)snprintf(log + length, sizeof(stand.log[0]) - length, "%s:%u ", what, number);
}

static void on_ready(struct muster_peer_link *link)
{
    stand.is_ready[index_of(link)] = true;
}

static void *on_frame(struct muster_peer_link *link, const struct muster_frame_header *header)
{
    (void)link;
    assert_true(header->payload_bytes <= sizeof(stand.received));
    return stand.received;
}

static void on_payload(struct muster_peer_link *link, const struct muster_frame_header *header,
                       void *buffer)
{
    struct muster_control control;

    assert_int_equal(header->channel, MUSTER_FRAME_MEMBERSHIP);
    assert_int_equal(
        muster_control_unpack(stand.node.pair.env->mem, buffer, header->payload_bytes, &control),
        MUSTER_OK);
    if (control.kind == MUSTER_CONTROL_COMMIT)
        note_event(link, "commit", (unsigned)control.view->epoch);
    if (control.kind == MUSTER_CONTROL_SUSPECT && control.is_confirmed &&
        muster_incarnation_is_equal(&control.accused, muster_node_incarnation(stand.node.node)))
        note_event(link, "quit", 0);
    muster_control_fini(&control);
}

static void on_down(struct muster_peer_link *link, const struct muster_error *error)
{
    (void)error;
    note_event(link, "down", 0);
}

static const struct muster_peer_link_events events = {
    .on_ready = on_ready, .on_frame = on_frame, .on_payload = on_payload, .on_down = on_down};

static void start_link(size_t i, enum muster_link_purpose purpose)
{
    struct muster_env *env = stand.node.pair.env;
    struct muster_peer_hello hello = stand.hello;

    hello.purpose = purpose;
    assert_int_equal(muster_peer_link_open(env, muster_node_address(stand.node.node), &hello,
                                           muster_loop_after_ns(env->loop, 30 * MUSTER_NS_PER_S),
                                           &events, &stand, &stand.links[i]),
                     MUSTER_OK);
}

static void open_link(size_t i, enum muster_link_purpose purpose)
{
    start_link(i, purpose);
    test_env_run_until(stand.node.pair.env, test_env_is_true, &stand.is_ready[i]);
}

/* The node has a view of its own. */
static void stand_open(void)
{
    memset(&stand, 0, sizeof(stand));
    stand.hello = (struct muster_peer_hello){
        .job = NODE_STAND_JOB, .version = MUSTER_PEER_VERSION, .session = 0};
    memset(stand.hello.incarnation.bytes, 1, sizeof(stand.hello.incarnation.bytes));
    node_stand_begin(&stand.node);
}

static void on_accept(struct muster_listener *listener, struct muster_stream *stream)
{
    (void)listener;
    assert_true(stand.stream_count < STREAMS);
    stand.streams[stand.stream_count++] = stream;
}

static void forget_greeting(struct muster_peer_link *link)
{
    for (size_t i = 0; i < STREAMS; i++)
        if (stand.greetings[i] == link)
            stand.greetings[i] = NULL;
}

/* The control link of the node's connections is kept, as the first one here. */
static void on_greeting(struct muster_peer_link *link)
{
    forget_greeting(link);
    if (muster_peer_link_hello(link)->purpose != MUSTER_LINK_CONTROL) {
        muster_peer_link_close(link);
        return;
    }
    muster_peer_link_set_owner(link, &events, &stand);
    stand.links[0] = link;
    stand.is_ready[0] = true;
}

static void on_greeting_down(struct muster_peer_link *link, const struct muster_error *error)
{
    (void)error;
    forget_greeting(link);
    muster_peer_link_close(link);
}

static const struct muster_peer_link_events greeting_events = {
    .on_ready = on_greeting, .on_frame = on_frame, .on_down = on_greeting_down};

/* The peer is a member of the node's view, and the node, whose incarnation is smaller, connects to it. */
static void stand_open_as_member(void)
{
    struct muster_member member = node_stand_other(NODE_STAND_HOST, "127.0.0.1:0");
    struct muster_node_options options = {.env = NULL};
    struct muster_address any = member.address;

    memset(&stand, 0, sizeof(stand));
    stand.hello = (struct muster_peer_hello){
        .job = NODE_STAND_JOB, .version = MUSTER_PEER_VERSION, .incarnation = member.incarnation};
    memset(options.incarnation.bytes, 1, sizeof(options.incarnation.bytes));
    node_stand_open(&stand.node);
    assert_int_equal(muster_listener_open(stand.node.pair.env->net, &any, NULL, on_accept, &stand,
                                          &stand.listener, NULL),
                     MUSTER_OK);
    member.address = *muster_listener_address(stand.listener);
    node_stand_put_record(&stand.node, &member);
    assert_int_equal(node_stand_try_node(&stand.node, options), MUSTER_OK);
    node_stand_wait(&stand.node);
    assert_string_equal(stand.node.told, "view:2 ");
    stand.node.told[0] = '\0';
}

/* Answer the node's connections until its control link is there. */
static bool has_accepted(void *data)
{
    struct muster_env *env = stand.node.pair.env;
    struct muster_peer_hello hello = stand.hello;

    (void)data;
    hello.purpose = MUSTER_LINK_AS_OPENED;
    for (size_t i = 0; i < stand.stream_count; i++) {
        if (stand.streams[i] == NULL)
            continue;
        assert_int_equal(
            muster_peer_link_accept(env, stand.streams[i], &hello,
                                    muster_loop_after_ns(env->loop, 30 * MUSTER_NS_PER_S),
                                    &greeting_events, &stand, &stand.greetings[i]),
            MUSTER_OK);
        stand.streams[i] = NULL;
    }
    return stand.is_ready[0];
}

static void accept_link(void)
{
    test_env_run_until(stand.node.pair.env, has_accepted, NULL);
}

static void stand_close(void)
{
    for (size_t i = 0; i < STREAMS; i++) {
        if (stand.streams[i] != NULL)
            muster_stream_close(stand.streams[i], NULL);
        if (stand.greetings[i] != NULL)
            muster_peer_link_close(stand.greetings[i]);
    }
    if (stand.listener != NULL)
        muster_listener_close(stand.listener, NULL);
    for (size_t i = 0; i < LINKS; i++)
        if (stand.links[i] != NULL)
            muster_peer_link_close(stand.links[i]);
    node_stand_end(&stand.node);
}

static void send_frame(size_t i, enum muster_frame_channel channel, const void *bytes, size_t size)
{
    const struct muster_frame_header header = {.channel = (uint8_t)channel,
                                               .payload_bytes = (uint32_t)size};

    assert_int_equal(muster_peer_link_send_copy(stand.links[i], &header, bytes), MUSTER_OK);
}

/* A process without a view asks for it. */
static void ask_for_view(size_t i)
{
    const struct muster_control control = {.kind = MUSTER_CONTROL_VIEW_REQUEST};
    void *bytes = NULL;
    size_t size = 0;

    assert_int_equal(muster_control_pack(&control, stand.node.pair.env->mem, &bytes, &size),
                     MUSTER_OK);
    send_frame(i, MUSTER_FRAME_MEMBERSHIP, bytes, size);
    muster_mem_free(stand.node.pair.env->mem, bytes);
}

static bool has_word(void *data)
{
    return *(const char *)data != '\0';
}

static void wait_for_word(size_t i)
{
    test_env_run_until(stand.node.pair.env, has_word, stand.log[i]);
}

static void only_whole_control_messages_are_taken(void **state)
{
    static const struct {
        const char *name;
        enum muster_frame_channel channel;
        size_t size; /* of 0xff bytes that are sent before a request for the view */
        const char *log;
    } rows[] = {
        {"nothing", MUSTER_FRAME_MEMBERSHIP, 0, "commit:1 "},
        {"no message", MUSTER_FRAME_MEMBERSHIP, 9, "down:0 "},
        {"another channel", MUSTER_FRAME_STATE, 9, "commit:1 "},
        {"a collective's", MUSTER_FRAME_COLLECTIVE, 9, "commit:1 "},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint8_t bytes[9];

        memset(bytes, 0xff, sizeof(bytes));
        stand_open();
        open_link(0, MUSTER_LINK_CONTROL);
        send_frame(0, rows[i].channel, bytes, rows[i].size);
        ask_for_view(0);
        wait_for_word(0);

        if (strcmp(stand.log[0], rows[i].log) != 0)
            fail_msg("%s: '%s'", rows[i].name, stand.log[0]);
        stand_close();
    }
}

static void a_newer_link_of_the_same_peer_replaces_the_old_one(void **state)
{
    (void)state;
    stand_open();
    open_link(0, MUSTER_LINK_CONTROL);
    ask_for_view(0);
    wait_for_word(0);
    stand.log[0][0] = '\0';
    open_link(1, MUSTER_LINK_CONTROL);
    wait_for_word(0);
    assert_string_equal(stand.log[0], "down:0 ");
    ask_for_view(1);
    wait_for_word(1);

    assert_string_equal(stand.log[1], "commit:1 ");
}

/* Both sides keep the link of the smaller incarnation, here the node's, whichever is there first. */
static void of_links_in_both_directions_the_same_one_stays(void **state)
{
    (void)state;
    for (unsigned is_own_first = 0; is_own_first < 2; is_own_first++) {
        stand_open_as_member();
        if (is_own_first != 0) {
            open_link(1, MUSTER_LINK_CONTROL);
            accept_link();
        } else {
            accept_link();
            start_link(1, MUSTER_LINK_CONTROL);
        }
        wait_for_word(1);
        assert_string_equal(stand.log[1], "down:0 ");
        ask_for_view(0);
        wait_for_word(0);

        assert_string_equal(stand.log[0], "commit:1 ");
        stand_close();
    }
}

static struct node_peer *peer_of_node(void)
{
    return muster_node_peer_find(stand.node.node, &stand.hello.incarnation);
}

static bool has_connected(void *data)
{
    return stand.stream_count >= *(const size_t *)data;
}

static void wait_for_streams(size_t count)
{
    test_env_run_until(stand.node.pair.env, has_connected, &count);
}

static void cut_stream(size_t i)
{
    muster_stream_close(stand.streams[i], NULL);
    stand.streams[i] = NULL;
}

static bool has_lost_opening(void *opening)
{
    return peer_of_node()->opening != opening;
}

/* The membership machine would take the peer for lost and connect again. */
static void the_loss_of_a_link_that_is_not_in_use_is_silent(void **state)
{
    struct muster_peer_link *used;

    (void)state;
    stand_open_as_member();
    wait_for_streams(1); /* the node waits for the peer's hello, which does not come */
    open_link(1, MUSTER_LINK_CONTROL);
    ask_for_view(1);
    wait_for_word(1); /* the node uses that link */
    used = peer_of_node()->link;
    assert_non_null(used);
    muster_listener_close(stand.listener, NULL);
    stand.listener = NULL;
    cut_stream(0);
    test_env_run_until(stand.node.pair.env, has_lost_opening, peer_of_node()->opening);

    assert_null(peer_of_node()->opening);
    assert_ptr_equal(peer_of_node()->link, used);
    stand.log[1][0] = '\0';
    ask_for_view(1);
    wait_for_word(1);
    assert_string_equal(stand.log[1], "commit:1 ");
}

static void on_broken(struct muster_peer_link *link, const struct muster_error *error)
{
    note_event(link, "broken", (unsigned)error->rc);
}

static void on_accept_in_vain(struct muster_listener *listener, struct muster_stream *stream)
{
    (void)listener;
    muster_stream_close(stream, NULL);
}

/* A link that is broken before anybody has read its hello. */
static void open_broken_link(size_t i, const struct muster_peer_link_events *resumable)
{
    struct muster_env *env = stand.node.pair.env;
    struct muster_peer_hello hello = stand.hello;
    struct muster_listener *listener;
    struct muster_address any;

    hello.purpose = MUSTER_LINK_CONTROL;
    assert_int_equal(muster_address_parse("127.0.0.1:0", &any, NULL), MUSTER_OK);
    assert_int_equal(
        muster_listener_open(env->net, &any, NULL, on_accept_in_vain, NULL, &listener, NULL),
        MUSTER_OK);
    assert_int_equal(muster_peer_link_open(env, muster_listener_address(listener), &hello,
                                           muster_loop_after_ns(env->loop, 30 * MUSTER_NS_PER_S),
                                           resumable, &stand, &stand.links[i]),
                     MUSTER_OK);
    wait_for_word(i);
    muster_listener_close(listener, NULL);
    assert_string_equal(stand.log[i], "broken:14 ");
    stand.log[i][0] = '\0';
}

static void on_resumed(struct muster_peer_link *link)
{
    note_event(link, "resumed", 0);
}

static const struct muster_peer_link_events resumable = {.on_ready = on_ready,
                                                         .on_frame = on_frame,
                                                         .on_payload = on_payload,
                                                         .on_down = on_down,
                                                         .on_broken = on_broken,
                                                         .on_resumed = on_resumed};

static void reopen_link(size_t i)
{
    struct muster_loop *loop = stand.node.pair.env->loop;

    assert_int_equal(muster_peer_link_reopen(stand.links[i], muster_node_address(stand.node.node),
                                             muster_loop_after_ns(loop, 30 * MUSTER_NS_PER_S)),
                     MUSTER_OK);
}

/* The node knows the peer, to which it is connecting itself, but not the session. */
static void a_session_of_a_known_peer_can_begin_late(void **state)
{

    (void)state;
    stand_open_as_member();
    wait_for_streams(1);
    assert_non_null(peer_of_node());
    open_broken_link(1, &resumable);
    assert_null(peer_of_node()->link);
    reopen_link(1);
    ask_for_view(1);
    wait_for_word(1);

    assert_string_equal(stand.log[1], "commit:1 ");
    assert_true(stand.is_ready[1]);
}

/* On the link of before, which is in use: nothing of it is lost. */
static void a_session_goes_on_behind_a_break(void **state)
{
    struct muster_error why;
    struct muster_peer_link *used;

    (void)state;
    stand_open();
    open_link(0, MUSTER_LINK_CONTROL);
    muster_peer_link_set_owner(stand.links[0], &resumable, &stand);
    ask_for_view(0);
    wait_for_word(0);
    used = peer_of_node()->link;
    assert_non_null(used);
    (void)muster_error_set(&why, MUSTER_UNAVAILABLE, "cut");
    stand.log[0][0] = '\0';
    muster_peer_link_break(stand.links[0], &why);
    if (stand.log[0][0] == '\0')
        wait_for_word(0);
    stand.log[0][0] = '\0';
    reopen_link(0);
    wait_for_word(0);
    assert_string_equal(stand.log[0], "resumed:0 ");
    stand.log[0][0] = '\0';
    ask_for_view(0);
    wait_for_word(0);

    assert_string_equal(stand.log[0], "commit:1 ");
    assert_ptr_equal(peer_of_node()->link, used);
}

static void on_left(struct muster_node *node, void *data)
{
    (void)node;
    *(bool *)data = true;
}

/* The others of its host would wait for its vote, or it for theirs, until somebody is evicted. */
static void a_member_that_has_failed_and_is_not_let_go_says_that_it_quits(void **state)
{
    static void (*const rows[])(struct muster_node *, const struct muster_error *) = {
        muster_node_break_group, /* it cannot vote */
        muster_node_fail,        /* the peer, which is played, does not */
    };
    const struct muster_error lack = {.rc = MUSTER_RESOURCE_EXHAUSTED, .text = "no memory"};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        bool has_left = false;
        struct muster_env *env;

        stand_open_as_member();
        env = stand.node.pair.env;
        accept_link();
        rows[i](stand.node.node, &lack);
        muster_node_leave(stand.node.node, true,
                          muster_loop_after_ns(env->loop, 3600 * MUSTER_NS_PER_S), on_left,
                          &has_left);
        wait_for_word(0);
        test_env_run_until(env, test_env_is_true, &has_left);

        assert_string_equal(stand.log[0], "quit:0 ");
        assert_string_equal(stand.node.told, "failed:8 ");
        stand_close();
    }
}

static void a_member_without_a_group_leaves_all_the_same(void **state)
{
    const struct muster_error lack = {.rc = MUSTER_RESOURCE_EXHAUSTED, .text = "no memory"};
    bool has_left = false;

    (void)state;
    stand_open_as_member();
    accept_link();
    muster_node_abort_group(stand.node.node, &lack); /* the action that opens it was lost */
    muster_node_fail(stand.node.node, &lack);
    muster_node_leave(stand.node.node, false, 0, on_left, &has_left);
    test_env_run_until(stand.node.pair.env, test_env_is_true, &has_left);

    assert_string_equal(stand.log[0], "quit:0 ");
}

static bool has_nothing_to_send(void *data)
{
    const struct muster_node *node = data;

    return !muster_node_is_registered(node) && muster_node_queued_bytes(node) == 0;
}

/* A slow member of its host may still read the memory of an operation that was given up here; that goes with the
 * board. */
static void a_member_that_is_out_waits_until_nobody_reads_its_operations(void **state)
{
    const struct muster_error why = {.rc = MUSTER_ABORTED, .text = "the program ends"};
    bool has_left = false;
    struct muster_group *group;
    struct muster_node *node;

    (void)state;
    stand_open_as_member();
    accept_link();
    node = stand.node.node;
    group = node->group;
    group->lingering_count = 1;
    muster_node_abort_group(node, &why);
    muster_node_deregister(node);
    test_env_run_until(stand.node.pair.env, has_nothing_to_send, node);
    muster_node_leave(node, false, 0, on_left, &has_left);
    muster_node_is_out(node);
    node->leave.deadline_ns = UINT64_MAX;

    muster_node_on_leave_timer(&node->leave.timer);
    assert_false(has_left);
    group->lingering_count = 0;
    muster_group_finish(group);
    muster_node_on_leave_timer(&node->leave.timer);
    assert_true(has_left);
    muster_task_post(&group->task, stand.node.pair.env->loop);
    test_env_turn(stand.node.pair.env, 1);
}

TEST_SET_UP(tear_down, stand_close())
#define CASE(name) cmocka_unit_test_teardown(name, tear_down)

int main(void)
{
    const struct CMUnitTest node_links[] = {
        cmocka_unit_test(only_whole_control_messages_are_taken),
        CASE(a_newer_link_of_the_same_peer_replaces_the_old_one),
        cmocka_unit_test(of_links_in_both_directions_the_same_one_stays),
        CASE(the_loss_of_a_link_that_is_not_in_use_is_silent),
        CASE(a_session_of_a_known_peer_can_begin_late),
        CASE(a_session_goes_on_behind_a_break),
        cmocka_unit_test(a_member_that_has_failed_and_is_not_let_go_says_that_it_quits),
        CASE(a_member_without_a_group_leaves_all_the_same),
        CASE(a_member_that_is_out_waits_until_nobody_reads_its_operations),
    };

    return cmocka_run_group_tests(node_links, NULL, NULL);
}
