/* The registry of a job as its launcher sees it: opened and closed, away, and refusing. */
#define muster_registry_refusal played_refusal
#include "tools/run/registry/registry.c"
#undef muster_registry_refusal

#include "test_env.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#define ENDPOINT "127.0.0.1:1" /* nobody listens there */

static struct muster_error refusal; /* of the registry; MUSTER_OK: none */
static char told[512];
static unsigned ended_by;
static unsigned files_added, files_removed;

const struct muster_error *played_refusal(const struct muster_registry *registry)
{
    (void)registry;
    return refusal.rc == MUSTER_OK ? NULL : &refusal;
}

void run_tell(struct run *run, const char *format, ...)
{
    va_list args;

    (void)run;
    va_start(args, format);
    vsnprintf(told, sizeof(told), format, args);
    va_end(args);
}

struct muster_tls *run_tls_served(const struct run *run)
{
    (void)run;
    return NULL;
}

struct muster_tls *run_tls_registry(const struct run *run)
{
    (void)run;
    return NULL;
}

void local_jobs_add(const char *endpoint)
{
    assert_non_null(strchr(endpoint, ':'));
    files_added++;
}

void local_jobs_remove(void)
{
    files_removed++;
}

static void end_all(struct run *run, int signal)
{
    (void)run;
    ended_by = (unsigned)signal;
}

static const struct run_control control = {.end_all = end_all};

struct scene {
    struct test_env test;
    struct run run;
    struct run_resume resume;
    struct muster_error error;
};

static void scene_open(struct scene *scene)
{
    memset(scene, 0, sizeof(*scene));
    told[0] = '\0';
    refusal.rc = MUSTER_OK;
    ended_by = files_added = files_removed = 0;
    test_env_open(&scene->test);
    assert_int_equal(muster_net_system_open(&scene->test.env, &scene->test.env.net), MUSTER_OK);
    scene->run.env = &scene->test.env;
    scene->run.control = &control;
    scene->run.settings.is_embedded = true;
    snprintf(scene->run.settings.job_name, sizeof(scene->run.settings.job_name), "job");
}

static void scene_close(struct scene *scene)
{
    run_registry_close(&scene->run);
    muster_net_system_close(scene->test.env.net);
    test_env_close(&scene->test);
}

static void an_embedded_registry_is_served_until_the_end(void **state)
{
    struct scene scene;

    (void)state;
    scene_open(&scene);
    assert_true(run_registry_open(&scene.run, &scene.error));
    assert_non_null(strstr(run_registry_endpoint(&scene.run), "127.0.0.1:"));
    assert_int_equal(files_added, 1);
    scene_close(&scene);
    assert_int_equal(files_removed, 1);
}

static int listen_somewhere(uint16_t *ret_port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &length), 0);
    *ret_port = ntohs(at.sin_port);
    return fd;
}

/* A successor serves where the workers look. */
static void a_registry_whose_port_is_taken_leaves_nothing(void **state)
{
    struct scene scene;
    char path[600];
    int fd;

    (void)state;
    scene_open(&scene);
    snprintf(scene.resume.dir, sizeof(scene.resume.dir), "/tmp/muster-registry-XXXXXX");
    assert_non_null(mkdtemp(scene.resume.dir));
    fd = listen_somewhere(&scene.resume.registry_port);
    scene.run.resume = &scene.resume;
    assert_false(run_registry_open(&scene.run, &scene.error));
    assert_int_not_equal(scene.error.rc, MUSTER_OK);
    scene_close(&scene);
    assert_int_equal(files_added, 0);
    close(fd);
    snprintf(path, sizeof(path), "%s/registry.db", scene.resume.dir);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(scene.resume.dir), 0);
}

