/* Profile "rpc": the real gRPC client and server under faults, receivers that pause among them,
 * channels that balance, ask for health and repeat calls: one done per call, deadlines hold,
 * nothing leaks. */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <muster/rpc.h>

#include "tests/sim/faults.h"
#include "tests/sim/profile.h"
#include "tests/sim/sim_internal.h"

#define SERVERS_MAX       2
#define CLIENTS_MAX       3
#define PORT              4100
#define CALLS_MAX         16 /* open per client */
#define PAYLOAD_MAX       20000
#define ANSWERS_MAX       30
#define FACTS_MAX         20000
#define RUN_NS            (4 * MUSTER_NS_PER_S)
#define HEAL_NS           (60 * MUSTER_NS_PER_S)
#define ACT_NS            (20 * MUSTER_NS_PER_MS)
#define DEADLINE_SLACK_NS (20 * MUSTER_NS_PER_MS)
#define ATTEMPTS          3

enum call_kind { ECHO, SLOW, COUNT, CHAT, KINDS };

/* The head of a request, followed by payload_bytes of pattern. */
struct request {
    uint64_t id;
    uint64_t delay_ns;     /* SLOW */
    uint32_t answer_count; /* COUNT */
    uint32_t payload_bytes;
    uint32_t is_repeatable; /* its client repeats it: a server may send it away */
};

/* Facts of a call known to both sides, outside of any process. */
struct fact {
    uint32_t handled; /* requests that a server was shown (first message of each call) */
    bool is_cancelled;
};

struct scene {
    struct sim_world *world;
    struct sim_host *hosts[SERVERS_MAX + CLIENTS_MAX];
    struct sim_node *nodes[SERVERS_MAX + CLIENTS_MAX];
    uint32_t server_count, client_count;
    struct fact *facts;
    uint64_t next_id;
    uint64_t ok_count, ok_wanted;
    bool is_healed;
};

static uint8_t pattern_byte(uint64_t id, uint64_t offset)
{
    return (uint8_t)((id * UINT64_C(0x9E3779B97F4A7C15) + offset * 31) >> 11);
}

static bool is_pattern(uint64_t id, const uint8_t *bytes, size_t count)
{
    size_t i;

    for (i = 0; i < count; i++)
        if (bytes[i] != pattern_byte(id, i))
            return false;
    return true;
}

/* The server. */

struct server {
    struct scene *scene;
    struct muster_env *env;
    struct muster_rpc_server *rpc_server;
    struct muster_rpc_health *health;
    uint32_t open_count;
    bool is_closed;
};

struct handled {
    struct server *server;
    struct muster_rpc *rpc;
    struct muster_timer timer;
    struct muster_timer pause_timer;
    struct request request;
    uint32_t sent, received;
    bool is_finished;
    bool is_paused;
};

static void handled_finish(struct handled *handled, enum muster_rc rc)
{
    if (handled->is_finished)
        return;
    handled->is_finished = true;
    muster_rpc_finish(handled->rpc, rc, rc == MUSTER_OK ? NULL : "told to");
}

static void handled_answer(struct handled *handled, const void *bytes, size_t count)
{
    if (!handled->is_finished && muster_rpc_send(handled->rpc, bytes, count) != MUSTER_OK)
        handled_finish(handled, MUSTER_INTERNAL);
}

static void on_slow(struct muster_timer *timer)
{
    struct handled *handled = timer->data;

    handled_answer(handled, &handled->request, sizeof(handled->request));
    handled_finish(handled, MUSTER_OK);
}

static void on_pause_over(struct muster_timer *timer)
{
    struct handled *handled = timer->data;

    handled->is_paused = false;
    muster_rpc_resume(handled->rpc);
}

