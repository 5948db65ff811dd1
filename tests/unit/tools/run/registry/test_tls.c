/* --tls auto: who gets which certificate, whom it trusts, and what a worker inherits. */
#include "tools/run/registry/tls.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <sys/stat.h>
#include <unistd.h>

#include "assertion_count.h"
#include "tls_pair.h"
#include "torture.h"
#include "tools/common/command.h"
#include "tools/common/job_tls.h"
#include "tools/run/output/log.h"
#include "tools/run/state/resume.h"
#include "tools/run/state/worker_fds.h"
#include "virtual_loop.h"

#define TASKS 2

static char told[256];

int command_refuse(const char *command, const char *format, ...)
{
    fail_msg("%s: %s", command, format);
    return 0;
}

void run_tell(struct run *run, const char *format, ...)
{
    va_list args;

    (void)run;
    va_start(args, format);
    vsnprintf(told, sizeof(told), format, args);
    va_end(args);
}

struct scene {
    struct tls_pair pair;
    struct run run;
    struct run_task tasks[TASKS];
    struct run_resume resume;
    struct muster_error error;
    char folder[64], secret[96];
};

static const char *const variables[] = {"MUSTER_REGISTRY_CA_FILE", "MUSTER_REGISTRY_CERT_FILE",
                                        "MUSTER_TLS_CERT_FILE"};

static void scene_open(struct scene *scene)
{
    FILE *file;

    memset(scene, 0, sizeof(*scene));
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
        unsetenv(variables[i]);
    tls_pair_open(&scene->pair);
    strcpy(scene->folder, "/tmp/muster-run-XXXXXX");
    assert_non_null(mkdtemp(scene->folder));
    snprintf(scene->secret, sizeof(scene->secret), "%s/secret", scene->folder);
    file = fopen(scene->secret, "w");
    assert_int_equal(fputs("0123456789abcdef0123456789abcdef", file), 1);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(scene->secret, 0600), 0);
    scene->run = (struct run){.env = &scene->pair.test.env,
                              .tasks = scene->tasks,
                              .task_count = TASKS,
                              .state = RUN_STATE_DONE};
    strcpy(scene->run.settings.job_name, "job");
    scene->run.settings.tls_life_ns = 3600 * MUSTER_NS_PER_S;
    scene->run.settings.tls_secret = scene->secret;
    scene->run.settings.is_tls_auto = true;
    for (uint32_t i = 0; i < TASKS; i++) {
        scene->tasks[i].run = &scene->run;
        snprintf(scene->tasks[i].name, sizeof(scene->tasks[i].name), "worker:%u", i);
    }
}

static void scene_close(struct scene *scene)
{
    run_tls_close(&scene->run);
    assert_null(scene->run.tls);
    assert_int_equal(unlink(scene->secret), 0);
    assert_int_equal(rmdir(scene->folder), 0);
    tls_pair_close(&scene->pair);
}

static void open_tls(struct scene *scene)
{
    fail_if(!run_tls_open(&scene->run, &scene->error), "%s", scene->error.text);
}

/* Another process of the job: it has the secret, too. */
static struct muster_tls *open_other(struct scene *scene, const char *who, const char *peers,
                                     struct job_tls **ret_job_tls)
{
    const struct job_tls_options options = {.env = scene->run.env,
                                            .job = "job",
                                            .secret_file = scene->secret,
                                            .life_ns = 3600 * MUSTER_NS_PER_S};
    const struct job_tls_role role = {.who = who, .peers = peers};
    struct muster_tls *tls = NULL;

    assert_int_equal(job_tls_open_role(&options, &role, ret_job_tls, &tls, &scene->error),
                     MUSTER_OK);
    return tls;
}

static void without_tls_there_is_none(void **state)
{
    struct scene scene;

    (void)state;
    scene_open(&scene);
    scene.run.settings.is_tls_auto = false;
    open_tls(&scene);

    assert_null(scene.run.tls);
    assert_null(run_tls_served(&scene.run));
    assert_null(run_tls_registry(&scene.run));
    assert_false(run_tls_inherit(&scene.tasks[0]));
    scene_close(&scene);
}

