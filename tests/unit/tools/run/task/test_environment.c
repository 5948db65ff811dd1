/* The environment of a worker: which setting becomes which variable, and what is not passed on. */
#include "tools/run/task/environment.c"

#include "test_env.h"

#include <stdio.h>

static const struct run_tls_shown shown = {.cert = "/cert",
                                           .ca = "/ca",
                                           .peers = "spiffe://job/*",
                                           .registry = "spiffe://job/registry",
                                           .reload_ns = 1500 * MUSTER_NS_PER_MS};
static bool is_registry_of_job;

void run_tls_show(const struct run_task *task, struct run_tls_shown *ret_shown)
{
    (void)task;
    *ret_shown = shown;
    ret_shown->is_registry_of_job = is_registry_of_job;
}

const char *run_registry_endpoint(const struct run *run)
{
    (void)run;
    return "registry:2379";
}

void run_output_make_dir(const struct run_task *task, char *path, size_t room)
{
    (void)task;
    (void)snprintf(path, room, "/tmp/.");
}

static const char *place; /* NULL: none */

bool run_places_name(const struct run_task *task, char ret_name[RUN_PLACE_BYTES])
{
    (void)task;
    if (place != NULL)
        (void)snprintf(ret_name, RUN_PLACE_BYTES, "%s", place);
    return place != NULL;
}

/* A worker of a job of 3 in its second life. */
struct stage {
    struct run run;
    struct run_task task;
    char **environment;
};

static void stage_open(struct stage *stage)
{
    static struct muster_env env;
    struct run_settings *settings = &stage->run.settings;

    memset(stage, 0, sizeof(*stage));
    env.vars = muster_vars_system();
    stage->run.env = &env;
    *settings = (struct run_settings){
        .log_format = "text",
        .reproducible = "no",
        .restarts_max = 5,
        .members_min = 2,
        .members_min_timeout_ns = 30 * MUSTER_NS_PER_S,
        .node_rank = 1,
        .worker_count = 2,
        .nodes_max = 2,
        .world_size = 3,
        .tls_data = "plain",
        .job_name = "train",
    };
    stage->run.master_port = 29500;
    stage->run.epoch_first = 4;
    stage->task = (struct run_task){
        .run = &stage->run, .rank = 2, .local_rank = 1, .lives = 2, .restarts = 1};
}

static void stage_make(struct stage *stage)
{
    stage->environment = run_environment_new(&stage->task);
}

static void stage_drop(struct stage *stage)
{
    run_environment_free(stage->environment);
}

/* NULL: it is not set. A name must not be there twice. */
static const char *value_of(const struct stage *stage, const char *name)
{
    const char *found = NULL;
    size_t length = strlen(name);

    for (size_t i = 0; stage->environment[i] != NULL; i++) {
        if (strncmp(stage->environment[i], name, length) != 0 ||
            stage->environment[i][length] != '=')
            continue;
        assert_null(found);
        found = stage->environment[i] + length + 1;
    }
    return found;
}

static void check_value(const struct stage *stage, const char *name, const char *expected)
{
    const char *found = value_of(stage, name);

    if (found == NULL || expected == NULL ? found != expected : strcmp(found, expected) != 0)
        fail_msg("%s is '%s', not '%s'", name, found != NULL ? found : "not set",
                 expected != NULL ? expected : "not set");
}

static void a_worker_is_told_of_which_names_this_process_has_warned(void **state)
{
    struct stage stage;

    (void)state;
    stage_open(&stage);
    stage_make(&stage);
    check_value(&stage, "MUSTER_UNKNOWN_VARIABLES", NULL);
    stage_drop(&stage);
    assert_int_equal(setenv("MUSTER_WRIE", "tcp", 1), 0);
    assert_int_equal(setenv("MUSTER_EXPERIMENT", "a", 1), 0);

    stage_make(&stage);

    check_value(&stage, "MUSTER_UNKNOWN_VARIABLES", "MUSTER_WRIE,MUSTER_EXPERIMENT");
    check_value(&stage, "MUSTER_WRIE", "tcp"); /* perhaps the program's own */
    stage_drop(&stage);
    assert_int_equal(setenv("MUSTER_UNKNOWN_VARIABLES", "MUSTER_EXPERIMENT", 1), 0);
    stage_make(&stage);
    check_value(&stage, "MUSTER_UNKNOWN_VARIABLES", "MUSTER_EXPERIMENT,MUSTER_WRIE");
    stage_drop(&stage);
    assert_int_equal(unsetenv("MUSTER_UNKNOWN_VARIABLES"), 0);
    assert_int_equal(unsetenv("MUSTER_WRIE"), 0);
    assert_int_equal(unsetenv("MUSTER_EXPERIMENT"), 0);
}

