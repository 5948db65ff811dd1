/* Lines over gRPC: the part that is the same whichever loop drives it. */
#include "line_calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define METHOD      "/demo.Lines/Measure"
#define DEADLINE_NS (30 * MUSTER_NS_PER_S)
#define GRACE_NS    (5 * MUSTER_NS_PER_S)

static void on_line(struct muster_rpc *rpc, struct muster_bytes line)
{
    char answer[64];
    int length = snprintf(answer, sizeof(answer), "%zu bytes", line.size);
    enum muster_rc rc = muster_rpc_send(rpc, answer, (size_t)length);

    muster_rpc_finish(rpc, rc, NULL);
}

static const struct muster_rpc_method method = {
    .path = METHOD, .on_message = on_line, .is_unary = true};

static enum muster_rc serve_lines(struct line_calls *calls, const char *place,
                                  struct muster_error *error)
{
    struct muster_address address;
    char text[MUSTER_ADDRESS_TEXT_BYTES];
    enum muster_rc rc = muster_address_parse(place, &address, error);

    if (rc == MUSTER_OK)
        rc = muster_rpc_server_open(calls->env, NULL, &calls->server);
    if (rc == MUSTER_OK)
        rc = muster_rpc_server_add(calls->server, &method, 1, calls);
    if (rc == MUSTER_OK)
        rc = muster_rpc_server_listen(calls->server, &address, &address, error);
    if (rc != MUSTER_OK)
        return rc;
    muster_rpc_server_set_data(calls->server, calls);
    printf("listening %s\n", muster_address_format(&address, text));
    (void)fflush(stdout);
    return MUSTER_OK;
}

bool line_calls_open(struct line_calls *calls, int argc, char **argv, struct event_base *base)
{
    const struct muster_env_system_options options = {.base = base};
    struct muster_error error = {.text = "out of memory"};
    enum muster_rc rc = MUSTER_INVALID_ARGUMENT;

    memset(calls, 0, sizeof(*calls));
    if (muster_env_system_open(&options, &calls->env) != MUSTER_OK ||
        muster_net_system_open(calls->env, &calls->env->net) != MUSTER_OK) {
        fprintf(stderr, "%s: no environment\n", argv[0]);
        return false;
    }
    (void)snprintf(error.text, sizeof(error.text), "usage: serve HOST:PORT | ask HOST:PORT");
    if (argc == 3 && strcmp(argv[1], "serve") == 0)
        rc = serve_lines(calls, argv[2], &error);
    else if (argc == 3 && strcmp(argv[1], "ask") == 0)
        rc = muster_channel_open(calls->env, argv[2], NULL, &calls->channel, &error);
    if (rc == MUSTER_OK && calls->channel != NULL)
        muster_channel_set_data(calls->channel, calls);
    if (rc != MUSTER_OK)
        fprintf(stderr, "%s: %s\n", argv[0], error.text);
    return rc == MUSTER_OK;
}

static void on_answer(struct muster_unary *unary, enum muster_rc rc)
{
    struct line_calls *calls = unary->data;

    if (rc == MUSTER_OK)
        printf("%.*s\n", (int)unary->response.size, (const char *)unary->response.data);
    else
        fprintf(stderr, "no answer: %s\n", unary->status.text);
    (void)fflush(stdout);
    calls->has_failed = calls->has_failed || rc != MUSTER_OK;
    calls->open_count--;
    free(unary);
    if (calls->is_input_over && calls->open_count == 0)
        line_calls_close(calls);
}

void line_calls_ask(struct line_calls *calls, const char *text, size_t bytes)
{
    struct muster_unary *unary = calloc(1, sizeof(*unary));

    if (unary == NULL)
        abort();
    unary->data = calls;
    calls->open_count++;
    if (muster_unary_start(unary, calls->channel, METHOD, text, bytes,
                           muster_loop_after_ns(calls->env->loop, DEADLINE_NS),
                           on_answer) != MUSTER_OK) {
        calls->has_failed = true;
        calls->open_count--;
        free(unary);
    }
}

void line_calls_end_input(struct line_calls *calls)
{
    calls->is_input_over = true;
    if (calls->open_count == 0)
        line_calls_close(calls);
}

static void on_channel_closed(struct muster_channel *channel)
{
    ((struct line_calls *)muster_channel_data(channel))->is_closed = true;
}

static void on_server_closed(struct muster_rpc_server *server)
{
    ((struct line_calls *)muster_rpc_server_data(server))->is_closed = true;
}

void line_calls_close(struct line_calls *calls)
{
    if (calls->channel != NULL)
        muster_channel_close(calls->channel, on_channel_closed);
    if (calls->server != NULL)
        muster_rpc_server_close(calls->server, muster_loop_after_ns(calls->env->loop, GRACE_NS),
                                on_server_closed);
    calls->channel = NULL;
    calls->server = NULL;
}

int line_calls_free(struct line_calls *calls)
{
    muster_net_system_close(calls->env->net);
    muster_env_system_close(calls->env);
    return calls->has_failed ? 1 : 0;
}
