/* A state server before a joiner that is played by hand: it serves what is committed, and nothing else. */
#include "test_env.h"

#include <stdio.h>
#include <string.h>

#include <muster/stream.h>

#include "cluster/node/state_server.h"
#include "runtime/value/far_memory.h"

#define COUNT   100000 /* numbers: two chunks */
#define LOG_MAX 4096
#define TOKEN   777u /* no such chunk: its refusal says that all asked before is done */
#define MANY    200u /* more requests than a link may have open */

struct stand {
    struct test_env test;
    float *numbers;
    struct muster_state_chunks chunks, others; /* others: what another program has registered */
    struct muster_state_server *server;
    struct muster_listener *listener;
    struct muster_peer_hello server_hello, joiner_hello;
    struct muster_peer_link *link; /* the joiner's */
    bool is_ready, is_accepted, is_settled;
    char log[LOG_MAX]; /* what has come: "manifest5 chunk1 refused11 " */
    uint8_t root[MUSTER_HASH128_BYTES];
    uint8_t payload[MUSTER_STATE_CHUNK_BYTES];
    struct muster_error refusal; /* the last */
    uint32_t refused_chunk;
};

static struct stand stand; /* of the case that runs */

static void stand_note(const char *what, uint64_t number)
{
    size_t length = strlen(stand.log);

    (void)snprintf(stand.log + length, sizeof(stand.log) - length, "%s%u ", what, (unsigned)number);
}

/* --- The joiner's link --- */

static void on_ready(struct muster_peer_link *link)
{
    ((struct stand *)muster_peer_link_data(link))->is_ready = true;
}

static void *on_frame(struct muster_peer_link *link, const struct muster_frame_header *header)
{
    (void)link;
    assert_true(header->payload_bytes <= sizeof(stand.payload));
    return stand.payload;
}

/* "stable1.": the hash of the first chunk is there and right, that of the second is not. */
static void take_stable(const struct muster_state_manifest *manifest)
{
    static const uint8_t zeros[MUSTER_HASH128_BYTES];
    uint8_t hash[MUSTER_HASH128_BYTES];
    size_t length = strlen(stand.log);

    length += (size_t)snprintf(stand.log + length, sizeof(stand.log) - length, "stable");
    for (uint32_t i = 0; i < manifest->chunk_count; i++) {
        muster_state_chunk_hash(&stand.chunks, i, hash);
        stand.log[length++] = memcmp(manifest->hashes[i], hash, sizeof(hash)) == 0     ? '1'
                              : memcmp(manifest->hashes[i], zeros, sizeof(zeros)) == 0 ? '.'
                                                                                       : '!';
    }
    (void)snprintf(stand.log + length, sizeof(stand.log) - length, " ");
}

static void take_manifest(const struct muster_frame_header *header)
{
    struct muster_state_manifest manifest;
    struct muster_error error;

    assert_int_equal(muster_state_manifest_unpack(stand.test.env.mem, stand.payload,
                                                  header->payload_bytes, &manifest, &error),
                     MUSTER_OK);
    assert_int_equal(manifest.step, header->op.step);
    if (manifest.step == MUSTER_STATE_STABLE) {
        take_stable(&manifest);
        muster_state_manifest_fini(&manifest);
        return;
    }
    assert_int_equal(manifest.chunk_count, stand.chunks.chunk_count);
    memcpy(stand.root, manifest.root, sizeof(stand.root));
    stand_note("manifest", manifest.step);
    muster_state_manifest_fini(&manifest);
}

static void take_refusal(const struct muster_frame_header *header)
{
    muster_state_refusal_unpack(stand.test.env.mem, stand.payload, header->payload_bytes,
                                &stand.refusal);
    stand.refused_chunk = header->chunk;
    stand_note("refused", stand.refusal.rc);
}

static void on_payload(struct muster_peer_link *link, const struct muster_frame_header *header,
                       void *buffer)
{
    uint32_t bytes;

    (void)link;
    (void)buffer;
    assert_int_equal(header->channel, MUSTER_FRAME_STATE);
    if (header->type == MUSTER_STATE_MANIFEST) {
        take_manifest(header);
    } else if (header->type == MUSTER_STATE_CHUNK) {
        assert_memory_equal(muster_state_chunk_at(&stand.chunks, header->chunk, &bytes),
                            stand.payload, header->payload_bytes);
        assert_int_equal(header->payload_bytes, bytes);
        stand_note("chunk", header->chunk);
    } else {
        assert_int_equal(header->type, MUSTER_STATE_REFUSED);
        if (header->chunk == TOKEN)
            stand.is_settled = true;
        else
            take_refusal(header);
    }
}

