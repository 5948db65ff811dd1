/* Questions of a task to another task's server: muster's own, and one that answers otherwise. */
#include "assertion_count.h"
#include "test_env.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <muster/server.h>
#include <muster/server_client.h>
#include <muster/stream.h>

#include "proto/worker.muster.h"

#define OWN "/job:worker/replica:0/task:0/device:CPU:0"

struct fixture {
    struct test_env test;
    struct muster_env *env;
    struct muster_server *server;
    struct muster_rpc_server *stranger;
    struct muster_channel *channel;
    bool is_stopped, is_closed;
};

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));

    test_env_open(&fixture->test);
    fixture->env = &fixture->test.env;
    assert_int_equal(muster_net_system_open(fixture->env, &fixture->env->net), MUSTER_OK);
    *state = fixture;
    return 0;
}

static void on_stopped(struct muster_server *server)
{
    ((struct fixture *)muster_server_data(server))->is_stopped = true;
}

static void on_stranger_closed(struct muster_rpc_server *server)
{
    ((struct fixture *)muster_rpc_server_data(server))->is_stopped = true;
}

static void on_channel_closed(struct muster_channel *channel)
{
    ((struct fixture *)muster_channel_data(channel))->is_closed = true;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;

    muster_channel_set_data(fixture->channel, fixture);
    muster_channel_close(fixture->channel, on_channel_closed);
    test_env_run_until(fixture->env, test_env_is_true, &fixture->is_closed);
    if (fixture->server != NULL) {
        muster_server_set_data(fixture->server, fixture);
        muster_server_stop(fixture->server, 0, on_stopped);
    } else {
        muster_rpc_server_set_data(fixture->stranger, fixture);
        muster_rpc_server_close(fixture->stranger, 0, on_stranger_closed);
    }
    test_env_run_until(fixture->env, test_env_is_true, &fixture->is_stopped);
    muster_server_free(fixture->server);
    muster_net_system_close(fixture->env->net);
    test_env_close(&fixture->test);
    free(fixture);
    return 0;
}

static void channel_dial(struct fixture *fixture, const char *address)
{
    assert_int_equal(muster_channel_open(fixture->env, address, NULL, &fixture->channel, NULL),
                     MUSTER_OK);
}

/* Worker 0 with a CPU and a TPU. */
static void start_server(struct fixture *fixture)
{
    static const char cluster[] = "{\"worker\": [\"127.0.0.1:0\"]}";
    static const struct muster_server_device devices[] = {
        {.type = "CPU", .memory_limit_bytes = 1 << 20, .numa_node = 1, .description = "a CPU"},
        {.type = "TPU", .number = 3}};
    struct muster_server_options options = {
        .bind_host = "127.0.0.1", .devices = devices, .device_count = 2};
    struct muster_cluster_spec *spec = NULL;

    assert_int_equal(
        muster_cluster_spec_parse(fixture->env->mem, cluster, sizeof(cluster) - 1, &spec, NULL),
        MUSTER_OK);
    options.cluster = spec;
    assert_int_equal(muster_server_open(fixture->env, &options, &fixture->server, NULL), MUSTER_OK);
    assert_int_equal(muster_server_start(fixture->server, NULL), MUSTER_OK);
    muster_cluster_spec_unref(spec);
    channel_dial(fixture, muster_server_target(fixture->server) + strlen("grpc://"));
}

static uint64_t within_a_minute(const struct fixture *fixture)
{
    return muster_loop_after_ns(fixture->env->loop, 60 * MUSTER_NS_PER_S);
}

/* --- Answers, written down as texts --- */

struct answer {
    unsigned count;
    enum muster_rc rc;
    char text[MUSTER_ERROR_TEXT_BYTES], content[512];
};

static bool is_answered(void *data)
{
    return ((struct answer *)data)->count > 0;
}

static void answer_record(struct answer *answer, enum muster_rc rc, const struct muster_error *why)
{
    assert_int_equal(why->rc, rc);
    answer->count++;
    answer->rc = rc;
    (void)snprintf(answer->text, sizeof(answer->text), "%s", why->text);
}

static void peers_format(const struct muster_server_peer *peers, size_t count,
                         struct answer *answer)
{
    size_t at = 0;

    for (size_t i = 0; i < count; i++)
        at += (size_t)snprintf(answer->content + at, sizeof(answer->content) - at,
                               "%s %s %" PRId64 " %d %s\n", peers[i].device, peers[i].type,
                               peers[i].memory_limit_bytes, (int)peers[i].numa_node,
                               peers[i].description);
}

