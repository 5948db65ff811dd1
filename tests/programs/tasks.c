/* tasks HOST:PORT COUNT [stay]: COUNT tasks of a coordinated job, as jaxlib writes their requests, in one
 * process. Each registers, puts a key, meets the others at a barrier, reads the key of the next task and
 * shuts down (not with "stay"). "acked KEY=VALUE" is said of each put that was answered, "done" in the
 * end. The first error ends all: it is told with exit code 1.
 *
 * tasks HOST:PORT: says what is there: "has KEY=VALUE". Exit code 1 when it cannot be read. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <muster/muster.h>

#define SERVICE       "/xla.coordination.CoordinationService/"
#define WITHIN_NS     (20 * MUSTER_NS_PER_S)
#define REQUEST_BYTES 256
#define TEXT_BYTES    64
#define FIXED64_BYTES 8
#define TASKS_MAX     16
#define FOLDER        "t"

struct job;

struct task {
    struct muster_unary unary;
    struct job *job;
    struct muster_channel *channel;
    uint32_t id, step;
    bool is_asking, has_ended;
    char key[TEXT_BYTES], value[TEXT_BYTES];
};

struct job {
    struct muster_env *env;
    struct task tasks[TASKS_MAX];
    uint32_t task_count, channel_count;
    uint64_t service_incarnation;
    bool stays, is_list, has_failed, is_stopping;
};

/* A message as it goes over the wire. */
struct request {
    uint8_t bytes[REQUEST_BYTES];
    size_t size;
};

static void print_line(const char *text)
{
    puts(text);
    (void)fflush(stdout);
}

/* --- Messages --- */

static void put_varint(struct request *request, uint8_t tag, uint64_t value)
{
    request->bytes[request->size++] = tag;
    for (; value > 0x7f; value >>= 7)
        request->bytes[request->size++] = (uint8_t)(0x80 | (value & 0x7f));
    request->bytes[request->size++] = (uint8_t)value;
}

static void put_fixed(struct request *request, uint8_t tag, uint64_t value)
{
    request->bytes[request->size++] = tag;
    for (size_t i = 0; i < FIXED64_BYTES; i++)
        request->bytes[request->size++] = (uint8_t)(value >> (8 * i));
}

static void put_text(struct request *request, uint8_t tag, const void *text, size_t size)
{
    put_varint(request, tag, size);
    memcpy(request->bytes + request->size, text, size);
    request->size += size;
}

static void put_task(struct request *request, uint8_t tag, uint32_t id)
{
    if (id > 0)
        put_varint(request, tag, id);
}

static uint64_t incarnation_of(const struct task *task)
{
    return UINT64_C(0x1000000) + task->id;
}

static void put_incarnations(struct request *request, const struct task *task)
{
    put_varint(request, 0x0a, 2 * (1 + FIXED64_BYTES));
    put_fixed(request, 0x11, incarnation_of(task));
    put_fixed(request, 0x19, task->job->service_incarnation);
}

static uint64_t varint_of(const uint8_t **at, const uint8_t *end)
{
    uint64_t value = 0;
    unsigned shift = 0;

    while (*at < end && shift < 64) {
        uint8_t byte = *(*at)++;

        value |= (uint64_t)(byte & 0x7f) << shift;
        shift += 7;
        if (byte < 0x80)
            break;
    }
    return value;
}

/* The text of a field with this tag, whose fields are all texts; its size 0: there is none. */
static struct muster_bytes text_of(struct muster_bytes message, uint8_t tag)
{
    const uint8_t *at = message.data, *end = at + message.size;

    while (at < end) {
        uint8_t found = *at++;
        uint64_t size = varint_of(&at, end);

        if (size > (uint64_t)(end - at))
            break;
        if (found == tag)
            return (struct muster_bytes){.data = at, .size = (size_t)size};
        at += size;
    }
    return (struct muster_bytes){.data = NULL, .size = 0};
}

/* --- The end --- */

static void stop_job(struct job *job)
{
    job->is_stopping = true;
    for (uint32_t i = 0; i < job->task_count; i++)
        if (job->tasks[i].is_asking)
            muster_unary_cancel(&job->tasks[i].unary);
}

static void fail_job(struct task *task, const char *method, enum muster_rc rc, const char *text)
{
    task->has_ended = true;
    if (task->job->has_failed)
        return;
    task->job->has_failed = true;
    fprintf(stderr, "tasks: %s of task %" PRIu32 ": %s: %s\n", method, task->id, muster_rc_name(rc),
            text);
    stop_job(task->job);
}

