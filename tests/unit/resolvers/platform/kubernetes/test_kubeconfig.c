/* kubeconfig files: contexts over several files, credentials in all their forms, clear errors. */
#include "resolvers/platform/kubernetes/kubeconfig.h"

#include "assertion_count.h"
#include "test_env.h"
#include "test_vars.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PEM_BASE64 "LS0tLS1CRUdJTiBYLS0tLS0K" /* "-----BEGIN X-----\n" */

static const char plain[] = "apiVersion: v1\n"
                            "kind: Config\n"
                            "current-context: a\n"
                            "clusters:\n"
                            "- name: k\n"
                            "  cluster: {server: 'https://k.example:6443/', tls-server-name: api,\n"
                            "            certificate-authority-data: " PEM_BASE64 "}\n"
                            "- name: l\n"
                            "  cluster:\n"
                            "    server: https://l.example\n"
                            "    certificate-authority: pki/ca.crt\n"
                            "    insecure-skip-tls-verify: true\n"
                            "users:\n"
                            "- name: u\n"
                            "  user: {token: 12345}\n"
                            "- name: c\n"
                            "  user: {client-certificate: /abs/c.crt, client-key: c.key}\n"
                            "- name: x\n"
                            "  user: {exec: {command: gke-gcloud-auth-plugin}}\n"
                            "- name: p\n"
                            "  user: {auth-provider: {name: gcp}}\n"
                            "- name: h\n"
                            "  user: {client-certificate: /abs/c.crt}\n"
                            "contexts:\n"
                            "- name: a\n"
                            "  context: {cluster: k, user: u, namespace: ml}\n"
                            "- name: b\n"
                            "  context: {cluster: l, user: c}\n"
                            "- name: exec\n"
                            "  context: {cluster: k, user: x}\n"
                            "- name: provider\n"
                            "  context: {cluster: k, user: p}\n"
                            "- name: half\n"
                            "  context: {cluster: k, user: h}\n"
                            "- name: lost\n"
                            "  context: {cluster: nowhere, user: u}\n"
                            "- name: open\n"
                            "  context: {cluster: k}\n"
                            "- name: stranger\n"
                            "  context: {cluster: k, user: nobody}\n";

static enum muster_rc parse_config(struct test_env *test, const char *text, const char *context,
                                   struct muster_kubeconfig *config, struct muster_error *error)
{
    struct muster_kubeconfig_file file = {
        .path = "/home/me/.kube/config", .text = text, .size = strlen(text)};

    return muster_kubeconfig_parse(test->env.mem, &file, 1, context, config, error);
}

static void the_current_context_is_read(void **state)
{
    struct test_env *test = *state;
    struct muster_kubeconfig config;
    struct muster_error error = {0};

    assert_int_equal(parse_config(test, plain, NULL, &config, &error), MUSTER_OK);

    assert_string_equal(config.context, "a");
    assert_string_equal(config.server, "https://k.example:6443");
    assert_string_equal(config.server_name, "api");
    assert_string_equal(config.ca_pem, "-----BEGIN X-----\n");
    assert_string_equal(config.token, "12345");
    assert_false(config.is_insecure_skip_verify);
    assert_null(config.cert_file);
    muster_kubeconfig_fini(&config);
}

static void paths_are_relative_to_the_file_that_names_them(void **state)
{
    struct test_env *test = *state;
    struct muster_kubeconfig config;
    struct muster_error error = {0};

    assert_int_equal(parse_config(test, plain, "b", &config, &error), MUSTER_OK);

    assert_string_equal(config.ca_file, "/home/me/.kube/pki/ca.crt");
    assert_string_equal(config.cert_file, "/abs/c.crt");
    assert_string_equal(config.key_file, "/home/me/.kube/c.key");
    assert_true(config.is_insecure_skip_verify);
    muster_kubeconfig_fini(&config);
}