/* The operation is freed in done, as it may be. */
static void on_devices(struct muster_server_devices *op, enum muster_rc rc)
{
    answer_record(op->data, rc, &op->error);
    peers_format(op->peers, op->count, op->data);
    for (size_t i = 0; i < op->count; i++)
        assert_int_not_equal(op->peers[i].incarnation, 0);
    free(op);
}

static struct muster_server_devices *devices_ask(struct fixture *fixture, struct answer *answer)
{
    struct muster_server_devices *op = calloc(1, sizeof(*op));

    op->data = answer;
    assert_int_equal(
        muster_server_devices_start(op, fixture->channel, within_a_minute(fixture), on_devices),
        MUSTER_OK);
    return op;
}

static void a_server_tells_its_devices(void **state)
{
    struct fixture *fixture = *state;
    struct answer answer = {.count = 0};

    start_server(fixture);
    (void)devices_ask(fixture, &answer);
    assert_int_equal(answer.count, 0);
    test_env_run_until(fixture->env, is_answered, &answer);

    assert_int_equal(answer.rc, MUSTER_OK);
    assert_string_equal(answer.content, OWN " CPU 1048576 1 a CPU\n"
                                            "/job:worker/replica:0/task:0/device:TPU:3 TPU 0 0 \n");
}

static void a_question_that_is_cancelled_ends_so(void **state)
{
    struct fixture *fixture = *state;
    struct answer answer = {.count = 0};
    struct muster_server_devices *op;

    start_server(fixture);
    op = devices_ask(fixture, &answer);
    muster_server_devices_cancel(op);
    muster_server_devices_cancel(op);
    test_env_run_until(fixture->env, is_answered, &answer);

    assert_int_equal(answer.rc, MUSTER_CANCELLED);
    assert_string_equal(answer.content, "");
}

/* --- Groups and instances --- */

static const struct muster_server_peer members[] = {
    {.device = "/job:b/replica:0/task:0/device:CPU:0", .type = "CPU", .incarnation = 7},
    {.device = "/job:a/replica:0/task:0/device:CPU:0", .type = "CPU", .incarnation = 8}};

struct joined {
    struct muster_server_group op;
    struct answer answer;
    char key[256];
    size_t key_bytes;
    uint32_t task_count;
};

static void on_group(struct muster_server_group *op, enum muster_rc rc)
{
    struct joined *joined = op->data;

    answer_record(&joined->answer, rc, &op->error);
    for (size_t i = 0; i < op->count; i++)
        (void)snprintf(joined->answer.content + strlen(joined->answer.content), 64, "%s=%d ",
                       op->members[i].device, (int)op->members[i].incarnation);
    joined->key_bytes = op->communicator_key.size;
    if (joined->key_bytes > 0)
        memcpy(joined->key, op->communicator_key.data, joined->key_bytes);
    joined->task_count = op->task_count;
}

static void group_join(struct fixture *fixture, struct joined *joined, int32_t key, uint32_t size,
                       const struct muster_server_peer *member)
{
    const struct muster_server_group_options options = {.key = key, .size = size, .member = member};

    *joined = (struct joined){.op = {.data = joined}};
    assert_int_equal(muster_server_group_start(&joined->op, fixture->channel, &options,
                                               within_a_minute(fixture), on_group),
                     MUSTER_OK);
}

static void both_join(struct fixture *fixture, struct joined joined[2])
{
    for (size_t i = 0; i < 2; i++)
        group_join(fixture, &joined[i], 1, 2, &members[i]);
    for (size_t i = 0; i < 2; i++)
        test_env_run_until(fixture->env, is_answered, &joined[i].answer);
}

static void a_group_has_its_members_by_rank(void **state)
{
    struct fixture *fixture = *state;
    struct joined joined[2];

    start_server(fixture);
    both_join(fixture, joined);

    for (size_t i = 0; i < 2; i++) {
        assert_string_equal(joined[i].answer.content, "/job:a/replica:0/task:0/device:CPU:0=8 "
                                                      "/job:b/replica:0/task:0/device:CPU:0=7 ");
        assert_int_equal(joined[i].task_count, 2);
        assert_int_equal(joined[i].key_bytes, joined[0].key_bytes);
        assert_memory_equal(joined[i].key, joined[0].key, joined[0].key_bytes);
    }
    assert_int_not_equal(joined[0].key_bytes, 0);
}

