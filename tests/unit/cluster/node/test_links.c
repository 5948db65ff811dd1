/* A peer that is played by hand, on its control links to a node. */
#include "node_stand.h"

#include <stdio.h>
#include <string.h>

#include <muster/stream.h>

#include "cluster/membership/control_proto.h"
#include "net/link/peer_link.h"

#define LINKS 2

struct stand {
    struct node_stand node;
    struct muster_peer_hello hello;
    struct muster_peer_link *links[LINKS];
    bool is_ready[LINKS];
    char log[LINKS][80]; /* "commit:1 " has come: view 1; "down " */
    uint8_t received[65536];
};

static size_t index_of(const struct stand *stand, const struct muster_peer_link *link)
{
    return link == stand->links[0] ? 0 : 1;
}

static void note_event(struct stand *stand, const struct muster_peer_link *link, const char *what,
                       unsigned number)
{
    char *log = stand->log[index_of(stand, link)];
    size_t length = strlen(log);

    (void)snprintf(log + length, sizeof(stand->log[0]) - length, "%s:%u ", what, number);
}

static void on_ready(struct muster_peer_link *link)
{
    struct stand *stand = muster_peer_link_data(link);

    stand->is_ready[index_of(stand, link)] = true;
}

static void *on_frame(struct muster_peer_link *link, const struct muster_frame_header *header)
{
    struct stand *stand = muster_peer_link_data(link);

    assert_true(header->payload_bytes <= sizeof(stand->received));
    return stand->received;
}

static void on_payload(struct muster_peer_link *link, const struct muster_frame_header *header,
                       void *buffer)
{
    struct stand *stand = muster_peer_link_data(link);
    struct muster_control control;

    assert_int_equal(header->channel, MUSTER_FRAME_MEMBERSHIP);
    assert_int_equal(
        muster_control_unpack(stand->node.pair.env->mem, buffer, header->payload_bytes, &control),
        MUSTER_OK);
    if (control.kind == MUSTER_CONTROL_COMMIT)
        note_event(stand, link, "commit", (unsigned)control.view->epoch);
    muster_control_fini(&control);
}

static void on_down(struct muster_peer_link *link, const struct muster_error *error)
{
    (void)error;
    note_event(muster_peer_link_data(link), link, "down", 0);
}

static const struct muster_peer_link_events events = {
    .on_ready = on_ready, .on_frame = on_frame, .on_payload = on_payload, .on_down = on_down};

static void open_link(struct stand *stand, size_t i, enum muster_link_purpose purpose)
{
    struct muster_env *env = stand->node.pair.env;
    struct muster_peer_hello hello = stand->hello;

    hello.purpose = purpose;
    assert_int_equal(muster_peer_link_open(env, muster_node_address(stand->node.node), &hello,
                                           muster_loop_after_ns(env->loop, 30 * MUSTER_NS_PER_S),
                                           &events, stand, &stand->links[i]),
                     MUSTER_OK);
    test_env_run_until(env, test_env_is_true, &stand->is_ready[i]);
}

/* The node has a view of its own. */
static void stand_open(struct stand *stand)
{
    memset(stand, 0, sizeof(*stand));
    stand->hello = (struct muster_peer_hello){
        .job = NODE_STAND_JOB, .version = MUSTER_PEER_VERSION, .session = 0};
    memset(stand->hello.incarnation.bytes, 1, sizeof(stand->hello.incarnation.bytes));
    node_stand_open(&stand->node);
    node_stand_open_node(&stand->node);
    node_stand_wait(&stand->node);
}

static void stand_close(struct stand *stand)
{
    for (size_t i = 0; i < LINKS; i++)
        if (stand->links[i] != NULL)
            muster_peer_link_close(stand->links[i]);
    node_stand_close_node(&stand->node);
    node_stand_close(&stand->node);
}

static void send_frame(struct stand *stand, size_t i, enum muster_frame_channel channel,
                       const void *bytes, size_t size)
{
    const struct muster_frame_header header = {.channel = (uint8_t)channel,
                                               .payload_bytes = (uint32_t)size};

    assert_int_equal(muster_peer_link_send_copy(stand->links[i], &header, bytes), MUSTER_OK);
}

/* A process without a view asks for it. */
static void ask_for_view(struct stand *stand, size_t i)
{
    const struct muster_control control = {.kind = MUSTER_CONTROL_VIEW_REQUEST};
    void *bytes = NULL;
    size_t size = 0;

    assert_int_equal(muster_control_pack(&control, stand->node.pair.env->mem, &bytes, &size),
                     MUSTER_OK);
    send_frame(stand, i, MUSTER_FRAME_MEMBERSHIP, bytes, size);
    muster_mem_free(stand->node.pair.env->mem, bytes);
}

static bool has_word(void *data)
{
    return *(const char *)data != '\0';
}

static void wait_for_word(struct stand *stand, size_t i)
{
    test_env_run_until(stand->node.pair.env, has_word, stand->log[i]);
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
        struct stand stand;

        memset(bytes, 0xff, sizeof(bytes));
        stand_open(&stand);
        open_link(&stand, 0, MUSTER_LINK_CONTROL);
        send_frame(&stand, 0, rows[i].channel, bytes, rows[i].size);
        ask_for_view(&stand, 0);
        wait_for_word(&stand, 0);

        if (strcmp(stand.log[0], rows[i].log) != 0)
            fail_msg("%s: '%s'", rows[i].name, stand.log[0]);
        stand_close(&stand);
    }
}

static void a_newer_link_of_the_same_peer_replaces_the_old_one(void **state)
{
    struct stand stand;

    (void)state;
    stand_open(&stand);
    open_link(&stand, 0, MUSTER_LINK_CONTROL);
    ask_for_view(&stand, 0);
    wait_for_word(&stand, 0);
    stand.log[0][0] = '\0';
    open_link(&stand, 1, MUSTER_LINK_CONTROL);
    wait_for_word(&stand, 0);
    assert_string_equal(stand.log[0], "down:0 ");
    ask_for_view(&stand, 1);
    wait_for_word(&stand, 1);

    assert_string_equal(stand.log[1], "commit:1 ");
    stand_close(&stand);
}

int main(void)
{
    const struct CMUnitTest node_links[] = {
        cmocka_unit_test(only_whole_control_messages_are_taken),
        cmocka_unit_test(a_newer_link_of_the_same_peer_replaces_the_old_one),
    };

    return cmocka_run_group_tests(node_links, NULL, NULL);
}