static void json_is_read_as_well(void **state)
{
    struct test_env *test = *state;
    static const char text[] =
        "{\"current-context\":\"c\",\"clusters\":[{\"name\":\"k\",\"cluster\":{\"server\":"
        "\"http://127.0.0.1:80\"}}],\"users\":[{\"name\":\"u\",\"user\":{\"tokenFile\":\"t\"}}],"
        "\"contexts\":[{\"name\":\"c\",\"context\":{\"cluster\":\"k\",\"user\":\"u\"}}]}";
    struct muster_kubeconfig config;
    struct muster_error error = {0};

    assert_int_equal(parse_config(test, text, NULL, &config, &error), MUSTER_OK);

    assert_string_equal(config.server, "http://127.0.0.1:80");
    assert_string_equal(config.token_file, "/home/me/.kube/t");
    muster_kubeconfig_fini(&config);
}

static void what_is_wrong_is_named_with_its_entry(void **state)
{
    struct test_env *test = *state;
    static const struct {
        const char *text;
        const char *context;
        enum muster_rc rc;
        const char *says;
    } rows[] = {
        {plain, "exec", MUSTER_UNIMPLEMENTED, "gke-gcloud-auth-plugin"},
        {plain, "provider", MUSTER_UNIMPLEMENTED, "'gcp'"},
        {plain, "half", MUSTER_INVALID_ARGUMENT, "user 'h'"},
        {plain, "lost", MUSTER_INVALID_ARGUMENT, "cluster 'nowhere'"},
        {plain, "stranger", MUSTER_INVALID_ARGUMENT, "user 'nobody'"},
        {plain, "zzz", MUSTER_NOT_FOUND, "context 'zzz'"},
        {"a: [", NULL, MUSTER_INVALID_ARGUMENT, "/home/me/.kube/config: YAML line"},
        {"[1]", NULL, MUSTER_INVALID_ARGUMENT, "must be a kubeconfig"},
        {"clusters: []", NULL, MUSTER_INVALID_ARGUMENT, "current-context"},
        {"", NULL, MUSTER_INVALID_ARGUMENT, "current-context"},
        {"current-context: a\ncontexts: [{name: a, context: {cluster: k}}]\n"
         "clusters: [{name: k, cluster: {server: k.example}}]",
         NULL, MUSTER_INVALID_ARGUMENT, "https://host:port"},
        {"current-context: a\ncontexts: [{name: a, context: {cluster: k}}]\n"
         "clusters: [{name: k, cluster: {server: 'https://k', certificate-authority-data: '%%%'}}]",
         NULL, MUSTER_INVALID_ARGUMENT, "certificate-authority-data of cluster 'k'"},
        {"current-context: a\ncontexts: [{name: a, context: {cluster: k}}]\n"
         "clusters: [{name: k, cluster: {server: [1]}}]",
         NULL, MUSTER_INVALID_ARGUMENT, "must be text, got list"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_kubeconfig config;
        struct muster_error error = {0};

        fail_if(parse_config(test, rows[i].text, rows[i].context, &config, &error) != rows[i].rc ||
                    strstr(error.text, rows[i].says) == NULL,
                "row %zu: %s", i, error.text);
    }
}

static void a_context_without_user_is_an_open_server(void **state)
{
    struct test_env *test = *state;
    struct muster_kubeconfig config;
    struct muster_error error = {0};

    assert_int_equal(parse_config(test, plain, "open", &config, &error), MUSTER_OK);

    assert_null(config.token);
    muster_kubeconfig_fini(&config);
}

/* kubectl refuses, too: the first might have named another user. */
static void a_malformed_file_is_not_passed_over_for_the_next(void **state)
{
    struct test_env *test = *state;
    static const char bad[] = "users: [";
    const struct muster_kubeconfig_file files[] = {
        {.path = "/home/me/first", .text = bad, .size = strlen(bad)},
        {.path = "/home/me/second", .text = plain, .size = strlen(plain)}};
    struct muster_kubeconfig config;
    struct muster_error error = {0};

    assert_int_equal(muster_kubeconfig_parse(test->env.mem, files, 2, "a", &config, &error),
                     MUSTER_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "/home/me/first"));
}