static void with_a_preemption_grace_a_worker_knows_whose_sigterm_ends_it(void **state)
{
    struct stage stage;

    (void)state;
    stage_open(&stage);
    assert_int_equal(setenv("MUSTER_PREEMPTION", "signals", 1), 0);
    stage_make(&stage);
    check_value(&stage, "MUSTER_PREEMPTION", NULL); /* it was meant for this process */
    stage_drop(&stage);

    stage.run.settings.preemption_grace_ns = MUSTER_NS_PER_S;
    stage.run.pid = 4711;
    stage_make(&stage);
    check_value(&stage, "MUSTER_PREEMPTION", "launcher:4711");
    stage_drop(&stage);

    assert_int_equal(setenv("MUSTER_PREEMPTION", "signals,gce", 1), 0); /* the workers watch that */
    stage_make(&stage);
    check_value(&stage, "MUSTER_PREEMPTION", "launcher:4711,gce");
    stage_drop(&stage);
    assert_int_equal(unsetenv("MUSTER_PREEMPTION"), 0);
}

static void a_worker_knows_where_to_write_its_step_and_not_that_of_a_launcher_above(void **state)
{
    struct stage stage;

    (void)state;
    stage_open(&stage);
    assert_int_equal(setenv("MUSTER_STEP_PLACE", "/proc/1/fd/7:0", 1), 0);
    stage_make(&stage);
    check_value(&stage, "MUSTER_STEP_PLACE", NULL);
    stage_drop(&stage);
    place = "/proc/4711/fd/9:16";
    stage_make(&stage);
    check_value(&stage, "MUSTER_STEP_PLACE", "/proc/4711/fd/9:16");
    stage_drop(&stage);
    place = NULL;
    assert_int_equal(unsetenv("MUSTER_STEP_PLACE"), 0);
}

/* The registry may have the last view of a job of this name that was preempted, or that is done. */
static void a_worker_that_dies_before_the_first_view_does_not_rejoin(void **state)
{
    struct stage stage;

    (void)state;
    stage_open(&stage);
    stage.run.epoch_first = 0;
    stage_make(&stage);
    check_value(&stage, "MUSTER_RESTART_COUNT", "1");
    check_value(&stage, "MUSTER_REJOIN", "0");
    stage_drop(&stage);
}

static void a_worker_knows_its_place_in_the_job(void **state)
{
    static const struct {
        const char *name, *value;
    } rows[] = {
        {"RANK", "2"},
        {"LOCAL_RANK", "1"},
        {"WORLD_SIZE", "3"},
        {"LOCAL_WORLD_SIZE", "2"},
        {"GROUP_RANK", "1"},
        {"GROUP_WORLD_SIZE", "2"},
        {"ROLE_NAME", "default"},
        {"ROLE_RANK", "2"},
        {"ROLE_WORLD_SIZE", "3"},
        {"MASTER_ADDR", NULL}, /* of two machines the other must be told */
        {"MASTER_PORT", NULL},
        {"TORCHELASTIC_RESTART_COUNT", "1"},
        {"TORCHELASTIC_MAX_RESTARTS", "5"},
        {"TORCHELASTIC_RUN_ID", "train"},
        {"OMP_NUM_THREADS", "1"},
        {"PYTHONUNBUFFERED", "1"},
        {"MUSTER_REGISTRY", "registry:2379"},
        {"MUSTER_JOB", "train"},
        {"MUSTER_INCARNATION", "00000000000000000000000000000000"},
        {"MUSTER_RESTART_COUNT", "1"},
        {"MUSTER_REJOIN", "1"},
        {"MUSTER_NODE_RANK", "1"},
        {"MUSTER_LOG_LEVEL", NULL},
        {"MUSTER_LOG_FORMAT", "text"},
        {"MUSTER_MIN_MEMBERS", "2"},
        {"MUSTER_MIN_MEMBERS_TIMEOUT_S", "30"},
        {"MUSTER_TUNE_FILE", NULL},
        {"MUSTER_REPRODUCIBLE", NULL},
        {"MUSTER_STRIPES", NULL},
        {"MUSTER_CONSTANT_BATCH", NULL},
        {"MUSTER_KILL", NULL},
        {"MUSTER_LISTEN", NULL},
        {"MUSTER_TASK_ADDRESS", NULL},
        {"MUSTER_TRACE", NULL},
        {"MUSTER_TRACE_DIR", NULL},
        {"MUSTER_TLS_CERT_FILE", NULL},
        {"TF_CONFIG", NULL},
        {"MUSTER_PREEMPTION", NULL},
    };
    struct stage stage;

    (void)state;
    stage_open(&stage);
    stage_make(&stage);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        check_value(&stage, rows[i].name, rows[i].value);
    assert_int_equal(atoi(value_of(&stage, "MUSTER_REPORT_FD")), RUN_REPORT_FD);
    stage_drop(&stage);
}

