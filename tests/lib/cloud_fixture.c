/* The fixture of tests that talk to a fake cloud. */
#include "cloud_fixture.h"

#include <dirent.h>
#include <muster/stream.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *get_var(struct muster_vars *vars, const char *name)
{
    struct cloud_fixture *fixture = MUSTER_CONTAINER_OF(vars, struct cloud_fixture, vars);

    for (size_t i = 0; i < fixture->var_count; i++)
        if (strcmp(fixture->list[i].name, name) == 0)
            return fixture->list[i].value;
    return NULL;
}

void cloud_fixture_open(struct cloud_fixture *fixture, const struct fake_cloud_options *options)
{
    static const struct muster_vars_ops ops = {.get = get_var};
    struct muster_error error = {.text = ""};

    memset(fixture, 0, sizeof(*fixture));
    test_env_open(&fixture->test);
    fixture->env = &fixture->test.env;
    fixture->vars.ops = &ops;
    fixture->env->vars = &fixture->vars;
    assert_int_equal(muster_net_system_open(fixture->env, &fixture->env->net), MUSTER_OK);
    assert_int_equal(muster_http_curl_open(fixture->env, NULL, &fixture->env->http, &error),
                     MUSTER_OK);
    if (fake_cloud_open(fixture->env, options, &fixture->cloud, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    if (fake_cloud_identity(fixture->cloud) != NULL)
        fixture->tls.ca_pem = fake_cloud_identity(fixture->cloud)->ca_pem;
    muster_http_request_init(&fixture->request, &fixture->outcome);
}

static bool http_is_closed;

static void on_http_closed(struct muster_http *http)
{
    (void)http;
    http_is_closed = true;
}

void cloud_fixture_close_http(struct cloud_fixture *fixture, struct muster_http *http)
{
    http_is_closed = false;
    muster_http_close(http, on_http_closed);
    test_env_run_until(fixture->env, test_env_is_true, &http_is_closed);
}

static void remove_files(struct cloud_fixture *fixture)
{
    DIR *folder = fixture->folder[0] != '\0' ? opendir(fixture->folder) : NULL;
    struct dirent *entry;
    char path[512];

    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        snprintf(path, sizeof(path), "%s/%.300s", fixture->folder, entry->d_name);
        if (entry->d_name[0] != '.')
            (void)unlink(path);
    }
    if (folder != NULL)
        closedir(folder);
    if (fixture->folder[0] != '\0')
        (void)rmdir(fixture->folder);
}

void cloud_fixture_close(struct cloud_fixture *fixture)
{
    cloud_fixture_close_http(fixture, fixture->env->http);
    muster_http_request_fini(&fixture->request);
    fake_cloud_close_wait(fixture->cloud);
    muster_net_system_close(fixture->env->net);
    remove_files(fixture);
    test_env_close(&fixture->test);
}

int cloud_fixture_set_up_with(void **state, const struct fake_cloud_options *options)
{
    static struct cloud_fixture fixture;

    cloud_fixture_open(&fixture, options);
    *state = &fixture;
    return 0;
}

int cloud_fixture_set_up(void **state)
{
    return cloud_fixture_set_up_with(state, NULL);
}

int cloud_fixture_set_up_metadata(void **state)
{
    (void)cloud_fixture_set_up_with(state, NULL);
    cloud_fixture_set_var(*state, "GCE_METADATA_HOST", "{{hostport}}");
    return 0;
}

int cloud_fixture_tear_down(void **state)
{
    cloud_fixture_close(*state);
    return 0;
}

size_t cloud_fixture_request_count(const struct cloud_fixture *fixture)
{
    return fake_cloud_counts(fixture->cloud)->requests;
}

static bool credentials_are_closed;

static void on_credentials_closed(struct muster_credentials *credentials)
{
    (void)credentials;
    credentials_are_closed = true;
}

void cloud_fixture_close_credentials(struct cloud_fixture *fixture,
                                     struct muster_credentials *credentials)
{
    credentials_are_closed = false;
    muster_credentials_close(credentials, on_credentials_closed);
    test_env_run_until(fixture->env, test_env_is_true, &credentials_are_closed);
}

void cloud_outcome_on_done(struct muster_http_request *request, enum muster_rc rc)
{
    struct cloud_outcome *outcome = request->data;

    outcome->count++;
    outcome->rc = rc;
    outcome->is_done = true;
}

enum muster_rc cloud_fixture_ask(struct cloud_fixture *fixture, struct muster_http_request *request)
{
    struct cloud_outcome *outcome = request->data;

    *outcome = (struct cloud_outcome){.count = 0};
    if (request->deadline_ns == 0)
        request->deadline_ns = cloud_fixture_in_s(fixture, 30);
    if (request->tls == NULL)
        request->tls = &fixture->tls;
    assert_int_equal(muster_http_start(request, fixture->env->http, cloud_outcome_on_done),
                     MUSTER_OK);
    assert_int_equal(outcome->count, 0);
    test_env_run_until(fixture->env, test_env_is_true, &outcome->is_done);
    assert_int_equal(outcome->count, 1);
    return outcome->rc;
}

static void fill_in(struct cloud_fixture *fixture, const char *text, char *out, size_t room)
{
    size_t at = 0;

    while (*text != '\0' && at + 1 < room) {
        const char *value = NULL;

        if (strncmp(text, "{{base}}", 8) == 0) {
            value = fake_cloud_base(fixture->cloud);
            text += 8;
        } else if (strncmp(text, "{{hostport}}", 12) == 0) {
            value = fake_cloud_hostport(fixture->cloud);
            text += 12;
        } else {
            out[at++] = *text++;
        }
        if (value != NULL)
            at += (size_t)snprintf(out + at, room - at, "%s", value);
    }
    assert_true(at < room);
    out[at] = '\0';
}

void cloud_fixture_set_var(struct cloud_fixture *fixture, const char *name, const char *value)
{
    size_t i = 0;

    while (i < fixture->var_count && strcmp(fixture->list[i].name, name) != 0)
        i++;
    if (value == NULL) {
        if (i < fixture->var_count)
            fixture->list[i].name[0] = '\0';
        return;
    }
    assert_true(i < CLOUD_FIXTURE_VARS);
    if (i == fixture->var_count)
        fixture->var_count++;
    snprintf(fixture->list[i].name, sizeof(fixture->list[i].name), "%s", name);
    fill_in(fixture, value, fixture->list[i].value, sizeof(fixture->list[i].value));
}

void cloud_fixture_script(struct cloud_fixture *fixture, const char *json)
{
    struct muster_error error = {.text = ""};

    if (fake_cloud_script(fixture->cloud, json, &error) != MUSTER_OK)
        fail_msg("script: %s", error.text);
}

const char *cloud_fixture_write(struct cloud_fixture *fixture, const char *name, const char *text)
{
    static char path[256];
    char filled[16384];
    FILE *file;

    if (fixture->folder[0] == '\0') {
        snprintf(fixture->folder, sizeof(fixture->folder), "/tmp/muster-test-XXXXXX");
        assert_non_null(mkdtemp(fixture->folder));
    }
    fill_in(fixture, text, filled, sizeof(filled));
    snprintf(path, sizeof(path), "%s/%s", fixture->folder, name);
    file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(filled, file) >= 0);
    assert_int_equal(fclose(file), 0);
    return path;
}

