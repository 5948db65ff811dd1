/* Folders of --trace, --log-dir and --checkpoint-dir. */
#include "run/options/folders.h"

#include "common/pause.h"
#include "run/output/log.h"
#include "run/state/resume.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATIENCE_NS (60 * MUSTER_NS_PER_S) /* a file server that starts anew is back sooner */
#define TELL_NS     (10 * MUSTER_NS_PER_S)
#define LOOK_NS     (1 * MUSTER_NS_PER_S)

/* Make the directory, and those above it. False: errno. */
static bool path_make(char *path)
{
    struct stat status;

    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0777);
        *slash = '/';
    }
    if (mkdir(path, 0777) != 0 && errno != EEXIST)
        return false;
    if (stat(path, &status) == 0 && S_ISDIR(status.st_mode))
        return true;
    errno = ENOTDIR;
    return false;
}

static bool path_refuse(const char *path, const char *option)
{
    run_log_error("cannot make the directory %s: %s (choose another %s)", path, strerror(errno),
                  option);
    return false;
}

/* The path must fit into `bytes`, the size of path. */
static bool path_copy(char *path, size_t bytes, const char *name, const char *option)
{
    if (strlen(name) < bytes) {
        strcpy(path, name);
        return true;
    }
    run_log_error("%s must be a path of at most %zu bytes, got one of %zu", option, bytes - 1,
                  strlen(name));
    return false;
}

/* --- Of a predecessor --- */

static bool is_resumed(const struct run *run)
{
    return run->resume != NULL && run->resume->is_resumed;
}

/* The predecessor has made it, and the workers use it. It is waited for, and not made: where its file system is not
 * mounted it would be another one. `whole` gets the absolute path. */
static bool folder_await(struct run *run, const char *name, const char *option, int mode,
                         char *whole)
{
    struct muster_loop *loop = run->env->loop;
    uint64_t until_ns = muster_loop_after_ns(loop, PATIENCE_NS), tell_ns = 0;

    while (realpath(name, whole) == NULL || access(whole, mode) != 0) {
        const char *why = strerror(errno);
        uint64_t now_ns = muster_loop_now_ns(loop);

        if (now_ns >= until_ns) {
            run_log_error("the directory %s of %s cannot be used for %llu s: %s; the workers go "
                          "on: mount or mend it, and take them over with 'muster run --resume %s'",
                          name, option, (unsigned long long)(PATIENCE_NS / MUSTER_NS_PER_S), why,
                          run->resume->dir);
            return false;
        }
        if (now_ns >= tell_ns) {
            run_tell(
                run,
                "waits up to %llu s for the directory %s of %s: %s; the workers go on "
                "meanwhile",
                (unsigned long long)((until_ns - now_ns + MUSTER_NS_PER_S - 1) / MUSTER_NS_PER_S),
                name, option, why);
            tell_ns = now_ns + TELL_NS;
        }
        loop_pause(loop, LOOK_NS);
    }
    return true;
}

/* --- Opening --- */

/* A worker may change its directory, so it gets the absolute path. */
bool run_trace_dir_open(struct run *run)
{
    const char *name = run->settings.trace_dir;
    char path[PATH_MAX];

    if (name == NULL)
        return true;
    if (!path_copy(path, sizeof(path), name, "--trace"))
        return false;
    if (is_resumed(run))
        return folder_await(run, name, "--trace", W_OK | X_OK, run->trace_dir);
    return (path_make(path) && realpath(path, run->trace_dir) != NULL) ||
           path_refuse(name, "--trace");
}

bool run_log_dir_open(struct run *run)
{
    const struct run_settings *settings = &run->settings;
    const char *temporary = getenv("TMPDIR");

    if (settings->log_dir != NULL)
        return path_copy(run->log_dir, sizeof(run->log_dir), settings->log_dir, "--log-dir") &&
               (path_make(run->log_dir) || path_refuse(run->log_dir, "--log-dir"));
    if (settings->tee == NULL && settings->redirects == NULL)
        return true;
    snprintf(run->log_dir, sizeof(run->log_dir), "%s/muster-run-XXXXXX",
             temporary != NULL ? temporary : "/tmp");
    if (mkdtemp(run->log_dir) != NULL)
        return true;
    run_log_error("cannot make the directory %.150s: %s (name one with --log-dir)", run->log_dir,
                  strerror(errno));
    return false;
}

bool run_checkpoint_dir_open(struct run *run)
{
    const char *name = run->settings.checkpoint_dir;
    char path[PATH_MAX];

    if (name == NULL)
        return true;
    if (!path_copy(path, sizeof(path), name, "--checkpoint-dir"))
        return false;
    if (is_resumed(run)) {
        if (!folder_await(run, name, "--checkpoint-dir", R_OK | W_OK | X_OK, run->checkpoint_dir))
            return false;
    } else if (!path_make(path) || realpath(path, run->checkpoint_dir) == NULL) {
        return path_refuse(name, "--checkpoint-dir");
    }
    run->settings.checkpoint_dir = run->checkpoint_dir; /* the workers' place, wherever they go */
    if (access(run->checkpoint_dir, R_OK | W_OK | X_OK) == 0)
        return true;
    run_log_error("cannot write to the directory %s: %s (change its mode, or choose another "
                  "--checkpoint-dir)",
                  name, strerror(errno));
    return false;
}
