/* A port under TLS: links of the job's own tasks, RPC beside them, nobody else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include <muster/tls.h>

#include "net/link/peer_link_internal.h"
#include "net/link/port.h"
#include "tests/lib/rpc_fixture.h"

#define JOB_A "spiffe://test/job/a"
#define JOB_B "spiffe://test/job/b"

struct place {
    struct rpc_fixture rpc; /* its environment and its server */
    struct muster_tls_authority *authority;
    struct muster_env env_of_b; /* as ours, with a credential of job b */
    struct muster_port *port;
    struct muster_address address;
    struct muster_peer_link *opened, *accepted;
    struct muster_link_keys *keys[2]; /* opener, acceptor */
    unsigned ready_count, down_count;
    char down_text[MUSTER_ERROR_TEXT_BYTES];
    struct muster_error accepted_error;
    bool is_port_closed;
};

static struct muster_tls *tls_of(struct place *place, const char *job)
{
    struct muster_env *env = place->rpc.env;
    char id[64], accepted[64];
    const char *const names[] = {accepted};
    struct muster_tls *tls = NULL;
    char *pem = NULL;

    snprintf(id, sizeof(id), "%s/task/1", job);
    snprintf(accepted, sizeof(accepted), "%s/*", job);
    assert_int_equal(
        muster_tls_authority_issue(
            place->authority,
            &(struct muster_tls_subject){.name = "task", .spiffe_id = id, .life_s = 3600}, &pem,
            NULL),
        MUSTER_OK);
    assert_int_equal(muster_tls_open(env,
                                     &(struct muster_tls_options){
                                         .cert_pem = pem,
                                         .key_pem = pem,
                                         .ca_pem = muster_tls_authority_pem(place->authority),
                                         .is_peer_required = true,
                                         .peer_names = names,
                                         .peer_name_count = 1},
                                     &tls, NULL),
                     MUSTER_OK);
    muster_mem_free(env->mem, pem);
    return tls;
}

static void on_ready(struct muster_peer_link *link)
{
    ((struct place *)muster_peer_link_data(link))->ready_count++;
}

static void *on_frame(struct muster_peer_link *link, const struct muster_frame_header *header)
{
    (void)link;
    (void)header;
    return NULL;
}

static void on_payload(struct muster_peer_link *link, const struct muster_frame_header *header,
                       void *payload)
{
    (void)link;
    (void)header;
    (void)payload;
}

static void on_down(struct muster_peer_link *link, const struct muster_error *error)
{
    struct place *place = muster_peer_link_data(link);

    if (link == place->opened || place->opened == NULL)
        memcpy(place->down_text, error->text, sizeof(place->down_text));
    if (link == place->accepted)
        place->accepted_error = *error;
    place->down_count++;
    if (link == place->opened)
        place->opened = NULL;
    else
        place->accepted = NULL;
    muster_peer_link_close(link);
}

static const struct muster_peer_link_events events = {
    .on_ready = on_ready, .on_frame = on_frame, .on_payload = on_payload, .on_down = on_down};

static struct muster_peer_hello hello_of(unsigned char who)
{
    struct muster_peer_hello hello = {.job = "a", .purpose = MUSTER_LINK_CONTROL};

    hello.incarnation.bytes[0] = who;
    return hello;
}

static uint64_t place_soon_ns(const struct place *place)
{
    return muster_loop_after_ns(place->rpc.env->loop, 30 * MUSTER_NS_PER_S);
}

static void on_peer(struct muster_port *port, struct muster_stream *stream)
{
    struct place *place = muster_port_data(port);
    struct muster_peer_hello hello = hello_of(1);

    hello.keys = place->keys[1];
    assert_int_equal(muster_peer_link_accept(place->rpc.env, stream, &hello, place_soon_ns(place),
                                             &events, place, &place->accepted),
                     MUSTER_OK);
}

static enum muster_rc start_link(struct place *place, struct muster_env *env,
                                 enum muster_link_purpose purpose)
{
    struct muster_peer_hello hello = hello_of(2);

