/* One rank: a member of a group over loopback, with the GPU as its backend. */
#include "gpu_check_rank.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OP_NS    (120 * MUSTER_NS_PER_S)
#define TIMES    20u
#define STEP_BIT 20 /* steps of an epoch: epoch << 20 | step */

void check_say(struct rank *rank, const char *format, ...)
{
    char line[CHECK_LINE_BYTES];
    va_list list;
    int length;

    va_start(list, format);
    length = vsnprintf(line, sizeof(line) - 1, format, list);
    va_end(list);
    if (length < 0)
        return;
    line[length++] = '\n';
    for (int sent = 0; sent < length;) {
        ssize_t count = write(rank->options.socket, line + sent, (size_t)(length - sent));

        if (count < 0 && errno != EINTR && errno != EAGAIN)
            exit(1);
        sent += count > 0 ? (int)count : 0;
    }
}

void check_give_up(struct rank *rank, const char *what, const char *text)
{
    check_say(rank, "failed rank %u: %s: %s", rank->options.rank, what, text);
    exit(1);
}

void check_need(struct rank *rank, enum muster_rc rc, const char *what,
                const struct muster_error *error)
{
    if (rc != MUSTER_OK)
        check_give_up(rank, what, error != NULL ? error->text : muster_rc_name(rc));
}

/* --- Links --- */

static struct muster_incarnation incarnation_of(uint32_t rank, uint32_t life)
{
    struct muster_incarnation incarnation = {.bytes = {0}};

    incarnation.bytes[0] = (uint8_t)(rank + 1);
    incarnation.bytes[1] = (uint8_t)(life + 1);
    return incarnation;
}

static struct muster_peer_hello hello_of(const struct rank *rank)
{
    struct muster_peer_hello hello = {.purpose = MUSTER_LINK_DATA};

    hello.incarnation = incarnation_of(rank->options.rank, rank->options.life);
    snprintf(hello.job, sizeof(hello.job), "gpu_check");
    return hello;
}

static void rank_forget(struct rank *rank, struct muster_peer_link *link)
{
    for (size_t i = 0; i < LINKS; i++)
        if (rank->accepted[i] == link)
            rank->accepted[i] = NULL;
}

static void on_link_ready(struct muster_peer_link *link)
{
    struct rank *rank = muster_peer_link_data(link);

    rank_forget(rank, link);
    muster_wire_accept(rank->wire, link);
}

static void *on_frame(struct muster_peer_link *link, const struct muster_frame_header *header)
{
    (void)link;
    (void)header;
    return NULL;
}

static void on_payload(struct muster_peer_link *link, const struct muster_frame_header *header,
                       void *buffer)
{
    (void)link;
    (void)header;
    (void)buffer;
}

static void on_down(struct muster_peer_link *link, const struct muster_error *error)
{
    (void)error;
    rank_forget(muster_peer_link_data(link), link);
    muster_peer_link_close(link);
}

static const struct muster_peer_link_events link_events = {
    .on_ready = on_link_ready, .on_frame = on_frame, .on_payload = on_payload, .on_down = on_down};

static void on_accept(struct muster_listener *listener, struct muster_stream *stream)
{
    struct rank *rank = listener->data;
    struct muster_peer_hello hello = hello_of(rank);

    for (size_t i = 0; i < LINKS; i++) {
        if (rank->accepted[i] != NULL)
            continue;
        if (muster_peer_link_accept(rank->env, stream, &hello,
                                    muster_loop_after_ns(rank->env->loop, 5 * MUSTER_NS_PER_S),
                                    &link_events, rank, &rank->accepted[i]) != MUSTER_OK)
            rank->accepted[i] = NULL;
        return;
    }
    muster_stream_close(stream, NULL);
}

/* --- The parent's lines --- */

static const struct muster_group_events group_events = {.on_suspect = NULL};

static void rank_freeze(struct rank *rank)
{
    struct muster_progress progress;

    rank->is_frozen = true;
    if (rank->group != NULL && muster_group_freeze(rank->group, &progress) == MUSTER_OK)
        muster_progress_fini(&progress);
    check_say(rank, "frozen");
}

static struct muster_view *read_view(struct rank *rank, char *text)
{
    struct muster_member members[CHECK_RANKS_MAX];
    struct muster_view fields = {.members = members, .reason = "gpu_check"}, *view = NULL;
    struct muster_error error;
    char *at = text;