static void settings_become_variables(void **state)
{
    static char cluster[] = "{}";
    struct stage stage;
    struct run_settings *settings = &stage.run.settings;

    (void)state;
    stage_open(&stage);
    settings->master_addr = "10.0.0.1";
    settings->log_level = "debug";
    settings->tune_file = "/tune";
    settings->reproducible = "order";
    settings->stripes = 4;
    settings->constant_batch = 65536;
    settings->kill_count = 3;
    settings->kills[0] = (struct run_kill){.rank = 1, .point = "other"};
    settings->kills[1] = (struct run_kill){.rank = 2, .point = "step=3"};
    settings->kills[2] = (struct run_kill){.rank = 3, .point = "another"};
    stage.task.lives = 1;
    (void)snprintf(settings->listen_text, sizeof(settings->listen_text), "10.0.0.2:5000");
    (void)snprintf(stage.run.trace_dir, sizeof(stage.run.trace_dir), "/trace");
    stage.run.tf_cluster = cluster;
    stage_make(&stage);

    check_value(&stage, "MASTER_ADDR", "10.0.0.1");
    check_value(&stage, "MASTER_PORT", "29500");
    check_value(&stage, "MUSTER_LOG_LEVEL", "debug");
    check_value(&stage, "MUSTER_TUNE_FILE", "/tune");
    check_value(&stage, "MUSTER_REPRODUCIBLE", "order");
    check_value(&stage, "MUSTER_STRIPES", "4");
    check_value(&stage, "MUSTER_CONSTANT_BATCH", "65536");
    check_value(&stage, "MUSTER_KILL", "step=3");
    check_value(&stage, "MUSTER_RESTART_COUNT", "0");
    check_value(&stage, "MUSTER_REJOIN", "0");
    check_value(&stage, "MUSTER_LISTEN", "10.0.0.2:5000");
    check_value(&stage, "MUSTER_TRACE", "always");
    check_value(&stage, "MUSTER_TRACE_DIR", "/trace");
    check_value(&stage, "TF_CONFIG",
                "{\"cluster\": {}, \"task\": {\"type\": \"worker\", \"index\": 2}}");
    stage_drop(&stage);
}

/* A second life does not kill itself again, and a gang does not come back one by one. */
static void what_depends_on_the_life(void **state)
{
    struct stage stage;
    struct run_settings *settings = &stage.run.settings;

    (void)state;
    stage_open(&stage);
    settings->kill_count = 1;
    settings->kills[0] = (struct run_kill){.rank = 2, .point = "step=3"};
    settings->is_gang = true;
    stage.run.gang_restarts = 7;
    settings->nodes_max = 1;
    settings->worker_count = 1;
    settings->log_dir = "/logs";
    stage_make(&stage);

    check_value(&stage, "MUSTER_KILL", NULL);
    check_value(&stage, "MUSTER_REJOIN", "0");
    check_value(&stage, "TORCHELASTIC_RESTART_COUNT", "7");
    check_value(&stage, "MASTER_ADDR", "127.0.0.1");
    check_value(&stage, "MASTER_PORT", "29500");
    check_value(&stage, "OMP_NUM_THREADS", NULL);
    check_value(&stage, "MUSTER_TRACE", NULL);
    check_value(&stage, "MUSTER_TRACE_DIR", "/tmp"); /* where its logs are */
    stage_drop(&stage);

    settings->constant_batch = 8;
    stage_make(&stage);
    check_value(&stage, "OMP_NUM_THREADS", "1");
    stage_drop(&stage);
}