static void on_greeted(struct muster_peer_link *link)
{
    stand.is_accepted = true;
    muster_state_server_accept(stand.server, link);
}

static void on_refused(struct muster_peer_link *link, const struct muster_error *error)
{
    (void)link;
    fail_msg("%s", error->text);
}

static const struct muster_peer_link_events joiner_events = {
    .on_ready = on_ready, .on_frame = on_frame, .on_payload = on_payload, .on_down = on_refused};
static const struct muster_peer_link_events greeting_events = {.on_ready = on_greeted,
                                                               .on_down = on_refused};

static void on_accept(struct muster_listener *listener, struct muster_stream *stream)
{
    struct muster_env *env = &stand.test.env;
    struct muster_peer_link *link = NULL;

    (void)listener;
    assert_int_equal(muster_peer_link_accept(env, stream, &stand.server_hello,
                                             muster_loop_after_ns(env->loop, 30 * MUSTER_NS_PER_S),
                                             &greeting_events, &stand, &link),
                     MUSTER_OK);
}

static void hello_init(struct muster_peer_hello *hello, int id)
{
    *hello = (struct muster_peer_hello){
        .job = "test", .version = MUSTER_PEER_VERSION, .purpose = MUSTER_LINK_STATE};
    memset(hello->incarnation.bytes, id, sizeof(hello->incarnation.bytes));
}

static bool is_linked(void *data)
{
    (void)data;
    return stand.is_ready && stand.is_accepted;
}

static void stand_open_of(size_t count)
{
    struct muster_env *env = &stand.test.env;
    struct muster_node_tensor tensor = {.name = "numbers"};
    struct muster_address any;

    memset(&stand, 0, sizeof(stand));
    test_env_open(&stand.test);
    assert_int_equal(muster_net_system_open(env, &env->net), MUSTER_OK);
    stand.numbers = muster_mem_alloc_zero(env->mem, count, sizeof(float));
    tensor.tensor = (struct muster_tensor){stand.numbers, count, MUSTER_F32};
    assert_int_equal(muster_state_chunks_init(&stand.chunks, env->mem, &tensor, 1), MUSTER_OK);
    tensor.name = "others";
    assert_int_equal(muster_state_chunks_init(&stand.others, env->mem, &tensor, 1), MUSTER_OK);
    assert_int_equal(muster_state_server_open(env, &stand.server), MUSTER_OK);
    assert_int_equal(muster_address_parse("127.0.0.1:0", &any, NULL), MUSTER_OK);
    assert_int_equal(
        muster_listener_open(env->net, &any, NULL, on_accept, &stand, &stand.listener, NULL),
        MUSTER_OK);
    hello_init(&stand.server_hello, 1);
    hello_init(&stand.joiner_hello, 2);
    assert_int_equal(muster_peer_link_open(env, muster_listener_address(stand.listener),
                                           &stand.joiner_hello,
                                           muster_loop_after_ns(env->loop, 30 * MUSTER_NS_PER_S),
                                           &joiner_events, &stand, &stand.link),
                     MUSTER_OK);
    test_env_run_until(env, is_linked, &stand);
}

static void stand_open(void)
{
    stand_open_of(COUNT);
}

static void stand_close(void)
{
    struct muster_env *env = &stand.test.env;

    muster_peer_link_close(stand.link);
    muster_state_server_close(stand.server);
    muster_listener_close(stand.listener, NULL);
    test_env_turn(env, 10);
    muster_state_chunks_fini(&stand.chunks);
    muster_state_chunks_fini(&stand.others);
    muster_mem_free(env->mem, stand.numbers);
    muster_net_system_close(env->net);
    test_env_close(&stand.test);
}

/* --- What the joiner asks for --- */

static void send_frame(struct muster_frame_header header, const void *payload)
{
    assert_int_equal(muster_peer_link_send_copy(stand.link, &header, payload), MUSTER_OK);
}

static void ask_manifest(const struct muster_state_chunks *chunks, uint64_t step, uint16_t flags)
{
    struct muster_frame_header header = {.channel = MUSTER_FRAME_STATE,
                                         .type = MUSTER_STATE_MANIFEST_REQUEST,
                                         .flags = flags,
                                         .op.step = step};
    void *bytes = NULL;
    size_t size = 0;

    assert_int_equal(muster_state_manifest_pack(chunks, step, NULL, &bytes, &size), MUSTER_OK);
    header.payload_bytes = (uint32_t)size;
    send_frame(header, bytes);
    muster_mem_free(stand.test.env.mem, bytes);
}