    memset(members, 0, sizeof(members));
    fields.epoch = strtoull(at, &at, 10);
    while (*at == ' ' && fields.member_count < CHECK_RANKS_MAX) {
        struct muster_member *member = &members[fields.member_count++];
        uint32_t life;
        char *end;

        member->task_index = (uint32_t)strtoul(at + 1, &at, 10);
        life = (uint32_t)strtoul(at + 1, &at, 10);
        end = at + 1 + strcspn(at + 1, " ");
        snprintf(member->task_type, sizeof(member->task_type), "worker");
        member->incarnation = incarnation_of(member->task_index, life);
        text = at + 1;
        at = end;
        if (*at == ' ') {
            *at = '\0';
            check_need(rank, muster_address_parse(text, &member->address, &error), "address",
                       &error);
            *at = ' ';
        } else {
            check_need(rank, muster_address_parse(text, &member->address, &error), "address",
                       &error);
        }
    }
    snprintf(fields.job, sizeof(fields.job), "gpu_check");
    check_need(rank, muster_view_new(rank->env->mem, &fields, &view), "view", NULL);
    return view;
}

static void rank_follow(struct rank *rank, char *text)
{
    struct muster_group_options options = {
        .env = rank->env, .wire = rank->wire, .events = &group_events, .data = rank};
    struct muster_group *next = NULL;

    muster_view_unref(rank->view);
    rank->view = read_view(rank, text);
    options.view = rank->view;
    options.self = incarnation_of(rank->options.rank, rank->options.life);
    check_need(rank, muster_group_open(&options, &next), "group", NULL);
    if (rank->group != NULL) {
        muster_group_hand_over(rank->group, next);
        muster_group_close(rank->group);
    }
    rank->group = next;
    rank->is_frozen = false;
}

static void on_line(struct rank *rank, char *line)
{
    if (strncmp(line, "view ", 5) == 0)
        rank_follow(rank, line + 5);
    else if (strncmp(line, "go ", 3) == 0)
        rank->phase = (enum check_phase)strtoul(line + 3, NULL, 10);
    else if (strcmp(line, "freeze") == 0)
        rank_freeze(rank);
    else if (strcmp(line, "quit") == 0)
        rank->is_quitting = true;
}

static void on_parent(struct muster_fd_watch *watch, unsigned ready)
{
    struct rank *rank = watch->data;
    ssize_t count = read(rank->options.socket, rank->line + rank->line_bytes,
                         sizeof(rank->line) - rank->line_bytes - 1);
    char *end;

    (void)ready;
    if (count == 0)
        exit(1); /* the parent is gone */
    rank->line_bytes += count > 0 ? (size_t)count : 0;
    rank->line[rank->line_bytes] = '\0';
    while ((end = memchr(rank->line, '\n', rank->line_bytes)) != NULL) {
        *end = '\0';
        on_line(rank, rank->line);
        rank->line_bytes -= (size_t)(end + 1 - rank->line);
        memmove(rank->line, end + 1, rank->line_bytes + 1);
    }
}

/* --- Operations --- */

static void on_done(struct muster_op *op, enum muster_rc rc)
{
    struct rank *rank = op->data;

    rank->is_done = true;
    rank->rc = rc;
}

static void rank_prepare(struct rank *rank)
{
    rank->op.data = rank;
    rank->op.deadline_ns = muster_loop_after_ns(rank->env->loop, OP_NS);
    rank->is_done = false;
}

static enum muster_rc rank_finish(struct rank *rank, enum muster_rc rc)
{
    if (rc != MUSTER_OK)
        return rc;
    while (!rank->is_done)
        muster_loop_turn(rank->env->loop, UINT64_MAX);
    return rank->rc;
}

enum muster_rc check_run(struct rank *rank, struct muster_device_call *call)
{
    call->stream = rank->stream;
    rank_prepare(rank);
    return rank_finish(rank, muster_backend_start(&rank->op, rank->group, call, on_done));
}

void check_copy(struct rank *rank, unsigned which, void *in, void *out, size_t bytes)
{
    struct muster_error error;
    void *before = muster_cuda_enter(rank->cuda);
    enum muster_rc rc = in != NULL ? muster_cuda_copy_in(rank->cuda, rank->memory[which], in, bytes,
                                                         rank->stream, &error)
                                   : muster_cuda_copy_out(rank->cuda, out, rank->memory[which],
                                                          bytes, rank->stream, &error);

    if (rc == MUSTER_OK)
        rc = muster_cuda_stream_synchronise(rank->cuda, rank->stream, &error);
    muster_cuda_leave(rank->cuda, before);
    check_need(rank, rc, "copy", &error);
}

