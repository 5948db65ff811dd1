/* Certificates of every wrong kind, before a client of the registry and before the registry. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <unistd.h>

#include <muster/tls.h>

#include "net/tls/tls_internal.h"
#include "tests/lib/raw_tls.h"
#include "tests/lib/refusal_log.h"
#include "tests/lib/registry_pair.h"
#include "tests/lib/test_vars.h"
#include "tests/lib/wrong_certs.h"

static struct wrong_certs certs;

struct scene {
    struct registry_pair pair;
    struct raw_tls raw;
    struct muster_tls *tls;
    struct refusal_log refusals;
};

static void scene_open(struct scene *scene, const struct muster_tls_options *tls)
{
    struct registry_pair *f = &scene->pair;

    memset(scene, 0, sizeof(*scene));
    registry_pair_open(f);
    registry_pair_close_client(f);
    registry_pair_stop_server(f);
    assert_int_equal(muster_tls_open(f->env, tls, &scene->tls, NULL), MUSTER_OK);
}

static void scene_close(struct scene *scene)
{
    struct registry_pair *f = &scene->pair;

    if (f->server != NULL)
        registry_pair_stop_server(f);
    test_env_turn(f->env, 4);
    muster_tls_close(scene->tls);
    muster_registry_store_close(f->store);
    muster_net_system_close(f->env->net);
    test_env_close(&f->test);
}

/* HTTP/2 begins for nobody but a registry that is trusted. */
static bool client_has_judged(void *data)
{
    const struct scene *scene = data;

    return scene->pair.is_done || scene->raw.heard_count > 0;
}

