/* Options of a command that serves: TLS and authorization. */
#include "tools/serve/service_tls.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <unistd.h>

#include "assertion_count.h"
#include "fake_authority.h"
#include "tls_pair.h"
#include "tools/common/command.h"

static char refusal[256];

int command_refuse(const char *command, const char *format, ...)
{
    int bytes = snprintf(refusal, sizeof(refusal), "%s: ", command);
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(refusal + bytes, sizeof(refusal) - (size_t)bytes, format, arguments);
    va_end(arguments);
    return 64;
}

/* --- Options that need each other */

static void certificate_and_key_go_together(void **state)
{
    static const struct {
        struct service_tls_settings settings;
        bool is_good;
    } rows[] = {
        {{.cert = NULL}, true},
        {{.cert = "c", .key = "k"}, true},
        {{.cert = "c", .key = "k", .client_ca = "a"}, true},
        {{.cert = "c"}, false},
        {{.key = "k"}, false},
        {{.client_ca = "a"}, false}, /* clients would be let in without a certificate */
        {{.cert = "c", .client_ca = "a"}, false},
        {{.authorization = "p"}, true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int exit = 0;

        refusal[0] = '\0';
        assert_true(service_tls_check("registry", &rows[i].settings, &exit) == rows[i].is_good);
        assert_int_equal(exit, rows[i].is_good ? 0 : 64);
        if (rows[i].is_good)
            assert_string_equal(refusal, "");
        else if (rows[i].settings.cert == NULL && rows[i].settings.key == NULL)
            assert_string_equal(refusal,
                                "registry: --tls-cert and --tls-key must both be given for "
                                "TLS, got --tls-client-ca alone");
        else
            assert_string_equal(refusal,
                                "registry: --tls-cert and --tls-key must both be given for "
                                "TLS, got one of them");
    }
}

/* Files. */

struct scene {
    struct tls_pair pair;
    char folder[32], cert[64], key[64], ca[64], policy[64];
    struct fake_authority *authority, *other;
    struct muster_error error;
};

static void put_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static int set_up(void **state)
{
    static struct scene scene;
    struct fake_cert cert;

    memset(&scene, 0, sizeof(scene));
    tls_pair_open(&scene.pair);
    scene.authority = fake_authority_new("authority");
    scene.other = fake_authority_new("other");
    strcpy(scene.folder, "/tmp/muster-srv-XXXXXX");
    assert_non_null(mkdtemp(scene.folder));
    snprintf(scene.cert, sizeof(scene.cert), "%s/cert", scene.folder);
    snprintf(scene.key, sizeof(scene.key), "%s/key", scene.folder);
    snprintf(scene.ca, sizeof(scene.ca), "%s/ca", scene.folder);
    snprintf(scene.policy, sizeof(scene.policy), "%s/policy", scene.folder);
    assert_true(fake_cert_init(
        &cert, scene.authority,
        &(struct fake_cert_options){.name = "server", .alt_names = "DNS:localhost"}));
    put_file(scene.cert, cert.cert_pem);
    put_file(scene.key, cert.key_pem);
    put_file(scene.ca, fake_authority_pem(scene.authority));
    put_file(scene.policy, "{\"allow_rules\": [{\"name\": \"a\", \"request\": "
                           "{\"paths\": [\"/s/m\"]}}]}");
    fake_cert_fini(&cert);
    *state = &scene;
    return 0;
}

static int tear_down(void **state)
{
    struct scene *scene = *state;

    (void)unlink(scene->cert);
    (void)unlink(scene->key);
    (void)unlink(scene->ca);
    (void)unlink(scene->policy);
    (void)rmdir(scene->folder);
    fake_authority_free(scene->authority);
    fake_authority_free(scene->other);
    tls_pair_close(&scene->pair);
    return 0;
}

static struct muster_tls *open_client(struct scene *scene, struct fake_authority *issuer)
{
    struct muster_tls_options options = {.ca_pem = fake_authority_pem(scene->authority)};
    struct fake_cert cert = {.cert_pem = NULL};
    struct muster_tls *tls = NULL;

    if (issuer != NULL)
        assert_true(fake_cert_init(&cert, issuer, &(struct fake_cert_options){.name = "client"}));
    options.cert_pem = cert.cert_pem;
    options.key_pem = cert.key_pem;
    assert_int_equal(muster_tls_open(&scene->pair.test.env, &options, &tls, NULL), MUSTER_OK);
    fake_cert_fini(&cert);
    return tls;
}

/* --tls-client-ca: who has no certificate of it is not let in. */
static void clients_show_certificates_where_roots_are_named(void **state)
{
    struct scene *scene = *state;
    const struct {
        const char *name;
        const char *client_ca;
        struct fake_authority *issuer; /* of the client's certificate; NULL: none */
        enum muster_rc rc;
    } rows[] = {
        {"nobody is asked", NULL, NULL, MUSTER_OK},
        {"a certificate", scene->ca, scene->authority, MUSTER_OK},
        {"none", scene->ca, NULL, MUSTER_UNAUTHENTICATED},
        {"another authority's", scene->ca, scene->other, MUSTER_UNAUTHENTICATED},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct service_tls_settings settings = {
            .cert = scene->cert, .key = scene->key, .client_ca = rows[i].client_ca};
        struct muster_tls *server = NULL, *client = open_client(scene, rows[i].issuer);

        assert_int_equal(service_tls_open(&scene->pair.test.env, &settings, &server, &scene->error),
                         MUSTER_OK);
        tls_pair_shake(&scene->pair, client, server, "localhost", NULL);
        fail_if(scene->pair.server.rc != rows[i].rc, "%s: %s", rows[i].name,
                scene->pair.server.error.text);
        muster_tls_close(server);
        muster_tls_close(client);
        tls_pair_again(&scene->pair);
    }
}

static void without_a_certificate_plain_text_is_served(void **state)
{
    struct scene *scene = *state;
    struct muster_tls *server = NULL;

    assert_int_equal(service_tls_open(&scene->pair.test.env, &(struct service_tls_settings){0},
                                      &server, &scene->error),
                     MUSTER_OK);

    assert_null(server);
}

static void a_policy_that_cannot_be_read_is_an_error(void **state)
{
    struct scene *scene = *state;
    const struct {
        const char *name, *file, *policy; /* NULL: as it stands */
        enum muster_rc rc;
        const char *text;
    } rows[] = {
        {"no policy", NULL, NULL, MUSTER_OK, NULL},
        {"a policy", scene->policy, NULL, MUSTER_OK, NULL},
        {"no file", "/no/such/policy", NULL, MUSTER_NOT_FOUND,
         "--authorization /no/such/policy cannot be read"},
        {"nonsense", scene->policy, "{}", MUSTER_INVALID_ARGUMENT, "refuse everybody"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct service_tls_settings settings = {.authorization = rows[i].file};
        struct muster_authorization *authorization = NULL;
        enum muster_rc rc;

        if (rows[i].policy != NULL)
            put_file(scene->policy, rows[i].policy);
        rc = service_authorization_new(&scene->pair.test.env, &settings, &authorization,
                                       &scene->error);
        fail_if(rc != rows[i].rc ||
                    (rows[i].text != NULL && strstr(scene->error.text, rows[i].text) == NULL),
                "%s: %s", rows[i].name, scene->error.text);
        assert_true((authorization != NULL) == (rc == MUSTER_OK && rows[i].file != NULL));
        if (authorization != NULL) {
            assert_true(muster_authorization_is_allowed(authorization, NULL, "/s/m"));
            assert_false(muster_authorization_is_allowed(authorization, NULL, "/s/n"));
        }
        muster_authorization_free(authorization);
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(certificate_and_key_go_together),
        CASE(clients_show_certificates_where_roots_are_named),
        CASE(without_a_certificate_plain_text_is_served),
        CASE(a_policy_that_cannot_be_read_is_an_error),
    };

    return cmocka_run_group_tests_name("service_tls", tests, NULL, NULL);
}