/* --- Times --- */

static int compare_times(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

    return left < right ? -1 : left > right;
}

static void check_times(struct rank *rank)
{
    for (uint64_t bytes = 4096; bytes <= rank->options.bytes; bytes *= 16) {
        struct muster_device_call call = {.kind = MUSTER_DEVICE_ALL_REDUCE};
        uint64_t times[TIMES];

        call.input = (struct muster_tensor){rank->memory[0], bytes / 4, MUSTER_F32};
        call.output = call.input;
        for (unsigned i = 0; i < TIMES; i++) {
            uint64_t start_ns = muster_loop_now_ns(rank->env->loop);

            check_need(rank, check_run(rank, &call), "all_reduce", &rank->op.error);
            times[i] = muster_loop_now_ns(rank->env->loop) - start_ns;
        }
        qsort(times, TIMES, sizeof(times[0]), compare_times);
        if (rank->options.rank == 0)
            check_say(rank,
                      "result all_reduce of %llu bytes, %u ranks: median %.1f us, fastest %.1f us",
                      (unsigned long long)bytes, rank->view->member_count,
                      (double)times[TIMES / 2] / 1e3, (double)times[0] / 1e3);
    }
}

/* --- Steps, while ranks die --- */

static void wait_for_view(struct rank *rank)
{
    while (rank->is_frozen)
        muster_loop_turn(rank->env->loop, UINT64_MAX);
}

static void begin_step(struct rank *rank)
{
    if (rank->step_epoch != rank->view->epoch) {
        rank->step_epoch = rank->view->epoch;
        rank->step = rank->step_epoch << STEP_BIT;
    }
    muster_group_begin_step(rank->group, ++rank->step);
}

static bool is_interrupted(struct rank *rank, enum muster_rc rc)
{
    if (rc != MUSTER_OK && rc != MUSTER_ABORTED && rc != MUSTER_UNAVAILABLE)
        check_need(rank, rc, "step", &rank->op.error);
    wait_for_view(rank);
    return rc != MUSTER_OK || rank->step_epoch != rank->view->epoch;
}

/* False: the members have changed, it is to be run again. */
static bool run_step(struct rank *rank)
{
    uint64_t count = rank->options.bytes / 4;
    struct muster_device_call call = {.kind = MUSTER_DEVICE_ALL_REDUCE};
    float want = (float)rank->view->member_count;
    float *floats = (float *)(void *)rank->host;

    begin_step(rank);
    for (uint64_t i = 0; i < count; i++)
        floats[i] = 1.0f;
    check_copy(rank, 0, floats, NULL, count * 4);
    call.input = (struct muster_tensor){rank->memory[0], count, MUSTER_F32};
    call.output = call.input;
    if (is_interrupted(rank, check_run(rank, &call)))
        return false;
    rank_prepare(rank);
    if (is_interrupted(rank,
                       rank_finish(rank, muster_gpu_commit_start(&rank->op, rank->group, on_done))))
        return false;
    check_copy(rank, 0, NULL, floats, count * 4);
    for (uint64_t i = 0; i < count; i++)
        if (floats[i] != want)
            check_give_up(rank, "step", "a wrong sum was committed");
    return true;
}

static void run_steps(struct rank *rank)
{
    while (rank->phase == PHASE_STEPS) {
        if (run_step(rank))
            check_say(rank, "step %llu %llu", (unsigned long long)rank->step_epoch,
                      (unsigned long long)rank->step);
        muster_loop_turn(rank->env->loop, 0);
        wait_for_view(rank);
    }
}

/* --- Life --- */

static void *device_memory(struct rank *rank, size_t bytes)
{
    void *memory = NULL, *before = muster_cuda_enter(rank->cuda);
    struct muster_error error;
    enum muster_rc rc = muster_cuda_alloc(rank->cuda, bytes, &memory, &error);

    muster_cuda_leave(rank->cuda, before);
    check_need(rank, rc, "memory", &error);
    return memory;
}

