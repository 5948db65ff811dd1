/* Another program that reads a question from its standard input and writes the answer to its output.
 * Both are files without a name, so that neither side waits for the other. */
#include "subprocess.h"

#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "pool.h"

extern char **environ;

static FILE *question_write(struct subprocess_bytes question)
{
    FILE *file = tmpfile();

    if (file == NULL)
        return NULL;
    if (fwrite(question.data, 1, question.size, file) == question.size && fflush(file) == 0) {
        rewind(file);
        return file;
    }
    (void)fclose(file);
    return NULL;
}

static struct subprocess_bytes answer_read(FILE *file)
{
    struct subprocess_bytes answer = {NULL, 0};
    long size;

    (void)fseek(file, 0, SEEK_END);
    size = ftell(file);
    rewind(file);
    answer.data = pool_alloc(1, size > 0 ? (size_t)size : 1);
    if (size > 0)
        answer.size = fread(answer.data, 1, (size_t)size, file);
    return answer;
}

/* Returns NULL, or what went wrong. */
static char *program_spawn(const char *program, int in, int out)
{
    char *const arguments[] = {pool_text("%s", program), NULL};
    posix_spawn_file_actions_t actions;
    int status, failed = posix_spawn_file_actions_init(&actions);
    pid_t child;

    if (failed == 0) {
        failed = posix_spawn_file_actions_adddup2(&actions, in, 0);
        if (failed == 0)
            failed = posix_spawn_file_actions_adddup2(&actions, out, 1);
        if (failed == 0)
            failed = posix_spawnp(&child, program, &actions, NULL, arguments, environ);
        (void)posix_spawn_file_actions_destroy(&actions);
    }
    if (failed != 0)
        return pool_text("%s cannot be started (%s): install protobuf-c-compiler, or name its "
                         "protoc-gen-c by --muster_opt=messages=PATH",
                         program, strerror(failed));
    while (waitpid(child, &status, 0) < 0) {
        if (errno != EINTR)
            return pool_text("%s cannot be waited for: %s", program, strerror(errno));
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return NULL;
    return pool_text("%s ended with %s %d", program, WIFEXITED(status) ? "exit code" : "signal",
                     WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
}

char *subprocess_run(const char *program, struct subprocess_bytes question,
                     struct subprocess_bytes *ret_answer)
{
    FILE *in = question_write(question), *out = tmpfile();
    char *error;

    if (in == NULL || out == NULL)
        error = pool_text("a temporary file cannot be written: %s", strerror(errno));
    else
        error = program_spawn(program, fileno(in), fileno(out));
    if (error == NULL)
        *ret_answer = answer_read(out);
    if (in != NULL)
        (void)fclose(in);
    if (out != NULL)
        (void)fclose(out);
    return error;
}
