/* Certificates of every wrong kind, before the client on curl; and the versions of TLS that it speaks. */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <muster/http.h>
#include <muster/stream.h>

#include "tests/lib/raw_tls.h"
#include "tests/lib/test_env.h"
#include "tests/lib/wrong_certs.h"

static struct wrong_certs certs;

struct scene {
    struct test_env test;
    struct muster_env *env;
    struct raw_tls raw;
    struct muster_http_request request;
    enum muster_rc rc;
    bool is_done, is_answered;
};

static void scene_open(struct scene *scene)
{
    memset(scene, 0, sizeof(*scene));
    test_env_open(&scene->test);
    scene->env = &scene->test.env;
    assert_int_equal(muster_net_system_open(scene->env, &scene->env->net), MUSTER_OK);
    assert_int_equal(muster_http_curl_open(scene->env, NULL, &scene->env->http, NULL), MUSTER_OK);
}

static bool is_http_closed;

static void on_closed(struct muster_http *http)
{
    (void)http;
    is_http_closed = true;
}

static void scene_close(struct scene *scene)
{
    is_http_closed = false;
    muster_http_close(scene->env->http, on_closed);
    test_env_run_until(scene->env, test_env_is_true, &is_http_closed);
    muster_net_system_close(scene->env->net);
    test_env_close(&scene->test);
}

static void on_done(struct muster_http_request *request, enum muster_rc rc)
{
    struct scene *scene = request->data;

    scene->is_done = true;
    scene->rc = rc;
}

/* A peer that is asked for a page gives an empty one. */
static bool is_over(void *data)
{
    static const char page[] = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    struct scene *scene = data;

    if (scene->raw.heard_count > 0 && !scene->is_answered) {
        raw_tls_say(&scene->raw, page, sizeof(page) - 1);
        scene->is_answered = true;
    }
    return scene->is_done;
}

/* name: WRONG_CERTS_IP, or one that is only verified. */
static void ask_peer(struct scene *scene, const struct fake_authority *trusted,
                     const struct raw_tls_options *server, const char *name)
{
    const struct muster_http_tls tls = {.ca_pem = fake_authority_pem(trusted),
                                        .server_name =
                                            strcmp(name, WRONG_CERTS_IP) == 0 ? NULL : name};
    struct muster_address address;
    char url[64];

    raw_tls_init(&scene->raw, server);
    raw_tls_listen(&scene->raw, &address);
    (void)snprintf(url, sizeof(url), "https://" WRONG_CERTS_IP ":%u/", address.port);
    scene->is_done = scene->is_answered = false;
    muster_http_request_init(&scene->request, scene);
    scene->request.url = url;
    scene->request.tls = &tls;
    scene->request.deadline_ns = muster_loop_after_ns(scene->env->loop, 60 * MUSTER_NS_PER_S);
    assert_int_equal(muster_http_start(&scene->request, scene->env->http, on_done), MUSTER_OK);
    raw_tls_run_until(&scene->raw, scene->env, is_over, scene);
    raw_tls_fini(&scene->raw);
}

static void a_client_refuses_every_wrong_certificate(void **state)
{
    const struct wrong_certs_row *row;
    unsigned fault_count = 0;
    struct scene scene;
    size_t index = 0;

    (void)state;
    scene_open(&scene);
    while ((row = wrong_certs_next(WRONG_CERTS_HTTP, &index)) != NULL) {
        const char *name = row->dialled != NULL ? row->dialled : WRONG_CERTS_NAME;
        struct fake_cert cert;

        wrong_certs_make(&certs, row, &cert);
        ask_peer(&scene, certs.root, &(struct raw_tls_options){.is_server = true, .cert = &cert},
                 name);
        fault_count +=
            !wrong_certs_is_right(row, WRONG_CERTS_HTTP, scene.rc, scene.request.error.text);
        if (scene.rc != MUSTER_OK && scene.is_answered)
            fail_msg("a certificate %s is asked for a page", row->name);
        muster_http_request_fini(&scene.request);
        fake_cert_fini(&cert);
    }

    assert_int_equal(fault_count, 0);
    scene_close(&scene);
}