static void open_and_put(struct scene *scene, const struct muster_registry_options *options)
{
    struct registry_pair *f = &scene->pair;
    struct muster_error error;

    if (muster_registry_open(f->env, options, &f->registry, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    muster_registry_set_data(f->registry, f);
    f->is_done = false;
    f->rc = MUSTER_OK;
    assert_int_equal(muster_registry_put_start(&f->op, f->registry, registry_pair_bytes_of("a"),
                                               registry_pair_bytes_of("1"), 0,
                                               registry_pair_soon(f), registry_pair_on_op),
                     MUSTER_OK);
}

static bool client_is_right(struct scene *scene, const struct wrong_certs_row *row,
                            const struct fake_cert *cert)
{
    char endpoint[MUSTER_ADDRESS_TEXT_BYTES + 8] = "https://";
    struct registry_pair *f = &scene->pair;
    struct muster_address address;
    bool is_right;

    raw_tls_init(&scene->raw,
                 &(struct raw_tls_options){.is_server = true, .cert = cert, .protocols = "h2"});
    raw_tls_listen(&scene->raw, &address);
    (void)muster_address_format(&address, endpoint + strlen(endpoint));
    open_and_put(scene,
                 &(struct muster_registry_options){.endpoints = endpoint, .tls = scene->tls});
    raw_tls_run_until(&scene->raw, f->env, client_has_judged, scene);
    is_right = wrong_certs_is_right(row, WRONG_CERTS_CLIENT, f->rc, f->op.error.text) &&
               (f->rc == MUSTER_OK || scene->raw.heard_count == 0);
    registry_pair_close_client(f);
    raw_tls_fini(&scene->raw);
    return is_right;
}

/* It is dialled by its address. */
static void a_client_refuses_every_wrong_certificate(void **state)
{
    const struct muster_tls_options options = {.ca_pem = fake_authority_pem(certs.root)};
    const struct wrong_certs_row *row;
    unsigned fault_count = 0;
    struct scene scene;
    size_t index = 0;

    (void)state;
    scene_open(&scene, &options);
    while ((row = wrong_certs_next(WRONG_CERTS_CLIENT, &index)) != NULL) {
        struct fake_cert cert;

        if (!wrong_certs_is_for_ip(row))
            continue;
        wrong_certs_make(&certs, row, &cert);
        fault_count += !client_is_right(&scene, row, &cert);
        fake_cert_fini(&cert);
    }

    assert_int_equal(fault_count, 0);
    scene_close(&scene);
}

/* The registry's SETTINGS come after the handshake. */
static bool server_has_judged(void *data)
{
    const struct scene *scene = data;

    return scene->refusals.is_told || scene->raw.heard_count > 0;
}

static bool server_is_right(struct scene *scene, const struct wrong_certs_row *row,
                            const struct fake_cert *cert)
{
    struct registry_pair *f = &scene->pair;
    bool is_right;

    refusal_log_init(&scene->refusals);
    scene->tls->refusal_logged_ns = 0;
    f->env->log = &scene->refusals.log;
    raw_tls_init(&scene->raw, &(struct raw_tls_options){.cert = cert, .protocols = "h2"});
    raw_tls_connect(&scene->raw, muster_registry_server_address(f->server));
    raw_tls_run_until(&scene->raw, f->env, server_has_judged, scene);
    is_right = wrong_certs_is_right(row, WRONG_CERTS_SERVER,
                                    scene->refusals.is_told ? MUSTER_UNAUTHENTICATED : MUSTER_OK,
                                    scene->refusals.reason);
    f->env->log = NULL;
    raw_tls_fini(&scene->raw);
    return is_right;
}

static void a_registry_refuses_every_wrong_certificate(void **state)
{
    struct fake_cert own;
    struct muster_registry_server_options serve = {.listen = "127.0.0.1:0"};
    const struct wrong_certs_row *row;
    unsigned fault_count = 0;
    struct scene scene;
    size_t index = 0;

    (void)state;
    assert_true(fake_cert_init(&own, certs.root, &(struct fake_cert_options){.name = "registry"}));
    scene_open(&scene, &(struct muster_tls_options){.cert_pem = own.cert_pem,
                                                    .key_pem = own.key_pem,
                                                    .ca_pem = fake_authority_pem(certs.root),
                                                    .is_peer_required = true});
    fake_cert_fini(&own);
    serve.tls = scene.tls;
    assert_int_equal(muster_registry_server_open(scene.pair.env, scene.pair.store, &serve,
                                                 &scene.pair.server, NULL),
                     MUSTER_OK);
    muster_registry_server_set_data(scene.pair.server, &scene.pair);
    while ((row = wrong_certs_next(WRONG_CERTS_SERVER, &index)) != NULL) {
        struct fake_cert cert;

        wrong_certs_make(&certs, row, &cert);
        fault_count += !server_is_right(&scene, row, &cert);
        fake_cert_fini(&cert);
    }

    assert_int_equal(fault_count, 0);
    scene_close(&scene);
}

/* Trust and identity of a client. */

#define PLACES_MAX 4

static char folder[] = "/tmp/muster-registry-certs-XXXXXX";

static const char *write_file(const char *name, const char *text)
{
    static char paths[PLACES_MAX][96];
    static size_t count;
    char *path = paths[count++ % PLACES_MAX];
    FILE *file;

    snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
    file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    return path;
}

struct told_row {
    const char *name;
    struct test_var variables[5];
    struct muster_registry_options options;
    const char *words;   /* of the refusal; NULL: the registry is trusted */
    const char *subject; /* as whom the client comes; NULL: nobody */
};

static void check_told(struct scene *scene, const struct fake_cert *cert,
                       const struct told_row *row)
{
    char endpoint[MUSTER_ADDRESS_TEXT_BYTES + 8] = "https://", subject[64] = "";
    struct muster_registry_options options = row->options;
    struct registry_pair *f = &scene->pair;
    struct muster_address address;
    struct test_vars vars;
    const X509 *shown;

    raw_tls_init(&scene->raw,
                 &(struct raw_tls_options){
                     .is_server = true, .cert = cert, .protocols = "h2", .asks_for_cert = true});
    raw_tls_listen(&scene->raw, &address);
    (void)muster_address_format(&address, endpoint + strlen(endpoint));
    options.endpoints = endpoint;
    test_vars_init(&vars, row->variables);
    f->env->vars = &vars.vars;
    open_and_put(scene, &options);
    raw_tls_run_until(&scene->raw, f->env, client_has_judged, scene);

    if (f->rc != (row->words != NULL ? MUSTER_UNAUTHENTICATED : MUSTER_OK) ||
        (row->words != NULL && strstr(f->op.error.text, row->words) == NULL))
        fail_msg("%s: %s", row->name, f->op.error.text);
    shown = f->rc == MUSTER_OK ? SSL_get0_peer_certificate(scene->raw.ssl) : NULL;
    if (shown != NULL)
        X509_NAME_get_text_by_NID(X509_get_subject_name(shown), NID_commonName, subject,
                                  sizeof(subject));
    if (strcmp(subject, row->subject != NULL ? row->subject : "") != 0)
        fail_msg("%s: the client is \"%s\"", row->name, subject);
    registry_pair_close_client(f);
    raw_tls_fini(&scene->raw);
    f->env->vars = muster_vars_system();
}

static void options_or_variables_say_whom_to_trust(void **state)
{
    static const char peers[] = "spiffe://test/job/a/registry";
    const struct fake_cert_options options = {
        .name = "registry", .alt_names = "URI:spiffe://test/job/a/registry,IP:127.0.0.1"};
    struct fake_cert served, ours;
    struct scene scene;

    (void)state;
    assert_non_null(mkdtemp(folder));
    assert_true(fake_cert_init(&served, certs.root, &options));
    assert_true(fake_cert_init(&ours, certs.root, &(struct fake_cert_options){.name = "ours"}));
    scene_open(&scene, &(struct muster_tls_options){.ca_pem = fake_authority_pem(certs.root)});

    const char *root = write_file("root.pem", fake_authority_pem(certs.root));
    const char *stranger = write_file("stranger.pem", fake_authority_pem(certs.stranger));
    const char *cert = write_file("cert.pem", ours.cert_pem);
    const char *key = write_file("key.pem", ours.key_pem);
    const struct told_row rows[] = {
        {"roots by a variable", {{"MUSTER_REGISTRY_CA_FILE", root}}, {0}, NULL, NULL},
        {"other roots by a variable",
         {{"MUSTER_REGISTRY_CA_FILE", stranger}},
         {0},
         "its issuer CN=root is not trusted by",
         NULL},
        {"the system's roots", {{NULL, NULL}}, {0}, "its issuer CN=root is not trusted by", NULL},
        {"peers by a variable",
         {{"MUSTER_REGISTRY_CA_FILE", root}, {"MUSTER_REGISTRY_PEERS", peers}},
         {0},
         NULL,
         NULL},
        {"other peers by a variable",
         {{"MUSTER_REGISTRY_CA_FILE", root}, {"MUSTER_REGISTRY_PEERS", "spiffe://test/job/b/*"}},
         {0},
         "which is none of the accepted names",
         NULL},
        {"a certificate by variables",
         {{"MUSTER_REGISTRY_CA_FILE", root},
          {"MUSTER_REGISTRY_CERT_FILE", cert},
          {"MUSTER_REGISTRY_KEY_FILE", key}},
         {0},
         NULL,
         "ours"},
        {"roots by an option", {{NULL, NULL}}, {.ca_file = root}, NULL, NULL},
        {"roots by an option, and all variables",
         {{"MUSTER_REGISTRY_CA_FILE", stranger},
          {"MUSTER_REGISTRY_CERT_FILE", cert},
          {"MUSTER_REGISTRY_KEY_FILE", key},
          {"MUSTER_REGISTRY_PEERS", "spiffe://test/job/b/*"}},
         {.ca_file = root},
         NULL,
         NULL},
        {"a certificate by options, and roots by a variable that does not count",
         {{"MUSTER_REGISTRY_CA_FILE", root}},
         {.cert_file = cert, .key_file = key},
         "its issuer CN=root is not trusted by",
         NULL},
        {"all by options",
         {{NULL, NULL}},
         {.ca_file = root, .cert_file = cert, .key_file = key},
         NULL,
         "ours"},
        {"a credential, and all variables",
         {{"MUSTER_REGISTRY_CA_FILE", stranger}, {"MUSTER_REGISTRY_PEERS", "nobody"}},
         {.tls = scene.tls},
         NULL,
         NULL},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        check_told(&scene, &served, &rows[i]);
    scene_close(&scene);
    fake_cert_fini(&served);
    fake_cert_fini(&ours);
    unlink(root);
    unlink(stranger);
    unlink(cert);
    unlink(key);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_client_refuses_every_wrong_certificate),
        cmocka_unit_test(a_registry_refuses_every_wrong_certificate),
        cmocka_unit_test(options_or_variables_say_whom_to_trust),
    };
    int failed_count;

    if (getenv("MUSTER_TEST_REGISTRY") != NULL)
        return 0; /* it has certificates of its own, or none */
    raw_tls_set_policy(true);
    wrong_certs_open(&certs);
    failed_count = cmocka_run_group_tests_name("registry_certs", tests, NULL, NULL);
    wrong_certs_close(&certs);
    return failed_count;
}