/* Now and then a service takes no messages for a while. */
static void may_pause(struct handled *handled)
{
    struct muster_env *env = handled->server->env;

    if (muster_rng_below(env->rng, 6) != 0)
        return;
    handled->is_paused = true;
    muster_rpc_pause(handled->rpc);
    muster_timer_start(
        &handled->pause_timer, env->loop,
        muster_loop_after_ns(env->loop, muster_rng_below(env->rng, 50 * MUSTER_NS_PER_MS)));
}

static void on_start(struct muster_rpc *rpc)
{
    struct server *server = muster_rpc_service(rpc);
    struct handled *handled = muster_mem_alloc_zero(server->env->mem, 1, sizeof(*handled));

    handled->server = server;
    handled->rpc = rpc;
    muster_timer_init(&handled->pause_timer, on_pause_over, handled);
    may_pause(handled);
    muster_timer_init(&handled->timer, on_slow, handled);
    muster_rpc_set_data(rpc, handled);
    server->open_count++;
}

static bool read_request(struct handled *handled, struct muster_bytes message)
{
    struct scene *scene = handled->server->scene;

    if (handled->is_paused)
        sim_fail(scene->world, "a paused service was shown a message");
    may_pause(handled);
    if (message.size < sizeof(handled->request)) {
        sim_fail(scene->world, "a server was shown a message of %zu bytes", message.size);
        return false;
    }
    memcpy(&handled->request, message.data, sizeof(handled->request));
    if (handled->request.payload_bytes != message.size - sizeof(handled->request) ||
        handled->request.id >= scene->next_id ||
        !is_pattern(handled->request.id, (const uint8_t *)message.data + sizeof(handled->request),
                    handled->request.payload_bytes)) {
        sim_fail(scene->world, "a server was shown a wrong message");
        return false;
    }
    if (handled->received++ == 0 && ++scene->facts[handled->request.id].handled >
                                        (handled->request.is_repeatable != 0 ? ATTEMPTS : 1))
        sim_fail(scene->world, "call %" PRIu64 " was handled too often", handled->request.id);
    if (handled->request.is_repeatable != 0 && muster_rng_below(handled->server->env->rng, 8) == 0)
        handled_finish(handled, MUSTER_UNAVAILABLE);
    return true;
}

static void on_echo(struct muster_rpc *rpc, struct muster_bytes message)
{
    struct handled *handled = muster_rpc_data(rpc);

    if (!read_request(handled, message))
        return;
    handled_answer(handled, message.data, message.size);
    handled_finish(handled, MUSTER_OK);
}

static void on_slow_request(struct muster_rpc *rpc, struct muster_bytes message)
{
    struct handled *handled = muster_rpc_data(rpc);
    struct muster_loop *loop = handled->server->env->loop;

    if (read_request(handled, message))
        muster_timer_start(&handled->timer, loop,
                           muster_loop_after_ns(loop, handled->request.delay_ns));
}

static void send_more(struct muster_rpc *rpc)
{
    struct handled *handled = muster_rpc_data(rpc);
    uint8_t bytes[1000] = {0};

    while (handled->received > 0 && !handled->is_finished &&
           handled->sent < handled->request.answer_count && muster_rpc_queued_bytes(rpc) < 4000) {
        memcpy(bytes, &handled->sent, sizeof(handled->sent));
        handled->sent++;
        handled_answer(handled, bytes, 4 + handled->sent * 37 % 900);
    }
    if (handled->received > 0 && handled->sent == handled->request.answer_count)
        handled_finish(handled, MUSTER_OK);
}

static void on_count(struct muster_rpc *rpc, struct muster_bytes message)
{
    if (read_request(muster_rpc_data(rpc), message))
        send_more(rpc);
}

static void on_chat(struct muster_rpc *rpc, struct muster_bytes message)
{
    struct handled *handled = muster_rpc_data(rpc);

    if (read_request(handled, message))
        handled_answer(handled, message.data, message.size);
}

static void on_chat_half_close(struct muster_rpc *rpc)
{
    handled_finish(muster_rpc_data(rpc), MUSTER_OK);
}