static void a_span_is_told_in_whole_seconds(void **state)
{
    static const struct {
        uint64_t span_ns;
        const char *seconds;
    } rows[] = {
        {0, "1"},
        {1, "1"},
        {MUSTER_NS_PER_S, "1"},
        {MUSTER_NS_PER_S + 1, "2"},
        {90 * MUSTER_NS_PER_S, "90"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct stage stage;

        stage_open(&stage);
        stage.run.settings.members_min_timeout_ns = rows[i].span_ns;
        stage_make(&stage);
        check_value(&stage, "MUSTER_MIN_MEMBERS_TIMEOUT_S", rows[i].seconds);
        stage_drop(&stage);
    }
}

static void the_address_of_a_resolver_is_that_of_one_worker(void **state)
{
    static const struct {
        const char *address;
        uint32_t workers;
        const char *told;
    } rows[] = {
        {"10.0.0.2:8470", 1, "10.0.0.2:8470"}, {"grpc://10.0.0.2:8470", 1, "10.0.0.2:8470"},
        {"10.0.0.2:8470", 2, "10.0.0.2"},      {"[fd00::2]:8470", 2, "[fd00::2]"},
        {"not an address", 1, NULL},           {"", 1, NULL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct stage stage;
        struct run_settings *settings = &stage.run.settings;

        stage_open(&stage);
        settings->worker_count = rows[i].workers;
        (void)snprintf(settings->place.address, sizeof(settings->place.address), "%s",
                       rows[i].address);
        stage_make(&stage);
        check_value(&stage, "MUSTER_TASK_ADDRESS", rows[i].told);
        stage_drop(&stage);
    }
}

static void certificates_are_those_of_the_job(void **state)
{
    (void)state;
    assert_int_equal(setenv("MUSTER_TLS_OF_OTHERS", "x", 1), 0);
    for (unsigned i = 0; i < 3; i++) {
        struct stage stage;
        bool is_tls = i > 0;

        is_registry_of_job = i == 2;
        stage_open(&stage);
        stage.run.tls =
            is_tls ? (struct run_tls *)&stage : NULL; /* looked at by run_tls_show alone */
        stage_make(&stage);
        check_value(&stage, "MUSTER_TLS_OF_OTHERS", is_tls ? NULL : "x");
        check_value(&stage, "MUSTER_TLS_CERT_FILE", is_tls ? "/cert" : NULL);
        check_value(&stage, "MUSTER_TLS_CA_FILE", is_tls ? "/ca" : NULL);
        check_value(&stage, "MUSTER_TLS_PEERS", is_tls ? "spiffe://job/*" : NULL);
        check_value(&stage, "MUSTER_TLS_DATA", is_tls ? "plain" : NULL);
        check_value(&stage, "MUSTER_TLS_RELOAD_MS", is_tls ? "1500" : NULL);
        check_value(&stage, "MUSTER_REGISTRY_CERT_FILE", i == 2 ? "/cert" : NULL);
        check_value(&stage, "MUSTER_REGISTRY_KEY_FILE", i == 2 ? "/cert" : NULL);
        check_value(&stage, "MUSTER_REGISTRY_CA_FILE", i == 2 ? "/ca" : NULL);
        check_value(&stage, "MUSTER_REGISTRY_PEERS", i == 2 ? "spiffe://job/registry" : NULL);
        stage_drop(&stage);
    }
    assert_int_equal(unsetenv("MUSTER_TLS_OF_OTHERS"), 0);
}

/* What a launcher above this one meant for this process is not for its workers. */
static void the_rest_is_passed_on(void **state)
{
    static const struct {
        const char *name;
        const char *told; /* NULL: it is not */
    } rows[] = {
        {"MUSTER_KILL", NULL},
        {"MUSTER_RESOLVER", NULL},
        {"MUSTER_TASK_ADDRESS", NULL},
        {"MUSTER_INCARNATIONS", "x"},
        {"MUSTER_INC", "x"},
        {"RANKS", "x"},
        {"ANYTHING", "x"},
        {"OMP_NUM_THREADS", "x"},
        {"PYTHONUNBUFFERED", "x"},
        {"MUSTER_TRACE_DIR", "/x"},
    };
    struct stage stage;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_int_equal(setenv(rows[i].name, rows[i].told != NULL ? rows[i].told : "x", 1), 0);
    assert_int_equal(setenv("RANK", "0", 1), 0);
    stage_open(&stage);
    stage.run.settings.log_dir = "/logs";
    stage_make(&stage);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        check_value(&stage, rows[i].name, rows[i].told);
    check_value(&stage, "RANK", "2");
    stage_drop(&stage);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_int_equal(unsetenv(rows[i].name), 0);
    assert_int_equal(unsetenv("RANK"), 0);
}

/* Tests may run below a launcher. */
static int clear_variables(void **state)
{
    static const char *const names[] = {"OMP_NUM_THREADS", "PYTHONUNBUFFERED", "MASTER_ADDR",
                                        "MASTER_PORT", "TF_CONFIG"};
    char name[128];

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        assert_int_equal(unsetenv(names[i]), 0);
    for (size_t i = 0; environ[i] != NULL;) {
        if (strncmp(environ[i], "MUSTER_", strlen("MUSTER_")) != 0) {
            i++;
            continue;
        }
        (void)snprintf(name, sizeof(name), "%.*s", (int)strcspn(environ[i], "="), environ[i]);
        assert_int_equal(unsetenv(name), 0);
    }
    return 0;
}

/* A worker may change its directory. */
static void paths_are_absolute(void **state)
{
    static const char *const inherited[] = {"MUSTER_CHECKPOINT_DIR", "MUSTER_TRACE_DIR",
                                            "MUSTER_TUNE_FILE", "MUSTER_REGISTRY_CA_FILE"};
    struct stage stage;
    char *where = getcwd(NULL, 0), expected[PATH_MAX];

    (void)state;
    assert_non_null(where);
    (void)snprintf(expected, sizeof(expected), "%s/a/file", where);
    stage_open(&stage);
    for (size_t i = 0; i < sizeof(inherited) / sizeof(inherited[0]); i++)
        assert_int_equal(setenv(inherited[i], "a/file", 1), 0);
    stage_make(&stage);
    for (size_t i = 0; i < sizeof(inherited) / sizeof(inherited[0]); i++)
        check_value(&stage, inherited[i], expected);
    stage_drop(&stage);

    stage.run.settings.checkpoint_dir = "/whole";
    stage.run.settings.tune_file = "a/file";
    stage_make(&stage);
    check_value(&stage, "MUSTER_CHECKPOINT_DIR", "/whole");
    check_value(&stage, "MUSTER_TUNE_FILE", expected);
    stage_drop(&stage);
    for (size_t i = 0; i < sizeof(inherited) / sizeof(inherited[0]); i++)
        assert_int_equal(unsetenv(inherited[i]), 0);
    free(where);
}

static void a_process_that_imports_for_all_has_no_place_in_the_job(void **state)
{
    struct stage stage;

    (void)state;
    stage_open(&stage);
    setenv("MUSTER_KILL", "step=1", 1);
    unsetenv("OMP_NUM_THREADS");

    stage.environment = run_environment_new_plain(&stage.run);

    assert_string_equal(value_of(&stage, "OMP_NUM_THREADS"), "1");
    assert_non_null(value_of(&stage, "PATH"));
    assert_null(value_of(&stage, "RANK"));
    assert_null(value_of(&stage, "MUSTER_INCARNATION"));
    assert_null(value_of(&stage, "MUSTER_KILL"));
    stage_drop(&stage);
    unsetenv("MUSTER_KILL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_worker_is_told_of_which_names_this_process_has_warned),
        cmocka_unit_test(with_a_preemption_grace_a_worker_knows_whose_sigterm_ends_it),
        cmocka_unit_test(a_worker_knows_where_to_write_its_step_and_not_that_of_a_launcher_above),
        cmocka_unit_test(a_worker_that_dies_before_the_first_view_does_not_rejoin),
        cmocka_unit_test(a_worker_knows_its_place_in_the_job),
        cmocka_unit_test(settings_become_variables),
        cmocka_unit_test(what_depends_on_the_life),
        cmocka_unit_test(a_span_is_told_in_whole_seconds),
        cmocka_unit_test(the_address_of_a_resolver_is_that_of_one_worker),
        cmocka_unit_test(certificates_are_those_of_the_job),
        cmocka_unit_test(the_rest_is_passed_on),
        cmocka_unit_test(paths_are_absolute),
        cmocka_unit_test(a_process_that_imports_for_all_has_no_place_in_the_job),
    };

    return cmocka_run_group_tests_name("environment", tests, clear_variables, NULL);
}
