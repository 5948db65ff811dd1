/* A registry client whose endpoints do not all speak what it asks for: when it gives up, and what it says. */
#include "test_env.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <muster/registry.h>
#include <muster/rpc.h>
#include <muster/stream.h>
#include <muster/tls.h>

#define ENDPOINTS_MAX 3
#define STREAMS_MAX   64
#define SHORT_NS      (300 * MUSTER_NS_PER_MS)
#define LONG_NS       (30 * MUSTER_NS_PER_S)

/* One endpoint, of a kind: 'd' nobody listens; in plain text: 's' SSH, 'w' a web server of HTTP/1.1, 'h'
 * ends two connections and is silent on the next ones; under TLS: 'p' speaks plain text, 'u' a
 * certificate that is not trusted, 'g' the registry. */
struct endpoint {
    struct scene *scene;
    char kind;
    struct muster_rpc_server *server;
    struct muster_listener *listener;
    unsigned accepted;
    char text[MUSTER_ADDRESS_TEXT_BYTES + 8];
};

struct scene {
    struct test_env test;
    struct muster_env *env;
    struct muster_tls_authority *ours, *theirs;
    struct endpoint endpoints[ENDPOINTS_MAX];
    size_t count;
    struct muster_stream *streams[STREAMS_MAX]; /* accepted by listeners */
    size_t stream_count;
    struct muster_registry *registry;
    struct muster_registry_op op;
    bool is_deaf; /* the registry does not answer */
    bool is_done, is_closed;
    enum muster_rc rc;
};

static struct muster_tls *open_credential(struct scene *scene, struct muster_tls_authority *issuer,
                                          struct muster_tls_authority *trusted)
{
    const struct muster_tls_subject subject = {
        .name = "registry", .alt_names = "IP:127.0.0.1", .life_s = 3600};
    struct muster_tls_options options = {.ca_pem = muster_tls_authority_pem(trusted)};
    struct muster_tls *tls = NULL;
    char *pem = NULL;

    if (issuer != NULL)
        assert_int_equal(muster_tls_authority_issue(issuer, &subject, &pem, NULL), MUSTER_OK);
    options.cert_pem = options.key_pem = pem;
    assert_int_equal(muster_tls_open(scene->env, &options, &tls, NULL), MUSTER_OK);
    muster_mem_free(scene->env->mem, pem);
    return tls;
}

/* --- Endpoints --- */

static void on_put(struct muster_rpc *rpc, struct muster_bytes request)
{
    const struct scene *scene = muster_rpc_service(rpc);

    (void)request;
    if (scene->is_deaf)
        return;
    assert_int_equal(muster_rpc_send(rpc, "\x0a\x04\x08\x01\x18\x05", 6), MUSTER_OK);
    muster_rpc_finish(rpc, MUSTER_OK, NULL);
}

static void on_written(struct muster_stream_write *write, enum muster_rc rc)
{
    (void)write;
    (void)rc;
}

static void on_accept(struct muster_listener *listener, struct muster_stream *stream)
{
    static const char ssh[] = "SSH-2.0-OpenSSH_9.2\r\n";
    static const char web[] = "HTTP/1.1 400 Bad Request\r\n\r\n";
    struct endpoint *endpoint = listener->data;
    struct scene *scene = endpoint->scene;
    const char *words = endpoint->kind == 's' ? ssh : web;
    static struct muster_stream_write writes[STREAMS_MAX];
    static struct iovec pieces[STREAMS_MAX];

    endpoint->accepted++;
    if (endpoint->kind == 'h' && endpoint->accepted <= 2) {
        muster_stream_close(stream, NULL);
        return;
    }
    assert_true(scene->stream_count < STREAMS_MAX);
    if (endpoint->kind != 'h') {
        struct muster_stream_write *write = &writes[scene->stream_count];

        *write = (struct muster_stream_write){.data = NULL};
        pieces[scene->stream_count] = (struct iovec){(void *)(uintptr_t)words, strlen(words)};
        assert_int_equal(
            muster_stream_submit(write, stream, &pieces[scene->stream_count], 1, on_written),
            MUSTER_OK);
    }
    scene->streams[scene->stream_count++] = stream;
}