static void on_end(struct muster_rpc *rpc, enum muster_rc rc)
{
    struct handled *handled = muster_rpc_data(rpc);
    struct server *server = muster_rpc_service(rpc);

    (void)rc;
    if (handled == NULL) {
        sim_fail(server->scene->world, "a call ended without a start, or twice");
        return;
    }
    muster_rpc_set_data(rpc, NULL);
    muster_timer_stop(&handled->timer);
    muster_timer_stop(&handled->pause_timer);
    muster_mem_free(server->env->mem, handled);
    server->open_count--;
}

static const struct muster_rpc_method methods[] = {
    {.path = "/sim.Test/Echo",
     .on_start = on_start,
     .on_message = on_echo,
     .on_end = on_end,
     .is_unary = true},
    {.path = "/sim.Test/Slow",
     .on_start = on_start,
     .on_message = on_slow_request,
     .on_end = on_end,
     .is_unary = true},
    {.path = "/sim.Test/Count",
     .on_start = on_start,
     .on_message = on_count,
     .on_writable = send_more,
     .on_end = on_end,
     .is_unary = true},
    {.path = "/sim.Test/Chat",
     .on_start = on_start,
     .on_message = on_chat,
     .on_half_close = on_chat_half_close,
     .on_end = on_end},
};

static void start_server(struct sim_node *node, struct muster_env *env, void *data)
{
    static const struct muster_rpc_server_options few = {.concurrent_streams_max = 6};
    struct server *server = muster_mem_alloc_zero(env->mem, 1, sizeof(*server));
    struct muster_address address = sim_host_address(sim_node_host(node), PORT);
    struct muster_address bound;
    struct muster_error error = {.rc = MUSTER_OK};

    server->scene = data;
    server->env = env;
    sim_node_set_program(node, server);
    if (muster_rpc_server_open(env, &few, &server->rpc_server) != MUSTER_OK ||
        muster_rpc_server_add(server->rpc_server, methods, sizeof(methods) / sizeof(methods[0]),
                              server) != MUSTER_OK ||
        muster_rpc_health_open(server->rpc_server, &server->health) != MUSTER_OK ||
        muster_rpc_server_listen(server->rpc_server, &address, &bound, &error) != MUSTER_OK)
        sim_fail(server->scene->world, "the server does not open: %s", error.text);
    else
        muster_rpc_server_set_data(server->rpc_server, server);
}

static void on_server_closed(struct muster_rpc_server *rpc_server)
{
    struct server *server = muster_rpc_server_data(rpc_server);

    server->is_closed = true;
    if (server->open_count > 0)
        sim_fail(server->scene->world, "a server closed with %" PRIu32 " open calls",
                 server->open_count);
}

static void close_server(struct server *server)
{
    muster_rpc_server_close(server->rpc_server,
                            muster_loop_after_ns(server->env->loop, MUSTER_NS_PER_S),
                            on_server_closed);
}

/* The client. */

struct client {
    struct scene *scene;
    struct muster_env *env;
    struct muster_channel *channel;
    struct muster_timer timer;
    struct muster_list calls;
    uint32_t call_count;
    bool is_repeating; /* the open channel has a retry policy */
    bool is_channel_open, is_closing, is_closed;
};

struct dialled {
    struct client *client;
    struct muster_list link;
    struct muster_call call;
    enum call_kind kind;
    struct request request;
    uint64_t deadline_ns;
    uint32_t received, sent;
    bool is_late; /* seen past its deadline once */
    bool is_half_closed;
    bool is_paused;
};

static uint64_t client_draw(struct client *client, uint64_t bound)
{
    return bound == 0 ? 0 : muster_rng_below(client->env->rng, bound);
}