static void open_rank(struct rank *rank)
{
    size_t bytes = rank->options.bytes > 8 * VALUES ? rank->options.bytes : 8 * VALUES;
    struct muster_wire_options wire = {.hello = hello_of(rank)};
    struct muster_address any;
    struct muster_error error;
    void *before;

    check_need(rank, muster_env_system_open(NULL, &rank->env), "environment", NULL);
    check_need(rank, muster_net_system_open(rank->env, &rank->env->net), "net", NULL);
    check_need(rank, muster_gpu_open(rank->env, NULL, &rank->backend, &error), "gpu", &error);
    rank->env->backend = rank->backend;
    rank->cuda = muster_gpu_backend_of(rank->backend)->device.cuda;
    before = muster_cuda_enter(rank->cuda);
    check_need(rank, muster_cuda_stream_new(rank->cuda, &rank->stream, &error), "stream", &error);
    muster_cuda_leave(rank->cuda, before);
    rank->memory[0] = device_memory(rank, bytes);
    rank->memory[1] = device_memory(rank, bytes);
    rank->host = calloc(1, bytes);
    wire.env = rank->env;
    check_need(rank, muster_wire_tcp_open(&wire, &rank->wire), "wire", NULL);
    check_need(rank, muster_address_parse("127.0.0.1:0", &any, &error), "address", &error);
    check_need(
        rank,
        muster_listener_open(rank->env->net, &any, NULL, on_accept, rank, &rank->listener, &error),
        "listener", &error);
    rank->watch.fd = rank->options.socket;
    rank->watch.wanted = MUSTER_FD_READ;
    rank->watch.data = rank;
    rank->watch.on_ready = on_parent;
    check_need(rank, muster_fd_watch_open(&rank->watch, rank->env->loop), "socket", NULL);
}

static void on_closed(void *data)
{
    *(bool *)data = true;
}

static void close_backend(struct muster_env *env, struct muster_backend *backend)
{
    bool is_closed = false;

    muster_gpu_close(backend, on_closed, &is_closed);
    while (!is_closed)
        muster_loop_turn(env->loop, UINT64_MAX);
}

static void close_rank(struct rank *rank)
{
    struct muster_gpu_counters counters;

    muster_group_close(rank->group);
    muster_gpu_free(rank->backend, rank->memory[0]);
    muster_gpu_free(rank->backend, rank->memory[1]);
    muster_gpu_counters(rank->backend, &counters);
    check_say(rank,
              "result rank %u: communicators: %llu begun anew, %llu shrunk, %llu grown; %llu tries "
              "failed, %llu abandoned, %llu callbacks lost",
              rank->options.rank, (unsigned long long)counters.init_count,
              (unsigned long long)counters.shrink_count, (unsigned long long)counters.grow_count,
              (unsigned long long)counters.failed_count,
              (unsigned long long)counters.abandoned_count,
              (unsigned long long)counters.lost_callback_count);
    close_backend(rank->env, rank->backend);
}

int check_rank_main(const struct check_options *options)
{
    static struct rank rank;
    char text[MUSTER_ADDRESS_TEXT_BYTES];

    rank.options = *options;
    open_rank(&rank);
    check_say(&rank, "listening %s",
              muster_address_format(muster_listener_address(rank.listener), text));
    while (!rank.is_quitting) {
        enum check_phase phase = rank.phase;

        if (phase == PHASE_VALUES)
            check_rank_values(&rank);
        else if (phase == PHASE_TIMES)
            check_times(&rank);
        else if (phase == PHASE_STEPS)
            run_steps(&rank);
        if (phase == PHASE_VALUES || phase == PHASE_TIMES) {
            rank.phase = PHASE_NONE;
            check_say(&rank, "finished");
        }
        if (rank.phase == PHASE_NONE && !rank.is_quitting)
            muster_loop_turn(rank.env->loop, UINT64_MAX);
    }
    close_rank(&rank);
    check_say(&rank, "closed");
    return 0;
}

int check_probe_main(void)
{
    struct muster_env *env = NULL;
    struct muster_backend *backend = NULL;
    struct muster_error error = {.rc = MUSTER_OK};
    enum muster_rc rc = muster_env_system_open(NULL, &env);
    bool is_absent, is_copied = true;

    if (rc != MUSTER_OK)
        return 1;
    rc = muster_gpu_open(env, NULL, &backend, &error);
    is_absent = rc == MUSTER_UNAVAILABLE || rc == MUSTER_UNIMPLEMENTED;
    if (rc == MUSTER_OK) {
        printf("device: %s\n", muster_backend_name(backend));
        close_backend(env, backend);
        is_copied = check_copies(env);
    } else {
        printf("%s: %s\n", is_absent ? "skipped" : "failed", error.text);
    }
    muster_env_system_close(env);
    return rc == MUSTER_OK ? !is_copied : is_absent ? CHECK_SKIP : 1;
}