    hello.purpose = purpose;
    hello.target = hello_of(1).incarnation;
    hello.keys = place->keys[0];
    return muster_peer_link_open(env, &place->address, &hello, place_soon_ns(place), &events, place,
                                 &place->opened);
}

static void open_link(struct place *place, struct muster_env *env)
{
    assert_int_equal(start_link(place, env, MUSTER_LINK_CONTROL), MUSTER_OK);
}

static void on_port_closed(struct muster_port *port)
{
    ((struct place *)muster_port_data(port))->is_port_closed = true;
}

static int set_up(void **state)
{
    static struct place place;
    struct muster_env *env;
    struct muster_address any;

    memset(&place, 0, sizeof(place));
    rpc_fixture_open(&place.rpc, NULL, NULL);
    env = place.rpc.env;
    assert_int_equal(muster_tls_authority_new(env, "job-authority", &place.authority), MUSTER_OK);
    rpc_fixture_hang_up(&place.rpc);
    rpc_fixture_stop_serving(&place.rpc, 0);
    env->tls = tls_of(&place, JOB_A);
    place.env_of_b = *env;
    place.env_of_b.tls = tls_of(&place, JOB_B);
    rpc_fixture_serve(&place.rpc, &(struct muster_rpc_server_options){.tls = env->tls});
    assert_int_equal(muster_address_parse("127.0.0.1:0", &any, NULL), MUSTER_OK);
    assert_int_equal(
        muster_port_open(env, &any, place.rpc.server, on_peer, &place, &place.port, NULL),
        MUSTER_OK);
    place.address = *muster_port_address(place.port);
    *state = &place;
    return 0;
}

static int tear_down(void **state)
{
    struct place *place = *state;
    struct muster_env *env = place->rpc.env;

    muster_peer_link_close(place->opened);
    muster_peer_link_close(place->accepted);
    muster_port_close(place->port, on_port_closed);
    test_env_run_until(env, test_env_is_true, &place->is_port_closed);
    rpc_fixture_hang_up(&place->rpc);
    rpc_fixture_stop_serving(&place->rpc, 0);
    test_env_turn(env, 50);
    muster_tls_close(env->tls);
    muster_tls_close(place->env_of_b.tls);
    muster_tls_authority_free(place->authority);
    for (size_t i = 0; i < 2; i++)
        muster_link_keys_free(place->keys[i]);
    env->tls = NULL;
    env->is_data_authenticated_only = false;
    rpc_fixture_close(&place->rpc);
    return 0;
}

static bool are_both_ready(void *data)
{
    return ((const struct place *)data)->ready_count == 2;
}

static bool is_opened_down(void *data)
{
    return ((const struct place *)data)->opened == NULL;
}

static bool is_accepted_down(void *data)
{
    return ((const struct place *)data)->accepted_error.rc != MUSTER_OK;
}

static void tasks_of_a_job_meet(void **state)
{
    struct place *place = *state;

    open_link(place, place->rpc.env);
    test_env_run_until(place->rpc.env, are_both_ready, place);
}

static void a_task_of_another_job_is_refused(void **state)
{
    struct place *place = *state;

    open_link(place, &place->env_of_b);
    test_env_run_until(place->rpc.env, is_opened_down, place);

    assert_int_equal(place->ready_count, 0);
    assert_null(place->accepted);
    if (strstr(place->down_text, JOB_A "/task/1, which is none of the accepted names") == NULL)
        fail_msg("%s", place->down_text);
}

static void a_link_in_plain_text_is_refused(void **state)
{
    struct place *place = *state;
    static struct muster_env plain; /* until the link is freed */

    plain = *place->rpc.env;
    plain.tls = NULL;
    open_link(place, &plain);
    test_env_run_until(place->rpc.env, is_opened_down, place);

    assert_int_equal(place->ready_count, 0);
    assert_null(place->accepted);
}

/* --- Data that is authenticated only --- */

