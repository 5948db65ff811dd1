/* A run that outlives its launcher: the directory it keeps, and the successor that takes it over.
 */
#include "run/run.h"

#include "common/command.h"
#include "common/output.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define TEXTS_BYTES_MAX ((size_t)16 << 20) /* of command or environment */

static bool refuse(int *ret_exit, int code, const char *fmt, ...) MUSTER_PRINTF(3, 4);
static bool refuse(int *ret_exit, int code, const char *fmt, ...)
{
    va_list args;

    fputs("muster run: ", stderr);
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputc('\n', stderr);
    *ret_exit = code;
    return false;
}

static void path_in(const struct run_resume *resume, const char *name, char *path, size_t bytes)
{
    snprintf(path, bytes, "%s/%s", resume->dir, name);
}

/* --- the directory */

static bool find_dir(struct run_resume *resume, const char *option, const char *dir, int *ret_exit)
{
    char *whole = realpath(dir, NULL);
    bool is_good = whole != NULL && strlen(whole) < sizeof(resume->dir);

    if (is_good)
        strcpy(resume->dir, whole);
    else
        refuse(ret_exit, EXIT_BAD_INPUT, "%s %s: %s", option, dir,
               whole == NULL ? strerror(errno) : "the name is too long");
    free(whole);
    return is_good;
}

static bool lock(struct run_resume *resume, const char *option, int *ret_exit)
{
    char path[600];

    path_in(resume, "lock", path, sizeof(path));
    resume->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (resume->lock_fd < 0)
        return refuse(ret_exit, EXIT_DENIED, "%s: cannot write %s: %s", option, path,
                      strerror(errno));
    if (flock(resume->lock_fd, LOCK_EX | LOCK_NB) == 0)
        return true;
    close(resume->lock_fd);
    resume->lock_fd = -1;
    return refuse(ret_exit, EXIT_UNAVAILABLE,
                  "%s %s: another 'muster run' leads this run and lives", option, resume->dir);
}

/* --- texts, each ended by NUL */

static bool write_texts(const struct run_resume *resume, const char *name, const char *first,
                        char *const *texts)
{
    char path[600];
    FILE *file;
    bool is_good;

    path_in(resume, name, path, sizeof(path));
    file = fopen(path, "we");
    if (file == NULL)
        return false;
    is_good = fchmod(fileno(file), 0600) == 0; /* environments hold secrets */
    if (first != NULL)
        is_good = fwrite(first, 1, strlen(first) + 1, file) == strlen(first) + 1 && is_good;
    for (; *texts != NULL && is_good; texts++)
        is_good = fwrite(*texts, 1, strlen(*texts) + 1, file) == strlen(*texts) + 1;
    return fclose(file) == 0 && is_good;
}

/* The array and its texts live as long as the process. */
static char **read_texts(const struct run_resume *resume, const char *name, int *ret_count)
{
    char path[600];
    char *bytes = NULL;
    char **texts;
    size_t size = 0;
    int count = 0;

    path_in(resume, name, path, sizeof(path));
    if (muster_files_read(muster_files_system(), muster_mem_system(), path, TEXTS_BYTES_MAX, &bytes,
                          &size) != MUSTER_OK)
        return NULL;
    for (size_t i = 0; i < size; i++)
        count += bytes[i] == '\0';
    texts = calloc((size_t)count + 1, sizeof(texts[0]));
    if (texts == NULL)
        output_no_memory();
    for (int i = 0; i < count; i++) {
        texts[i] = bytes;
        bytes += strlen(bytes) + 1;
    }
    *ret_count = count;
    return texts;
}

/* --- begin and recall */

/* By its table; *ret_exit: how. */
static bool has_run_ended(const struct run_resume *resume, int *ret_exit)
{
    struct muster_json *root = NULL;
    char path[600];
    char *bytes = NULL;
    size_t size = 0;
    bool has_ended;

    path_in(resume, "table.json", path, sizeof(path));
    if (muster_files_read(muster_files_system(), muster_mem_system(), path, TEXTS_BYTES_MAX, &bytes,
                          &size) != MUSTER_OK)
        return false;
    has_ended = muster_json_parse(bytes, size, &root, NULL) == MUSTER_OK &&
                muster_json_integer(muster_json_member(root, "state")) == RUN_STATE_DONE;
    *ret_exit = (int)muster_json_integer(muster_json_member(root, "exit_code"));
    muster_json_free(root);
    muster_mem_free(muster_mem_system(), bytes);
    return has_ended;
}

/* What a run that has ended has left. */
static void clean(const struct run_resume *resume)
{
    static const char *const names[] = {"table.json", "registry.db", "registry.db-wal",
                                        "registry.db-shm"};
    char path[600];

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        path_in(resume, names[i], path, sizeof(path));
        unlink(path);
    }
}