/* Which registry it is decides who must answer there, and who serves. */
static void the_registry_is_ours_or_of_the_job_or_another(void **state)
{
    static const struct {
        const char *name, *variable;
        bool is_embedded, has_served, has_registry, is_of_job;
        const char *registry; /* who it is */
    } rows[] = {
        {"embedded", NULL, true, true, true, true, "launcher"},
        {"embedded, files named", "MUSTER_REGISTRY_CA_FILE", true, true, true, true, "launcher"},
        {"of the job", NULL, false, false, true, true, "registry"},
        {"another, trusted", "MUSTER_REGISTRY_CA_FILE", false, false, false, false, "registry"},
        {"another, known", "MUSTER_REGISTRY_CERT_FILE", false, false, false, false, "registry"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct scene scene;
        struct run_tls_shown shown;
        char registry[64];

        scene_open(&scene);
        if (rows[i].variable != NULL)
            setenv(rows[i].variable, "/x", 1);
        scene.run.settings.is_embedded = rows[i].is_embedded;
        open_tls(&scene);
        run_tls_show(&scene.tasks[1], &shown);
        snprintf(registry, sizeof(registry), "spiffe://muster/job/job/%s", rows[i].registry);

        fail_if((run_tls_served(&scene.run) != NULL) != rows[i].has_served ||
                    (run_tls_registry(&scene.run) != NULL) != rows[i].has_registry ||
                    shown.is_registry_of_job != rows[i].is_of_job,
                "%s", rows[i].name);
        assert_string_equal(shown.registry, registry);
        assert_string_equal(shown.peers, "spiffe://muster/job/job/*");
        assert_int_equal(shown.reload_ns, 60 * MUSTER_NS_PER_S);
        scene_close(&scene);
    }
}

/* Our registry lets in whoever is of the job; we meet nobody there but who serves it. */
static void only_who_serves_is_met_at_the_registry(void **state)
{
    static const struct {
        const char *name;
        bool is_embedded;
        const char *server; /* NULL: our own */
        enum muster_rc rc;
    } rows[] = {
        {"our own", true, NULL, MUSTER_OK},
        {"a task in its place", true, "task/worker-0", MUSTER_UNAUTHENTICATED},
        {"the job's registry", false, "registry", MUSTER_OK},
        {"another launcher", false, "launcher", MUSTER_UNAUTHENTICATED},
        {"a task", false, "task/worker-0", MUSTER_UNAUTHENTICATED},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct scene scene;
        struct muster_tls *server = NULL;
        struct job_tls *other = NULL;

        scene_open(&scene);
        scene.run.settings.is_embedded = rows[i].is_embedded;
        open_tls(&scene);
        if (rows[i].server != NULL)
            server = open_other(&scene, rows[i].server, "*", &other);
        tls_pair_shake(&scene.pair, run_tls_registry(&scene.run),
                       server != NULL ? server : run_tls_served(&scene.run), "127.0.0.1", NULL);

        fail_if(scene.pair.client.rc != rows[i].rc, "%s: %s", rows[i].name,
                scene.pair.client.error.text);
        muster_tls_close(server);
        job_tls_close(other, false);
        scene_close(&scene);
    }
}

/* The file that a worker would find at a path. */
static void check_file(const char *path, bool has_key)
{
    char text[8192];
    FILE *file = fopen(path, "r");
    size_t count;

    assert_non_null(file);
    count = fread(text, 1, sizeof(text) - 1, file);
    text[count] = '\0';
    fclose(file);
    assert_non_null(strstr(text, "BEGIN CERTIFICATE"));
    assert_true((strstr(text, "PRIVATE KEY") != NULL) == has_key);
}

/* Whoever opens these files is let in where only `who` is. */
static void check_who(struct scene *scene, const struct run_tls_shown *shown, const char *who)
{
    const char *const peers[] = {shown->peers};
    const struct muster_tls_options options = {.cert_file = shown->cert,
                                               .key_file = shown->cert,
                                               .ca_file = shown->ca,
                                               .peer_names = peers,
                                               .peer_name_count = 1};
    struct job_tls *other = NULL;
    struct muster_tls *server = open_other(scene, "launcher", who, &other), *client = NULL;

    assert_int_equal(muster_tls_open(scene->run.env, &options, &client, &scene->error), MUSTER_OK);
    tls_pair_again(&scene->pair);
    tls_pair_shake(&scene->pair, client, server, "launcher", NULL);
    fail_if(scene->pair.server.rc != MUSTER_OK, "%s", scene->pair.server.error.text);
    muster_tls_close(client);
    muster_tls_close(server);
    job_tls_close(other, false);
}

static void a_worker_inherits_its_own_certificate(void **state)
{
    struct scene scene;
    struct run_tls_shown shown;
    int former[2] = {dup(RUN_TLS_FD), dup(RUN_TLS_CA_FD)};

    (void)state;
    scene_open(&scene);
    open_tls(&scene);
    for (uint32_t i = 0; i < TASKS; i++) {
        char who[32];

        snprintf(who, sizeof(who), "task/worker-%u", i);
        run_tls_show(&scene.tasks[i], &shown);
        assert_string_equal(shown.cert, "/proc/self/fd/4");
        assert_string_equal(shown.ca, "/proc/self/fd/5");
        assert_true(run_tls_inherit(&scene.tasks[i]));

        assert_int_equal(fcntl(RUN_TLS_FD, F_GETFD), 0); /* stays open in the program */
        assert_int_equal(fcntl(RUN_TLS_CA_FD, F_GETFD), 0);
        check_file(shown.cert, true);
        check_file(shown.ca, false);
        check_who(&scene, &shown, who);
    }
    dup2(former[0], RUN_TLS_FD);
    dup2(former[1], RUN_TLS_CA_FD);
    close(former[0]);
    close(former[1]);
    scene_close(&scene);
}

/* So that a successor finds them, and nobody else. */
static void a_run_that_can_be_resumed_keeps_its_files_until_it_is_done(void **state)
{
    struct scene scene;
    struct run_tls_shown shown;
    char path[160];

    (void)state;
    scene_open(&scene);
    scene.run.resume = &scene.resume;
    snprintf(scene.resume.dir, sizeof(scene.resume.dir), "%s", scene.folder);
    for (int turn = 0; turn < 2; turn++) {
        open_tls(&scene);
        run_tls_show(&scene.tasks[1], &shown);
        snprintf(path, sizeof(path), "%s/tls/task-worker-1.pem", scene.folder);
        assert_string_equal(shown.cert, path);
        snprintf(path, sizeof(path), "%s/tls/authority.pem", scene.folder);
        assert_string_equal(shown.ca, path);
        check_file(shown.cert, true);
        check_file(shown.ca, false);
        assert_false(run_tls_inherit(&scene.tasks[1]));
        scene.run.state = turn == 0 ? RUN_STATE_RUNNING : RUN_STATE_DONE;
        run_tls_close(&scene.run);
        assert_int_equal(access(path, F_OK), turn == 0 ? 0 : -1);
    }
    scene_close(&scene);
}

static void who_names_our_descriptors_is_a_member(void **state)
{
    static const struct {
        const char *variable, *value;
        bool is_member;
    } rows[] = {
        {"MUSTER_TLS_CERT_FILE", "/proc/self/fd/4", true},
        {"MUSTER_REGISTRY_CERT_FILE", "/proc/self/fd/4", true},
        {"MUSTER_TLS_CERT_FILE", "/proc/self/fd/5", false},
        {"MUSTER_TLS_CERT_FILE", "/proc/self/fd/44", false},
        {"MUSTER_REGISTRY_CERT_FILE", "/etc/cert.pem", false},
        {"MUSTER_REGISTRY_CA_FILE", "/proc/self/fd/4", false},
    };
    struct scene scene;

    (void)state;
    scene_open(&scene);
    assert_false(run_worker_fds_have_tls());
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        setenv(rows[i].variable, rows[i].value, 1);
        fail_if(run_worker_fds_have_tls() != rows[i].is_member ||
                    run_tls_inherit(&scene.tasks[0]) != rows[i].is_member,
                "%s=%s", rows[i].variable, rows[i].value);
        unsetenv(rows[i].variable);
    }
    scene_close(&scene);
}