static void a_group_of_another_size_is_refused_in_the_servers_words(void **state)
{
    struct fixture *fixture = *state;
    struct joined waits, other;

    start_server(fixture);
    group_join(fixture, &waits, 1, 3, &members[0]);
    group_join(fixture, &other, 1, 2, &members[1]);
    test_env_run_until(fixture->env, is_answered, &other.answer);
    test_env_run_until(fixture->env, is_answered, &waits.answer);

    assert_int_equal(other.answer.rc, MUSTER_INTERNAL);
    assert_non_null(strstr(other.answer.text, "3"));
    assert_string_equal(other.answer.content, "");
    assert_int_equal(other.key_bytes, 0);
}

static void a_member_that_gives_up_is_told(void **state)
{
    struct fixture *fixture = *state;
    struct joined joined;

    start_server(fixture);
    group_join(fixture, &joined, 1, 2, &members[0]);
    muster_server_group_cancel(&joined.op);
    test_env_run_until(fixture->env, is_answered, &joined.answer);

    assert_int_equal(joined.answer.rc, MUSTER_CANCELLED);
}

struct agreed {
    struct muster_server_instance op;
    struct answer answer;
    int32_t source_rank;
};

static void on_instance(struct muster_server_instance *op, enum muster_rc rc)
{
    struct agreed *agreed = op->data;

    answer_record(&agreed->answer, rc, &op->error);
    agreed->source_rank = op->source_rank;
}

static void instance_ask(struct fixture *fixture, struct agreed *agreed, size_t member,
                         const int64_t dims[2])
{
    const struct muster_server_instance_options options = {.group_key = 1,
                                                           .group_size = 2,
                                                           .key = 100,
                                                           .collective = MUSTER_SERVER_BROADCAST,
                                                           .data_type = 1,
                                                           .dims = dims,
                                                           .dim_count = 2,
                                                           .member = &members[member],
                                                           .is_source = member == 0};

    *agreed = (struct agreed){.op = {.data = agreed}};
    assert_int_equal(muster_server_instance_start(&agreed->op, fixture->channel, &options,
                                                  within_a_minute(fixture), on_instance),
                     MUSTER_OK);
}

static void the_members_of_a_broadcast_learn_who_sends(void **state)
{
    struct fixture *fixture = *state;
    struct joined joined[2];
    struct agreed agreed[2];

    start_server(fixture);
    both_join(fixture, joined);
    for (size_t i = 0; i < 2; i++)
        instance_ask(fixture, &agreed[i], i, (const int64_t[]){2, 3});
    for (size_t i = 0; i < 2; i++) {
        test_env_run_until(fixture->env, is_answered, &agreed[i].answer);
        assert_int_equal(agreed[i].answer.rc, MUSTER_OK);
        assert_int_equal(agreed[i].source_rank, 1); /* the ranks are by name */
    }
}

static void a_member_that_does_not_wait_for_the_others_is_told(void **state)
{
    struct fixture *fixture = *state;
    struct joined joined[2];
    struct agreed agreed;

    start_server(fixture);
    both_join(fixture, joined);
    instance_ask(fixture, &agreed, 0, (const int64_t[]){2, 3});
    muster_server_instance_cancel(&agreed.op);
    test_env_run_until(fixture->env, is_answered, &agreed.answer);

    assert_int_equal(agreed.answer.rc, MUSTER_CANCELLED);
    assert_int_equal(agreed.source_rank, -1);
}

static void members_that_differ_in_shape_are_refused(void **state)
{
    struct fixture *fixture = *state;
    struct joined joined[2];
    struct agreed agreed[2];

    start_server(fixture);
    both_join(fixture, joined);
    instance_ask(fixture, &agreed[0], 0, (const int64_t[]){2, 3});
    instance_ask(fixture, &agreed[1], 1, (const int64_t[]){3, 2});
    for (size_t i = 0; i < 2; i++) {
        test_env_run_until(fixture->env, is_answered, &agreed[i].answer);
        assert_int_not_equal(agreed[i].answer.rc, MUSTER_OK);
        assert_int_equal(agreed[i].source_rank, -1);
    }
    assert_non_null(strstr(agreed[1].answer.text, "[3,2]"));
}