static void authenticate_only(struct place *place, bool opener, bool acceptor)
{
    struct muster_mem *mem = place->rpc.env->mem;

    place->rpc.env->is_data_authenticated_only = acceptor;
    place->keys[0] = opener ? muster_link_keys_new(mem) : NULL;
    place->keys[1] = acceptor ? muster_link_keys_new(mem) : NULL;
}

static void drop_links(struct place *place)
{
    muster_peer_link_close(place->opened);
    muster_peer_link_close(place->accepted);
    place->opened = place->accepted = NULL;
    place->ready_count = place->down_count = 0;
}

static void meet_for_control(struct place *place)
{
    open_link(place, place->rpc.env);
    test_env_run_until(place->rpc.env, are_both_ready, place);
    assert_true(muster_tls_stream_is_one(place->opened->stream));
    drop_links(place);
}

static void data_follows_control_in_plain_text(void **state)
{
    struct place *place = *state;

    authenticate_only(place, true, true);
    assert_int_equal(start_link(place, place->rpc.env, MUSTER_LINK_DATA),
                     MUSTER_FAILED_PRECONDITION);
    place->opened = NULL;
    meet_for_control(place);
    assert_int_equal(start_link(place, place->rpc.env, MUSTER_LINK_DATA), MUSTER_OK);
    test_env_run_until(place->rpc.env, are_both_ready, place);

    assert_false(muster_tls_stream_is_one(place->opened->stream));
    assert_false(muster_tls_stream_is_one(place->accepted->stream));
}

/* Each control link has another key. */
static void the_key_is_of_one_session(void **state)
{
    struct place *place = *state;
    uint8_t first[MUSTER_LINK_KEYS_PER_PEER * MUSTER_LINK_KEY_ID_BYTES], both[2][sizeof(first)];
    const struct muster_incarnation ends[] = {hello_of(2).incarnation, hello_of(1).incarnation};

    authenticate_only(place, true, true);
    meet_for_control(place);
    muster_link_keys_list(place->keys[0], &ends[1], first);
    meet_for_control(place);
    for (size_t i = 0; i < 2; i++)
        muster_link_keys_list(place->keys[i], &ends[1 - i], both[i]);

    assert_memory_equal(both[0], both[1], sizeof(first));
    assert_memory_equal(both[0] + MUSTER_LINK_KEY_ID_BYTES, first, MUSTER_LINK_KEY_ID_BYTES);
    assert_true(memcmp(both[0], first, MUSTER_LINK_KEY_ID_BYTES) != 0);
}

static void a_task_of_another_job_gets_no_key(void **state)
{
    struct place *place = *state;

    authenticate_only(place, true, true);
    open_link(place, &place->env_of_b);
    test_env_run_until(place->rpc.env, is_opened_down, place);

    assert_int_equal(start_link(place, &place->env_of_b, MUSTER_LINK_DATA),
                     MUSTER_FAILED_PRECONDITION);
}

/* Without the memory for its key, a control link would be one whose data links are refused for ever. */
static void a_control_link_without_its_key_goes_down(void **state)
{
    struct place *place = *state;
    struct muster_mem_limited scarce;

    authenticate_only(place, true, false);
    muster_mem_limited_init(&scarce, place->rpc.env->mem, 64);
    place->rpc.env->is_data_authenticated_only = true;
    place->keys[1] = muster_link_keys_new(&scarce.mem);
    assert_non_null(place->keys[1]);
    open_link(place, place->rpc.env);
    test_env_run_until(place->rpc.env, is_accepted_down, place);

    assert_int_equal(place->accepted_error.rc, MUSTER_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(place->accepted_error.text, "no key for its data links"));
    muster_link_keys_free(place->keys[1]);
    place->keys[1] = NULL;
    assert_int_equal(muster_mem_limited_fini(&scarce), 0);
}