bool run_resume_begin(struct run_resume *resume, const char *dir, int argc, char **argv,
                      int *ret_exit)
{
    static const char option[] = "--resumable";
    char path[600];
    char *where = getcwd(NULL, 0);
    int code;
    bool is_good;

    (void)argc;
    if (mkdir(dir, 0700) != 0 && errno != EEXIST) {
        free(where);
        return refuse(ret_exit, EXIT_DENIED, "%s: cannot make %s: %s", option, dir,
                      strerror(errno));
    }
    if (where == NULL || !find_dir(resume, option, dir, ret_exit) ||
        !lock(resume, option, ret_exit)) {
        free(where);
        return false;
    }
    path_in(resume, "table.json", path, sizeof(path));
    if (access(path, F_OK) == 0 && !has_run_ended(resume, &code)) {
        free(where);
        return refuse(ret_exit, EXIT_USAGE,
                      "%s %s: it holds a run already; go on with it by 'muster run --resume %s', "
                      "or name another directory",
                      option, dir, dir);
    }
    clean(resume);
    path_in(resume, "lives", path, sizeof(path));
    is_good = (mkdir(path, 0700) == 0 || errno == EEXIST) &&
              write_texts(resume, "command", where, argv) &&
              write_texts(resume, "environment", NULL, environ);
    free(where);
    return is_good || refuse(ret_exit, EXIT_OTHER, "%s: cannot write into %s: %s", option, dir,
                             strerror(errno));
}

bool run_resume_recall(struct run_resume *resume, const char *dir, char ***ret_argv, int *ret_argc,
                       int *ret_exit)
{
    static const char option[] = "--resume";
    static char **environment, **command; /* for the life of the process */
    char path[600];
    int count = 0;
    int code;

    if (!find_dir(resume, option, dir, ret_exit))
        return false;
    path_in(resume, "table.json", path, sizeof(path));
    if (access(path, F_OK) != 0)
        return refuse(ret_exit, EXIT_BAD_INPUT,
                      "%s %s: it holds no run that was started with --resumable", option, dir);
    if (!lock(resume, option, ret_exit))
        return false;
    if (has_run_ended(resume, &code))
        return refuse(ret_exit, EXIT_BAD_INPUT, "%s %s: this run has ended, with exit code %d",
                      option, dir, code);
    environment = read_texts(resume, "environment", &count);
    command = read_texts(resume, "command", &count);
    if (environment == NULL || command == NULL || count < 3)
        return refuse(ret_exit, EXIT_BAD_INPUT, "%s %s: its command or environment is damaged",
                      option, dir);
    if (chdir(command[0]) != 0)
        return refuse(ret_exit, EXIT_BAD_INPUT, "%s %s: cannot go to the working directory %s: %s",
                      option, dir, command[0], strerror(errno));
    environ = environment;
    resume->is_resumed = true;
    *ret_argv = command + 1;
    *ret_argc = count - 1;
    return true;
}

void run_resume_end(struct run_resume *resume)
{
    char path[600];
    int code;

    if (resume->lock_fd >= 0 && has_run_ended(resume, &code)) { /* it holds secrets */
        path_in(resume, "environment", path, sizeof(path));
        unlink(path);
    }
    if (resume->lock_fd >= 0)
        close(resume->lock_fd);
    resume->lock_fd = -1;
}

/* --- taking over */

/* Who has ended meanwhile is RUNNING still, but not watched. */
static void take_over_task(struct run_task *task)
{
    struct run *run = task->run;
    int worker_pid = 0;
    int keeper;
    bool has_end;

    if (task->collected == task->lives)
        return;
    keeper = run_keeper_find(task, &worker_pid);
    if (worker_pid == 0) { /* its launcher died before it could start it */
        run_spool_remove_life(task);
        task->lives--;
        task->state = RUN_TASK_WAITING;
        return;
    }
    task->state = RUN_TASK_RUNNING;
    task->worker_pid = worker_pid;
    task->started_ns = 0; /* long ago */
    if (!run_output_open_logs(task, true))
        task->out.log_fd = task->err.log_fd = -1;
    (void)run_keeper_wait_status(task, &has_end); /* its keeper may still be sweeping */
    if (keeper != 0 && !has_end)
        run_tell(run, "%s (pid %d) taken over", task->name, worker_pid);
    run_child_adopt(task, keeper);
}

static bool has_ended(const struct run_task *task)
{
    return task->state == RUN_TASK_RUNNING && !task->is_watched;
}

static void go_on_with(struct run_task *task)
{
    if (has_ended(task))
        run_task_on_exit(task);
    else if (task->state == RUN_TASK_NEW || task->state == RUN_TASK_WAITING)
        run_task_start_again(task);
}

void run_resume_take_over(struct run *run)
{
    enum run_state state = run->state;

    run->state = RUN_STATE_RUNNING;
    for (uint32_t i = 0; i < run->task_count; i++)
        take_over_task(&run->tasks[i]);
    if (state == RUN_STATE_REGROUPING || state == RUN_STATE_STOPPING)
        run_task_go_on_ending(run, state == RUN_STATE_REGROUPING);
    for (uint32_t i = 0; i < run->task_count && run->state != RUN_STATE_DONE; i++)
        go_on_with(&run->tasks[i]);
    run_table_save(run);
    run_task_check(run);
}
