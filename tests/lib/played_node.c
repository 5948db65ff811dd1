/* A node and its group, played by the case (played_node.h). */
#include "played_node.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "assertion_count.h"

struct played_node played;

void played_note(const char *fmt, ...)
{
    size_t length = strlen(played.journal);
    va_list args;

    va_start(args, fmt);
    vsnprintf(played.journal + length, sizeof(played.journal) - length, fmt, args);
    va_end(args);
}

bool played_is_posted(const struct muster_task *task)
{
    return task->on_run != NULL && muster_task_is_posted(task);
}

void played_post(struct muster_task *task, muster_task_fn *on_run)
{
    if (played_is_posted(task))
        return;
    muster_task_init(task, on_run, NULL);
    muster_task_post(task, played.env->loop);
}

/* --- The node --- */

static struct muster_node *node_of_stage(void)
{
    return (struct muster_node *)&played;
}

static void on_closing_turn(struct muster_task *task)
{
    if (--played.closing_count > 0)
        muster_task_post(task, played.env->loop);
}

enum muster_rc muster_node_open(const struct muster_node_options *options,
                                struct muster_node **ret_node, struct muster_error *ret_error)
{
    char address[MUSTER_ADDRESS_TEXT_BYTES];

    played_note("open %s:%u of %u in %s at %s\n", options->task_type, options->task_index,
                options->expected_count, options->job,
                muster_address_format(&options->listen, address));
    played.env = options->env;
    if (played.open_rc != MUSTER_OK) {
        played.closing_count = 3;
        played_post(&played.state_task, on_closing_turn);
        return muster_error_set(ret_error, played.open_rc, "the node does not open");
    }
    played.opened_count++;
    played.options = *options;
    *ret_node = node_of_stage();
    return MUSTER_OK;
}

void muster_node_set_expected(struct muster_node *node, uint32_t count)
{
    (void)node;
    played_note("expect %u\n", count);
}

static void on_state_turn(struct muster_task *task)
{
    (void)task;
    played.on_state();
}

void muster_node_set_blobs(struct muster_node *node, const struct muster_node_blob *blobs,
                           size_t count)
{
    (void)node;
    played.blobs = blobs;
    played_note("blobs %zu\n", count);
}

const struct muster_node_blob *muster_node_fetched_blobs(const struct muster_node *node)
{
    (void)node;
    return played.fetched_blobs;
}

enum muster_rc muster_node_set_state(struct muster_node *node,
                                     const struct muster_node_tensor *tensors, size_t count)
{
    (void)node;
    played_note("state");
    for (size_t i = 0; i < count; i++)
        played_note(" %s", tensors[i].name);
    played_note("\n");
    if (played.set_state_rc == MUSTER_OK && played.on_state != NULL)
        played_post(&played.state_task, on_state_turn);
    return played.set_state_rc;
}

enum muster_rc muster_node_pack_state(const struct muster_node *node, void **ret_bytes,
                                      size_t *ret_size)
{
    static const char shape[] = "shape";

    (void)node;
    if (played.pack_rc != MUSTER_OK)
        return played.pack_rc;
    *ret_size = sizeof(shape);
    *ret_bytes = muster_mem_alloc(played.env->mem, sizeof(shape));
    assert_non_null(*ret_bytes);
    memcpy(*ret_bytes, shape, sizeof(shape));
    return MUSTER_OK;
}

enum muster_rc muster_node_match_state(const struct muster_node *node, const void *bytes,
                                       size_t size, struct muster_error *ret_error)
{
    (void)node;
    played_note("match %zu bytes \"%.*s\"\n", size, (int)strnlen(bytes, size), (const char *)bytes);
    return played.match != NULL
               ? muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT, "%s", played.match)
               : MUSTER_OK;
}

static void on_failed_turn(struct muster_task *task)
{
    (void)task;
    played.options.events->on_failed(played.options.data, &played.given_up);
}

void muster_node_give_up(struct muster_node *node, const struct muster_error *why)
{
    (void)node;
    played_note("give up: %s\n", why->text);
    played.given_up = *why;
    played_post(&played.failed_task, on_failed_turn);
}

struct muster_group *muster_node_group(const struct muster_node *node)
{
    (void)node;
    return played.is_without_group || played.view == NULL ? NULL : (struct muster_group *)&played;
}

const struct muster_view *muster_node_view(const struct muster_node *node)
{
    (void)node;
    return played.view;
}

const struct muster_incarnation *muster_node_incarnation(const struct muster_node *node)
{
    static struct muster_incarnation own;

    (void)node;
    own = played_incarnation(PLAYED_SELF);
    return &own;
}

struct muster_wire *muster_node_wire(const struct muster_node *node)
{
    (void)node;
    return NULL;
}