static size_t make_message(const struct dialled *dialled, uint8_t *bytes)
{
    uint32_t i;

    memcpy(bytes, &dialled->request, sizeof(dialled->request));
    for (i = 0; i < dialled->request.payload_bytes; i++)
        bytes[sizeof(dialled->request) + i] = pattern_byte(dialled->request.id, i);
    return sizeof(dialled->request) + dialled->request.payload_bytes;
}

static void send_request(struct dialled *dialled)
{
    static uint8_t bytes[sizeof(struct request) + PAYLOAD_MAX];
    size_t count = make_message(dialled, bytes);

    if (muster_call_send(&dialled->call, bytes, count) == MUSTER_OK)
        dialled->sent++;
}

static void pause_call(struct dialled *dialled)
{
    dialled->is_paused = true;
    muster_call_pause(&dialled->call);
}

static void on_message(struct muster_call *call, struct muster_bytes message)
{
    struct dialled *dialled = call->data;
    struct sim_world *world = dialled->client->scene->world;
    uint32_t number = 0;

    if (dialled->is_paused)
        sim_fail(world, "paused call %" PRIu64 " was shown a message", dialled->request.id);
    if (client_draw(dialled->client, 8) == 0)
        pause_call(dialled);
    if (dialled->kind == COUNT) {
        if (message.size >= sizeof(number))
            memcpy(&number, message.data, sizeof(number));
        if (number != dialled->received || message.size != 4 + (number + 1) * 37 % 900)
            sim_fail(world, "answer %" PRIu32 " of call %" PRIu64 " is number %" PRIu32,
                     dialled->received, dialled->request.id, number);
    } else if (message.size < sizeof(dialled->request) ||
               memcmp(message.data, &dialled->request, sizeof(dialled->request)) != 0 ||
               (dialled->kind != SLOW &&
                message.size != sizeof(dialled->request) + dialled->request.payload_bytes)) {
        sim_fail(world, "call %" PRIu64 " got another call's answer", dialled->request.id);
    } else if (!is_pattern(dialled->request.id,
                           (const uint8_t *)message.data + sizeof(dialled->request),
                           message.size - sizeof(dialled->request))) {
        sim_fail(world, "the answer of call %" PRIu64 " is damaged", dialled->request.id);
    }
    dialled->received++;
}

static uint32_t answers_expected(const struct dialled *dialled)
{
    switch (dialled->kind) {
    case COUNT:
        return dialled->request.answer_count;
    case CHAT:
        return dialled->sent;
    default:
        return 1;
    }
}

static void on_done(struct muster_call *call, enum muster_rc rc)
{
    struct dialled *dialled = call->data;
    struct client *client = dialled->client;
    struct scene *scene = client->scene;

    if (rc == MUSTER_OK && dialled->received != answers_expected(dialled))
        sim_fail(scene->world, "call %" PRIu64 " of kind %d is OK with %" PRIu32 " answers",
                 dialled->request.id, (int)dialled->kind, dialled->received);
    if (rc == MUSTER_OK && scene->facts[dialled->request.id].handled == 0)
        sim_fail(scene->world, "call %" PRIu64 " is OK and nobody handled it", dialled->request.id);
    sim_note(scene->world, "done", dialled->request.id, (uint64_t)rc, dialled->received);
    scene->ok_count += rc == MUSTER_OK;
    muster_list_remove(&dialled->link);
    client->call_count--;
    muster_mem_free(client->env->mem, dialled);
}