/* By a key of its own, or with control asked for in plain text. */
static void who_has_no_control_link_is_refused(void **state)
{
    static const enum muster_link_purpose purposes[] = {MUSTER_LINK_DATA, MUSTER_LINK_STATE};
    struct place *place = *state;
    const struct muster_incarnation acceptor = hello_of(1).incarnation;
    const struct muster_link_key made_up = {.secret = {1}, .id = {1}};

    authenticate_only(place, true, true);
    assert_int_equal(muster_link_keys_put(place->keys[0], &acceptor, &made_up), MUSTER_OK);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(start_link(place, place->rpc.env, purposes[i]), MUSTER_OK);
        test_env_run_until(place->rpc.env, is_opened_down, place);
        assert_int_equal(place->ready_count, 0);
        drop_links(place);
    }
    meet_for_control(place); /* nobody else is disturbed */
}

/* Set differently: neither kind of data link comes up, the control link does. */
static void who_encrypts_does_not_meet_who_authenticates(void **state)
{
    struct place *place = *state;

    authenticate_only(place, false, true);
    meet_for_control(place);
    assert_int_equal(start_link(place, place->rpc.env, MUSTER_LINK_DATA), MUSTER_OK);
    test_env_run_until(place->rpc.env, is_opened_down, place);
    assert_int_equal(place->accepted_error.rc, MUSTER_FAILED_PRECONDITION);
    assert_non_null(strstr(place->accepted_error.text, "MUSTER_TLS_DATA"));
    assert_non_null(place->keys[1]);
    muster_link_keys_free(place->keys[1]);
    drop_links(place);

    authenticate_only(place, true, false);
    meet_for_control(place);
    assert_int_equal(start_link(place, place->rpc.env, MUSTER_LINK_DATA), MUSTER_OK);
    test_env_run_until(place->rpc.env, is_opened_down, place);
    assert_null(place->accepted); /* the port has closed it */
}

static void calls_come_by_the_same_port(void **state)
{
    struct place *place = *state;
    struct rpc_probe probe = {.done = 0};
    char target[MUSTER_ADDRESS_TEXT_BYTES];

    open_link(place, place->rpc.env);
    rpc_fixture_dial(&place->rpc, muster_address_format(&place->address, target),
                     &(struct muster_channel_options){.tls = place->rpc.env->tls});
    rpc_probe_ask(&probe, &place->rpc, "Unary", "beside links");
    test_env_run_until(place->rpc.env, are_both_ready, place);

    assert_int_equal(probe.rc, MUSTER_OK);
    assert_string_equal(probe.messages, "beside links");
}

static void a_port_closes_amid_handshakes(void **state)
{
    struct place *place = *state;

    open_link(place, place->rpc.env);
    test_env_turn(place->rpc.env, 5); /* tear_down closes what is under way */
}

/* The server's credential says who may call, and not that of links. */
static void a_server_of_another_credential_is_refused(void **state)
{
    struct place *place = *state;
    struct muster_rpc_server *server = NULL;
    struct muster_port *port = NULL;
    struct muster_address any;
    struct muster_error error;

    assert_int_equal(muster_rpc_server_open(
                         place->rpc.env,
                         &(struct muster_rpc_server_options){.tls = place->env_of_b.tls}, &server),
                     MUSTER_OK);
    assert_int_equal(muster_address_parse("127.0.0.1:0", &any, NULL), MUSTER_OK);

    assert_int_equal(muster_port_open(place->rpc.env, &any, server, on_peer, place, &port, &error),
                     MUSTER_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "credential must be that of"));
    muster_rpc_server_close(server, 0, NULL);
    test_env_turn(place->rpc.env, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(tasks_of_a_job_meet, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_task_of_another_job_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_link_in_plain_text_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(data_follows_control_in_plain_text, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_key_is_of_one_session, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_task_of_another_job_gets_no_key, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_control_link_without_its_key_goes_down, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(who_has_no_control_link_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_encrypts_does_not_meet_who_authenticates, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(calls_come_by_the_same_port, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_server_of_another_credential_is_refused, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_port_closes_amid_handshakes, set_up, tear_down),
    };

    return cmocka_run_group_tests_name("port_tls", tests, NULL, NULL);
}