/* --- The steps of a task --- */

typedef void write_step_fn(const struct task *task, struct request *request);
/** NULL: as it should be; else what is wrong with the answer. */
typedef const char *read_step_fn(struct task *task, struct muster_bytes answer);

struct step {
    const char *method;
    write_step_fn *write;
    read_step_fn *read; /* NULL: nothing in it counts */
};

static void write_register(const struct task *task, struct request *request)
{
    put_fixed(request, 0x19, incarnation_of(task));
    put_task(request, 0x28, task->id);
}

static const char *read_register(struct task *task, struct muster_bytes answer)
{
    const uint8_t *bytes = answer.data;

    if (answer.size != 1 + FIXED64_BYTES)
        return "the answer has no incarnation";
    task->job->service_incarnation = 0;
    for (size_t i = 0; i < FIXED64_BYTES; i++)
        task->job->service_incarnation |= (uint64_t)bytes[1 + i] << (8 * i);
    return NULL;
}

static void write_insert(const struct task *task, struct request *request)
{
    struct request entry = {.size = 0};

    put_text(&entry, 0x0a, task->key, strlen(task->key));
    put_text(&entry, 0x12, task->value, strlen(task->value));
    put_incarnations(request, task);
    put_text(request, 0x12, entry.bytes, entry.size);
}

static const char *read_insert(struct task *task, struct muster_bytes answer)
{
    (void)answer;
    printf("acked %s=%s\n", task->key, task->value);
    (void)fflush(stdout);
    return NULL;
}

static void write_barrier(const struct task *task, struct request *request)
{
    put_incarnations(request, task);
    put_text(request, 0x12, "b", 1);
    put_varint(request, 0x18, WITHIN_NS / MUSTER_NS_PER_MS);
    put_task(request, 0x28, task->id);
}

static const struct task *next_task(const struct task *task)
{
    return &task->job->tasks[(task->id + 1) % task->job->task_count];
}

static void write_get(const struct task *task, struct request *request)
{
    const char *key = next_task(task)->key;

    put_incarnations(request, task);
    put_text(request, 0x12, key, strlen(key));
}

static const char *read_get(struct task *task, struct muster_bytes answer)
{
    const char *expected = next_task(task)->value;
    struct muster_bytes value = text_of(text_of(answer, 0x0a), 0x12);

    return value.size == strlen(expected) && memcmp(value.data, expected, value.size) == 0
               ? NULL
               : "another value was read than the next task has put";
}

static void write_shutdown(const struct task *task, struct request *request)
{
    put_incarnations(request, task);
    put_task(request, 0x10, task->id);
}

static void write_list(const struct task *task, struct request *request)
{
    (void)task;
    put_text(request, 0x0a, FOLDER, strlen(FOLDER)); /* as clients without incarnations number it */
}

static const char *read_list(struct task *task, struct muster_bytes answer)
{
    const uint8_t *at = answer.data, *end = at + answer.size;

    (void)task;
    while (at < end) {
        uint8_t tag = *at++;
        uint64_t size = varint_of(&at, end);
        struct muster_bytes entry = {.data = at, .size = (size_t)size}, key, value;

        if (size > (uint64_t)(end - at))
            return "the list is torn";
        at += size;
        if (tag != 0x12)
            continue;
        key = text_of(entry, 0x0a);
        value = text_of(entry, 0x12);
        printf("has %.*s=%.*s\n", (int)key.size, (const char *)key.data, (int)value.size,
               (const char *)value.data);
    }
    (void)fflush(stdout);
    return NULL;
}

static const struct step steps_of_task[] = {
    {"RegisterTask", write_register, read_register}, {"InsertKeyValue", write_insert, read_insert},
    {"Barrier", write_barrier, NULL},                {"GetKeyValue", write_get, read_get},
    {"ShutdownTask", write_shutdown, NULL},
};
static const struct step steps_of_list[] = {{"GetKeyValueDir", write_list, read_list}};

static const struct step *step_of(const struct task *task)
{
    return task->job->is_list ? &steps_of_list[task->step] : &steps_of_task[task->step];
}

static uint32_t step_count(const struct job *job)
{
    uint32_t count = sizeof(steps_of_task) / sizeof(steps_of_task[0]);

    return job->is_list ? 1 : job->stays ? count - 1 : count;
}