static void a_shape_of_too_many_dims_is_refused_at_once(void **state)
{
    struct fixture *fixture = *state;
    const struct muster_server_instance_options options = {.dim_count = MUSTER_SERVER_DIMS_MAX + 1,
                                                           .member = &members[0]};
    struct muster_server_instance op = {.data = NULL};

    start_server(fixture);
    assert_int_equal(muster_server_instance_start(&op, fixture->channel, &options,
                                                  within_a_minute(fixture), on_instance),
                     MUSTER_INVALID_ARGUMENT);
}

/* --- Buffers --- */

struct fetched {
    struct muster_server_fetch op;
    struct answer answer;
    size_t size;
    bool is_dead;
};

static void on_fetched(struct muster_server_fetch *op, enum muster_rc rc)
{
    struct fetched *fetched = op->data;

    answer_record(&fetched->answer, rc, &op->error);
    fetched->size = op->bytes.size;
    fetched->is_dead = op->is_dead;
    (void)snprintf(fetched->answer.content, sizeof(fetched->answer.content), "%.*s",
                   (int)op->bytes.size, op->bytes.size > 0 ? (const char *)op->bytes.data : "");
}

static void fetch_start(struct fixture *fixture, struct fetched *fetched, const char *device,
                        uint64_t incarnation)
{
    const struct muster_server_peer source = {.device = device, .incarnation = incarnation};
    const struct muster_server_fetch_options options = {
        .key = "key:1", .step_id = 5, .source = &source, .destination = members[0].device};

    *fetched = (struct fetched){.op = {.data = fetched}};
    assert_int_equal(muster_server_fetch_start(&fetched->op, fixture->channel, &options,
                                               within_a_minute(fixture), on_fetched),
                     MUSTER_OK);
}

static void on_taken(struct muster_server_buffer *buffer, enum muster_rc rc)
{
    assert_int_equal(rc, MUSTER_OK);
    *(bool *)buffer->data = true;
}

static void bytes_that_are_offered_are_fetched_in_their_step(void **state)
{
    struct fixture *fixture = *state;
    struct fetched fetched;
    bool is_taken = false;
    struct muster_server_buffer buffer = {
        .data = &is_taken, .step_id = 5, .key = "key:1", .bytes = {"hello", 5}};

    start_server(fixture);
    fetch_start(fixture, &fetched, OWN, muster_server_incarnation(fixture->server));
    assert_int_equal(muster_server_offer_start(&buffer, fixture->server, on_taken), MUSTER_OK);
    test_env_run_until(fixture->env, is_answered, &fetched.answer);
    test_env_run_until(fixture->env, test_env_is_true, &is_taken);

    assert_int_equal(fetched.answer.rc, MUSTER_OK);
    assert_string_equal(fetched.answer.content, "hello");
    assert_false(fetched.is_dead);
}

static void another_life_of_the_source_is_refused(void **state)
{
    struct fixture *fixture = *state;
    struct fetched fetched;

    start_server(fixture);
    fetch_start(fixture, &fetched, OWN, 7);
    test_env_run_until(fixture->env, is_answered, &fetched.answer);

    assert_int_equal(fetched.answer.rc, MUSTER_FAILED_PRECONDITION);
    assert_non_null(strstr(fetched.answer.text, "expects a different device incarnation: 7 vs. "));
    assert_int_equal(fetched.size, 0);
}

static void a_fetch_that_is_cancelled_leaves_its_place(void **state)
{
    struct fixture *fixture = *state;
    struct fetched fetched;

    start_server(fixture);
    fetch_start(fixture, &fetched, OWN, muster_server_incarnation(fixture->server));
    muster_server_fetch_cancel(&fetched.op);
    test_env_run_until(fixture->env, is_answered, &fetched.answer);

    assert_int_equal(fetched.answer.rc, MUSTER_CANCELLED);
}

/* --- Another server than ours --- */

struct stranger_row {
    const char *name;
    size_t piece_count;
    const char *pieces[3];
    const char *raw; /* in place of pieces */
    bool is_dead, has_no_options;
    enum muster_rc rc;
    const char *content;
};

static const struct stranger_row *stranger_row;