static void ask_chunk(uint64_t step, uint32_t chunk)
{
    send_frame((struct muster_frame_header){.channel = MUSTER_FRAME_STATE,
                                            .type = MUSTER_STATE_CHUNK_REQUEST,
                                            .op.step = step,
                                            .chunk = chunk},
               NULL);
}

/* Until all that was asked has been looked at, and what follows from it has been sent. */
static void stand_settle(void)
{
    for (unsigned i = 0; i < 2; i++) {
        stand.is_settled = false;
        ask_chunk(0, TOKEN);
        test_env_run_until(&stand.test.env, test_env_is_true, &stand.is_settled);
    }
}

static void change_part(size_t from, size_t count)
{
    struct muster_tensor part = {stand.numbers + from, count, MUSTER_F32};

    assert_int_equal(muster_state_hashes_change(&stand.chunks, &part, 1), MUSTER_OK);
    for (size_t i = from; i < from + count; i++)
        stand.numbers[i] += 1;
}

static bool is_hashed(void *data)
{
    (void)data;
    return muster_state_hashes_is_settled(&stand.chunks);
}

static enum muster_rc read_nothing(struct muster_far_memory *memory, void *to, const void *from,
                                   size_t bytes)
{
    (void)memory;
    (void)to;
    (void)from;
    (void)bytes;
    return MUSTER_UNAVAILABLE;
}

static struct muster_far_memory failed_memory = {.read = read_nothing};

/* One act after the other: s registers the tensors, f has their memory fail, c5 commits, t touches, w withdraws, 1
 * changes chunk 1 of the step and 0 nothing, h lets hashes be computed; the joiner asks for a manifest (m5), for one of
 * other tensors (o5), for chunk 1 of step 5 (k5.1); ahead, for what is stable (S), at once (H), or a chunk of that
 * (K1); a lets it all arrive. */
static void stand_act(const char *acts)
{
    for (const char *at = acts; *at != '\0'; at++) {
        uint64_t step = at[1] >= '0' && at[1] <= '9' ? (uint64_t)(at[1] - '0') : 0;

        if (*at == 's')
            muster_state_server_set_chunks(stand.server, &stand.chunks);
        else if (*at == 'f')
            stand.chunks.tensors[0].memory = &failed_memory;
        else if (*at == 'c')
            muster_state_server_commit(stand.server, step);
        else if (*at == 't')
            muster_state_server_touch(stand.server);
        else if (*at == 'w')
            muster_state_server_withdraw(stand.server);
        else if (*at == 'm')
            ask_manifest(&stand.chunks, step, 0);
        else if (*at == 'o')
            ask_manifest(&stand.others, step, 0);
        else if (*at == 'k')
            ask_chunk(step, (uint32_t)(at[3] - '0'));
        else if (*at == 'S' || *at == 'H')
            ask_manifest(&stand.chunks, MUSTER_STATE_STABLE, *at == 'H' ? MUSTER_STATE_AT_ONCE : 0);
        else if (*at == 'K')
            ask_chunk(MUSTER_STATE_STABLE, (uint32_t)step);
        else if (*at == '(')
            change_part(COUNT - 1, *++at == '1' ? 1 : 0);
        else if (*at == 'h')
            test_env_run_until(&stand.test.env, is_hashed, NULL);
        else if (*at == 'a')
            stand_settle();
    }
}