void muster_wire_set_failpoint(struct muster_wire *wire, muster_wire_point_fn *fn, void *data)
{
    (void)wire;
    played_note("failpoint of the wire\n");
    played.hit_wire_failpoint = fn;
    played.wire_failpoint_data = data;
}

void muster_node_set_shm_failpoint(struct muster_node *node,
                                   void (*fn)(void *data, const char *point), void *data)
{
    (void)node;
    played_note("failpoint of boards\n");
    played.hit_shm_failpoint = fn;
    played.shm_failpoint_data = data;
}

static void on_look_turn(struct muster_task *task)
{
    (void)task;
    if (played.on_look != NULL)
        played.on_look();
}

static void look_again(bool is_awaited)
{
    if (is_awaited && played.on_look != NULL)
        played_post(&played.look_task, on_look_turn);
}

bool muster_node_is_changing(const struct muster_node *node)
{
    (void)node;
    look_again(played.is_changing);
    return played.is_changing;
}

bool muster_node_is_fetching(const struct muster_node *node, uint64_t *ret_bytes)
{
    (void)node;
    if (played.is_fetching)
        *ret_bytes = played.fetched_bytes;
    return played.is_fetching;
}

bool muster_node_waits_for(const struct muster_node *node, char *text, size_t room)
{
    (void)node;
    if (played.waits_for != NULL)
        snprintf(text, room, "%s", played.waits_for);
    else
        snprintf(text, room, "nobody knows");
    return played.waits_for != NULL;
}

const struct muster_member *muster_node_find_stateless(struct muster_node *node, uint64_t step)
{
    (void)node;
    if (played.stateless == NULL || played.stateless->from_step > step)
        return NULL;
    look_again(true);
    return played.stateless;
}

uint32_t muster_node_heard_count(const struct muster_node *node,
                                 const struct muster_incarnation *member)
{
    static uint32_t count;

    (void)node;
    (void)member;
    return ++count;
}

void muster_node_begin_step(struct muster_node *node, uint64_t step)
{
    (void)node;
    played.step = step;
    played.sequence = 0;
    played_note("begin %llu\n", (unsigned long long)step);
}

void muster_node_commit_step(struct muster_node *node, uint64_t step)
{
    (void)node;
    played_note("commit %llu\n", (unsigned long long)step);
}

enum muster_rc muster_node_change_parts(struct muster_node *node, const struct muster_tensor *parts,
                                        size_t count)
{
    (void)node;
    played_note("change %zu\n", count);
    return count > 0 && parts[0].data == NULL ? MUSTER_INVALID_ARGUMENT : MUSTER_OK;
}

void muster_node_change_all(struct muster_node *node)
{
    (void)node;
    played_note("change all\n");
}

void muster_node_preempt(struct muster_node *node, const char *cause)
{
    (void)node;
    played_note("preempt %s\n", cause);
}

void muster_node_touch_state(struct muster_node *node)
{
    (void)node;
    played_note("touch\n");
}

static void on_leave_turn(struct muster_task *task)
{
    (void)task;
    if (played.on_leave != NULL)
        played.on_leave();
    if (!played.is_leave_held)
        played.left(node_of_stage(), played.left_data);
}

void muster_node_leave(struct muster_node *node, bool is_done, uint64_t deadline_ns,
                       muster_node_fn *left, void *data)
{
    uint64_t now_ns = muster_loop_now_ns(played.env->loop);

    (void)node;
    played_note(
        "leave%s within %llu s\n", is_done ? " done" : "",
        (unsigned long long)((deadline_ns - now_ns + MUSTER_NS_PER_S / 2) / MUSTER_NS_PER_S));
    played.left = left;
    played.left_data = data;
    played_post(&played.leave_task, on_leave_turn);
}

/* As the real one: later. */
static struct {
    struct muster_task task;
    muster_node_fn *closed;
    void *data;
} end;

static void on_closed_turn(struct muster_task *task)
{
    (void)task;
    end.closed(node_of_stage(), end.data);
}

void muster_node_close(struct muster_node *node, muster_node_fn *closed, void *data)
{
    (void)node;
    played_note("close\n");
    played.opened_count--;
    end.closed = closed;
    end.data = data;
    played_post(&end.task, on_closed_turn);
}

/* --- The flight recorder --- */

enum muster_rc muster_recorder_open(const struct muster_recorder_options *options,
                                    struct muster_recorder **ret_recorder)
{
    played.recorder = *options;
    snprintf(played.recorded_task, sizeof(played.recorded_task), "%s %s %s", options->job,
             options->task, options->incarnation);
    if (played.recorder_rc == MUSTER_OK)
        *ret_recorder = (struct muster_recorder *)&played;
    return played.recorder_rc;
}