const char *cloud_fixture_url(struct cloud_fixture *fixture, const char *path)
{
    static char url[1024];

    snprintf(url, sizeof(url), "%s%s", fake_cloud_base(fixture->cloud), path);
    return url;
}

uint64_t cloud_fixture_in_s(struct cloud_fixture *fixture, uint64_t seconds)
{
    return muster_loop_after_ns(fixture->env->loop, seconds * MUSTER_NS_PER_S);
}

static void on_call(struct muster_http_call *call, enum muster_rc rc)
{
    struct cloud_caller *caller = call->data;

    caller->count++;
    caller->rc = rc;
    caller->is_done = true;
}

void cloud_caller_init(struct cloud_fixture *fixture, struct cloud_caller *caller, const char *path)
{
    *caller = (struct cloud_caller){.count = 0};
    muster_http_call_init(&caller->call, caller);
    caller->call.request.url = cloud_fixture_url(fixture, path);
    caller->call.request.deadline_ns = cloud_fixture_in_s(fixture, 30);
    caller->call.request.tls = &fixture->tls;
    caller->call.retry.backoff_first_ns = 1;
    caller->call.retry.backoff_max_ns = 1;
}

void cloud_caller_start(struct cloud_fixture *fixture, struct cloud_caller *caller)
{
    caller->count = 0;
    caller->is_done = false;
    assert_int_equal(muster_http_call_start(&caller->call, fixture->env, on_call), MUSTER_OK);
    assert_int_equal(caller->count, 0);
}

enum muster_rc cloud_caller_run(struct cloud_fixture *fixture, struct cloud_caller *caller)
{
    cloud_caller_start(fixture, caller);
    test_env_run_until(fixture->env, test_env_is_true, &caller->is_done);
    assert_int_equal(caller->count, 1);
    return caller->rc;
}
