/* Certificates of every wrong kind, at both ends of a peer link: members are known by their names. */
#include <stdio.h>
#include <string.h>

#include "net/link/peer_link.h"
#include "net/link/port.h"
#include "net/tls/tls_internal.h"
#include "tests/lib/raw_tls.h"
#include "tests/lib/refusal_log.h"
#include "tests/lib/test_env.h"
#include "tests/lib/wrong_certs.h"

static struct wrong_certs certs;
static struct fake_cert own;

/* A member, and a stranger that shows a certificate to it. */
struct scene {
    struct test_env test;
    struct muster_env *env;
    struct raw_tls raw;
    struct muster_address address; /* of the one who is dialled */
    struct refusal_log refusals;
    struct muster_peer_link *link;
    struct muster_port *port;
    struct muster_error error; /* of the link */
    bool is_down, is_accepted, is_port_closed;
};

static void scene_open(struct scene *scene)
{
    static const char *const names[] = {WRONG_CERTS_MEMBER, WRONG_CERTS_HOST};
    const struct muster_tls_options options = {.cert_pem = own.cert_pem,
                                               .key_pem = own.key_pem,
                                               .ca_pem = fake_authority_pem(certs.root),
                                               .is_peer_required = true,
                                               .peer_names = names,
                                               .peer_name_count = 2};

    memset(scene, 0, sizeof(*scene));
    test_env_open(&scene->test);
    scene->env = &scene->test.env;
    assert_int_equal(muster_net_system_open(scene->env, &scene->env->net), MUSTER_OK);
    assert_int_equal(muster_tls_open(scene->env, &options, &scene->env->tls, NULL), MUSTER_OK);
    refusal_log_init(&scene->refusals);
    scene->env->log = &scene->refusals.log;
}

static void scene_close(struct scene *scene)
{
    scene->env->log = NULL;
    muster_tls_close(scene->env->tls);
    muster_net_system_close(scene->env->net);
    test_env_close(&scene->test);
}

static void *on_frame(struct muster_peer_link *link, const struct muster_frame_header *header)
{
    (void)link, (void)header;
    return NULL;
}

static void on_payload(struct muster_peer_link *link, const struct muster_frame_header *header,
                       void *payload)
{
    (void)link, (void)header, (void)payload;
}

static void on_ready(struct muster_peer_link *link)
{
    (void)link;
}

static void on_down(struct muster_peer_link *link, const struct muster_error *error)
{
    struct scene *scene = muster_peer_link_data(link);

    scene->is_down = true;
    scene->error = *error;
}

/* The opener says its hello to nobody but a member. */
static bool opener_has_judged(void *data)
{
    const struct scene *scene = data;

    return scene->is_down || scene->raw.heard_count > 0;
}

static bool opener_is_right(const struct wrong_certs_row *row, const struct fake_cert *cert)
{
    static const struct muster_peer_link_events events = {
        .on_ready = on_ready, .on_frame = on_frame, .on_payload = on_payload, .on_down = on_down};
    const struct muster_peer_hello hello = {
        .job = "a", .incarnation.bytes = {1}, .purpose = MUSTER_LINK_CONTROL};
    struct scene scene;
    bool is_right;

    scene_open(&scene);
    raw_tls_init(&scene.raw, &(struct raw_tls_options){.is_server = true,
                                                       .cert = cert,
                                                       .protocols = MUSTER_PEER_PROTOCOL});
    raw_tls_listen(&scene.raw, &scene.address);
    assert_int_equal(
        muster_peer_link_open(scene.env, &scene.address, &hello,
                              muster_loop_after_ns(scene.env->loop, 60 * MUSTER_NS_PER_S), &events,
                              &scene, &scene.link),
        MUSTER_OK);
    raw_tls_run_until(&scene.raw, scene.env, opener_has_judged, &scene);
    is_right = wrong_certs_is_right(row, WRONG_CERTS_OPENER, scene.error.rc, scene.error.text) &&
               (scene.error.rc == MUSTER_OK || scene.raw.heard_count == 0);
    muster_peer_link_close(scene.link);
    test_env_turn(scene.env, 4);
    raw_tls_fini(&scene.raw);
    scene_close(&scene);
    return is_right;
}

static void on_stream_closed(struct muster_stream *stream)
{
    *(bool *)stream->data = true;
}

static void on_peer(struct muster_port *port, struct muster_stream *stream)
{
    struct scene *scene = muster_port_data(port);

    stream->data = &scene->is_accepted;
    muster_stream_close(stream, on_stream_closed);
}

static void on_port_closed(struct muster_port *port)
{
    ((struct scene *)muster_port_data(port))->is_port_closed = true;
}

static bool acceptor_has_judged(void *data)
{
    const struct scene *scene = data;

    return scene->is_accepted || scene->refusals.is_told;
}

static bool acceptor_is_right(const struct wrong_certs_row *row, const struct fake_cert *cert)
{
    struct muster_address any;
    struct scene scene;
    bool is_right;

    scene_open(&scene);
    assert_int_equal(muster_address_parse("127.0.0.1:0", &any, NULL), MUSTER_OK);
    assert_int_equal(muster_port_open(scene.env, &any, NULL, on_peer, &scene, &scene.port, NULL),
                     MUSTER_OK);
    raw_tls_init(&scene.raw,
                 &(struct raw_tls_options){.cert = cert, .protocols = MUSTER_PEER_PROTOCOL});
    raw_tls_connect(&scene.raw, muster_port_address(scene.port));
    raw_tls_run_until(&scene.raw, scene.env, acceptor_has_judged, &scene);
    is_right = wrong_certs_is_right(row, WRONG_CERTS_ACCEPTOR,
                                    scene.is_accepted ? MUSTER_OK : MUSTER_UNAUTHENTICATED,
                                    scene.refusals.reason);
    muster_port_close(scene.port, on_port_closed);
    test_env_run_until(scene.env, test_env_is_true, &scene.is_port_closed);
    raw_tls_fini(&scene.raw);
    scene_close(&scene);
    return is_right;
}

static void check_all(enum wrong_certs_judge judge,
                      bool (*is_right)(const struct wrong_certs_row *row,
                                       const struct fake_cert *cert))
{
    const struct wrong_certs_row *row;
    unsigned fault_count = 0;
    size_t index = 0;

    while ((row = wrong_certs_next(judge, &index)) != NULL) {
        struct fake_cert cert;

        wrong_certs_make(&certs, row, &cert);
        fault_count += !is_right(row, &cert);
        fake_cert_fini(&cert);
    }
    assert_int_equal(fault_count, 0);
}

static void an_opener_refuses_every_wrong_certificate(void **state)
{
    (void)state;
    check_all(WRONG_CERTS_OPENER, opener_is_right);
}

static void an_acceptor_refuses_every_wrong_certificate(void **state)
{
    (void)state;
    check_all(WRONG_CERTS_ACCEPTOR, acceptor_is_right);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_opener_refuses_every_wrong_certificate),
        cmocka_unit_test(an_acceptor_refuses_every_wrong_certificate),
    };
    int failed_count;

    raw_tls_set_policy(true);
    wrong_certs_open(&certs);
    if (!fake_cert_init(&own, certs.root, &(struct fake_cert_options){.name = "member"}))
        return 1;
    failed_count = cmocka_run_group_tests_name("peer_link_certs", tests, NULL, NULL);
    fake_cert_fini(&own);
    wrong_certs_close(&certs);
    return failed_count;
}
