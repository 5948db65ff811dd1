/* The directory of a run that outlives its launcher: made by the first, read and locked by its
 * successor.
 *
 * The lock is a flock, which the kernel releases when its holder dies, so a directory has one
 * living launcher. Command, working directory and environment are kept as they were, since the
 * successor runs in another shell. What changes during the run is in the table (table.c). */
#include "run/resume/resume.h"

#include "common/command.h"
#include "common/output.h"
#include "run/state/resume.h"
#include "run/state/run.h"

#include <muster/json.h>

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEXTS_BYTES_MAX ((size_t)16 << 20) /* of command or environment: above what execve takes */

static bool resume_refuse(int *ret_exit, int code, const char *fmt, ...) MUSTER_PRINTF(3, 4);
static bool resume_refuse(int *ret_exit, int code, const char *fmt, ...)
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

static void resume_path(const struct run_resume *resume, const char *name, char *path, size_t bytes)
{
    snprintf(path, bytes, "%s/%s", resume->dir, name);
}

/* --- the directory */

static bool resume_find_dir(struct run_resume *resume, const char *option, const char *dir,
                            int *ret_exit)
{
    char *whole = realpath(dir, NULL);
    bool is_good = whole != NULL && strlen(whole) < sizeof(resume->dir);

    if (is_good)
        strcpy(resume->dir, whole);
    else
        resume_refuse(ret_exit, EXIT_BAD_INPUT,
                      "%s %s: %s; it must be a directory of 'muster run --resumable DIR'", option,
                      dir, strerror(whole == NULL ? errno : ENAMETOOLONG));
    free(whole);
    return is_good;
}

static bool resume_lock(struct run_resume *resume, const char *option, int *ret_exit)
{
    char path[600];

    resume_path(resume, "lock", path, sizeof(path));
    resume->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (resume->lock_fd < 0)
        return resume_refuse(ret_exit, EXIT_DENIED, "%s: cannot write %s: %s", option, path,
                             strerror(errno));
    if (flock(resume->lock_fd, LOCK_EX | LOCK_NB) == 0)
        return true;
    close(resume->lock_fd);
    resume->lock_fd = -1;
    return resume_refuse(ret_exit, EXIT_UNAVAILABLE,
                         "%s %s must be free: another 'muster run' leads this run and lives; end "
                         "that one",
                         option, resume->dir);
}

/* --- texts, each ended by NUL */

static bool write_texts(const struct run_resume *resume, const char *name, const char *first,
                        char *const *texts)
{
    char path[600];
    FILE *file;
    bool is_good;

    resume_path(resume, name, path, sizeof(path));
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

    resume_path(resume, name, path, sizeof(path));
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

/* Whether the table says that the run has ended, and with which exit code. A table that cannot be
 * read says nothing: run_table_load refuses it. */
static bool has_run_ended(const struct run_resume *resume, int *ret_exit)
{
    struct muster_json *root = NULL;
    char path[600];
    char *bytes = NULL;
    size_t size = 0;
    bool has_ended;

    resume_path(resume, "table.json", path, sizeof(path));
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

/* Files that an ended run has left. */
static void resume_clean(const struct run_resume *resume)
{
    static const char *const names[] = {"table.json", "registry.db", "registry.db-wal",
                                        "registry.db-shm"};
    char path[600];

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        resume_path(resume, names[i], path, sizeof(path));
        unlink(path);
    }
}

/* A table of a run that has not ended is never overwritten: its workers may live. */
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
        return resume_refuse(ret_exit, EXIT_DENIED, "%s: cannot make %s: %s", option, dir,
                             strerror(errno));
    }
    if (where == NULL || !resume_find_dir(resume, option, dir, ret_exit) ||
        !resume_lock(resume, option, ret_exit)) {
        free(where);
        return false;
    }
    resume_path(resume, "table.json", path, sizeof(path));
    if (access(path, F_OK) == 0 && !has_run_ended(resume, &code)) {
        free(where);
        return resume_refuse(
            ret_exit, EXIT_USAGE,
            "%s %s must be without a run that has not ended: it holds one; go on with it by "
            "'muster run --resume %s', or name another directory",
            option, dir, dir);
    }
    resume_clean(resume);
    resume_path(resume, "lives", path, sizeof(path));
    is_good = (mkdir(path, 0700) == 0 || errno == EEXIST) &&
              write_texts(resume, "command", where, argv) &&
              write_texts(resume, "environment", NULL, environ);
    free(where);
    return is_good || resume_refuse(ret_exit, EXIT_OTHER, "%s: cannot write into %s: %s", option,
                                    dir, strerror(errno));
}

/* The lock comes before the look at the state, since a living launcher may end the run in between.
 */
bool run_resume_recall(struct run_resume *resume, const char *dir, char ***ret_argv, int *ret_argc,
                       int *ret_exit)
{
    static const char option[] = "--resume";
    static char **environment, **command; /* for the life of the process */
    char path[600];
    int count = 0;
    int code;

    if (!resume_find_dir(resume, option, dir, ret_exit))
        return false;
    resume_path(resume, "table.json", path, sizeof(path));
    if (access(path, F_OK) != 0)
        return resume_refuse(ret_exit, EXIT_BAD_INPUT,
                             "%s %s must hold a run that was started with --resumable, got a "
                             "directory without table.json",
                             option, dir);
    if (!resume_lock(resume, option, ret_exit))
        return false;
    if (has_run_ended(resume, &code))
        return resume_refuse(ret_exit, EXIT_BAD_INPUT,
                             "%s %s must hold a run that goes on: this one has ended, with exit "
                             "code %d; begin again with --resumable",
                             option, dir, code);
    environment = read_texts(resume, "environment", &count);
    command = read_texts(resume, "command", &count);
    if (environment == NULL || command == NULL || count < 3)
        return resume_refuse(ret_exit, EXIT_BAD_INPUT,
                             "%s %s must hold the command and environment of the first start, got "
                             "files that are missing or damaged; begin again with --resumable and "
                             "another directory",
                             option, dir);
    if (chdir(command[0]) != 0)
        return resume_refuse(ret_exit, EXIT_BAD_INPUT,
                             "%s %s: cannot go to the working directory %s: %s", option, dir,
                             command[0], strerror(errno));
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
        resume_path(resume, "environment", path, sizeof(path));
        unlink(path);
    }
    if (resume->lock_fd >= 0)
        close(resume->lock_fd);
    resume->lock_fd = -1;
}