static void only_what_is_committed_is_served(void **state)
{
    static const struct {
        const char *name, *acts, *log;
    } rows[] = {
        {"a chunk", "s c5 k5.0 k5.1 a", "chunk0 chunk1 "},
        {"a chunk before the first commit", "s k5.0 a", "refused11 "},
        {"a chunk of an older step", "s c5 k4.0 a", "refused11 "},
        {"a chunk of a later step", "s c5 k6.0 a", "refused11 "},
        {"a chunk that the program writes", "s c5 t k5.0 a", "refused11 "},
        {"a chunk of who was left out", "s c5 w k5.0 a", "refused11 "},
        {"a chunk of the commit after that", "s c5 t c6 k5.0 k6.0 a", "refused11 chunk0 "},
        {"a chunk that is not there", "s c5 k5.2 a", "refused3 "},
        {"a manifest", "s c5 m5 a", "manifest5 "},
        {"a manifest before anything is registered", "m5 a", "refused14 "},
        {"a manifest of other tensors", "s c5 o5 a", "refused3 "},
        {"a manifest of an older step", "s c5 m4 a", "refused11 "},
        {"a manifest of the next step", "s c5 m6 a", ""},
        {"a manifest of the next step, committed", "s c5 m6 a c6 a", "manifest6 "},
        {"a manifest of the first step, committed", "s m5 a c5 a", "manifest5 "},
        {"a manifest of a step that was passed over", "s c5 m6 a c7 a", "refused11 "},
        {"a manifest that the program writes", "s c5 t m5 a", "refused11 "},
        {"a manifest while the program writes the next", "s c5 t m6 a c6 a", "manifest6 "},
        {"a manifest of who was left out", "s c5 w m6 a", "refused14 "},
        {"a manifest of who was left out before the first", "s w m5 a", "refused14 "},
        {"a manifest that waits as it is left out", "s c5 m6 a w a", "refused14 "},
        {"a manifest of who was left out, asked for once", "s c5 m6 a w a c6 a", "refused14 "},
        {"a manifest of who has come back", "s c5 w c6 m6 a", "manifest6 "},
        {"a manifest of memory that has failed", "s f c5 m5 a", "refused14 "},
        {"a manifest that waits as the memory fails", "s m5 a f c5 a m5 a", "refused14 refused14 "},
        {"a chunk of memory that has failed", "s f c5 k5.1 a", "refused14 "},
        {"two manifests", "s c5 m5 a m5 a", "manifest5 manifest5 "},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        stand_open();
        stand_act(rows[i].acts);
        if (strcmp(stand.log, rows[i].log) != 0)
            fail_msg("%s: '%s'", rows[i].name, stand.log);
        stand_close();
    }
}

static void what_steps_do_not_change_is_served_while_they_run(void **state)
{
    static const struct {
        const char *name, *acts, *log;
    } rows[] = {
        {"no step has named anything", "s c5 S K0 a", "refused9 refused9 "},
        {"before the first commit", "s (0 S K0 a", "refused9 refused9 "},
        {"all of it", "s c5 (0 c6 S h a", "stable11 "},
        {"all of it, while the next step runs", "s c5 (0 c6 t S h a K0 K1 a",
         "stable11 chunk0 chunk1 "},
        {"at once, not hashed yet", "s c5 (0 c6 H a", "stable.. "},
        {"at once, hashed", "s c5 (0 c6 S h a H a", "stable11 stable11 "},
        {"what the step changes", "s c5 (0 c6 t (1 S h a K0 K1 a", "stable1. chunk0 refused9 "},
        {"what the step has changed", "s c5 (0 c6 t (1 S h a c7 S h a K1 a",
         "stable1. stable11 chunk1 "},
        {"a step that names nothing", "s c5 (0 c6 S h a t c7 S a K0 a",
         "stable11 refused9 refused9 "},
        {"that step while it waits", "s c5 (0 c6 S c7 a", "refused9 "},
        {"of who was left out", "s c5 (0 c6 w S K0 a", "refused9 refused9 "},
        {"of who was left out while it waits", "s c5 (0 c6 S w a", "refused9 "},
        {"a chunk that is not there", "s c5 (0 c6 K7 a", "refused3 "},
        {"not registered", "S a", "refused14 "},
        {"the step itself, hashed ahead", "s c5 (0 c6 S h a (1 c7 m7 a k7.1 a",
         "stable11 manifest7 chunk1 "},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        stand_open();
        stand_act(rows[i].acts);
        if (strcmp(stand.log, rows[i].log) != 0)
            fail_msg("%s: '%s'", rows[i].name, stand.log);
        stand_close();
    }
}

/* For a while after a request hashes are made anew after each commit, though nobody asks. */
static void hashes_are_kept_complete_for_an_observer(void **state)
{
    (void)state;
    stand_open();
    stand_act("s c5 (0 c6");
    test_env_turn(&stand.test.env, 20);
    assert_false(muster_state_hashes_is_known(&stand.chunks, 0));
    stand_act("S h a t (1 c7 h");

    assert_true(muster_state_hashes_is_whole(&stand.chunks));
    assert_string_equal(stand.log, "stable11 ");
}

static void hashes_are_of_the_bytes_that_were_committed(void **state)
{
    uint8_t first[MUSTER_HASH128_BYTES];

    (void)state;
    stand_open();
    stand_act("s c5 m5 a");
    memcpy(first, stand.root, sizeof(first));
    stand_act("t");
    stand.numbers[COUNT - 1] = 1;
    stand_act("c6 m6 a");

    assert_string_equal(stand.log, "manifest5 manifest6 ");
    assert_memory_not_equal(first, stand.root, sizeof(first));
}

static bool has_been_told(void *data)
{
    return ((struct stand *)data)->log[0] != '\0';
}

