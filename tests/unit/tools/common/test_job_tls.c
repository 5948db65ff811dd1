/* A job's authority: the secret it follows from, whom it names, its files and their renewal. */
#include "tools/common/job_tls.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "assertion_count.h"
#include "secret_mem.h"
#include "secret_stack.h"
#include "tls_pair.h"
#include "torture.h"
#include "tools/common/command.h"
#include "virtual_loop.h"

#define LIFE_NS          (3600 * MUSTER_NS_PER_S)
#define SECRET_BYTES_MAX 4096
#define DIR_BYTES_MAX    (JOB_TLS_PATH_BYTES - 64) /* with its NUL */

static char refusal[256];

int command_refuse(const char *command, const char *format, ...)
{
    int used = snprintf(refusal, sizeof(refusal), "%s: ", command);
    va_list args;

    va_start(args, format);
    vsnprintf(refusal + used, sizeof(refusal) - (size_t)used, format, args);
    va_end(args);
    return 64;
}

/* An environment whose time and memory a case sees, a folder, and a secret in it. */
struct scene {
    struct test_env test;
    struct muster_env env;
    struct virtual_loop loop;
    struct secret_mem memory; /* looks for private keys */
    char folder[64], secret[96], dir[96];
    struct job_tls *job_tls;
    struct muster_error error;
    enum muster_rc rc;
    uint64_t life_ns;
    bool is_untold; /* the log hears of failures */
    unsigned failure_count;
    char failure[256];
};

static void put_file(const char *path, const void *bytes, size_t count, mode_t mode)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, count), count);
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

/* Bytes of which no two runs are alike. */
static const uint8_t *secret_bytes(void)
{
    static uint8_t bytes[2 * SECRET_BYTES_MAX];

    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)((i * 2654435761u + 77) >> 7);
    return bytes;
}

static int set_up(void **state)
{
    static struct scene scene;

    memset(&scene, 0, sizeof(scene));
    test_env_open(&scene.test);
    scene.env = scene.test.env;
    scene.life_ns = LIFE_NS;
    virtual_loop_init(&scene.loop);
    scene.env.loop = &scene.loop.loop;
    secret_mem_init(&scene.memory, scene.test.env.mem, "BEGIN PRIVATE KEY", 17);
    scene.env.mem = &scene.memory.mem;
    strcpy(scene.folder, "/tmp/muster-job-XXXXXX");
    assert_non_null(mkdtemp(scene.folder));
    snprintf(scene.secret, sizeof(scene.secret), "%s/secret", scene.folder);
    snprintf(scene.dir, sizeof(scene.dir), "%s/tls", scene.folder);
    put_file(scene.secret, secret_bytes(), 32, 0600);
    *state = &scene;
    return 0;
}

static int tear_down(void **state)
{
    struct scene *scene = *state;

    job_tls_close(scene->job_tls, false);
    assert_int_equal(scene->memory.leaked_count, 0);
    (void)unlink(scene->secret);
    (void)rmdir(scene->secret);
    assert_int_equal(rmdir(scene->folder), 0); /* nothing was left */
    test_env_close(&scene->test);
    return 0;
}

static void on_failure(void *data, const char *reason)
{
    struct scene *scene = data;

    scene->failure_count++;
    snprintf(scene->failure, sizeof(scene->failure), "%s", reason);
}

static enum muster_rc open_job(struct scene *scene, const char *job, const char *secret,
                               const char *dir)
{
    const struct job_tls_options options = {.env = &scene->env,
                                            .job = job,
                                            .secret_file = secret,
                                            .dir = dir,
                                            .life_ns = scene->life_ns,
                                            .data = scene,
                                            .on_failure = scene->is_untold ? NULL : on_failure};

    job_tls_close(scene->job_tls, false);
    scene->job_tls = NULL;
    return job_tls_open(&options, &scene->job_tls, &scene->error);
}