static void write_file(const char *path, const char *text)
{
    assert_int_equal(muster_files_write(muster_files_system(), path, text, strlen(text)),
                     MUSTER_OK);
}

static void several_files_count_as_one_and_the_first_entry_wins(void **state)
{
    struct test_env *test = *state;
    static const char first[] = "current-context: a\n"
                                "users: [{name: u, user: {token: first}}]\n";
    char folder[] = "/tmp/kubeconfig.XXXXXX", list[256], path[2][64];
    struct muster_kubeconfig config;
    struct muster_error error = {0};
    struct test_vars vars;

    assert_non_null(mkdtemp(folder));
    snprintf(path[0], sizeof(path[0]), "%s/first", folder);
    snprintf(path[1], sizeof(path[1]), "%s/second", folder);
    write_file(path[0], first);
    write_file(path[1], plain);
    snprintf(list, sizeof(list), "%s/absent:%s:%s", folder, path[0], path[1]);
    test_vars_init(&vars, (const struct test_var[]){{"KUBECONFIG", list}, {NULL, NULL}});
    test->env.vars = &vars.vars;

    assert_int_equal(muster_kubeconfig_load(&test->env, NULL, NULL, &config, &error), MUSTER_OK);
    assert_string_equal(config.token, "first");
    assert_string_equal(config.server, "https://k.example:6443");
    muster_kubeconfig_fini(&config);

    assert_int_equal(muster_kubeconfig_load(&test->env, path[1], NULL, &config, &error), MUSTER_OK);
    assert_string_equal(config.token, "12345");
    muster_kubeconfig_fini(&config);

    unlink(path[0]);
    unlink(path[1]);
    assert_int_equal(muster_kubeconfig_load(&test->env, NULL, NULL, &config, &error),
                     MUSTER_NOT_FOUND);
    assert_non_null(strstr(error.text, "absent"));
    rmdir(folder);
}

static void more_files_than_can_be_read_are_refused(void **state)
{
    static const struct {
        size_t count;
        enum muster_rc rc;
        const char *text;
    } rows[] = {
        {MUSTER_KUBECONFIG_FILES_MAX, MUSTER_OK, ""},
        {MUSTER_KUBECONFIG_FILES_MAX + 1, MUSTER_INVALID_ARGUMENT, "KUBECONFIG lists more than"},
    };
    struct test_env *test = *state;
    char folder[] = "/tmp/kubeconfig.XXXXXX", path[64];

    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/one", folder);
    write_file(path, plain);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char list[64 * (MUSTER_KUBECONFIG_FILES_MAX + 1)];
        struct muster_kubeconfig config;
        struct muster_error error = {.text = ""};
        struct test_vars vars;
        size_t length = 0;

        for (size_t k = 0; k < rows[i].count; k++)
            length += (size_t)snprintf(list + length, sizeof(list) - length, "%s%s",
                                       k > 0 ? ":" : "", path);
        test_vars_init(&vars, (const struct test_var[]){{"KUBECONFIG", list}, {NULL, NULL}});
        test->env.vars = &vars.vars;
        assert_int_equal(muster_kubeconfig_load(&test->env, NULL, NULL, &config, &error),
                         rows[i].rc);
        assert_non_null(strstr(error.text, rows[i].text));
        if (rows[i].rc == MUSTER_OK)
            muster_kubeconfig_fini(&config);
    }
    unlink(path);
    rmdir(folder);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, test_env_set_up, test_env_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(the_current_context_is_read),
        CASE(paths_are_relative_to_the_file_that_names_them),
        CASE(json_is_read_as_well),
        CASE(what_is_wrong_is_named_with_its_entry),
        CASE(a_context_without_user_is_an_open_server),
        CASE(more_files_than_can_be_read_are_refused),
        CASE(a_malformed_file_is_not_passed_over_for_the_next),
        CASE(several_files_count_as_one_and_the_first_entry_wins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