static void on_stranger_asked(struct muster_rpc *rpc, const Tensorflow__RecvBufRequest *request)
{
    Tensorflow__RecvBufResponse response;
    Tensorflow__RecvBufRespExtra extra;
    Tensorflow__AnyMessage any;
    ProtobufCBinaryData pieces[3];
    uint8_t packed[128];

    assert_int_equal(request->step_id, 5);
    assert_int_equal(request->src_incarnation, 9);
    assert_string_equal(request->buf_rendezvous_key, "key:1");
    assert_string_equal(request->dst_device, members[0].device);
    tensorflow__recv_buf_response__init(&response);
    tensorflow__recv_buf_resp_extra__init(&extra);
    tensorflow__any_message__init(&any);
    for (size_t i = 0; i < stranger_row->piece_count; i++)
        pieces[i] = (ProtobufCBinaryData){strlen(stranger_row->pieces[i]),
                                          (uint8_t *)(uintptr_t)stranger_row->pieces[i]};
    extra.tensor_content = pieces;
    extra.n_tensor_content = stranger_row->piece_count;
    any.value.data = packed;
    any.value.len = tensorflow__recv_buf_resp_extra__pack(&extra, packed);
    if (stranger_row->raw != NULL)
        any.value = (ProtobufCBinaryData){strlen(stranger_row->raw),
                                          (uint8_t *)(uintptr_t)stranger_row->raw};
    if (!stranger_row->has_no_options)
        response.transport_options = &any;
    response.is_dead = stranger_row->is_dead;
    (void)tensorflow_worker_service_recv_buf_reply(rpc, &response);
}

static void stranger_start(struct fixture *fixture)
{
    static const struct tensorflow_worker_service_handlers handlers = {
        .recv_buf = {.on_request = on_stranger_asked}};
    struct muster_address any;
    char address[MUSTER_ADDRESS_TEXT_BYTES];

    assert_int_equal(muster_address_parse("127.0.0.1:0", &any, NULL), MUSTER_OK);
    assert_int_equal(muster_rpc_server_open(fixture->env, NULL, &fixture->stranger), MUSTER_OK);
    assert_int_equal(tensorflow_worker_service_service_add(fixture->stranger, &handlers, fixture),
                     MUSTER_OK);
    assert_int_equal(muster_rpc_server_listen(fixture->stranger, &any, &any, NULL), MUSTER_OK);
    channel_dial(fixture, muster_address_format(&any, address));
}

static void bytes_come_in_any_number_of_pieces(void **state)
{
    static const struct stranger_row rows[] = {
        {.name = "one", .piece_count = 1, .pieces = {"abc"}, .content = "abc"},
        {.name = "three", .piece_count = 3, .pieces = {"ab", "", "cde"}, .content = "abcde"},
        {.name = "none", .content = ""},
        {.name = "dead", .is_dead = true, .has_no_options = true, .content = ""},
        {.name = "no extra", .has_no_options = true, .content = ""},
        {.name = "nonsense", .raw = "\x0a\x7fhi", .rc = MUSTER_INTERNAL, .content = ""},
    };
    struct fixture *fixture = *state;

    stranger_start(fixture);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct fetched fetched;

        print_message("%s\n", rows[i].name);
        stranger_row = &rows[i];
        fetch_start(fixture, &fetched, OWN, 9);
        test_env_run_until(fixture->env, is_answered, &fetched.answer);
        assert_int_equal(fetched.answer.rc, rows[i].rc);
        assert_int_equal(fetched.size, strlen(rows[i].content));
        assert_string_equal(fetched.answer.content, rows[i].content);
        assert_int_equal(fetched.is_dead, rows[i].is_dead);
    }
}

static void a_server_without_the_service_is_told_by_its_code(void **state)
{
    struct fixture *fixture = *state;
    struct answer answer = {.count = 0};

    stranger_start(fixture);
    (void)devices_ask(fixture, &answer);
    test_env_run_until(fixture->env, is_answered, &answer);

    assert_int_equal(answer.rc, MUSTER_UNIMPLEMENTED);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_server_tells_its_devices),
        CASE(a_question_that_is_cancelled_ends_so),
        CASE(a_group_has_its_members_by_rank),
        CASE(a_group_of_another_size_is_refused_in_the_servers_words),
        CASE(a_member_that_gives_up_is_told),
        CASE(the_members_of_a_broadcast_learn_who_sends),
        CASE(a_member_that_does_not_wait_for_the_others_is_told),
        CASE(members_that_differ_in_shape_are_refused),
        CASE(a_shape_of_too_many_dims_is_refused_at_once),
        CASE(bytes_that_are_offered_are_fetched_in_their_step),
        CASE(another_life_of_the_source_is_refused),
        CASE(a_fetch_that_is_cancelled_leaves_its_place),
        CASE(bytes_come_in_any_number_of_pieces),
        CASE(a_server_without_the_service_is_told_by_its_code),
    };

    return cmocka_run_group_tests_name("cluster.server.server_client_proto", tests, NULL, NULL);
}
