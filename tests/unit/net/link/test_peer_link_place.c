/* The certificate of a place: it must be for the name or address that was dialled, or for a member. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include <muster/tls.h>

#include "net/link/peer_link.h"
#include "tests/lib/assertion_count.h"
#include "tests/lib/raw_tls.h"
#include "tests/lib/test_env.h"

static struct fake_authority *authority;
static struct fake_cert own;

struct scene {
    struct test_env test;
    struct muster_env *env;
    struct raw_tls raw;
    struct muster_address address;
    struct muster_peer_link *link;
    struct muster_error error;
    bool is_down;
};

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

static const struct muster_peer_link_events events = {
    .on_ready = on_ready, .on_frame = on_frame, .on_payload = on_payload, .on_down = on_down};

static void scene_open(struct scene *scene, const struct fake_cert *cert,
                       const char *const *accepted)
{
    const struct muster_tls_options options = {.cert_pem = own.cert_pem,
                                               .key_pem = own.key_pem,
                                               .ca_pem = fake_authority_pem(authority),
                                               .peer_names = accepted,
                                               .peer_name_count = accepted != NULL};

    memset(scene, 0, sizeof(*scene));
    test_env_open(&scene->test);
    scene->env = &scene->test.env;
    assert_int_equal(muster_net_system_open(scene->env, &scene->env->net), MUSTER_OK);
    assert_int_equal(muster_tls_open(scene->env, &options, &scene->env->tls, NULL), MUSTER_OK);
    raw_tls_init(&scene->raw, &(struct raw_tls_options){.is_server = true,
                                                        .cert = cert,
                                                        .protocols = MUSTER_PEER_PROTOCOL});
    raw_tls_listen(&scene->raw, &scene->address);
}

static void scene_close(struct scene *scene)
{
    muster_peer_link_close(scene->link);
    test_env_turn(scene->env, 4);
    raw_tls_fini(&scene->raw);
    muster_tls_close(scene->env->tls);
    muster_net_system_close(scene->env->net);
    test_env_close(&scene->test);
}

/* An opener says its hello to nobody whom it does not trust. */
static bool opener_has_judged(void *data)
{
    const struct scene *scene = data;

    return scene->is_down || scene->raw.heard_count > 0;
}

/* host NULL: an address alone. Returns the error of the link. */
static struct muster_error cert_judge(const char *alt_names, const char *host,
                                      enum muster_link_purpose purpose, const char *const *accepted)
{
    const struct muster_peer_hello hello = {
        .job = "a", .incarnation.bytes = {1}, .purpose = purpose};
    struct muster_endpoint endpoint;
    struct fake_cert cert;
    struct scene scene;
    uint64_t deadline_ns;
    enum muster_rc rc;
    char text[64];

    assert_true(fake_cert_init(
        &cert, authority, &(struct fake_cert_options){.name = "server", .alt_names = alt_names}));
    scene_open(&scene, &cert, accepted);
    deadline_ns = muster_loop_after_ns(scene.env->loop, 60 * MUSTER_NS_PER_S);
    snprintf(text, sizeof(text), "%s:%u", host != NULL ? host : "127.0.0.1", scene.address.port);
    assert_int_equal(muster_endpoint_parse(text, 0, &endpoint, NULL), MUSTER_OK);
    rc = host != NULL ? muster_peer_link_open_endpoint(scene.env, &endpoint, &hello, deadline_ns,
                                                       &events, &scene, &scene.link)
                      : muster_peer_link_open(scene.env, &scene.address, &hello, deadline_ns,
                                              &events, &scene, &scene.link);
    assert_int_equal(rc, MUSTER_OK);
    raw_tls_run_until(&scene.raw, scene.env, opener_has_judged, &scene);
    scene_close(&scene);
    fake_cert_fini(&cert);
    return scene.error;
}