void muster_recorder_close(struct muster_recorder *recorder)
{
    if (recorder != NULL)
        played_note("recorder closed\n");
}

void muster_recorder_set_rank(struct muster_recorder *recorder, uint32_t rank)
{
    (void)recorder;
    played_note("recorded rank %u\n", rank);
}

enum muster_rc muster_recorder_dump(struct muster_recorder *recorder, const char *error)
{
    (void)recorder;
    played_note("dump: %s\n", error != NULL ? error : "no error");
    return played.dump_rc;
}

const char *muster_recorder_path(const struct muster_recorder *recorder)
{
    (void)recorder;
    return "/nowhere/trace";
}

/* --- Events --- */

struct muster_incarnation played_incarnation(uint32_t index)
{
    return (struct muster_incarnation){.bytes = {0x11, (uint8_t)index}};
}

static struct muster_member member_of(uint32_t index, uint64_t from_step)
{
    struct muster_member member = {.incarnation = played_incarnation(index),
                                   .task_index = index,
                                   .address = {.family = MUSTER_ADDRESS_IPV4, .port = 1},
                                   .host_key = "host",
                                   .pid = 1,
                                   .from_step = from_step};

    if (played.is_spread)
        snprintf(member.host_key, sizeof(member.host_key), "host-%u", index);
    snprintf(member.task_type, sizeof(member.task_type), "%s", played.task_type);
    return member;
}

static void set_view(uint64_t epoch, uint32_t members, uint32_t joined, uint64_t from_step,
                     const struct muster_view *fields)
{
    static const struct muster_view none;
    struct muster_member list[32];
    struct muster_view view = fields != NULL ? *fields : none;

    snprintf(view.job, sizeof(view.job), "job");
    view.epoch = epoch;
    view.members = list;
    view.communication = played.communication;
    view.member_count = 0;
    for (uint32_t i = 0; i < 32; i++)
        if ((members >> i & 1) != 0)
            list[view.member_count++] = member_of(i, (joined >> i & 1) != 0 ? from_step : 0);
    assert_int_equal(muster_view_new(played.env->mem, &view, &played.view), MUSTER_OK);
}

void played_show_view(uint64_t epoch, uint32_t members)
{
    muster_view_unref(played.view);
    set_view(epoch, members & ~(1u << PLAYED_SELF), 0, 0, NULL);
}

void played_view(uint64_t epoch, uint32_t members, uint32_t joined, uint64_t from_step,
                 uint64_t cause_ns, const struct muster_view *fields)
{
    struct muster_view *previous = played.view;
    struct muster_view_change change = {.previous = previous, .cause_ns = cause_ns};

    set_view(epoch, members, joined, from_step, fields);
    change.view = played.view;
    change.group = (struct muster_group *)&played;
    change.opened_ns = cause_ns + 5 * MUSTER_NS_PER_MS;
    played.options.events->on_view(played.options.data, &change);
    muster_view_unref(previous);
}

void played_ready(uint64_t next_step, bool is_restored)
{
    played.options.events->on_ready(played.options.data, next_step, is_restored);
}

void played_exclude(enum muster_rc rc, const char *text)
{
    struct muster_error error;

    (void)muster_error_set(&error, rc, "%s", text);
    played.options.events->on_excluded(played.options.data, &error);
}

void played_fail(enum muster_rc rc, const char *text)
{
    struct muster_error error;

    (void)muster_error_set(&error, rc, "%s", text);
    played.options.events->on_failed(played.options.data, &error);
}

void played_skip(uint64_t step)
{
    played.options.events->on_skipped(played.options.data, step);
}

const char *played_trace(void)
{
    const struct muster_trace *trace = played.env->trace;
    size_t length = 0;

    for (size_t i = 0; i < muster_trace_count(trace); i++) {
        const struct muster_trace_event *event = muster_trace_at(trace, i);

        length +=
            (size_t)snprintf(played.trace + length, sizeof(played.trace) - length,
                             "%s%s%s %llu %llu %llu\n", event->kind, event->text != NULL ? " " : "",
                             event->text != NULL ? event->text : "", (unsigned long long)event->a,
                             (unsigned long long)event->b, (unsigned long long)event->c);
        assert_true(length < sizeof(played.trace));
    }
    return played.trace;
}

void played_enter(void)
{
    assert_int_equal(muster_runtime_enter(played.strategy->runtime), MUSTER_OK);
}

void played_leave(void)
{
    muster_runtime_leave(played.strategy->runtime);
}

void played_start_job(void)
{
    played_view(1, 7, 0, 0, 0, NULL);
    played_ready(0, false);
}

void played_catch_up(void)
{
    played_view(4, 7, 1u << PLAYED_SELF, 7, 0, NULL);
    played_ready(7, true);
}

