/* Folders of --trace, --log-dir and --checkpoint-dir. */
#include "run/options/folders.h"

#include "run/output/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* A worker may change its directory, so it gets the absolute path. */
bool run_trace_dir_open(struct run *run)
{
    const char *name = run->settings.trace_dir;
    char path[PATH_MAX];

    if (name == NULL)
        return true;
    if (!path_copy(path, sizeof(path), name, "--trace"))
        return false;
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
    if (!path_make(path) || realpath(path, run->checkpoint_dir) == NULL)
        return path_refuse(name, "--checkpoint-dir");
    run->settings.checkpoint_dir = run->checkpoint_dir; /* the workers' place, wherever they go */
    if (access(run->checkpoint_dir, R_OK | W_OK | X_OK) == 0)
        return true;
    run_log_error("cannot write to the directory %s: %s (change its mode, or choose another "
                  "--checkpoint-dir)",
                  name, strerror(errno));
    return false;
}
