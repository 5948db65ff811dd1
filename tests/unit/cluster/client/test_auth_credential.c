/* Trust and identity of a registry client: from options, files and variables. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <unistd.h>

#include "cluster/client/registry_client_internal.h"
#include "net/tls/tls_internal.h"
#include "tests/lib/assertion_count.h"
#include "tests/lib/fake_authority.h"
#include "tests/lib/test_env.h"
#include "tests/lib/test_vars.h"

/* Files of a credential, and a network that nobody is dialled in. */
struct scene {
    struct test_env test;
    char folder[40], ca[64], cert[64], key[64], other_ca[64];
};

static void put_file(char path[64], const char *folder, const char *name, const char *text)
{
    FILE *file;

    snprintf(path, 64, "%s/%s", folder, name);
    file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static int set_up(void **state)
{
    static struct scene scene;
    struct fake_authority *authority = fake_authority_new("authority");
    struct fake_cert cert;

    memset(&scene, 0, sizeof(scene));
    test_env_open(&scene.test);
    assert_int_equal(muster_net_system_open(&scene.test.env, &scene.test.env.net), MUSTER_OK);
    strcpy(scene.folder, "/tmp/muster-reg-XXXXXX");
    assert_non_null(mkdtemp(scene.folder));
    assert_true(fake_cert_init(&cert, authority, &(struct fake_cert_options){.name = "client"}));
    put_file(scene.ca, scene.folder, "ca", fake_authority_pem(authority));
    put_file(scene.other_ca, scene.folder, "other", fake_authority_pem(authority));
    put_file(scene.cert, scene.folder, "cert", cert.cert_pem);
    put_file(scene.key, scene.folder, "key", cert.key_pem);
    fake_cert_fini(&cert);
    fake_authority_free(authority);
    *state = &scene;
    return 0;
}

static int tear_down(void **state)
{
    struct scene *scene = *state;

    (void)unlink(scene->ca);
    (void)unlink(scene->other_ca);
    (void)unlink(scene->cert);
    (void)unlink(scene->key);
    (void)rmdir(scene->folder);
    muster_net_system_close(scene->test.env.net);
    test_env_close(&scene->test);
    return 0;
}

static bool is_closed;

static void on_closed(struct muster_registry *registry)
{
    (void)registry;
    is_closed = true;
}

static void close_registry(struct scene *scene, struct muster_registry *registry)
{
    if (registry == NULL)
        return;
    is_closed = false;
    muster_registry_close(registry, on_closed);
    test_env_run_until(&scene->test.env, test_env_is_true, &is_closed);
}

static bool is_same(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

#define CA   {"MUSTER_REGISTRY_CA_FILE", scene->ca}
#define CERT {"MUSTER_REGISTRY_CERT_FILE", scene->cert}
#define KEY  {"MUSTER_REGISTRY_KEY_FILE", scene->key}
#define WHO  {"MUSTER_REGISTRY_PEERS", "spiffe://muster/job/j/registry"}

static void options_come_before_variables(void **state)
{
    struct scene *scene = *state;
    const struct {
        const char *name;
        struct muster_registry_options options;
        struct test_var variables[5];
        bool has_tls;
        const char *ca, *cert, *key, *peer; /* of the credential */
    } rows[] = {
        {.name = "plain text",
         .options = {.endpoints = "a:1,b:2"},
         .variables = {CA, CERT, KEY, WHO}},
        {.name = "a scheme that begins alike",
         .options = {.endpoints = "https:1"},
         .variables = {CA}},
        {.name = "the system's roots", .options = {.endpoints = "https://a:1"}, .has_tls = true},
        {.name = "one of several",
         .options = {.endpoints = "a:1,https://b:2"},
         .variables = {CA},
         .has_tls = true,
         .ca = scene->ca},
        {.name = "all variables",
         .options = {.endpoints = "https://a:1"},
         .variables = {CA, CERT, KEY, WHO},
         .has_tls = true,
         .ca = scene->ca,
         .cert = scene->cert,
         .key = scene->key,
         .peer = "spiffe://muster/job/j/registry"},
        {.name = "an empty variable",
         .options = {.endpoints = "https://a:1"},
         .variables = {{"MUSTER_REGISTRY_CA_FILE", ""}, {"MUSTER_REGISTRY_PEERS", ""}},
         .has_tls = true},
        {.name = "a root of the caller's",
         .options = {.endpoints = "https://a:1", .ca_file = scene->other_ca},
         .variables = {CA, CERT, KEY, WHO},
         .has_tls = true,
         .ca = scene->other_ca},
        {.name = "a certificate of the caller's",
         .options = {.endpoints = "https://a:1", .cert_file = scene->cert, .key_file = scene->key},
         .variables = {CA, WHO},
         .has_tls = true,
         .cert = scene->cert,
         .key = scene->key},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        static struct test_vars vars;
        struct muster_registry *registry = NULL;
        struct muster_error error = {.text = ""};
        const struct muster_tls_options *got;

        test_vars_init(&vars, rows[i].variables);
        scene->test.env.vars = &vars.vars;
        fail_if(muster_registry_open(&scene->test.env, &rows[i].options, &registry, &error) !=
                    MUSTER_OK,
                "%s: %s", rows[i].name, error.text);
        fail_if((registry->tls != NULL) != rows[i].has_tls, "%s", rows[i].name);
        if (registry->tls != NULL) {
            got = &registry->tls->options;
            fail_if(!is_same(got->ca_file, rows[i].ca) || !is_same(got->cert_file, rows[i].cert) ||
                        !is_same(got->key_file, rows[i].key) ||
                        got->peer_name_count != (rows[i].peer != NULL) ||
                        (rows[i].peer != NULL && !is_same(got->peer_names[0], rows[i].peer)),
                    "%s: %s", rows[i].name, got->ca_file);
        }
        close_registry(scene, registry);
    }
}

static void a_credential_of_the_caller_s_is_shared(void **state)
{
    struct scene *scene = *state;
    struct muster_registry_options options = {.endpoints = "https://a:1",
                                              .ca_file = "/no/such/file"};
    struct muster_registry *registry = NULL;

    assert_int_equal(muster_tls_open(&scene->test.env, NULL, &options.tls, NULL), MUSTER_OK);
    assert_int_equal(muster_registry_open(&scene->test.env, &options, &registry, NULL), MUSTER_OK);

    assert_ptr_equal(registry->tls, options.tls);
    assert_true(muster_tls_is_shared(options.tls));
    close_registry(scene, registry);
    assert_false(muster_tls_is_shared(options.tls));
    muster_tls_close(options.tls);
}

/* A password in plain text to some endpoints is a password in plain text. */
static void who_has_a_password_speaks_tls_to_all_or_none(void **state)
{
    static const struct {
        const char *endpoints, *user;
        enum muster_rc rc;
    } rows[] = {
        {"https://a:1,b:2", "me", MUSTER_INVALID_ARGUMENT},
        {"a:1,https://b:2", "me", MUSTER_INVALID_ARGUMENT},
        {"https://a:1,https://b:2,c:3", "me", MUSTER_INVALID_ARGUMENT},
        {"https://a:1,https://b:2", "me", MUSTER_OK},
        {"a:1,b:2", "me", MUSTER_OK},
        {"https://a:1,b:2", NULL, MUSTER_OK},
    };
    static const struct test_var none[] = {{NULL, NULL}};
    struct scene *scene = *state;
    static struct test_vars vars;

    test_vars_init(&vars, none);
    scene->test.env.vars = &vars.vars;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct muster_registry_options options = {.endpoints = rows[i].endpoints,
                                                        .user = rows[i].user,
                                                        .password_file =
                                                            rows[i].user != NULL ? "/x" : NULL};
        struct muster_registry *registry = NULL;
        struct muster_error error = {.text = ""};

        fail_if(muster_registry_open(&scene->test.env, &options, &registry, &error) != rows[i].rc,
                "%s: %s", rows[i].endpoints, error.text);
        if (rows[i].rc != MUSTER_OK)
            assert_non_null(strstr(error.text, "the password would go in plain text"));
        close_registry(scene, registry);
    }
}

static void what_cannot_be_a_credential_is_named(void **state)
{
    struct scene *scene = *state;
    const struct {
        struct muster_registry_options options;
        const char *ca; /* the variable's */
        enum muster_rc rc;
        const char *text;
    } rows[] = {
        {{.endpoints = "https://a:1"}, "/no/such/ca", MUSTER_NOT_FOUND, "/no/such/ca"},
        /* The variables do not stand in for what an option lacks. */
        {{.endpoints = "https://a:1", .key_file = scene->key},
         scene->ca,
         MUSTER_INVALID_ARGUMENT,
         "a private key needs its certificate"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct test_var variables[] = {{"MUSTER_REGISTRY_CA_FILE", rows[i].ca}, {NULL, NULL}};
        struct muster_registry *registry = NULL;
        struct muster_error error = {.text = ""};
        static struct test_vars vars;

        test_vars_init(&vars, variables);
        scene->test.env.vars = &vars.vars;
        fail_if(muster_registry_open(&scene->test.env, &rows[i].options, &registry, &error) !=
                        rows[i].rc ||
                    strstr(error.text, rows[i].text) == NULL,
                "%s", error.text);
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(options_come_before_variables),
        CASE(a_credential_of_the_caller_s_is_shared),
        CASE(who_has_a_password_speaks_tls_to_all_or_none),
        CASE(what_cannot_be_a_credential_is_named),
    };

    return cmocka_run_group_tests_name("registry_client_credential", tests, NULL, NULL);
}