static void listen_raw(struct endpoint *endpoint)
{
    struct muster_address any;

    assert_int_equal(muster_address_parse("127.0.0.1:0", &any, NULL), MUSTER_OK);
    assert_int_equal(muster_listener_open(endpoint->scene->env->net, &any, NULL, on_accept,
                                          endpoint, &endpoint->listener, NULL),
                     MUSTER_OK);
    muster_address_format(muster_listener_address(endpoint->listener), endpoint->text);
}

static void serve_registry(struct endpoint *endpoint)
{
    static const struct muster_rpc_method method = {
        .path = "/etcdserverpb.KV/Put", .on_message = on_put, .is_unary = true};
    struct scene *scene = endpoint->scene;
    struct muster_rpc_server_options options = {.tls = NULL};
    struct muster_address any, bound;
    char text[MUSTER_ADDRESS_TEXT_BYTES];

    if (endpoint->kind == 'g')
        options.tls = open_credential(scene, scene->ours, scene->ours);
    if (endpoint->kind == 'u')
        options.tls = open_credential(scene, scene->theirs, scene->ours);
    assert_int_equal(muster_address_parse("127.0.0.1:0", &any, NULL), MUSTER_OK);
    assert_int_equal(muster_rpc_server_open(scene->env, &options, &endpoint->server), MUSTER_OK);
    assert_int_equal(muster_rpc_server_add(endpoint->server, &method, 1, scene), MUSTER_OK);
    assert_int_equal(muster_rpc_server_listen(endpoint->server, &any, &bound, NULL), MUSTER_OK);
    muster_tls_close(options.tls);
    (void)snprintf(endpoint->text, sizeof(endpoint->text), "https://%s",
                   muster_address_format(&bound, text));
}

/* --- The scene --- */

static void scene_open(struct scene *scene, const char *kinds)
{
    char endpoints[ENDPOINTS_MAX * (MUSTER_ADDRESS_TEXT_BYTES + 9)] = "";
    struct muster_registry_options options = {.endpoints = endpoints,
                                              .backoff_base_ns = 5 * MUSTER_NS_PER_MS,
                                              .backoff_max_ns = 20 * MUSTER_NS_PER_MS};

    memset(scene, 0, sizeof(*scene));
    test_env_open(&scene->test);
    scene->env = &scene->test.env;
    scene->op.data = scene;
    scene->count = strlen(kinds);
    assert_int_equal(muster_net_system_open(scene->env, &scene->env->net), MUSTER_OK);
    assert_int_equal(muster_tls_authority_new(scene->env, "ours", &scene->ours), MUSTER_OK);
    assert_int_equal(muster_tls_authority_new(scene->env, "theirs", &scene->theirs), MUSTER_OK);
    for (size_t i = 0; i < scene->count; i++) {
        struct endpoint *endpoint = &scene->endpoints[i];

        *endpoint = (struct endpoint){.scene = scene, .kind = kinds[i]};
        if (kinds[i] == 'd')
            strcpy(endpoint->text, "127.0.0.1:1");
        else if (strchr("swh", kinds[i]) != NULL)
            listen_raw(endpoint);
        else
            serve_registry(endpoint);
        strcat(endpoints, i > 0 ? "," : "");
        strcat(endpoints, endpoint->text);
    }
    options.tls = open_credential(scene, NULL, scene->ours);
    assert_int_equal(muster_registry_open(scene->env, &options, &scene->registry, NULL), MUSTER_OK);
    muster_registry_set_data(scene->registry, scene);
    muster_tls_close(options.tls);
}

static void on_closed(struct muster_registry *registry)
{
    ((struct scene *)muster_registry_data(registry))->is_closed = true;
}

static void on_server_closed(struct muster_rpc_server *server)
{
    *(bool *)muster_rpc_server_data(server) = true;
}

