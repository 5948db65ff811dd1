/* A launcher's record: which process is known to be dead, and the name of this host in it. */
#include "tools/run/claim/record.c"

#include "test_env.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define VARIABLE "MUSTER_HOST_KEY"

static pid_t start_child(void)
{
    pid_t pid = fork();

    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a case that fails leaves nobody behind */
        for (;;)
            pause();
    }
    assert_true(pid > 0);
    return pid;
}

static void end_child(pid_t pid)
{
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static bool is_dead(struct muster_env *env, pid_t pid, uint64_t started)
{
    return run_claim_is_dead(env, muster_host_key(env->host), pid, started);
}

static void a_living_process_is_not_dead(void **state)
{
    struct muster_env *env = test_env_of(state);
    pid_t pid = start_child();
    uint64_t started = muster_host_started(env->host, pid);

    errno = ESRCH; /* of an earlier call: it says nothing about this process */
    assert_false(is_dead(env, pid, started));
    assert_false(is_dead(env, pid, 0));

    end_child(pid);
}

static void a_process_that_has_ended_is_dead(void **state)
{
    struct muster_env *env = test_env_of(state);
    pid_t pid = start_child();
    siginfo_t info;

    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    assert_true(is_dead(env, pid, 0));

    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_true(is_dead(env, pid, 0));
}

static void a_process_is_dead_when_another_has_its_number(void **state)
{
    struct muster_env *env = test_env_of(state);
    pid_t pid = start_child();

    assert_true(is_dead(env, pid, muster_host_started(env->host, pid) + 1));

    end_child(pid);
}

static void nothing_is_known_of_other_hosts(void **state)
{
    struct muster_env *env = test_env_of(state);
    pid_t pid = start_child();

    end_child(pid);
    assert_false(run_claim_is_dead(env, "another", pid, 0));
    assert_false(is_dead(env, 0, 0));

    assert_int_equal(setenv(VARIABLE, "named", 1), 0);
    assert_false(is_dead(env, pid, 0));
    assert_true(run_claim_is_dead(env, "named", pid, 0));
}

static void the_record_names_its_host_as_workers_do(void **state)
{
    struct muster_env *env = test_env_of(state);
    const char *own = muster_host_key(env->host);
    const struct {
        const char *variable, *key;
    } rows[] = {{NULL, own}, {"", own}, {"named", "named"}};
    static const struct run_settings settings = {.tls = "none", .nodes_text = "1"};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct run_claim_record record;

        print_message("row %zu\n", i);
        if (rows[i].variable == NULL)
            unsetenv(VARIABLE);
        else
            setenv(VARIABLE, rows[i].variable, 1);
        run_claim_record_init(&record, env, &settings, "127.0.0.1:1");
        assert_string_equal(record.host_key, rows[i].key);
        assert_int_equal(record.pid, getpid());
        assert_string_equal(record.address, "127.0.0.1");
        assert_false(run_claim_is_dead(env, record.host_key, record.pid, record.started));
    }
}

/* As another launcher reads it from the registry. */
static void record_travel(struct run_claim_record *record)
{
    char *text = run_claim_record_format(record);

    assert_int_equal(run_claim_record_parse(text, strlen(text), record), MUSTER_OK);
    muster_mem_free(muster_mem_system(), text);
}

static void launchers_save_to_a_directory_at_the_same_steps_or_none_does(void **state)
{
    static const struct {
        const char *dir, *every, *other_dir, *other_every, *option, *ours, *other;
    } rows[] = {
        {NULL, NULL, NULL, NULL, NULL, NULL, NULL},
        {"/a", NULL, NULL, NULL, "--checkpoint-dir", "(given)", "(not given)"},
        {NULL, NULL, "/a", "5", "--checkpoint-dir", "(not given)", "(given)"},
        {"/a", "10", "/a", "7", "--checkpoint-every", "10", "7"},
        {"/a", NULL, "/a", "7", "--checkpoint-every", "10m", "7"},
        {"/a", NULL, "/a", "600s", NULL, NULL, NULL},
        {"/a", "10", "/a", "10", NULL, NULL, NULL},
    };
    struct muster_env *env = test_env_of(state);

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct run_settings settings = {.tls = "none", .nodes_text = "1"};
        struct run_claim_record ours, other;
        char ours_text[24], other_text[24];
        const char *option;

        print_message("row %zu\n", i);
        settings.checkpoint_dir = rows[i].dir;
        settings.checkpoint_every = rows[i].every;
        run_claim_record_init(&ours, env, &settings, "127.0.0.1:1");
        settings.checkpoint_dir = rows[i].other_dir;
        settings.checkpoint_every = rows[i].other_every;
        run_claim_record_init(&other, env, &settings, "127.0.0.1:1");
        record_travel(&other);

        option = run_claim_record_difference(&ours, &other, ours_text, other_text);

        if (rows[i].option == NULL) {
            assert_null(option);
            continue;
        }
        assert_string_equal(option, rows[i].option);
        assert_string_equal(ours_text, rows[i].ours);
        assert_string_equal(other_text, rows[i].other);
        other.checkpoints[0] = '\0'; /* of an earlier version */
        assert_null(run_claim_record_difference(&ours, &other, ours_text, other_text));
    }
}

static void launchers_have_the_same_constant_batch(void **state)
{
    static const struct {
        uint64_t ours, other;
        const char *ours_text, *other_text; /* NULL: they agree */
    } rows[] = {
        {0, 0, NULL, NULL},         {65536, 65536, NULL, NULL}, {8, 65536, "8", "65536"},
        {8, 0, "8", "(not given)"}, {0, 8, "(not given)", "8"},
    };
    struct muster_env *env = test_env_of(state);

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct run_settings settings = {.tls = "none", .nodes_text = "1"};
        struct run_claim_record ours, other;
        char ours_text[24], other_text[24];
        const char *option;

        print_message("row %zu\n", i);
        settings.constant_batch = rows[i].ours;
        run_claim_record_init(&ours, env, &settings, "127.0.0.1:1");
        settings.constant_batch = rows[i].other;
        run_claim_record_init(&other, env, &settings, "127.0.0.1:1");
        record_travel(&other);

        option = run_claim_record_difference(&ours, &other, ours_text, other_text);

        if (rows[i].ours_text == NULL) {
            assert_null(option);
            continue;
        }
        assert_string_equal(option, "--constant-batch");
        assert_string_equal(ours_text, rows[i].ours_text);
        assert_string_equal(other_text, rows[i].other_text);
        other.constant_batch[0] = '\0'; /* of an earlier version */
        assert_null(run_claim_record_difference(&ours, &other, ours_text, other_text));
    }
}

static int set_up(void **state)
{
    unsetenv(VARIABLE);
    return test_env_set_up(state);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, test_env_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_living_process_is_not_dead),
        CASE(a_process_that_has_ended_is_dead),
        CASE(a_process_is_dead_when_another_has_its_number),
        CASE(nothing_is_known_of_other_hosts),
        CASE(the_record_names_its_host_as_workers_do),
        CASE(launchers_have_the_same_constant_batch),
        CASE(launchers_save_to_a_directory_at_the_same_steps_or_none_does),
    };

    return cmocka_run_group_tests_name("record", tests, NULL, NULL);
}
