/* collective_member TASKS: a muster server that is a member of TensorFlow's collectives and serves
 * the coordination service for TASKS tasks. It prints "listening HOST:PORT INCARNATION", then does
 * what it reads; each command has one line of answer, when it is over:
 *
 *   follow HOST:PORT                 followed ok: that task leads the groups, and is asked from now on
 *   devices SECONDS                  devices ok NAME=INCARNATION…, of the leader
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

#define PATIENCE_NS (120 * MUSTER_NS_PER_S)
#define MESSAGE_MAX (256u << 20)
#define WORDS_MAX   8
#define TYPE_FLOAT  1 /* DataType */

struct member {
    struct muster_env *env;
    struct muster_server *server;
    struct muster_channel *leader; /* of the groups: the server itself, unless it follows another */
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

static uint64_t after_ns(uint64_t ns)
{
    return muster_loop_after_ns(member.env->loop, ns);
}

/* --- join, agree --- */

static struct muster_server_peer own_peer(void)
{
    return (struct muster_server_peer){.device = member.device,
                                       .type = "CPU",
                                       .incarnation = muster_server_incarnation(member.server)};
}

static void on_joined(struct muster_server_group *op, enum muster_rc rc)
{
    if (rc != MUSTER_OK)
        say("joined:%s %s %s\n", (char *)op->data, muster_rc_name(rc), op->error.text);
    else
        printf("joined:%s ok", (char *)op->data);
    for (size_t i = 0; i < op->count; i++)
        printf(" %s=%" PRIu64, op->members[i].device, op->members[i].incarnation);
    if (rc == MUSTER_OK)
        say("\n");
    free(op->data);
    free(op);
}

static void follow_leader(char **words)
{
    muster_channel_close(member.leader, NULL);
    require_ok("follow", muster_channel_open(member.env, words[1], NULL, &member.leader, NULL));
    say("followed ok\n");
}

static void on_devices(struct muster_server_devices *op, enum muster_rc rc)
{
    if (rc != MUSTER_OK)
        say("devices %s %s\n", muster_rc_name(rc), op->error.text);
    else
        printf("devices ok");
    for (size_t i = 0; i < op->count; i++)
        printf(" %s=%" PRIu64, op->peers[i].device, op->peers[i].incarnation);
    if (rc == MUSTER_OK)
        say("\n");
    free(op);
}

static void ask_devices(char **words)
{
    uint64_t deadline_ns = after_ns(strtoul(words[1], NULL, 10) * MUSTER_NS_PER_S);

    require_ok("devices",
               muster_server_devices_start(own_bytes(sizeof(struct muster_server_devices)),
                                           member.leader, deadline_ns, on_devices));
}

static void join_group(char **words)
{
    struct muster_server_group *op = own_bytes(sizeof(*op));
    struct muster_server_peer peer = own_peer();
    const struct muster_server_group_options options = {
        .key = atoi(words[1]), .size = (uint32_t)atoi(words[2]), .member = &peer};

    if (words[3] != NULL)
        peer.incarnation = strtoull(words[3], NULL, 10);
    op->data = copy_text(words[1]);
    require_ok("join", muster_server_group_start(op, member.leader, &options, after_ns(PATIENCE_NS),
                                                 on_joined));
}

static void on_agreed(struct muster_server_instance *op, enum muster_rc rc)
{
    if (rc != MUSTER_OK)
        say("agreed:%s %s %s\n", (char *)op->data, muster_rc_name(rc), op->error.text);
    else
        say("agreed:%s ok %" PRId32 "\n", (char *)op->data, op->source_rank);
    free(op->data);
    free(op);
}

static void agree_instance(char **words)
{
    struct muster_server_instance *op = own_bytes(sizeof(*op));
    const struct muster_server_peer peer = own_peer();
    const int64_t dim = atoi(words[4]);
    const struct muster_server_instance_options options = {.group_key = atoi(words[1]),
                                                           .key = atoi(words[2]),
                                                           .collective = MUSTER_SERVER_BROADCAST,
                                                           .data_type = TYPE_FLOAT,
                                                           .dims = &dim,
                                                           .dim_count = 1,
                                                           .member = &peer,
                                                           .is_source = atoi(words[3]) != 0};

    op->data = copy_text(words[2]);
    require_ok("agree", muster_server_instance_start(op, member.leader, &options,
                                                     after_ns(PATIENCE_NS), on_agreed));
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
    struct muster_server_fetch op;
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

static void print_fetch(const struct fetch *fetch)
{
    size_t count = fetch->op.bytes.size / sizeof(float);
    float *values = own_bytes(fetch->op.bytes.size + 1);
    double sum = 0;

    if (count > 0)
        memcpy(values, fetch->op.bytes.data, count * sizeof(float));
    for (size_t i = 0; i < count; i++)
        sum += (double)values[i] * (double)i;
    say("fetched:%s ok %zu %g %.17g\n", fetch->key, count, count > 0 ? (double)values[0] : 0, sum);
    free(values);
}

static void on_fetched(struct muster_server_fetch *op, enum muster_rc rc)
{
    struct fetch *fetch = MUSTER_CONTAINER_OF(op, struct fetch, op);

    if (rc == MUSTER_OK)
        print_fetch(fetch);
    else
        say("fetched:%s %s %s\n", fetch->key, muster_rc_name(rc), op->error.text);
    muster_channel_close(fetch->channel, on_fetch_over);
}

static void fetch_buffer(char **words)
{
    const struct muster_channel_options channel = {.receive_message_max_bytes = MESSAGE_MAX};
    struct fetch *fetch = own_bytes(sizeof(*fetch));
    const struct muster_server_peer source = {.device = words[4],
                                              .incarnation = strtoull(words[5], NULL, 10)};
    const struct muster_server_fetch_options options = {.key = words[2],
                                                        .step_id = strtoll(words[3], NULL, 10),
                                                        .source = &source,
                                                        .destination = member.device};
    uint64_t deadline_ns = after_ns(strtoul(words[6], NULL, 10) * MUSTER_NS_PER_S);

    muster_list_append(&member.fetches, &fetch->node);
    fetch->key = copy_text(words[2]);
    require_ok("fetch", muster_channel_open(member.env, words[1], &channel, &fetch->channel, NULL));
    muster_channel_set_data(fetch->channel, fetch);
    require_ok("fetch", muster_server_fetch_start(&fetch->op, fetch->channel, &options, deadline_ns,
                                                  on_fetched));
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
} commands[] = {{"follow", 2, follow_leader},   {"devices", 2, ask_devices},
                {"join", 3, join_group},        {"agree", 5, agree_instance},
                {"offer", 4, offer_buffer},     {"fetch", 7, fetch_buffer},
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
    require_ok("leader's channel",
               muster_channel_open(member.env, muster_server_target(member.server) + 7, NULL,
                                   &member.leader, NULL));
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
        muster_server_fetch_cancel(&MUSTER_CONTAINER_OF(node, struct fetch, node)->op);
    muster_channel_close(member.leader, NULL);
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