static void scene_close(struct scene *scene)
{
    muster_registry_close(scene->registry, on_closed);
    test_env_run_until(scene->env, test_env_is_true, &scene->is_closed);
    for (size_t i = 0; i < scene->stream_count; i++)
        muster_stream_close(scene->streams[i], NULL);
    for (size_t i = 0; i < scene->count; i++) {
        bool is_server_closed = false;

        if (scene->endpoints[i].listener != NULL)
            muster_listener_close(scene->endpoints[i].listener, NULL);
        if (scene->endpoints[i].server == NULL)
            continue;
        muster_rpc_server_set_data(scene->endpoints[i].server, &is_server_closed);
        muster_rpc_server_close(scene->endpoints[i].server, 0, on_server_closed);
        test_env_run_until(scene->env, test_env_is_true, &is_server_closed);
    }
    test_env_turn(scene->env, 4);
    muster_tls_authority_free(scene->ours);
    muster_tls_authority_free(scene->theirs);
    muster_net_system_close(scene->env->net);
    test_env_close(&scene->test);
}

static void on_op(struct muster_registry_op *op, enum muster_rc rc)
{
    struct scene *scene = op->data;

    scene->rc = rc;
    scene->is_done = true;
}

static void start_put(struct scene *scene, struct muster_registry_op *op, uint64_t timeout_ns)
{
    const struct muster_bytes key = {"k", 1};

    scene->is_done = false;
    assert_int_equal(muster_registry_put_start(op, scene->registry, key, key, 0,
                                               muster_loop_after_ns(scene->env->loop, timeout_ns),
                                               on_op),
                     MUSTER_OK);
}

static void put_key(struct scene *scene, uint64_t timeout_ns)
{
    start_put(scene, &scene->op, timeout_ns);
    test_env_run_until(scene->env, test_env_is_true, &scene->is_done);
}

/* --- Cases --- */

static void trying_again_ends_where_it_is_of_no_use(void **state)
{
    static const struct {
        const char *kinds;
        enum muster_rc rc;
        const char *text;
    } rows[] = {
        {"g", MUSTER_OK, ""},
        {"gu", MUSTER_OK, ""},
        {"ug", MUSTER_OK, ""},
        {"pg", MUSTER_OK, ""},
        {"sg", MUSTER_OK, ""},
        {"p", MUSTER_FAILED_PRECONDITION, "speaks plain text, and https:// asks for TLS"},
        {"dp", MUSTER_FAILED_PRECONDITION, "speaks plain text, and https:// asks for TLS"},
        {"pd", MUSTER_FAILED_PRECONDITION, "speaks plain text, and https:// asks for TLS"},
        {"ddp", MUSTER_FAILED_PRECONDITION, "speaks plain text, and https:// asks for TLS"},
        {"u", MUSTER_UNAUTHENTICATED, "its issuer CN=theirs is not trusted"},
        {"uu", MUSTER_UNAUTHENTICATED, "its issuer CN=theirs is not trusted"},
        {"up", MUSTER_UNAUTHENTICATED, "its issuer CN=theirs is not trusted"},
        {"pu", MUSTER_FAILED_PRECONDITION, "speaks plain text, and https:// asks for TLS"},
        {"s", MUSTER_FAILED_PRECONDITION,
         " does not speak HTTP/2 (gRPC): is this the registry's address?"},
        {"w", MUSTER_FAILED_PRECONDITION,
         " speaks HTTP/1.1, not HTTP/2 (gRPC): is this the registry's address?"},
        {"ds", MUSTER_FAILED_PRECONDITION, "is this the registry's address?"},
        {"us", MUSTER_UNAUTHENTICATED, "its issuer CN=theirs is not trusted"},
        {"sp", MUSTER_FAILED_PRECONDITION, "is this the registry's address?"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct muster_error *refusal = NULL;
        struct scene scene;

        scene_open(&scene, rows[i].kinds);
        put_key(&scene, LONG_NS);
        refusal = muster_registry_refusal(scene.registry);

        if (scene.rc != rows[i].rc || strstr(scene.op.error.text, rows[i].text) == NULL)
            fail_msg("%s: %s '%s'", rows[i].kinds, muster_rc_name(scene.rc), scene.op.error.text);
        if ((refusal != NULL) != (rows[i].rc != MUSTER_OK))
            fail_msg("%s: '%s'", rows[i].kinds, refusal != NULL ? refusal->text : "");
        if (strchr("sw", rows[i].kinds[0]) != NULL && rows[i].rc != MUSTER_OK) {
            char begin[MUSTER_ADDRESS_TEXT_BYTES + 20];
            int length =
                snprintf(begin, sizeof(begin), "the server at %s %s", scene.endpoints[0].text,
                         rows[i].kinds[0] == 's' ? "does" : "speaks");

            assert_memory_equal(scene.op.error.text, begin, (size_t)length);
        }
        scene_close(&scene);
    }
}

/* It may be started later: it is waited for, beside one that does not let this client in. */
static void an_endpoint_that_does_not_answer_is_waited_for(void **state)
{
    static const char *const rows[] = {"d", "dd", "du", "ud", "upd", "dup"};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct scene scene;

        scene_open(&scene, rows[i]);
        put_key(&scene, SHORT_NS);

        if (scene.rc != MUSTER_UNAVAILABLE && scene.rc != MUSTER_DEADLINE_EXCEEDED)
            fail_msg("%s: %s '%s'", rows[i], muster_rc_name(scene.rc), scene.op.error.text);
        assert_null(muster_registry_refusal(scene.registry));
        scene_close(&scene);
    }
}

