/* A library that is loaded before libc: the program's main runs once for each command line that
 * arrives on a socket (lib/main_again.py), so that a test of a thousand command lines pays for one
 * start of the program and for one search for leaks at its end. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

typedef int main_fn(int argc, char **argv, char **envp);
typedef int start_fn(main_fn *main_of_program, int argc, char **argv, void (*init)(void),
                     void (*fini)(void), void (*fini_of_loader)(void), void *stack_end);

start_fn __libc_start_main; /* no header has it */

#define REQUEST_BYTES_MAX ((size_t)1 << 16)
#define WORDS_MAX 1024

static main_fn *program_main;

/* A request is texts with a NUL behind each: the arguments, an empty line, the environment. Returns
 * their count; ret_words ends with NULL. */
static size_t words_parse(char **text, const char *end, char **ret_words)
{
    size_t count = 0;

    while (*text < end && strcmp(*text, "\n") != 0) {
        if (count == WORDS_MAX)
            abort();
        ret_words[count++] = *text;
        *text += strlen(*text) + 1;
    }
    ret_words[count] = NULL;
    *text += *text < end ? sizeof("\n") : 0;
    return count;
}

/* The request is a new block each time: a word of an earlier one that is still in use is a use after
 * free. */
static int main_once(const char *request, size_t bytes)
{
    char *argv[WORDS_MAX + 1], *envp[WORDS_MAX + 1];
    char *own = malloc(bytes), *text = own;
    size_t argc;
    int code;

    if (own == NULL)
        abort();
    memcpy(own, request, bytes);
    argc = words_parse(&text, own + bytes, argv);
    words_parse(&text, own + bytes, envp);
    environ = envp;
    code = program_main((int)argc, argv, envp);
    fflush(NULL);
    environ = NULL;
    free(own);
    return code;
}

static int main_again(int argc, char **argv, char **envp)
{
    static char request[REQUEST_BYTES_MAX];
    int fd = argc == 2 ? atoi(argv[1]) : -1;

    (void)envp;
    for (;;) {
        ssize_t bytes = recv(fd, request, sizeof(request), 0);
        unsigned char code;

        if (bytes == 0)
            return 0;
        if (bytes < 0 || request[bytes - 1] != '\0') {
            perror("main_again");
            abort();
        }
        code = (unsigned char)main_once(request, (size_t)bytes);
        if (send(fd, &code, sizeof(code), 0) != (ssize_t)sizeof(code))
            abort();
    }
}

int __libc_start_main(main_fn *main_of_program, int argc, char **argv, void (*init)(void),
                      void (*fini)(void), void (*fini_of_loader)(void), void *stack_end)
{
    void *found = dlsym(RTLD_NEXT, "__libc_start_main");
    start_fn *start;

    memcpy(&start, &found, sizeof(start));
    program_main = main_of_program;
    return start(main_again, argc, argv, init, fini, fini_of_loader, stack_end);
}