static void begin_call(struct client *client)
{
    static const char *const paths[] = {"/sim.Test/Echo", "/sim.Test/Slow", "/sim.Test/Count",
                                        "/sim.Test/Chat"};
    struct scene *scene = client->scene;
    struct dialled *dialled;
    struct muster_call_options options = {.on_message = on_message};
    uint64_t timeout_ns = client_draw(client, (UINT64_C(1) << 21) << client_draw(client, 11));

    if (client->call_count >= CALLS_MAX || scene->next_id >= FACTS_MAX)
        return;
    dialled = muster_mem_alloc_zero(client->env->mem, 1, sizeof(*dialled));
    dialled->client = client;
    dialled->kind = (enum call_kind)client_draw(client, KINDS);
    dialled->request.id = scene->next_id++;
    dialled->request.delay_ns = client_draw(client, 300 * MUSTER_NS_PER_MS);
    dialled->request.answer_count = (uint32_t)client_draw(client, ANSWERS_MAX);
    dialled->request.payload_bytes =
        (uint32_t)client_draw(client, UINT64_C(1) << client_draw(client, 15));
    if (dialled->request.payload_bytes > PAYLOAD_MAX)
        dialled->request.payload_bytes = PAYLOAD_MAX;
    dialled->request.is_repeatable = client->is_repeating;
    dialled->call.data = dialled;
    options.method = paths[dialled->kind];
    options.wait_for_ready = scene->is_healed || client_draw(client, 2) == 0;
    options.deadline_ns = dialled->deadline_ns = muster_loop_after_ns(
        client->env->loop, scene->is_healed ? 10 * MUSTER_NS_PER_S : timeout_ns);
    if (muster_call_start(&dialled->call, client->channel, &options, on_done) != MUSTER_OK) {
        sim_fail(scene->world, "a call was refused");
        muster_mem_free(client->env->mem, dialled);
        return;
    }
    muster_list_append(&client->calls, &dialled->link);
    client->call_count++;
    send_request(dialled);
    if (dialled->kind != CHAT)
        muster_call_half_close(&dialled->call);
}

/* A call that is open in two rounds although its deadline is over will never end. */
static void check_deadline(struct dialled *dialled)
{
    uint64_t now_ns = muster_loop_now_ns(dialled->client->env->loop);

    if (now_ns < dialled->deadline_ns + DEADLINE_SLACK_NS)
        return;
    if (dialled->is_late)
        sim_fail(dialled->client->scene->world,
                 "call %" PRIu64 " is open %" PRIu64 " ms after its deadline", dialled->request.id,
                 (now_ns - dialled->deadline_ns) / MUSTER_NS_PER_MS);
    dialled->is_late = true;
}

static void dialled_tend(struct dialled *dialled)
{
    struct client *client = dialled->client;

    check_deadline(dialled);
    if (dialled->is_paused && client_draw(client, 2) == 0) {
        dialled->is_paused = false;
        muster_call_resume(&dialled->call);
    } else if (client_draw(client, 8) == 0) {
        pause_call(dialled);
    }
    if (dialled->kind == CHAT && !dialled->is_half_closed) {
        if (client_draw(client, 4) != 0) {
            if (muster_call_queued_bytes(&dialled->call) < 100000)
                send_request(dialled);
        } else {
            dialled->is_half_closed = true;
            muster_call_half_close(&dialled->call);
        }
    }
    if (!client->scene->is_healed && client_draw(client, 30) == 0)
        muster_call_cancel(&dialled->call);
}

static void open_channel(struct client *client);

static void on_channel_closed(struct muster_channel *channel)
{
    struct client *client = muster_channel_data(channel);

    if (client->call_count > 0)
        sim_fail(client->scene->world, "a channel closed with %" PRIu32 " open calls",
                 client->call_count);
    client->is_channel_open = false;
    if (client->is_closing)
        client->is_closed = true;
    else
        open_channel(client);
}

/* All servers or one, tried in turn or together, with or without their own word on their health. */
static void target_draw(struct client *client, char target[128],
                        struct muster_channel_options *options)
{
    struct scene *scene = client->scene;

    snprintf(target, 128, "%s:%d", sim_host_name(scene->hosts[0]), PORT);
    if (scene->server_count > 1 && client_draw(client, 2) == 0)
        snprintf(target, 128, "%s:%d,%s:%d", sim_host_name(scene->hosts[1]), PORT,
                 sim_host_name(scene->hosts[0]), PORT);
    if (client_draw(client, 2) == 0)
        return;
    options->load_balancing = MUSTER_ROUND_ROBIN;
    if (client_draw(client, 2) == 0)
        options->health_service = "";
}