static void ask_next(struct task *task);

static void on_answered(struct muster_unary *unary, enum muster_rc rc)
{
    struct task *task = unary->data;
    const struct step *step = step_of(task);
    const char *wrong = NULL;

    task->is_asking = false;
    if (rc == MUSTER_OK && step->read != NULL)
        wrong = step->read(task, unary->response);
    if (wrong != NULL)
        fail_job(task, step->method, MUSTER_DATA_LOSS, wrong);
    else if (rc != MUSTER_OK)
        fail_job(task, step->method, rc, unary->status.text);
    else if (++task->step == step_count(task->job))
        task->has_ended = true;
    else
        ask_next(task);
}

static void ask_next(struct task *task)
{
    struct muster_loop *loop = task->job->env->loop;
    const struct step *step = step_of(task);
    struct request request = {.size = 0};
    char method[TEXT_BYTES];
    enum muster_rc rc;

    if (task->job->is_stopping) {
        task->has_ended = true;
        return;
    }
    step->write(task, &request);
    (void)snprintf(method, sizeof(method), SERVICE "%s", step->method);
    task->unary.data = task;
    rc = muster_unary_start(&task->unary, task->channel, method, request.bytes, request.size,
                            muster_loop_after_ns(loop, WITHIN_NS), on_answered);
    task->is_asking = rc == MUSTER_OK;
    if (rc != MUSTER_OK)
        fail_job(task, step->method, rc, "the call does not start");
}

/* --- All --- */

static bool has_ended(const struct job *job)
{
    for (uint32_t i = 0; i < job->task_count; i++)
        if (!job->tasks[i].has_ended)
            return false;
    return true;
}

static void on_channel_closed(struct muster_channel *channel)
{
    ((struct job *)muster_channel_data(channel))->channel_count--;
}

static enum muster_rc open_tasks(struct job *job, const char *target,
                                 struct muster_error *ret_error)
{
    for (uint32_t i = 0; i < job->task_count; i++) {
        struct task *task = &job->tasks[i];
        enum muster_rc rc =
            muster_channel_open(job->env, target, NULL, &task->channel, ret_error);

        if (rc != MUSTER_OK)
            return rc;
        muster_channel_set_data(task->channel, job);
        job->channel_count++;
        task->job = job;
        task->id = i;
        (void)snprintf(task->key, sizeof(task->key), FOLDER "/%" PRIu32, i);
        (void)snprintf(task->value, sizeof(task->value), "value-%" PRIu32, i);
    }
    return MUSTER_OK;
}

static enum muster_rc run_job(struct job *job, const char *target, struct muster_error *ret_error)
{
    enum muster_rc rc = open_tasks(job, target, ret_error);

    for (uint32_t i = 0; rc == MUSTER_OK && i < job->task_count; i++)
        ask_next(&job->tasks[i]);
    while (rc == MUSTER_OK && !has_ended(job))
        muster_loop_turn(job->env->loop, UINT64_MAX);
    for (uint32_t i = 0; i < job->task_count; i++)
        if (job->tasks[i].channel != NULL)
            muster_channel_close(job->tasks[i].channel, on_channel_closed);
    while (job->channel_count > 0)
        muster_loop_turn(job->env->loop, UINT64_MAX);
    return rc;
}

int main(int argc, char **argv)
{
    static struct job job;
    struct muster_error error = {.text = "no environment"};
    enum muster_rc rc;

    job.is_list = argc == 2;
    job.task_count = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 1;
    job.stays = argc > 3 && strcmp(argv[3], "stay") == 0;
    if (argc < 2 || job.task_count < 1 || job.task_count > TASKS_MAX) {
        fprintf(stderr, "usage: tasks HOST:PORT [COUNT [stay]]\n");
        return 2;
    }
    rc = muster_env_system_open(NULL, &job.env);
    if (rc == MUSTER_OK) {
        rc = muster_net_system_open(job.env, &job.env->net);
        if (rc == MUSTER_OK) {
            rc = run_job(&job, argv[1], &error);
            muster_net_system_close(job.env->net);
        }
        muster_env_system_close(job.env);
    }
    if (rc != MUSTER_OK)
        fprintf(stderr, "tasks: %s: %s\n", muster_rc_name(rc), error.text);
    else if (!job.has_failed)
        print_line("done");
    return rc != MUSTER_OK || job.has_failed ? 1 : 0;
}