/* A refusal by the registry, not by TLS: people are told where and why, and the workers may go on. */
static void who_refuses_a_probe_is_named_with_its_reason(void **state)
{
    static const struct {
        enum muster_rc rc;
        const char *told;
    } rows[] = {
        {MUSTER_PERMISSION_DENIED, "the registry at " ENDPOINT " refuses: no right"},
        {MUSTER_UNAUTHENTICATED, "the registry at " ENDPOINT " refuses: no right"},
        {MUSTER_UNAVAILABLE, ""},
        {MUSTER_OK, ""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct scene scene;
        struct run_registry *registry;

        scene_open(&scene);
        scene.run.settings.is_embedded = false;
        scene.run.settings.registry = ENDPOINT;
        assert_true(run_registry_open(&scene.run, &scene.error));
        registry = scene.run.registry;
        registry->probe.data = registry;
        snprintf(registry->probe.error.text, sizeof(registry->probe.error.text), "no right");
        on_probed(&registry->probe, rows[i].rc);

        assert_string_equal(told, rows[i].told);
        assert_string_equal(registry->absence, rows[i].rc == MUSTER_OK ? "" : " (no right)");
        assert_int_equal(ended_by, 0);
        scene_close(&scene);
    }
}

/* However long it was away before: while the launcher asks for its place, that is what reports a refusal. */
static void a_refusal_ends_a_run_that_has_its_place_and_is_told_once(void **state)
{
    struct scene scene;
    struct run_registry *registry;

    (void)state;
    scene_open(&scene);
    scene.run.settings.is_embedded = false;
    scene.run.settings.registry = ENDPOINT;
    assert_true(run_registry_open(&scene.run, &scene.error));
    registry = scene.run.registry;
    registry->probe.data = registry;
    on_silence(&registry->silence_timer);
    told[0] = '\0';
    (void)muster_error_set(&refusal, MUSTER_FAILED_PRECONDITION, "it speaks TLS");
    on_probed(&registry->probe, MUSTER_UNAVAILABLE);
    assert_string_equal(told, "");
    assert_int_equal(ended_by, 0);

    run_registry_go_on(&scene.run);
    on_probed(&registry->probe, MUSTER_UNAVAILABLE);
    assert_string_equal(told, "the registry cannot be used: it speaks TLS");
    assert_int_equal(ended_by, SIGTERM);

    told[0] = '\0';
    on_probed(&registry->probe, MUSTER_UNAVAILABLE);
    assert_string_equal(told, "");
    scene_close(&scene);
}

/* --- deaths --- */

struct answer {
    char text[128];
    bool is_there;
};

static void on_answer(struct muster_registry_op *op, enum muster_rc rc)
{
    struct answer *answer = op->data;

    assert_int_equal(rc, MUSTER_OK);
    assert_int_equal(op->kv_count, 1);
    snprintf(answer->text, sizeof(answer->text), "%.*s", (int)op->kvs[0].value.size,
             (const char *)op->kvs[0].value.data);
    answer->is_there = true;
}

static bool is_answered(void *data)
{
    return ((struct answer *)data)->is_there;
}

static bool are_written(void *registry)
{
    return are_deaths_written(registry);
}

static void read_death(struct scene *scene, const char *key, struct answer *ret_answer)
{
    struct muster_registry_range range = {.key = text_bytes(key), .reach = MUSTER_REGISTRY_KEY};
    struct muster_registry_op op = {.data = ret_answer};

    ret_answer->is_there = false;
    test_env_run_until(&scene->test.env, are_written, scene->run.registry);
    assert_int_equal(muster_registry_range_start(&op, scene->run.registry->client, &range,
                                                 UINT64_MAX, on_answer),
                     MUSTER_OK);
    test_env_run_until(&scene->test.env, is_answered, ret_answer);
}

/* The second word comes when the first is written, and while it is. */
static void the_last_word_of_a_death_stays(void **state)
{
    static const char key[] = "/muster/job/dead/07070707070707070707070707070707";
    struct run_task task = {.lives = 1};
    struct answer answer;
    struct scene scene;

    (void)state;
    scene_open(&scene);
    memset(task.incarnation.bytes, 7, sizeof(task.incarnation.bytes));
    assert_true(run_registry_open(&scene.run, &scene.error));
    run_registry_confirm_death(&scene.run, &task, "process ended at step 3 in view 1", false);
    run_registry_confirm_death(&scene.run, &task, "SIGKILL at step 3 in view 1", true);
    read_death(&scene, key, &answer);
    assert_string_equal(answer.text, "SIGKILL at step 3 in view 1");
    run_registry_confirm_death(&scene.run, &task, "exit 3", true);
    read_death(&scene, key, &answer);
    assert_string_equal(answer.text, "exit 3");
    scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_word_of_a_death_stays),
        cmocka_unit_test(an_embedded_registry_is_served_until_the_end),
        cmocka_unit_test(a_registry_whose_port_is_taken_leaves_nothing),
        cmocka_unit_test(who_refuses_a_probe_is_named_with_its_reason),
        cmocka_unit_test(a_refusal_ends_a_run_that_has_its_place_and_is_told_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