/* The text of a file of the job; valid until the next call. */
static const char *read_file(const struct job_tls_file *file)
{
    static char text[8192];
    int fd = open(file->path, O_RDONLY | O_CLOEXEC);
    ssize_t count = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;

    assert_true(count >= 0);
    close(fd);
    text[count > 0 ? count : 0] = '\0';
    return text;
}

/* Names and options. */

static void names_of_jobs_can_stand_in_an_id(void **state)
{
    static const char long_name[] =
        "0123456789012345678901234567890123456789012345678901234567890123";
    static const struct {
        const char *name;
        bool is_name;
    } rows[] = {
        {"a", true},        {"A-z.0_9", true},     {"", false},    {"a/b", false},
        {"a b", false},     {"a*", false},         {"a:b", false}, {"j\xc3\xb6", false},
        {long_name, false}, {long_name + 1, true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        fail_if(job_tls_is_name(rows[i].name) != rows[i].is_name, "%s", rows[i].name);
}

static void secret_and_job_go_together(void **state)
{
    static const struct {
        const char *secret, *job;
        const char *refusal; /* NULL: none */
    } rows[] = {
        {NULL, NULL, NULL},
        {"f", "job", NULL},
        {"f", NULL, "run: --tls-secret FILE and --job NAME must both be given"},
        {NULL, "job", "run: --tls-secret FILE and --job NAME must both be given"},
        {"f", "a/b", "run: --job must be 1 to 63 letters"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int exit = 0;

        refusal[0] = '\0';
        assert_true(job_tls_check("run", rows[i].secret, rows[i].job, &exit) ==
                    (rows[i].refusal == NULL));
        assert_int_equal(exit, rows[i].refusal != NULL ? 64 : 0);
        assert_true(rows[i].refusal != NULL ? strstr(refusal, rows[i].refusal) == refusal
                                            : refusal[0] == '\0');
    }
}

/* The secret. */

struct secret_row {
    const char *name;
    size_t count;
    mode_t mode; /* 0: not a regular file: a pipe; S_IFDIR: a folder */
    enum muster_rc rc;
    const char *text;
};

static const struct secret_row secret_rows[] = {
    {"as short as it may be", 32, 0600, MUSTER_OK, NULL},
    {"too short", 31, 0600, MUSTER_INVALID_ARGUMENT, "32 random bytes or more"},
    {"empty", 0, 0600, MUSTER_INVALID_ARGUMENT, "32 random bytes or more"},
    {"as long as it may be", 4095, 0600, MUSTER_OK, NULL},
    {"too long", 4096, 0600, MUSTER_INVALID_ARGUMENT, "less than 4096"},
    {"much too long", 8000, 0600, MUSTER_INVALID_ARGUMENT, "less than 4096"},
    {"of a group", 32, 0660, MUSTER_OK, NULL},
    {"read by everybody", 32, 0604, MUSTER_PERMISSION_DENIED, "open to everybody"},
    {"written by everybody", 32, 0602, MUSTER_PERMISSION_DENIED, "open to everybody"},
    {"run by everybody", 32, 0601, MUSTER_PERMISSION_DENIED, "open to everybody"},
    {"a pipe", 0, S_IFIFO, MUSTER_INVALID_ARGUMENT, "not a regular file"},
    {"a folder", 0, S_IFDIR, MUSTER_INVALID_ARGUMENT, "not a regular file"},
    {"nothing", 0, 0, MUSTER_NOT_FOUND, "cannot be read"},
};

static void open_by_secret(void *data)
{
    struct scene *scene = data;

    scene->rc = open_job(scene, "job", scene->secret, NULL);
}

/* Whatever it is worth, it does not stay on the stack. */
static void a_secret_that_others_may_know_is_refused(void **state)
{
    struct scene *scene = *state;

    for (size_t i = 0; i < sizeof(secret_rows) / sizeof(secret_rows[0]); i++) {
        const struct secret_row *row = &secret_rows[i];
        struct secret_stack stack;

        (void)unlink(scene->secret);
        if (row->mode == S_IFIFO)
            assert_int_equal(mkfifo(scene->secret, 0600), 0);
        else if (row->mode == S_IFDIR)
            assert_int_equal(mkdir(scene->secret, 0700), 0);
        else if (row->mode != 0)
            put_file(scene->secret, secret_bytes(), row->count, row->mode);
        memset(&scene->error, 0, sizeof(scene->error));
        secret_stack_run(&stack, open_by_secret, scene);

        fail_if(scene->rc != row->rc || scene->error.rc != row->rc ||
                    (row->text != NULL && (strstr(scene->error.text, row->text) == NULL ||
                                           strstr(scene->error.text, scene->secret) == NULL)),
                "%s: %s %s", row->name, muster_rc_name(scene->rc), scene->error.text);
        fail_if(row->count >= 16 && secret_stack_holds(&stack, secret_bytes(), 16),
                "%s: it is left on the stack", row->name);
        secret_stack_free(&stack);
        (void)rmdir(scene->secret);
    }
}

/* --- Names in certificates */

/* Both ends by files of their own; how the client and then the server end. */
struct meeting {
    const char *name;
    const char *jobs[2], *who[2], *peers[2]; /* of the client and of the server */
    bool is_same_secret;
    enum muster_rc rc; /* of the first that ends badly */
};

static enum muster_rc roles_meet(struct scene *scene, const struct meeting *row)
{
    struct job_tls *ends[2] = {NULL, NULL};
    struct muster_tls *tls[2] = {NULL, NULL};
    struct tls_pair pair;
    enum muster_rc rc;

    tls_pair_open(&pair);
    for (int i = 0; i < 2; i++) {
        const struct job_tls_options options = {.env = &pair.test.env,
                                                .job = row->jobs[i],
                                                .secret_file =
                                                    row->is_same_secret ? scene->secret : NULL,
                                                .life_ns = LIFE_NS};
        const struct job_tls_role role = {.who = row->who[i], .peers = row->peers[i]};

        fail_if(job_tls_open_role(&options, &role, &ends[i], &tls[i], &scene->error) != MUSTER_OK,
                "%s: %s", row->name, scene->error.text);
    }
    tls_pair_shake(&pair, tls[0], tls[1], "whoever", NULL);
    rc = pair.client.rc != MUSTER_OK ? pair.client.rc : pair.server.rc;
    for (int i = 0; i < 2; i++) {
        muster_tls_close(tls[i]);
        job_tls_close(ends[i], false);
    }
    tls_pair_close(&pair);
    return rc;
}

static void who_is_of_the_job_is_let_in(void **state)
{
    static const struct meeting rows[] = {
        {"two tasks", {"j", "j"}, {"task/1", "task/2"}, {"*", "*"}, true, MUSTER_OK},
        {"a task and the launcher",
         {"j", "j"},
         {"task/1", "launcher"},
         {"launcher", "*"},
         true,
         MUSTER_OK},
        {"a task in the launcher's place",
         {"j", "j"},
         {"task/1", "task/2"},
         {"launcher", "*"},
         true,
         MUSTER_UNAUTHENTICATED},
        {"somebody else's task",
         {"j", "j"},
         {"task/1", "task/2"},
         {"*", "task/3"},
         true,
         MUSTER_UNAUTHENTICATED},
        {"another job of the secret",
         {"j", "k"},
         {"task/1", "task/2"},
         {"*", "*"},
         true,
         MUSTER_UNAUTHENTICATED},
        {"a job whose name goes on",
         {"j", "jj"},
         {"task/1", "task/2"},
         {"*", "*"},
         true,
         MUSTER_UNAUTHENTICATED},
        {"the same job without the secret",
         {"j", "j"},
         {"task/1", "task/2"},
         {"*", "*"},
         false,
         MUSTER_UNAUTHENTICATED},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        fail_if(roles_meet(*state, &rows[i]) != rows[i].rc, "%s", rows[i].name);
}

/* data: the scene. */
static void role_open(struct torture *torture, const void *data, bool is_shared)
{
    struct scene *scene = (struct scene *)(uintptr_t)data;
    const struct job_tls_options options = {.env = &scene->env,
                                            .job = "j",
                                            .secret_file = is_shared ? scene->secret : NULL,
                                            .life_ns = LIFE_NS};
    const struct job_tls_role role = {.who = "task/1", .peers = "*"};
    struct job_tls *job_tls = NULL;
    struct muster_tls *tls = NULL;
    enum muster_rc rc, expected;

    memset(&scene->error, 0, sizeof(scene->error));
    torture_arm_limited(torture, &scene->test.mem);
    rc = job_tls_open_role(&options, &role, &job_tls, &tls, &scene->error);
    torture_disarm(torture);
    expected = torture->refused > 0 ? MUSTER_RESOURCE_EXHAUSTED : MUSTER_OK;
    assert_int_equal(rc, expected);
    assert_int_equal(scene->error.rc, expected);
    assert_true((rc == MUSTER_OK) == (tls != NULL));
    muster_tls_close(tls);
    job_tls_close(job_tls, false);
}

static void run_own(struct torture *torture, const void *data)
{
    role_open(torture, data, false);
}

static void run_shared(struct torture *torture, const void *data)
{
    role_open(torture, data, true);
}

static void without_memory_nobody_gets_a_role(void **state)
{
    torture_run(&(struct torture_scenario){.name = "own", .run = run_own, .data = *state});
    torture_run(&(struct torture_scenario){.name = "shared", .run = run_shared, .data = *state});
}

/* Files. */

static void files_in_memory_are_for_children_alone(void **state)
{
    struct scene *scene = *state;
    const struct job_tls_file *file, *ca;

    assert_int_equal(open_job(scene, "job", NULL, NULL), MUSTER_OK);
    file = job_tls_add(scene->job_tls, "task/1", NULL, &scene->error);
    ca = job_tls_authority(scene->job_tls);

    assert_non_null(file);
    assert_true(file->fd >= 0 && ca->fd >= 0 && file->fd != ca->fd);
    assert_int_equal(fcntl(file->fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    assert_non_null(strstr(read_file(file), "BEGIN PRIVATE KEY"));
    assert_non_null(strstr(read_file(file), "BEGIN CERTIFICATE"));
    assert_null(strstr(read_file(ca), "PRIVATE KEY"));
    assert_non_null(strstr(read_file(ca), "BEGIN CERTIFICATE"));
}

static void check_mode(const char *path, mode_t mode)
{
    struct stat status;

    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 07777, mode);
}

/* For a successor of this user, and nobody else. */
static void files_on_the_disk_are_the_owner_s_and_go_when_they_shall(void **state)
{
    struct scene *scene = *state;
    char path[JOB_TLS_PATH_BYTES], victim[160], text[8];
    const struct job_tls_file *file;
    mode_t mask = umask(0);
    int fd;

    assert_int_equal(open_job(scene, "job", NULL, scene->dir), MUSTER_OK);
    snprintf(victim, sizeof(victim), "%s/victim", scene->dir);
    snprintf(path, sizeof(path), "%s/task-1.pem.new", scene->dir);
    put_file(victim, "mine", 4, 0600);
    assert_int_equal(symlink(victim, path), 0); /* that somebody has put there */
    file = job_tls_add(scene->job_tls, "task/1", NULL, &scene->error);
    umask(mask);

    assert_non_null(file);
    assert_int_equal(file->fd, -1);
    snprintf(path, sizeof(path), "%s/task-1.pem", scene->dir);
    assert_string_equal(file->path, path);
    check_mode(scene->dir, 0700);
    check_mode(path, 0600);
    check_mode(job_tls_authority(scene->job_tls)->path, 0600);
    assert_non_null(strstr(read_file(file), "BEGIN PRIVATE KEY"));
    fd = open(victim, O_RDONLY);
    assert_int_equal(read(fd, text, sizeof(text)), 4);
    close(fd);
    assert_int_equal(unlink(victim), 0);
    job_tls_close(scene->job_tls, true);
    scene->job_tls = NULL;
    check_mode(path, 0600);
    assert_int_equal(open_job(scene, "job", NULL, scene->dir), MUSTER_OK); /* it is there already */
    assert_non_null(job_tls_add(scene->job_tls, "task/1", NULL, &scene->error));
    job_tls_close(scene->job_tls, false);
    scene->job_tls = NULL;
    assert_int_equal(access(scene->dir, F_OK), -1);
}

static void a_folder_that_cannot_be_made_is_named(void **state)
{
    struct scene *scene = *state;
    char name[JOB_TLS_PATH_BYTES];

    snprintf(name, sizeof(name), "%s/no/folder", scene->folder);
    assert_int_equal(open_job(scene, "job", NULL, name), MUSTER_NOT_FOUND);
    assert_non_null(strstr(scene->error.text, name));
    memset(name, 'a', sizeof(name));
    name[DIR_BYTES_MAX] = '\0';
    assert_int_equal(open_job(scene, "job", NULL, name), MUSTER_INVALID_ARGUMENT);
    assert_non_null(strstr(scene->error.text, "must be a path of at most"));
}

static void a_file_that_cannot_be_written_is_named(void **state)
{
    struct scene *scene = *state;
    char path[JOB_TLS_PATH_BYTES];

    assert_int_equal(open_job(scene, "job", NULL, scene->dir), MUSTER_OK);
    snprintf(path, sizeof(path), "%s/task-1.pem", scene->dir);
    assert_int_equal(mkdir(path, 0700), 0); /* no file can take its place */
    assert_null(job_tls_add(scene->job_tls, "task/1", NULL, &scene->error));

    assert_int_equal(scene->error.rc, MUSTER_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(scene->error.text, path));
    assert_int_equal(rmdir(path), 0);
    snprintf(path, sizeof(path), "%s/task-1.pem.new", scene->dir);
    assert_int_equal(access(path, F_OK), -1); /* nothing half written stays: it may hold a key */
}

static void without_a_descriptor_there_is_no_certificate(void **state)
{
    struct scene *scene = *state;
    struct rlimit limit, less;
    int next;

    assert_int_equal(open_job(scene, "job", NULL, NULL), MUSTER_OK);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    next = dup(STDIN_FILENO);
    assert_int_equal(close(next), 0);
    less = limit;
    less.rlim_cur = (rlim_t)next;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &less), 0);
    assert_null(job_tls_add(scene->job_tls, "task/1", NULL, &scene->error));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);

    assert_int_equal(scene->error.rc, MUSTER_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(scene->error.text, "no descriptor"));
    assert_non_null(strstr(scene->error.text, strerror(EMFILE)));
}

static void who_cannot_be_named_gets_no_certificate(void **state)
{
    struct scene *scene = *state;

    assert_int_equal(open_job(scene, "job", NULL, NULL), MUSTER_OK);
    assert_null(job_tls_add(scene->job_tls, "task/1,URI:spiffe://muster/job/other/launcher", NULL,
                            &scene->error));

    assert_int_equal(scene->error.rc, MUSTER_INVALID_ARGUMENT);
}

/* Renewal. */

static void certificates_are_renewed_after_a_third_of_their_life(void **state)
{
    struct scene *scene = *state;
    const struct job_tls_file *file;
    char before[8192], ca[8192];

    assert_int_equal(open_job(scene, "job", NULL, NULL), MUSTER_OK);
    file = job_tls_add(scene->job_tls, "task/1", NULL, &scene->error);
    strcpy(ca, read_file(job_tls_authority(scene->job_tls)));
    for (int turn = 0; turn < 2; turn++) {
        strcpy(before, read_file(file));
        virtual_loop_advance(&scene->loop, LIFE_NS / 3 - 1);
        assert_string_equal(read_file(file), before);
        virtual_loop_advance(&scene->loop, 1);

        assert_string_not_equal(read_file(file), before);
        assert_string_equal(read_file(job_tls_authority(scene->job_tls)), ca);
    }
    assert_int_equal(scene->failure_count, 0);
}

/* A reader of the authority's certificate finds it whole at any time. */
static void the_file_of_the_authority_stays(void **state)
{
    struct scene *scene = *state;
    struct stat before, after;
    const char *path;

    assert_int_equal(open_job(scene, "job", NULL, scene->dir), MUSTER_OK);
    path = job_tls_authority(scene->job_tls)->path;
    assert_int_equal(stat(path, &before), 0);
    virtual_loop_advance(&scene->loop, LIFE_NS / 3);

    assert_int_equal(stat(path, &after), 0);
    assert_int_equal(after.st_ino, before.st_ino);
}

static void on_log(struct muster_log *log, enum muster_log_level level, uint64_t wall_ns,
                   const char *event, const struct muster_field *fields, size_t count)
{
    (void)log, (void)level, (void)wall_ns, (void)fields, (void)count;
    snprintf(refusal, sizeof(refusal), "%s", event);
}

/* The owner is told, or else the log; the next third tries again. */
static void a_renewal_that_fails_is_told_and_tried_again(void **state)
{
    static const struct muster_log_ops ops = {.write = on_log};
    static struct muster_log log = {.ops = &ops, .level_max = MUSTER_LOG_WARN};
    struct scene *scene = *state;
    const struct job_tls_file *file;
    char before[8192];

    scene->env.log = &log;
    for (int turn = 0; turn < 2; turn++) {
        refusal[0] = '\0';
        scene->failure_count = 0;
        scene->is_untold = turn == 1;
        assert_int_equal(open_job(scene, "job", NULL, NULL), MUSTER_OK);
        file = job_tls_add(scene->job_tls, "task/1", NULL, &scene->error);
        strcpy(before, read_file(file));
        scene->test.mem.fail_at = 1;
        virtual_loop_advance(&scene->loop, LIFE_NS / 3);
        assert_string_equal(read_file(file), before);
        assert_int_equal(scene->failure_count, turn == 0);
        assert_string_equal(refusal, turn == 0 ? "" : "tls_renewal_failed");
        if (turn == 0)
            assert_non_null(strstr(scene->failure, "no certificate can be issued"));
        virtual_loop_advance(&scene->loop, LIFE_NS / 3);

        assert_string_not_equal(read_file(file), before);
        assert_int_equal(scene->failure_count, turn == 0);
    }
}

static void renewed_files_are_seen_in_time(void **state)
{
    struct scene *scene = *state;

    assert_int_equal(open_job(scene, "job", NULL, NULL), MUSTER_OK);
    assert_int_equal(job_tls_reload_ns(scene->job_tls), 60 * MUSTER_NS_PER_S);
    scene->life_ns = 60 * MUSTER_NS_PER_S;
    assert_int_equal(open_job(scene, "job", NULL, NULL), MUSTER_OK);
    assert_int_equal(job_tls_reload_ns(scene->job_tls), 10 * MUSTER_NS_PER_S);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(names_of_jobs_can_stand_in_an_id),
        CASE(secret_and_job_go_together),
        CASE(a_secret_that_others_may_know_is_refused),
        CASE(who_is_of_the_job_is_let_in),
        CASE(without_memory_nobody_gets_a_role),
        CASE(files_in_memory_are_for_children_alone),
        CASE(files_on_the_disk_are_the_owner_s_and_go_when_they_shall),
        CASE(a_folder_that_cannot_be_made_is_named),
        CASE(a_file_that_cannot_be_written_is_named),
        CASE(without_a_descriptor_there_is_no_certificate),
        CASE(who_cannot_be_named_gets_no_certificate),
        CASE(certificates_are_renewed_after_a_third_of_their_life),
        CASE(the_file_of_the_authority_stays),
        CASE(a_renewal_that_fails_is_told_and_tried_again),
        CASE(renewed_files_are_seen_in_time),
    };

    return cmocka_run_group_tests_name("job_tls", tests, NULL, NULL);
}