static void a_certificate_is_of_the_place_or_of_a_member(void **state)
{
    static const char ordinary[] = "IP:127.0.0.1,DNS:localhost";
    static const struct {
        const char *alt_names;
        const char *host;
        bool is_right;
        enum muster_link_purpose purpose;
    } rows[] = {
        {ordinary, "127.0.0.1", true, MUSTER_LINK_PARAMS},
        {ordinary, "localhost", true, MUSTER_LINK_PARAMS},
        {"DNS:muster-link", "127.0.0.1", true, MUSTER_LINK_PARAMS},
        {"DNS:muster-link", "localhost", true, MUSTER_LINK_PARAMS},
        {"DNS:localhost", "127.0.0.1", false, MUSTER_LINK_PARAMS},
        {"IP:127.0.0.1", "localhost", false, MUSTER_LINK_PARAMS},
        {"IP:127.0.0.2,DNS:other.example", "127.0.0.1", false, MUSTER_LINK_PARAMS},
        {"DNS:127.0.0.1", "127.0.0.1", false,
         MUSTER_LINK_PARAMS}, /* the name of a host that only looks like one */
        {"DNS:muster-link.example", "127.0.0.1", false, MUSTER_LINK_PARAMS},
        {"DNS:*", "localhost", false, MUSTER_LINK_PARAMS},
        {NULL, "127.0.0.1", false, MUSTER_LINK_PARAMS},
        {"DNS:muster-link", NULL, true, MUSTER_LINK_PARAMS},
        {ordinary, NULL, true, MUSTER_LINK_PARAMS},
        {"IP:127.0.0.2,DNS:localhost", NULL, false, MUSTER_LINK_PARAMS},
        {ordinary, NULL, true, MUSTER_LINK_PARAMS_COPY},
        {ordinary, NULL, true, MUSTER_LINK_PUBLICATION},
        {ordinary, NULL, true, MUSTER_LINK_PARAMS_LEAVE},
        {ordinary, NULL, false, MUSTER_LINK_CONTROL},
        {ordinary, NULL, false, MUSTER_LINK_DATA},
        {"DNS:muster-link", NULL, true, MUSTER_LINK_CONTROL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_error error =
            cert_judge(rows[i].alt_names, rows[i].host, rows[i].purpose, NULL);

        if (error.rc != (rows[i].is_right ? MUSTER_OK : MUSTER_UNAUTHENTICATED))
            fail_msg("row %zu: %d %s", i, error.rc, error.text);
    }
}

static void a_refusal_names_what_was_dialled(void **state)
{
    struct muster_error error =
        cert_judge("DNS:other.example", "127.0.0.1", MUSTER_LINK_PARAMS, NULL);

    (void)state;
    assert_int_equal(error.rc, MUSTER_UNAUTHENTICATED);
    assert_non_null(strstr(error.text, "is for DNS:other.example, not for \"127.0.0.1\" or "
                                       "\"muster-link\": dial a name that it has"));
}

/* Accepted names decide alone. */
static void the_place_is_not_an_accepted_name(void **state)
{
    static const char *const accepted[] = {"server.example"};

    (void)state;
    assert_int_equal(
        cert_judge("DNS:server.example", "127.0.0.1", MUSTER_LINK_PARAMS, accepted).rc, MUSTER_OK);
    assert_int_equal(cert_judge("IP:127.0.0.1,DNS:muster-link", "127.0.0.1", MUSTER_LINK_PARAMS,
                                accepted)
                         .rc,
                     MUSTER_UNAUTHENTICATED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_certificate_is_of_the_place_or_of_a_member),
        cmocka_unit_test(a_refusal_names_what_was_dialled),
        cmocka_unit_test(the_place_is_not_an_accepted_name),
    };
    int failed_count;

    authority = fake_authority_new("root");
    if (authority == NULL ||
        !fake_cert_init(&own, authority, &(struct fake_cert_options){.name = "client"}))
        return 1;
    failed_count = cmocka_run_group_tests(tests, NULL, NULL);
    fake_cert_fini(&own);
    fake_authority_free(authority);
    return failed_count;
}