static void a_state_of_many_chunks_is_hashed_in_turns(void **state)
{
    (void)state;
    stand_open_of(70 * (MUSTER_STATE_CHUNK_BYTES / sizeof(float)));
    stand_act("s c5 m5");
    test_env_run_until(&stand.test.env, has_been_told, &stand);

    assert_string_equal(stand.log, "manifest5 ");
}

static void refusals_say_what_is_served_and_of_what(void **state)
{
    static const struct {
        const char *acts, *text;
        uint32_t chunk;
    } rows[] = {
        {"s c5 k4.1 a", "state 4 is past; this member is at 5", 1},
        {"s c5 m4 a", "state 4 is past; this member is at 5", UINT32_MAX},
        {"s c5 k5.2 a", "chunk 2 of 2 cannot be asked for, with 64 open requests at most", 2},
        {"s w m5 a", "this process has been left out of the job", UINT32_MAX},
        {"m5 a", "this member has not begun", UINT32_MAX},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        stand_open();
        stand_act(rows[i].acts);

        assert_string_equal(stand.refusal.text, rows[i].text);
        assert_int_equal(stand.refused_chunk, rows[i].chunk);
        stand_close();
    }
}

static void no_memory_to_open_is_told(void **state)
{
    struct muster_state_server *server = NULL;
    struct test_env test;

    (void)state;
    test_env_open(&test);
    test.mem.fail_at = 1;
    assert_int_equal(muster_state_server_open(&test.env, &server), MUSTER_RESOURCE_EXHAUSTED);
    assert_null(server);
    test_env_close(&test);
}

static void more_requests_than_a_joiner_has_are_refused(void **state)
{
    unsigned refused = 0;

    (void)state;
    stand_open();
    stand_act("s c5");
    for (unsigned i = 0; i < MANY; i++)
        ask_chunk(5, 0);
    stand_settle();
    for (const char *at = stand.log; (at = strstr(at, "refused3 ")) != NULL; at++)
        refused++;

    assert_true(refused > 0);
}

static void what_is_no_request_is_passed_over(void **state)
{
    static const struct {
        uint8_t channel, type;
        uint32_t payload_bytes;
    } rows[] = {
        {MUSTER_FRAME_COLLECTIVE, MUSTER_STATE_CHUNK_REQUEST, 0},
        {MUSTER_FRAME_MEMBERSHIP, MUSTER_STATE_MANIFEST_REQUEST, 8},
        {MUSTER_FRAME_STATE, MUSTER_STATE_MANIFEST_REQUEST, 0},
        {MUSTER_FRAME_STATE, MUSTER_STATE_MANIFEST_REQUEST, (1u << 20) + 1},
        {MUSTER_FRAME_STATE, MUSTER_STATE_MANIFEST, 8},
        {MUSTER_FRAME_STATE, 99, 0},
    };
    static const uint8_t payload[(1u << 20) + 1];

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        stand_open();
        stand_act("s c5");
        send_frame((struct muster_frame_header){.channel = rows[i].channel,
                                                .type = rows[i].type,
                                                .op.step = 5,
                                                .payload_bytes = rows[i].payload_bytes},
                   payload);
        stand_settle();
        if (stand.log[0] != '\0')
            fail_msg("frame %zu: '%s'", i, stand.log);
        stand_act("m5 a");

        assert_string_equal(stand.log, "manifest5 ");
        stand_close();
    }
}

static void what_is_no_manifest_is_refused(void **state)
{
    (void)state;
    stand_open();
    stand_act("s c5");
    send_frame((struct muster_frame_header){.channel = MUSTER_FRAME_STATE,
                                            .type = MUSTER_STATE_MANIFEST_REQUEST,
                                            .op.step = 5,
                                            .payload_bytes = 1},
               "\xff");
    stand_settle();

    assert_string_equal(stand.log, "refused3 ");
}

TEST_SET_UP(tear_down, stand_close())
#define CASE(name) cmocka_unit_test_teardown(name, tear_down)

int main(void)
{
    const struct CMUnitTest state_server[] = {
        cmocka_unit_test(only_what_is_committed_is_served),
        cmocka_unit_test(what_steps_do_not_change_is_served_while_they_run),
        CASE(hashes_are_kept_complete_for_an_observer),
        CASE(hashes_are_of_the_bytes_that_were_committed),
        CASE(a_state_of_many_chunks_is_hashed_in_turns),
        cmocka_unit_test(refusals_say_what_is_served_and_of_what),
        cmocka_unit_test(no_memory_to_open_is_told),
        CASE(more_requests_than_a_joiner_has_are_refused),
        cmocka_unit_test(what_is_no_request_is_passed_over),
        CASE(what_is_no_manifest_is_refused),
    };

    return cmocka_run_group_tests(state_server, NULL, NULL);
}
