/* collective_member TASKS: a muster server that is a member of TensorFlow's collectives and serves
 * the coordination service for TASKS tasks. It prints "listening HOST:PORT INCARNATION", then does
 * what it reads; each command has one line of answer, when it is over:
 *
 *   join GROUP SIZE [INCARNATION]    joined:GROUP ok NAME=INCARNATION…
 *   agree GROUP INSTANCE IS_SOURCE COUNT          agreed:INSTANCE ok RANK (of a broadcast)
 *   offer KEY COUNT FIRST            offered:KEY ok (it was taken)
 *   fetch HOST:PORT KEY STEP DEVICE INCARNATION SECONDS          fetched:KEY ok COUNT FIRST SUM
 *   abort RC TEXT                    aborted ok: all collectives here end so
 *
 * Instead of ok there may be a status code and its text. A buffer is COUNT floats, each one more
 * than the one before; SUM is of value times position. The end of the input is the end. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <muster/muster.h>

#include "proto/worker.muster.h"

#define PATIENCE_NS    (120 * MUSTER_NS_PER_S)
#define MESSAGE_MAX    (256u << 20)
#define WORDS_MAX      8
#define TYPE_FLOAT     1 /* DataType */
#define TYPE_BROADCAST 1 /* CollectiveType */

struct member {
    struct muster_env *env;
    struct muster_server *server;
    struct muster_channel *own; /* to the server itself, which leads the groups */
    char device[200];
    struct muster_fd_watch input;
    char line[1024];
    size_t line_bytes;
    struct muster_list fetches;
    bool is_over, is_stopped;
};

static struct member member;

static _Noreturn void give_up(const char *what, const char *why)
{
    fprintf(stderr, "collective_member: %s: %s\n", what, why);
    exit(1);
}

static void require_ok(const char *what, enum muster_rc rc)
{
    if (rc != MUSTER_OK)
        give_up(what, muster_rc_text(rc));
}

static void *own_bytes(size_t size)
{
    void *memory = calloc(1, size);

    if (memory == NULL)
        give_up("memory", "there is none");
    return memory;
}

static char *copy_text(const char *text)
{
    return strcpy(own_bytes(strlen(text) + 1), text);
}

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
    va_list words;

    va_start(words, format);
    vprintf(format, words);
    va_end(words);
    fflush(stdout);
}

static struct muster_call_options deadline_within(uint64_t ns)
{
    return (struct muster_call_options){.deadline_ns = muster_loop_after_ns(member.env->loop, ns)};
}

/* --- join, agree --- */

static void on_joined(struct tensorflow_worker_service_complete_group_call *call, enum muster_rc rc,
                      const Tensorflow__CompleteGroupResponse *response)
{
    if (rc != MUSTER_OK)
        say("joined:%s %s %s\n", (char *)call->data, muster_rc_name(rc),
            call->stub.call.status.text);
    else
        printf("joined:%s ok", (char *)call->data);
    for (size_t i = 0; response != NULL && i < response->n_device_attributes; i++)
        printf(" %s=%" PRIu64, response->device_attributes[i]->name,
               response->device_attributes[i]->incarnation);
    if (rc == MUSTER_OK)
        say("\n");
    free(call->data);
    free(call);
}

static void join_group(char **words)
{
    struct tensorflow_worker_service_complete_group_call *call = own_bytes(sizeof(*call));
    Tensorflow__CompleteGroupRequest request = TENSORFLOW__COMPLETE_GROUP_REQUEST__INIT;
    Tensorflow__DeviceAttributes attributes = TENSORFLOW__DEVICE_ATTRIBUTES__INIT;
    struct muster_call_options options = deadline_within(PATIENCE_NS);
    static char type[] = "CPU";

    attributes.name = member.device;
    attributes.device_type = request.device_type = type;
    attributes.incarnation =
        words[3] != NULL ? strtoull(words[3], NULL, 10) : muster_server_incarnation(member.server);
    request.group_key = atoi(words[1]);
    request.group_size = atoi(words[2]);
    request.device_attributes = &attributes;
    call->data = copy_text(words[1]);
    require_ok("join", tensorflow_worker_service_complete_group_start(call, member.own, &options,
                                                                      &request, on_joined));
}

static void on_agreed(struct tensorflow_worker_service_complete_instance_call *call,
                      enum muster_rc rc, const Tensorflow__CompleteInstanceResponse *response)
{
    if (rc != MUSTER_OK)
        say("agreed:%s %s %s\n", (char *)call->data, muster_rc_name(rc),
            call->stub.call.status.text);
    else
        say("agreed:%s ok %" PRId32 "\n", (char *)call->data, response->source_rank);
    free(call->data);
    free(call);
}

