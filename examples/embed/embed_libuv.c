/* muster inside a program on libuv: a poll handle on its descriptor, a timer for its next time.
 *
 * embed_libuv serve HOST:PORT, or embed_libuv ask HOST:PORT <LINES. */
#include <signal.h>
#include <stdio.h>
#include <unistd.h>
#include <uv.h>

#include "line_input.h"

struct program {
    struct line_calls calls;
    struct line_input input;
    uv_loop_t *loop;
    uv_poll_t readable; /* muster's descriptor */
    uv_timer_t due;     /* muster's next time */
    uv_prepare_t prepare;
    uv_signal_t termination;
    uv_poll_t reading;
    uv_idle_t file; /* instead of reading, where standard input is a file */
};

static void on_handle(uv_handle_t *handle, void *data)
{
    (void)data;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

static void turn_loop(struct program *program)
{
    muster_loop_turn(program->calls.env->loop, 0);
    if (program->calls.is_closed)
        uv_walk(program->loop, on_handle, NULL);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    turn_loop(poll->data);
}

static void on_due(uv_timer_t *timer)
{
    turn_loop(timer->data);
}

/* Before each sleep: work that was posted meanwhile, and the time that may have changed. */
static void on_prepare(uv_prepare_t *prepare)
{
    struct program *program = prepare->data;
    int wait_ms = muster_loop_wait_ms(program->calls.env->loop);

    uv_update_time(program->loop);
    if (wait_ms < 0)
        (void)uv_timer_stop(&program->due);
    else
        (void)uv_timer_start(&program->due, on_due, (uint64_t)wait_ms, 0);
}

static void on_termination(uv_signal_t *signal, int number)
{
    struct program *program = signal->data;

    (void)number;
    line_calls_close(&program->calls);
}

static void on_input(uv_poll_t *poll, int status, int events)
{
    struct program *program = poll->data;

    (void)status;
    (void)events;
    if (!line_input_read(&program->input, STDIN_FILENO, &program->calls))
        (void)uv_poll_stop(poll);
}

static void on_file(uv_idle_t *idle)
{
    struct program *program = idle->data;

    if (!line_input_read(&program->input, STDIN_FILENO, &program->calls))
        (void)uv_idle_stop(idle);
}

static void read_input(struct program *program)
{
    program->reading.data = program->file.data = program;
    if (uv_guess_handle(STDIN_FILENO) == UV_FILE) {
        (void)uv_idle_init(program->loop, &program->file);
        (void)uv_idle_start(&program->file, on_file);
        return;
    }
    (void)uv_poll_init(program->loop, &program->reading, STDIN_FILENO);
    (void)uv_poll_start(&program->reading, UV_READABLE, on_input);
}

int main(int argc, char **argv)
{
    static struct program program;

    if (!line_calls_open(&program.calls, argc, argv, NULL))
        return 2;
    program.loop = uv_default_loop();
    program.readable.data = program.due.data = &program;
    program.prepare.data = program.termination.data = &program;
    (void)uv_poll_init(program.loop, &program.readable, muster_loop_fd(program.calls.env->loop));
    (void)uv_poll_start(&program.readable, UV_READABLE, on_readable);
    (void)uv_timer_init(program.loop, &program.due);
    (void)uv_prepare_init(program.loop, &program.prepare);
    (void)uv_prepare_start(&program.prepare, on_prepare);
    (void)uv_signal_init(program.loop, &program.termination);
    (void)uv_signal_start(&program.termination, on_termination, SIGTERM);
    if (program.calls.channel != NULL)
        read_input(&program);
    (void)uv_run(program.loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(program.loop);
    return line_calls_free(&program.calls);
}
