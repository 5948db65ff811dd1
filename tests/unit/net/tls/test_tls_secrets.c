/* Private keys and secrets of TLS: memory that held one is wiped before it is given back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <muster/tls.h>

#include "tests/lib/assertion_count.h"
#include "tests/lib/fake_authority.h"
#include "tests/lib/secret_mem.h"
#include "tests/lib/secret_stack.h"
#include "tests/lib/torture.h"

static struct fake_authority *authority;
static struct fake_cert ours, others;

/* Files of one credential, and memory that watches for its key. */
struct scene {
    struct test_env test;
    struct secret_mem memory;
    char folder[32], cert[64], key[64], both[64];
};

static void put_file(const char *path, const char *first, const char *second)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    assert_true(fprintf(file, "%s%s", first, second) > 0);
    assert_int_equal(fclose(file), 0);
}

static int set_up(void **state)
{
    static struct scene scene;
    char text[8192]; /* a chain that is longer than a page, which the key follows */

    memset(&scene, 0, sizeof(scene));
    test_env_open(&scene.test);
    secret_mem_init_pem(&scene.memory, scene.test.env.mem, ours.key_pem);
    scene.test.env.mem = &scene.memory.mem;
    strcpy(scene.folder, "/tmp/muster-tls-XXXXXX");
    assert_non_null(mkdtemp(scene.folder));
    (void)snprintf(scene.cert, sizeof(scene.cert), "%s/cert", scene.folder);
    (void)snprintf(scene.key, sizeof(scene.key), "%s/key", scene.folder);
    (void)snprintf(scene.both, sizeof(scene.both), "%s/both", scene.folder);
    put_file(scene.cert, ours.cert_pem, "");
    put_file(scene.key, ours.key_pem, "");
    memset(text, '\n', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    memcpy(text, ours.key_pem, strlen(ours.key_pem));
    put_file(scene.both, text, ours.cert_pem);
    *state = &scene;
    return 0;
}

static int tear_down(void **state)
{
    struct scene *scene = *state;

    (void)unlink(scene->cert);
    (void)unlink(scene->key);
    (void)unlink(scene->both);
    (void)rmdir(scene->folder);
    scene->test.env.mem = scene->memory.base;
    test_env_close(&scene->test);
    return 0;
}

static void the_key_of_a_credential_is_wiped(void **state)
{
    struct scene *scene = *state;
    const struct {
        const char *name;
        struct muster_tls_options options;
        enum muster_rc rc;
    } rows[] = {
        {"texts", {.cert_pem = ours.cert_pem, .key_pem = ours.key_pem}, MUSTER_OK},
        {"files", {.cert_file = scene->cert, .key_file = scene->key}, MUSTER_OK},
        {"one file", {.cert_file = scene->both, .key_file = scene->both}, MUSTER_OK},
        {"one file for all",
         {.cert_file = scene->both, .key_file = scene->both, .ca_file = scene->both},
         MUSTER_OK},
        {"another's certificate",
         {.cert_pem = others.cert_pem, .key_file = scene->key},
         MUSTER_INVALID_ARGUMENT},
        {"a missing root",
         {.cert_file = scene->cert, .key_file = scene->key, .ca_file = "/nowhere"},
         MUSTER_NOT_FOUND},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_tls *tls = NULL;

        fail_if(muster_tls_open(&scene->test.env, &rows[i].options, &tls, NULL) != rows[i].rc, "%s",
                rows[i].name);
        if (tls != NULL && rows[i].options.cert_file != NULL)
            assert_int_equal(muster_tls_reload(tls, NULL), MUSTER_OK);
        assert_true(secret_mem_is_held(&scene->memory) ==
                    (tls != NULL && rows[i].options.key_pem != NULL));
        muster_tls_close(tls);
        fail_if(scene->memory.leaked_count > 0, "%s: the key was left in %u blocks", rows[i].name,
                scene->memory.leaked_count);
    }
}

static void run_open(struct torture *torture, const void *data)
{
    struct scene *scene = *(struct scene *const *)data;
    const struct muster_tls_options options = {.cert_file = scene->both, .key_file = scene->both};
    struct muster_tls *tls = NULL;
    enum muster_rc rc;

    torture_arm_limited(torture, &scene->test.mem);
    rc = muster_tls_open(&scene->test.env, &options, &tls, NULL);
    torture_disarm(torture);
    assert_int_equal(rc == MUSTER_OK, torture->refused == 0);
    muster_tls_close(tls);
    assert_int_equal(scene->memory.leaked_count, 0);
}

static void a_key_that_does_not_fit_in_is_wiped(void **state)
{
    struct scene *scene = *state;

    torture_run(&(struct torture_scenario){.name = "open", .run = run_open, .data = &scene});
}

/* The key of an authority is in OpenSSL's hands alone. */
static void an_issued_key_is_only_in_what_is_given(void **state)
{
    struct scene *scene = *state;
    const struct muster_tls_subject subject = {.name = "x", .life_s = 60};
    struct muster_tls_authority *issuer = NULL;
    char *pem = NULL;

    assert_int_equal(muster_tls_authority_new(&scene->test.env, "ours", &issuer), MUSTER_OK);
    assert_int_equal(muster_tls_authority_issue(issuer, &subject, &pem, NULL), MUSTER_OK);

    assert_non_null(strstr(pem, "PRIVATE KEY"));
    assert_null(strstr(muster_tls_authority_pem(issuer), "PRIVATE KEY"));
    assert_non_null(strstr(muster_tls_authority_pem(issuer), "BEGIN CERTIFICATE"));
    muster_mem_free(scene->test.env.mem, pem);
    muster_tls_authority_free(issuer);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(the_key_of_a_credential_is_wiped),
        CASE(a_key_that_does_not_fit_in_is_wiped),
        CASE(an_issued_key_is_only_in_what_is_given),
    };
    const struct fake_cert_options options = {.name = "ours", .alt_names = "DNS:localhost"};
    int failed_count;

    if (!fake_certs_init(&authority, &ours, &options, &others, &options))
        return 1;
    failed_count = cmocka_run_group_tests_name("tls_secrets", tests, NULL, NULL);
    fake_certs_fini(authority, &ours, &others);
    return failed_count;
}