static void what_is_cancelled_is_not_refused(void **state)
{
    struct scene scene;

    (void)state;
    scene_open(&scene, "u");
    put_key(&scene, LONG_NS);
    assert_int_equal(scene.rc, MUSTER_UNAUTHENTICATED);
    do { /* until one waits for the next attempt to connect */
        start_put(&scene, &scene.op, LONG_NS);
        test_env_turn(scene.env, 1);
    } while (scene.is_done);
    muster_registry_op_cancel(&scene.op);
    test_env_run_until(scene.env, test_env_is_true, &scene.is_done);

    assert_int_equal(scene.rc, MUSTER_CANCELLED);
    scene_close(&scene);
}

static void a_registry_that_is_late_is_not_taken_for_one_that_is_away(void **state)
{
    struct scene scene;

    (void)state;
    scene_open(&scene, "g");
    put_key(&scene, LONG_NS);
    assert_int_equal(scene.rc, MUSTER_OK);
    scene.is_deaf = true;
    put_key(&scene, SHORT_NS / 6);

    assert_int_equal(scene.rc, MUSTER_DEADLINE_EXCEEDED);
    assert_null(strstr(scene.op.error.text, "no connection"));
    scene_close(&scene);
}

static bool has_been_dialled_again(void *data)
{
    return ((struct endpoint *)data)->accepted > 2;
}

static void at_the_deadline_it_is_told_why_there_is_no_connection(void **state)
{
    struct scene scene;
    struct muster_registry_op late;
    char begin[MUSTER_ADDRESS_TEXT_BYTES + 20];
    int length;

    (void)state;
    scene_open(&scene, "h");
    late.data = &scene;
    start_put(&scene, &scene.op, LONG_NS);
    test_env_run_until(scene.env, has_been_dialled_again, &scene.endpoints[0]);
    start_put(&scene, &late, SHORT_NS / 6);
    test_env_run_until(scene.env, test_env_is_true, &scene.is_done);

    length = snprintf(begin, sizeof(begin), "no connection to %s: ", scene.endpoints[0].text);
    assert_int_equal(scene.rc, MUSTER_DEADLINE_EXCEEDED);
    if (strncmp(late.error.text, begin, (size_t)length) != 0 ||
        strstr(late.error.text, "ended the connection") == NULL)
        fail_msg("'%s'", late.error.text);
    scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest registry_client_mixed[] = {
        cmocka_unit_test(trying_again_ends_where_it_is_of_no_use),
        cmocka_unit_test(an_endpoint_that_does_not_answer_is_waited_for),
        cmocka_unit_test(what_is_cancelled_is_not_refused),
        cmocka_unit_test(a_registry_that_is_late_is_not_taken_for_one_that_is_away),
        cmocka_unit_test(at_the_deadline_it_is_told_why_there_is_no_connection),
    };

    return cmocka_run_group_tests(registry_client_mixed, NULL, NULL);
}
