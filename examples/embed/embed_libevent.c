/* muster inside a program on libevent: it joins the program's event_base.
 *
 * embed_libevent serve HOST:PORT, or embed_libevent ask HOST:PORT <LINES. */
#include <event2/event.h>
#include <signal.h>
#include <unistd.h>

#include "line_input.h"

struct program {
    struct line_calls calls;
    struct line_input input;
    struct event *reading;
};

static void on_input(evutil_socket_t fd, short what, void *data)
{
    struct program *program = data;

    (void)what;
    if (!line_input_read(&program->input, fd, &program->calls))
        (void)event_del(program->reading);
}

static void on_termination(evutil_socket_t number, short what, void *data)
{
    struct program *program = data;

    (void)number;
    (void)what;
    line_calls_close(&program->calls);
}

int main(int argc, char **argv)
{
    static struct program program;
    struct event_config *config = event_config_new(); /* standard input may be a file */
    (void)event_config_require_features(config, EV_FEATURE_FDS);
    struct event_base *base = event_base_new_with_config(config);
    struct event *termination = evsignal_new(base, SIGTERM, on_termination, &program);

    event_config_free(config);
    if (!line_calls_open(&program.calls, argc, argv, base))
        return 2;
    program.reading = event_new(base, STDIN_FILENO, EV_READ | EV_PERSIST, on_input, &program);
    if (program.calls.channel != NULL)
        (void)event_add(program.reading, NULL);
    (void)event_add(termination, NULL);
    while (!program.calls.is_closed)
        (void)event_base_loop(base, EVLOOP_ONCE);
    event_free(termination);
    event_free(program.reading);
    int code = line_calls_free(&program.calls);
    event_base_free(base);
    return code;
}