/* The table's authorities have elliptic keys, of which OpenSSL speaks in other words. */
static void an_authority_of_the_name_of_another_is_not_trusted_by_rsa(void **state)
{
    struct fake_cert_options authority = {.name = "root", .is_authority = true, .rsa_bits = 2048};
    const struct fake_cert_options leaf = {.name = "leaf", .alt_names = "IP:" WRONG_CERTS_IP};
    struct fake_authority *trusted = fake_authority_issue(NULL, &authority), *namesake;
    struct fake_cert cert;
    struct scene scene;

    (void)state;
    authority.rsa_bits = 2056; /* another key */
    namesake = fake_authority_issue(NULL, &authority);
    assert_true(trusted != NULL && namesake != NULL && fake_cert_init(&cert, namesake, &leaf));
    scene_open(&scene);
    ask_peer(&scene, trusted, &(struct raw_tls_options){.is_server = true, .cert = &cert},
             WRONG_CERTS_IP);

    assert_int_equal(scene.rc, MUSTER_UNAUTHENTICATED);
    assert_non_null(strstr(scene.request.error.text, "certificate does not hold"));
    assert_false(scene.is_answered);
    muster_http_request_fini(&scene.request);
    scene_close(&scene);
    fake_cert_fini(&cert);
    fake_authority_free(trusted);
    fake_authority_free(namesake);
}

static void a_client_speaks_1_2_and_1_3_and_nothing_older(void **state)
{
    static const struct {
        const char *name;
        int version;
        enum muster_rc rc;
    } rows[] = {
        {"TLS 1.0", TLS1_VERSION, MUSTER_UNAVAILABLE},
        {"TLS 1.1", TLS1_1_VERSION, MUSTER_UNAVAILABLE},
        {"TLS 1.2", TLS1_2_VERSION, MUSTER_OK},
        {"TLS 1.3", TLS1_3_VERSION, MUSTER_OK},
    };
    const struct fake_cert_options options = {.name = "server", .alt_names = "IP:" WRONG_CERTS_IP};
    struct fake_cert cert;
    struct scene scene;

    (void)state;
    scene_open(&scene);
    assert_true(fake_cert_init(&cert, certs.root, &options));
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct raw_tls_options server = {.is_server = true,
                                               .cert = &cert,
                                               .version_min = rows[i].version,
                                               .version_max = rows[i].version};

        ask_peer(&scene, certs.root, &server, WRONG_CERTS_IP);
        if (scene.rc != rows[i].rc)
            fail_msg("%s: %s", rows[i].name, scene.request.error.text);
        if (scene.rc != MUSTER_OK && strstr(scene.request.error.text, "protocol version") == NULL)
            fail_msg("%s: %s", rows[i].name, scene.request.error.text);
        muster_http_request_fini(&scene.request);
    }
    fake_cert_fini(&cert);
    scene_close(&scene);
}

static int run_under(bool is_lax)
{
    const struct CMUnitTest judging[] = {
        cmocka_unit_test(a_client_refuses_every_wrong_certificate),
        cmocka_unit_test(an_authority_of_the_name_of_another_is_not_trusted_by_rsa),
    };
    const struct CMUnitTest speaking[] = {
        cmocka_unit_test(a_client_speaks_1_2_and_1_3_and_nothing_older),
    };
    int failed_count;

    raw_tls_set_policy(is_lax);
    wrong_certs_open(&certs);
    failed_count = is_lax
                       ? cmocka_run_group_tests_name("http_client_versions", speaking, NULL, NULL)
                       : cmocka_run_group_tests_name("http_client_certs", judging, NULL, NULL);
    wrong_certs_close(&certs);
    return failed_count;
}

/* How strong keys must be is for the system's policy to say, how old a version may be is not: a
 * process has one policy. */
int main(void)
{
    pid_t child = fork();
    int status = 1;

    if (child == 0)
        return run_under(true);
    (void)waitpid(child, &status, 0);
    return run_under(false) + (status != 0);
}