static void open_channel(struct client *client)
{
    static const struct muster_method_policy repeat = {
        .retry = {.attempts_max = ATTEMPTS,
                  .codes = MUSTER_RETRY_ON(MUSTER_UNAVAILABLE),
                  .backoff_base_ns = 20 * MUSTER_NS_PER_MS,
                  .backoff_max_ns = MUSTER_NS_PER_S,
                  .backoff_multiplier = 2}};
    struct scene *scene = client->scene;
    struct muster_channel_options options = {
        .connect_timeout_ns = MUSTER_NS_PER_S,
        .backoff_base_ns = 50 * MUSTER_NS_PER_MS,
        .backoff_max_ns = MUSTER_NS_PER_S,
        .keepalive_interval_ns = 5 * MUSTER_NS_PER_S,
        .keepalive_timeout_ns = MUSTER_NS_PER_S,
    };
    struct muster_error error = {.rc = MUSTER_OK};
    char target[128];

    target_draw(client, target, &options);
    options.connections_max = (uint32_t)client_draw(client, 4);
    client->is_repeating = client_draw(client, 2) == 0;
    options.method_policies = &repeat;
    options.method_policy_count = client->is_repeating;
    if (muster_channel_open(client->env, target, &options, &client->channel, &error) != MUSTER_OK) {
        sim_fail(scene->world, "the channel does not open: %s", error.text);
        return;
    }
    client->is_channel_open = true;
    muster_channel_set_data(client->channel, client);
}

static void on_act(struct muster_timer *timer)
{
    struct client *client = timer->data;
    struct muster_list *link, *next;

    if (client->is_closing)
        return;
    muster_timer_start(timer, client->env->loop,
                       muster_loop_after_ns(client->env->loop, 1 + client_draw(client, ACT_NS)));
    if (!client->is_channel_open || client->channel == NULL)
        return;
    for (link = client->calls.next; link != &client->calls; link = next) {
        next = link->next;
        dialled_tend(MUSTER_CONTAINER_OF(link, struct dialled, link));
    }
    if (client_draw(client, 2) == 0)
        begin_call(client);
    if (!client->scene->is_healed && client_draw(client, 200) == 0) {
        muster_channel_close(client->channel, on_channel_closed);
        client->channel = NULL;
    }
}

static void start_client(struct sim_node *node, struct muster_env *env, void *data)
{
    struct client *client = muster_mem_alloc_zero(env->mem, 1, sizeof(*client));

    client->scene = data;
    client->env = env;
    sim_node_set_program(node, client);
    muster_list_init(&client->calls);
    open_channel(client);
    muster_timer_init(&client->timer, on_act, client);
    muster_timer_start(&client->timer, env->loop, muster_loop_now_ns(env->loop));
}

static void close_client(struct client *client)
{
    client->is_closing = true;
    muster_timer_stop(&client->timer);
    if (client->channel != NULL)
        muster_channel_close(client->channel, on_channel_closed);
    else if (!client->is_channel_open)
        client->is_closed = true;
    client->channel = NULL;
}

/* The play. */

static bool is_server(const struct scene *scene, uint32_t i)
{
    return i < scene->server_count;
}

static void scene_revive(struct scene *scene)
{
    uint32_t i;

    for (i = 0; i < scene->server_count + scene->client_count; i++)
        if ((scene->nodes[i] == NULL || !sim_node_is_alive(scene->nodes[i])) &&
            sim_host_is_up(scene->hosts[i]))
            scene->nodes[i] = sim_node_start(
                scene->world, &(struct sim_node_options){
                                  .name = sim_host_name(scene->hosts[i]),
                                  .host = scene->hosts[i],
                                  .start = is_server(scene, i) ? start_server : start_client,
                                  .data = scene});
}