static void agree_instance(char **words)
{
    struct tensorflow_worker_service_complete_instance_call *call = own_bytes(sizeof(*call));
    Tensorflow__CompleteInstanceRequest request = TENSORFLOW__COMPLETE_INSTANCE_REQUEST__INIT;
    Tensorflow__TensorShape shape = TENSORFLOW__TENSOR_SHAPE__INIT;
    Tensorflow__TensorShapeDim dim = TENSORFLOW__TENSOR_SHAPE_DIM__INIT, *dims = &dim;
    struct muster_call_options options = deadline_within(PATIENCE_NS);

    request.type = TYPE_BROADCAST;
    request.data_type = TYPE_FLOAT;
    request.group_key = atoi(words[1]);
    request.instance_key = atoi(words[2]);
    request.is_source = atoi(words[3]) != 0;
    request.device = member.device;
    request.shape = &shape;
    shape.dim = &dims;
    shape.n_dim = 1;
    dim.size = atoi(words[4]);
    call->data = copy_text(words[2]);
    require_ok("agree", tensorflow_worker_service_complete_instance_start(
                            call, member.own, &options, &request, on_agreed));
}

/* --- offer --- */

static void on_taken(struct muster_server_buffer *buffer, enum muster_rc rc)
{
    say("offered:%s %s\n", buffer->key, rc == MUSTER_OK ? "ok" : muster_rc_name(rc));
    free((void *)(uintptr_t)buffer->key);
    free((void *)(uintptr_t)buffer->bytes.data);
    free(buffer);
}

static void offer_buffer(char **words)
{
    struct muster_server_buffer *buffer = own_bytes(sizeof(*buffer));
    size_t count = strtoul(words[2], NULL, 10);
    float *values = own_bytes(count * sizeof(*values) + 1);
    enum muster_rc rc;

    for (size_t i = 0; i < count; i++)
        values[i] = strtof(words[3], NULL) + (float)i;
    buffer->key = copy_text(words[1]);
    buffer->bytes = (struct muster_bytes){values, count * sizeof(*values)};
    rc = muster_server_offer_start(buffer, member.server, on_taken);
    if (rc != MUSTER_OK)
        on_taken(buffer, rc);
}

/* --- fetch --- */

struct fetch {
    struct tensorflow_worker_service_recv_buf_call call;
    struct muster_channel *channel;
    struct muster_list node;
    char *key;
};

static void on_fetch_over(struct muster_channel *channel)
{
    struct fetch *fetch = muster_channel_data(channel);

    muster_list_remove(&fetch->node);
    free(fetch->key);
    free(fetch);
}

/* The pieces, put together. Gives. */
static float *unpack_extra(const Tensorflow__RecvBufRespExtra *extra, size_t *ret_count)
{
    size_t bytes = 0, at = 0;
    char *all;

    for (size_t i = 0; i < extra->n_tensor_content; i++)
        bytes += extra->tensor_content[i].len;
    all = own_bytes(bytes + 1);
    for (size_t i = 0; i < extra->n_tensor_content; at += extra->tensor_content[i].len, i++)
        memcpy(all + at, extra->tensor_content[i].data, extra->tensor_content[i].len);
    *ret_count = bytes / sizeof(float);
    return (float *)(void *)all;
}

static void print_fetch(const struct fetch *fetch, const Tensorflow__RecvBufResponse *response)
{
    Tensorflow__RecvBufRespExtra *extra = NULL;
    size_t count = 0;
    float *values;
    double sum = 0;

    if (response->transport_options == NULL)
        give_up("fetch", "no transport options");
    require_ok("fetch",
               muster_proto_unpack(member.env->mem, &tensorflow__recv_buf_resp_extra__descriptor,
                                   response->transport_options->value.data,
                                   response->transport_options->value.len, NULL, &extra, NULL));
    values = unpack_extra(extra, &count);
    for (size_t i = 0; i < count; i++)
        sum += (double)values[i] * (double)i;
    say("fetched:%s ok %zu %g %.17g\n", fetch->key, count, count > 0 ? (double)values[0] : 0, sum);
    free(values);
    muster_proto_free(extra);
}

static void on_fetched(struct tensorflow_worker_service_recv_buf_call *call, enum muster_rc rc,
                       const Tensorflow__RecvBufResponse *response)
{
    struct fetch *fetch = MUSTER_CONTAINER_OF(call, struct fetch, call);

    if (rc == MUSTER_OK)
        print_fetch(fetch, response);
    else
        say("fetched:%s %s %s\n", fetch->key, muster_rc_name(rc), call->stub.call.status.text);
    muster_channel_close(fetch->channel, on_fetch_over);
}