void played_end_change(void)
{
    played.is_changing = false;
    played.stateless = NULL;
}

/* --- The stage --- */

static size_t block_count;

static void *counted_realloc(struct muster_mem *mem, void *ptr, size_t bytes)
{
    void *block;

    (void)mem;
    if (bytes == 0) {
        block_count -= ptr != NULL;
        free(ptr);
        return NULL;
    }
    if (bytes == played.refused_bytes || (played.fail_at > 0 && --played.fail_at == 0))
        return NULL;
    block = realloc(ptr, bytes);
    block_count += block != NULL && ptr == NULL;
    return block;
}

size_t played_blocks(void)
{
    return block_count;
}

void played_open(void)
{
    static const struct muster_mem_ops counted = {.realloc = counted_realloc};
    static const char *const unset[] = {
        "TF_CONFIG",         "MUSTER_RESOLVER", "MUSTER_INCARNATION",
        "MUSTER_LOG_FORMAT", "MUSTER_REJOIN",   "MUSTER_KILL",
        "MUSTER_LISTEN",     "MUSTER_JOB",      "MUSTER_TRACE_DIR"};

    for (size_t i = 0; i < sizeof(unset) / sizeof(unset[0]); i++)
        unsetenv(unset[i]);
    muster_mem_system()->ops = &counted; /* blocks from before are of the same heap */
    memset(&played, 0, sizeof(played));
    played.on_state = played_start_job;
    played.task_type = "worker";
    played.block_count = block_count;
    assert_int_equal(pipe2(played.reports, O_CLOEXEC | O_NONBLOCK), 0);
    setenv("RANK", "1", 1);
    setenv("WORLD_SIZE", "3", 1);
    setenv("MUSTER_REGISTRY", "127.0.0.1:1", 1);
    setenv("MUSTER_TRACE", "failure", 1);
    setenv("MUSTER_LOG_LEVEL", "error", 1);
}

struct muster_strategy *played_strategy(void)
{
    struct muster_error error = {.rc = MUSTER_OK};
    char text[16];

    snprintf(text, sizeof(text), "%d", fcntl(played.reports[1], F_DUPFD_CLOEXEC, 0));
    setenv("MUSTER_REPORT_FD", text, 1);
    fail_if(muster_strategy_open(NULL, &played.strategy, &error) != MUSTER_OK, "%s", error.text);
    unsetenv("MUSTER_REPORT_FD");
    return played.strategy;
}

void played_close(void)
{
    assert_int_equal(played.opened_count, 0);
    muster_view_unref(played.view);
    close(played.reports[0]);
    close(played.reports[1]);
    assert_int_equal(block_count, played.block_count);
}

void played_close_strategy(struct muster_strategy *strategy)
{
    muster_strategy_close(strategy);
    played_close();
}

int played_tear_down(void **state)
{
    played_close_strategy(*state);
    return 0;
}

void played_expect(const char *journal)
{
    assert_string_equal(played.journal, journal);
    played.journal[0] = '\0';
}

unsigned played_count_lines(const char *text)
{
    unsigned count = 0;

    for (const char *at = played.journal; (at = strstr(at, text)) != NULL; at++)
        count++;
    return count;
}

enum muster_rc played_try_begin(struct muster_strategy *strategy)
{
    uint64_t step;

    return muster_strategy_begin(strategy, &step, NULL);
}

void played_begin(struct muster_strategy *strategy)
{
    fail_if(played_try_begin(strategy) != MUSTER_OK, "%s", muster_strategy_error(strategy)->text);
}

void played_begin_unnoted(struct muster_strategy *strategy)
{
    played_begin(strategy);
    played.journal[0] = '\0';
}

void played_commit(struct muster_strategy *strategy)
{
    assert_int_equal(muster_strategy_commit(strategy), MUSTER_OK);
}

void played_expect_error(const struct muster_strategy *strategy, enum muster_rc rc,
                         enum muster_rc expected, const char *text)
{
    assert_int_equal(rc, expected);
    assert_int_equal(muster_strategy_error(strategy)->rc, expected);
    assert_string_equal(muster_strategy_error(strategy)->text, text);
}

const char *played_told(void)
{
    size_t length = strlen(played.told);
    ssize_t bytes;

    while ((bytes = read(played.reports[0], played.told + length,
                         sizeof(played.told) - 1 - length)) > 0)
        length += (size_t)bytes;
    played.told[length] = '\0';
    return played.told;
}

unsigned played_count_told(const char *kind)
{
    const char *at = played_told();
    char text[64];
    unsigned count = 0;

    snprintf(text, sizeof(text), "{\"report\":\"%s\"", kind);
    for (; (at = strstr(at, text)) != NULL; at++)
        count++;
    return count;
}