static bool has_progressed(void *data)
{
    const struct scene *scene = data;

    return scene->ok_count >= scene->ok_wanted;
}

static bool is_closed(void *data)
{
    const struct scene *scene = data;
    uint32_t i;

    for (i = 0; i < scene->server_count + scene->client_count; i++) {
        void *program = sim_node_program(scene->nodes[i]);

        if (program == NULL)
            continue;
        if (is_server(scene, i) ? !((struct server *)program)->is_closed
                                : !((struct client *)program)->is_closed)
            return false;
    }
    return true;
}

static void close_nodes(struct scene *scene)
{
    uint32_t i;

    for (i = 0; i < scene->server_count + scene->client_count; i++) {
        void *program = sim_node_program(scene->nodes[i]);

        if (program == NULL)
            continue;
        sim_enter(scene->nodes[i]);
        if (is_server(scene, i))
            close_server(program);
        else
            close_client(program);
        sim_leave(scene->nodes[i]);
    }
}

static void exit_nodes(struct scene *scene)
{
    uint32_t i;

    for (i = 0; i < scene->server_count + scene->client_count; i++) {
        void *program = sim_node_program(scene->nodes[i]);

        if (program == NULL || sim_failure(scene->world) != NULL)
            continue;
        muster_mem_free(sim_node_env(scene->nodes[i])->mem, program);
        sim_exit(scene->nodes[i]);
    }
}

static void end_play(struct scene *scene)
{
    scene->is_healed = true;
    scene->ok_wanted = scene->ok_count + 20 * scene->client_count;
    if (!sim_run_until(scene->world, has_progressed, scene, HEAL_NS)) {
        sim_fail(scene->world, "no progress after healing");
        return;
    }
    close_nodes(scene);
    if (!sim_run_until(scene->world, is_closed, scene, HEAL_NS))
        sim_fail(scene->world, "closing does not end");
    (void)sim_run_for(scene->world, 10 * MUSTER_NS_PER_S);
    exit_nodes(scene);
}

void sim_profile_rpc(struct sim_run *run, const struct sim_profile *profile)
{
    struct scene scene = {.world = sim_run_open(run)};
    struct sim_faults_options options = {
        .allowed = SIM_FAULTS_ALL,
        .interval_min_ns = 10 * MUSTER_NS_PER_MS,
        .interval_max_ns = 400 * MUSTER_NS_PER_MS,
        .duration_max_ns = 2 * MUSTER_NS_PER_S,
        .count_max = 50,
    };
    struct sim_faults *faults;
    uint64_t end_ns = sim_world_now_ns(scene.world) + RUN_NS;
    struct muster_rng *rng = sim_world_rng(scene.world);
    uint32_t i;

    (void)profile;
    scene.facts = sim_alloc(FACTS_MAX * sizeof(*scene.facts));
    scene.server_count = 1 + (uint32_t)muster_rng_below(rng, SERVERS_MAX);
    scene.client_count = 1 + (uint32_t)muster_rng_below(rng, CLIENTS_MAX);
    for (i = 0; i < scene.server_count + scene.client_count; i++) {
        char name[32];

        snprintf(name, sizeof(name), "%s%" PRIu32, is_server(&scene, i) ? "server" : "client", i);
        scene.hosts[i] = sim_host_add(scene.world, name);
    }
    scene_revive(&scene);
    faults = sim_faults_start(scene.world, &options);
    while (sim_world_now_ns(scene.world) < end_ns &&
           sim_run_for(scene.world, 50 * MUSTER_NS_PER_MS))
        scene_revive(&scene);
    sim_faults_heal(faults);
    scene_revive(&scene);
    end_play(&scene);
    sim_run_close(run, scene.world, sim_faults_count(faults));
    sim_faults_free(faults);
    free(scene.facts);
}