static void run_open(struct torture *torture, const void *data)
{
    struct scene scene;
    bool is_open;

    (void)data;
    scene_open(&scene);
    scene.run.settings.is_embedded = true;
    torture_arm_limited(torture, &scene.pair.test.mem);
    is_open = run_tls_open(&scene.run, &scene.error);
    torture_disarm(torture);
    assert_true(is_open == (torture->refused == 0));
    assert_true(is_open || scene.error.rc == MUSTER_RESOURCE_EXHAUSTED);
    scene_close(&scene);
}

static void what_cannot_be_opened_is_told(void **state)
{
    struct scene scene;

    (void)state;
    scene_open(&scene);
    scene.run.settings.tls_secret = "/no/such/secret";
    assert_false(run_tls_open(&scene.run, &scene.error));
    assert_non_null(strstr(scene.error.text, "/no/such/secret"));
    scene_close(&scene);
    torture_run(&(struct torture_scenario){.name = "open", .run = run_open});
}

static void a_renewal_that_fails_is_told(void **state)
{
    struct scene scene;
    struct virtual_loop loop;
    struct muster_env env;

    (void)state;
    scene_open(&scene);
    virtual_loop_init(&loop);
    env = scene.pair.test.env;
    env.loop = &loop.loop;
    scene.run.env = &env;
    open_tls(&scene);
    virtual_loop_advance(&loop, 1200 * MUSTER_NS_PER_S - 1);
    scene.pair.test.mem.fail_at = 1;
    virtual_loop_advance(&loop, 1);

    assert_non_null(strstr(told, "certificates cannot be renewed: no certificate can be issued"));
    scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_tls_there_is_none),
        cmocka_unit_test(the_registry_is_ours_or_of_the_job_or_another),
        cmocka_unit_test(only_who_serves_is_met_at_the_registry),
        cmocka_unit_test(a_worker_inherits_its_own_certificate),
        cmocka_unit_test(a_run_that_can_be_resumed_keeps_its_files_until_it_is_done),
        cmocka_unit_test(who_names_our_descriptors_is_a_member),
        cmocka_unit_test(what_cannot_be_opened_is_told),
        cmocka_unit_test(a_renewal_that_fails_is_told),
    };

    /* Descriptors that a case opens must not take the numbers of a worker's files. */
    if (dup2(STDERR_FILENO, RUN_TLS_FD) < 0 || dup2(STDERR_FILENO, RUN_TLS_CA_FD) < 0)
        return 1;
    return cmocka_run_group_tests_name("run_tls", tests, NULL, NULL);
}