static void fetch_buffer(char **words)
{
    const struct muster_channel_options channel = {.receive_message_max_bytes = MESSAGE_MAX};
    struct fetch *fetch = own_bytes(sizeof(*fetch));
    Tensorflow__RecvBufRequest request = TENSORFLOW__RECV_BUF_REQUEST__INIT;
    struct muster_call_options options =
        deadline_within(strtoul(words[6], NULL, 10) * MUSTER_NS_PER_S);

    muster_list_append(&member.fetches, &fetch->node);
    fetch->key = copy_text(words[2]);
    request.buf_rendezvous_key = fetch->key;
    request.step_id = strtoll(words[3], NULL, 10);
    request.src_device = words[4];
    request.src_incarnation = strtoull(words[5], NULL, 10);
    request.dst_device = member.device;
    require_ok("fetch", muster_channel_open(member.env, words[1], &channel, &fetch->channel, NULL));
    muster_channel_set_data(fetch->channel, fetch);
    require_ok("fetch", tensorflow_worker_service_recv_buf_start(&fetch->call, fetch->channel,
                                                                 &options, &request, on_fetched));
}

static void abort_collectives(char **words)
{
    muster_server_abort_collectives(member.server, (enum muster_rc)atoi(words[1]), words[2]);
    say("aborted ok\n");
}

/* --- What is read --- */

static const struct {
    const char *name;
    size_t word_count_min;
    void (*run)(char **words);
} commands[] = {{"join", 3, join_group},
                {"agree", 5, agree_instance},
                {"offer", 4, offer_buffer},
                {"fetch", 7, fetch_buffer},
                {"abort", 3, abort_collectives}};

static void run_line(char *line)
{
    char *words[WORDS_MAX] = {NULL}, *rest = line;
    size_t count = 0;

    while (count < WORDS_MAX && (words[count] = strtok_r(NULL, " ", &rest)) != NULL)
        count++;
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        if (count >= commands[i].word_count_min && strcmp(words[0], commands[i].name) == 0) {
            commands[i].run(words);
            return;
        }
    }
    give_up("no such command", line);
}

static void on_input(struct muster_fd_watch *input, unsigned ready)
{
    ssize_t got =
        read(0, member.line + member.line_bytes, sizeof(member.line) - 1 - member.line_bytes);
    char *end;

    (void)ready;
    if (got <= 0) {
        muster_fd_watch_close(input);
        member.is_over = true;
        return;
    }
    member.line_bytes += (size_t)got;
    while ((end = memchr(member.line, '\n', member.line_bytes)) != NULL) {
        *end++ = '\0';
        run_line(member.line);
        member.line_bytes -= (size_t)(end - member.line);
        memmove(member.line, end, member.line_bytes);
    }
}

/* --- Beginning and end --- */

static void begin_member(uint32_t tasks)
{
    static const char text[] = "{\"coordinator\": [\"127.0.0.1:0\"]}";
    const struct muster_coordination_server_options coordination = {.task_count = tasks};
    struct muster_server_options options = {.bind_host = "127.0.0.1",
                                            .coordination = &coordination};
    struct muster_cluster_spec *cluster = NULL;

    require_ok("environment", muster_env_system_open(NULL, &member.env));
    require_ok("network", muster_net_system_open(member.env, &member.env->net));
    require_ok("cluster",
               muster_cluster_spec_parse(member.env->mem, text, sizeof(text) - 1, &cluster, NULL));
    options.cluster = cluster;
    require_ok("server", muster_server_open(member.env, &options, &member.server, NULL));
    muster_cluster_spec_unref(cluster);
    require_ok("start", muster_server_start(member.server, NULL));
    require_ok("own channel",
               muster_channel_open(member.env, muster_server_target(member.server) + 7, NULL,
                                   &member.own, NULL));
    (void)snprintf(member.device, sizeof(member.device), "%s/device:CPU:0",
                   muster_server_name(member.server));
    muster_list_init(&member.fetches);
    member.input = (struct muster_fd_watch){.on_ready = on_input, .wanted = MUSTER_FD_READ};
    require_ok("input", muster_fd_watch_open(&member.input, member.env->loop));
    say("listening %s %" PRIu64 "\n", muster_server_target(member.server) + 7,
        muster_server_incarnation(member.server));
}

static void on_stopped(struct muster_server *server)
{
    (void)server;
    member.is_stopped = true;
}

static void end_member(void)
{
    for (struct muster_list *node = member.fetches.next; node != &member.fetches; node = node->next)
        muster_call_cancel(&MUSTER_CONTAINER_OF(node, struct fetch, node)->call.stub.call);
    muster_channel_close(member.own, NULL);
    muster_server_stop(member.server, 0, on_stopped);
    while (!member.is_stopped || !muster_list_is_empty(&member.fetches))
        muster_loop_turn(member.env->loop, UINT64_MAX);
    muster_server_free(member.server);
    muster_net_system_close(member.env->net);
    muster_env_system_close(member.env);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        give_up("usage", "collective_member TASKS");
    begin_member((uint32_t)atoi(argv[1]));
    while (!member.is_over)
        muster_loop_turn(member.env->loop, UINT64_MAX);
    end_member();
    return 0;
}
