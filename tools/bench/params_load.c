/* The load of `muster bench params`: clients in one loop, each with some batches under way. */
#include "bench/params.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <muster/hash.h>

#define PATIENCE_NS (60 * MUSTER_NS_PER_S)
#define PACE_NS     MUSTER_NS_PER_MS
#define VERIFY_ROWS 4096u
#define FILL_BYTES  ((uint64_t)1 << 20)

static uint64_t now_ns(const struct bench_params *bench)
{
    return muster_loop_now_ns(bench->env->loop);
}

/* xorshift64 */
static uint64_t random_next(struct bench_params *bench)
{
    bench->random ^= bench->random << 13;
    bench->random ^= bench->random >> 7;
    bench->random ^= bench->random << 17;
    return bench->random;
}

uint64_t bench_params_random(struct bench_params *bench)
{
    return random_next(bench);
}

bool bench_params_run_until(struct bench_params *bench, bool (*is_done)(struct bench_params *bench))
{
    while (!is_done(bench) && bench->failures == 0)
        muster_loop_turn(bench->env->loop, UINT64_MAX);
    return bench->failures == 0;
}

void bench_params_note_failure(struct bench_params *bench, enum muster_rc rc,
                         const struct muster_error *error)
{
    if (bench->failures++ == 0)
        fprintf(stderr, "muster bench params: %s: %s\n", muster_rc_name(rc), error->text);
}

/* --- Connecting --- */

/* By another wire one link remains, which makes the rows and reads them at the end. */
static uint64_t link_count(const struct bench_params *bench)
{
    return bench->wire != NULL ? 1 : bench->settings->clients;
}

static bool all_are_open(struct bench_params *bench)
{
    for (uint64_t i = 0; i < link_count(bench); i++) {
        if (!bench->clients[i].is_open)
            return false;
    }
    return true;
}

static void on_table(struct muster_params_op *op, enum muster_rc rc)
{
    struct bench_client *client = op->data;

    if (rc != MUSTER_OK)
        bench_params_note_failure(client->bench, rc, &op->error);
    client->is_open = rc == MUSTER_OK;
}

static void on_opened(struct muster_params *params, enum muster_rc rc)
{
    struct bench_client *client = muster_params_data(params);
    struct bench_params *bench = client->bench;
    struct muster_params_schema schema = {.name = BENCH_TABLE,
                                          .row_elements = bench->elements,
                                          .wire_dtype = MUSTER_F32};

    if (bench->is_tensor)
        schema.tensor_elements = bench->settings->rows * bench->elements;
    if (rc == MUSTER_OK)
        rc = muster_params_optimizer_parse(bench->settings->optimizer, &schema.optimizer);
    client->table_op.data = client;
    if (rc == MUSTER_OK)
        rc = muster_params_table_start(&client->table_op, params, &schema, &client->table,
                                       now_ns(bench) + PATIENCE_NS, on_table);
    if (rc != MUSTER_OK)
        bench_params_note_failure(bench, rc, muster_params_error(params));
}

static bool client_init(struct bench_params *bench, struct bench_client *client)
{
    uint64_t depth = bench->settings->depth;
    size_t rows = bench->rows_per_batch;

    client->bench = bench;
    client->batches = calloc(depth, sizeof(*client->batches));
    for (uint64_t i = 0; client->batches != NULL && i < depth; i++) {
        struct bench_batch *batch = &client->batches[i];

        batch->client = client;
        batch->op.data = batch;
        batch->keys = calloc(rows, sizeof(*batch->keys));
        batch->values = calloc(rows * bench->elements, sizeof(*batch->values));
        if (bench->kind == BENCH_PUSH_PULL)
            batch->pulled = calloc(rows * bench->elements, sizeof(*batch->pulled));
        if (batch->keys == NULL || batch->values == NULL ||
            (bench->kind == BENCH_PUSH_PULL && batch->pulled == NULL))
            return false;
        for (size_t j = 0; j < rows * bench->elements; j++)
            batch->values[j] = 1;
    }
    return client->batches != NULL;
}

static bool link_open(struct bench_params *bench, struct bench_client *client)
{
    const struct muster_params_options options = {
        .data = client,
        .server = bench->servers,
        .job = bench->registry != 0 ? BENCH_JOB : NULL,
        .queue_max_bytes = (uint64_t)1 << 40,
        .no_host_memory = strcmp(bench->settings->wire, "tcp") == 0,
        .connect_deadline_ns = now_ns(bench) + PATIENCE_NS};
    struct muster_error error;

    if (muster_params_open(bench->env, &options, on_opened, &client->params, &error) == MUSTER_OK)
        return true;
    fprintf(stderr, "muster bench params: %s\n", error.text);
    return false;
}

bool bench_params_connect(struct bench_params *bench)
{
    bench->clients = calloc(bench->settings->clients, sizeof(*bench->clients));
    for (uint64_t i = 0; bench->clients != NULL && i < bench->settings->clients; i++) {
        struct bench_client *client = &bench->clients[i];

        if (!client_init(bench, client)) {
            fprintf(stderr, "muster bench params: out of memory\n");
            return false;
        }
    }
    muster_loop_turn(bench->env->loop, 0); /* the memory has taken its time: deadlines begin now */
    for (uint64_t i = 0; bench->clients != NULL && i < link_count(bench); i++) {
        if (!link_open(bench, &bench->clients[i]))
            return false;
    }
    return bench->clients != NULL && bench_params_run_until(bench, all_are_open) &&
           (bench->wire == NULL || bench->wire->connect(bench));
}

static void on_client_closed(struct muster_params *params, enum muster_rc rc)
{
    struct bench_client *client = muster_params_data(params);

    (void)rc;
    client->is_closed = true;
}

void bench_params_disconnect(struct bench_params *bench)
{
    for (uint64_t i = 0; bench->clients != NULL && i < bench->settings->clients; i++) {
        struct bench_client *client = &bench->clients[i];

        if (client->params != NULL)
            muster_params_close(client->params, now_ns(bench) + MUSTER_NS_PER_S, on_client_closed);
        while (client->params != NULL && !client->is_closed)
            muster_loop_turn(bench->env->loop, UINT64_MAX);
        if (client->bench != NULL && bench->wire != NULL)
            bench->wire->disconnect(client);
        for (uint64_t j = 0; client->batches != NULL && j < bench->settings->depth; j++) {
            free(client->batches[j].keys);
            free(client->batches[j].values);
            free(client->batches[j].pulled);
        }
        free(client->batches);
    }
    free(bench->clients);
    muster_loop_turn_closing(bench->env->loop);
}

/* --- Batches --- */

static void batch_start(struct bench_batch *batch);

static void batch_count(struct bench_params *bench, const struct bench_batch *batch)
{
    uint64_t rows = bench->rows_per_batch;
    uint64_t pushed = batch->kind != BENCH_PULL ? rows : 0, pulled = batch->kind != BENCH_PUSH ? rows : 0;

    bench->pushed_rows += pushed;
    bench->pulled_rows += pulled;
    if (now_ns(bench) > bench->end_ns)
        return;
    bench->pushed_in_time += pushed;
    bench->pulled_in_time += pulled;
    if (bench->rows_per_batch >= 8 || random_next(bench) % 8 == 0)
        bench_samples_add(&bench->latencies_us, (double)(now_ns(bench) - batch->start_ns) / 1e3);
}

void bench_params_answered(struct bench_batch *batch, enum muster_rc rc,
                           const struct muster_error *error)
{
    struct bench_params *bench = batch->client->bench;

    bench->running--;
    if (rc != MUSTER_OK) {
        bench_params_note_failure(bench, rc, error);
        return;
    }
    batch_count(bench, batch);
    bench_params_cut_note_answer(bench);
    bench_params_note_answer(batch->client, batch->round);
    if (!bench->is_stopping && bench->settings->rate == 0)
        batch_start(batch);
    else
        batch->start_ns = 0;
}

static void on_batch(struct muster_params_op *op, enum muster_rc rc)
{
    bench_params_answered(op->data, rc, &op->error);
}

/* Rows of a tensor stand in a row. */
static enum muster_rc rows_start(const struct bench_params *bench, struct muster_params_op *op,
                                 const struct muster_params_rows *rows, enum bench_kind kind,
                                 struct muster_params_table *table, muster_params_op_fn *done)
{
    uint64_t deadline_ns = now_ns(bench) + PATIENCE_NS;
    const struct muster_params_range range = {.offset = rows->keys[0] * bench->elements,
                                              .count = (uint64_t)rows->count * bench->elements,
                                              .values = rows->values};

    if (bench->is_tensor)
        return muster_params_tensor_start(op, table, &range,
                                          kind == BENCH_PUSH ? MUSTER_PARAMS_DIRECTION_PUSH
                                                             : MUSTER_PARAMS_DIRECTION_PULL,
                                          deadline_ns, done);
    return kind == BENCH_PUSH ? muster_params_push_start(op, table, rows, deadline_ns, done)
                              : muster_params_pull_start(op, table, rows, deadline_ns, done);
}

static enum muster_rc batch_send(struct bench_batch *batch, struct muster_error *ret_error)
{
    struct bench_params *bench = batch->client->bench;
    const struct muster_params_rows rows = {batch->keys, batch->values, bench->rows_per_batch};
    struct muster_params_table *table = batch->client->table;
    enum muster_rc rc;

    if (bench->wire != NULL)
        return bench->wire->start(batch, ret_error);
    if (batch->kind == BENCH_PUSH_PULL)
        rc = muster_params_push_pull_start(&batch->op, table, &rows, batch->pulled,
                                           now_ns(bench) + PATIENCE_NS, on_batch);
    else
        rc = rows_start(bench, &batch->op, &rows, batch->kind, table, on_batch);
    *ret_error = batch->op.error;
    return rc;
}

static void batch_start(struct bench_batch *batch)
{
    struct bench_params *bench = batch->client->bench;
    struct muster_error error;
    enum muster_rc rc;

    batch->kind = bench->kind;
    batch->start_ns = now_ns(bench);
    batch->round = bench->round;
    for (uint32_t i = 0; i < bench->rows_per_batch; i++)
        batch->keys[i] = bench->is_tensor ? i : random_next(bench) % bench->settings->rows;
    rc = batch_send(batch, &error);
    if (rc == MUSTER_OK)
        bench->running++;
    else
        bench_params_note_failure(bench, rc, &error);
}

/* --- The load --- */

static struct bench_batch *batch_idle(struct bench_params *bench)
{
    uint64_t count = bench->settings->clients * bench->settings->depth;
    uint64_t start = random_next(bench) % count;

    for (uint64_t i = 0; i < count; i++) {
        uint64_t at = (start + i) % count;
        struct bench_batch *batch = &bench->clients[at / bench->settings->depth]
                                         .batches[at % bench->settings->depth];

        if (batch->start_ns == 0)
            return batch;
    }
    return NULL;
}

/* When the batch of this number is due: a beat of the pace, after its own moment. */
static uint64_t due_ns(const struct bench_params *bench, uint64_t number)
{
    double beats = (double)number * (double)bench->rows_per_batch /
                   ((double)bench->settings->rate * ((double)PACE_NS / 1e9));

    return bench->begin_ns + ((uint64_t)beats + 1) * PACE_NS;
}

/* The load does not wait for the server: a batch that starts late, since all are under way, is measured from the
 * time at which it was due. */
static void on_pace(struct muster_timer *timer)
{
    struct bench_params *bench = timer->data;
    struct bench_batch *batch;

    if (bench->is_stopping)
        return;
    while (due_ns(bench, bench->paced) <= now_ns(bench) && (batch = batch_idle(bench)) != NULL) {
        uint64_t due = due_ns(bench, bench->paced++);

        batch_start(batch);
        batch->start_ns = due;
    }
    muster_timer_start(timer, bench->env->loop, timer->due_ns + PACE_NS);
}

static bool load_is_over(struct bench_params *bench)
{
    return now_ns(bench) >= bench->end_ns && bench_params_kills_are_done(bench) &&
           bench_params_cut_is_done(bench);
}

static bool all_are_answered(struct bench_params *bench)
{
    return bench->running == 0;
}

void bench_params_start(struct bench_params *bench)
{
    bench->is_stopping = false;
    for (uint64_t i = 0; i < bench->settings->clients; i++) {
        for (uint64_t j = 0; j < bench->settings->depth; j++)
            batch_start(&bench->clients[i].batches[j]);
    }
}

bool bench_params_stop(struct bench_params *bench)
{
    bench->is_stopping = true;
    return bench_params_run_until(bench, all_are_answered);
}

/* Processor time of the process, from schedstat (proc(5)). */
static double cpu_seconds(pid_t pid)
{
    char path[64];
    unsigned long long ns = 0;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/schedstat", (int)pid);
    file = fopen(path, "re");
    if (file == NULL)
        return -1;
    if (fscanf(file, "%llu", &ns) != 1)
        ns = 0;
    fclose(file);
    return (double)ns / 1e9;
}

/* The processor time of all servers; -1 where one of them is killed. */
static double servers_cpu_s(const struct bench_params *bench)
{
    double sum = 0;

    for (uint32_t i = 0; i < bench->server_count; i++)
        sum += cpu_seconds(atomic_load_explicit(&bench->seats[i].keeper.board->serving, memory_order_relaxed));
    return bench->settings->kills == 0 ? sum : -1;
}

bool bench_params_load(struct bench_params *bench)
{
    const struct bench_params_settings *settings = bench->settings;
    double before_s = servers_cpu_s(bench);
    bool is_good;

    bench->begin_ns = now_ns(bench);
    bench->end_ns = bench->begin_ns + settings->duration_ns;
    muster_timer_init(&bench->pace, on_pace, bench);
    if (settings->rate > 0)
        muster_timer_start(&bench->pace, bench->env->loop, bench->begin_ns + PACE_NS);
    if (settings->rate == 0)
        bench_params_start(bench);
    bench_params_kills_start(bench);
    bench_params_cut_start(bench);
    is_good = bench_params_run_until(bench, load_is_over);
    bench->cpu_s = servers_cpu_s(bench) - before_s;
    bench->is_stopping = true;
    muster_timer_stop(&bench->pace);
    return is_good && bench_params_run_until(bench, all_are_answered);
}

/* --- All rows: made beforehand, checked at the end --- */

struct verification {
    struct bench_params *bench;
    bool is_done;
};

static void on_verified(struct muster_params_op *op, enum muster_rc rc)
{
    struct verification *verification = op->data;

    if (rc != MUSTER_OK)
        bench_params_note_failure(verification->bench, rc, &op->error);
    verification->is_done = true;
}

static bool rows_move(struct bench_params *bench, const struct muster_params_rows *rows,
                      enum bench_kind kind)
{
    struct verification verification = {.bench = bench};
    struct muster_params_op op = {.data = &verification};
    enum muster_rc rc =
        rows_start(bench, &op, rows, kind, bench->clients[0].table, on_verified);

    if (rc != MUSTER_OK)
        bench_params_note_failure(bench, rc, &op.error);
    while (rc == MUSTER_OK && !verification.is_done)
        muster_loop_turn(bench->env->loop, UINT64_MAX);
    return bench->failures == 0;
}

/* Each row is pushed once, in the order of their keys. */
bool bench_params_fill(struct bench_params *bench)
{
    uint64_t total = bench->settings->rows, keys[VERIFY_ROWS];
    uint32_t at_once = (uint32_t)(FILL_BYTES / bench->settings->value_bytes);
    float *ones;
    bool is_good;

    at_once = at_once < 1 ? 1 : at_once > VERIFY_ROWS ? VERIFY_ROWS : at_once;
    ones = calloc((size_t)at_once * bench->elements, sizeof(*ones));
    is_good = ones != NULL;
    for (size_t i = 0; is_good && i < (size_t)at_once * bench->elements; i++)
        ones[i] = 1;
    for (uint64_t from = 0; is_good && from < total; from += at_once) {
        struct muster_params_rows rows = {.keys = keys, .values = ones};

        rows.count = total - from < at_once ? (uint32_t)(total - from) : at_once;
        for (uint32_t i = 0; i < rows.count; i++)
            keys[i] = from + i;
        is_good = rows_move(bench, &rows, BENCH_PUSH);
        bench->pushed_rows += rows.count;
    }
    free(ones);
    return is_good;
}

/* Each push of a row adds 1 to each of its elements: the sums are the pushes. */
bool bench_params_verify(struct bench_params *bench)
{
    uint64_t keys[VERIFY_ROWS], total = bench->settings->rows;
    float *values = calloc((size_t)VERIFY_ROWS * bench->elements, sizeof(*values));
    uint8_t hash[MUSTER_HASH128_BYTES];
    struct muster_hash_stream stream;
    double sum = 0;
    bool is_good = values != NULL;

    muster_hash_stream_init(&stream);
    for (uint64_t from = 0; is_good && from < total; from += VERIFY_ROWS) {
        struct muster_params_rows rows = {.keys = keys, .values = values};

        rows.count = total - from < VERIFY_ROWS ? (uint32_t)(total - from) : VERIFY_ROWS;
        for (uint32_t i = 0; i < rows.count; i++)
            keys[i] = from + i;
        is_good = rows_move(bench, &rows, BENCH_PULL);
        for (uint32_t i = 0; i < rows.count; i++)
            sum += (double)values[(size_t)i * bench->elements];
        muster_hash_stream_add(&stream, values,
                               (size_t)rows.count * bench->elements * sizeof(*values));
    }
    free(values);
    muster_hash_stream_hash128(&stream, hash);
    muster_hash128_format(hash, bench->digest);
    if (strcmp(bench->settings->optimizer, "add") == 0) {
        double difference = sum - (double)bench->pushed_rows;

        bench->doubled = difference > 0 ? (uint64_t)difference : 0;
        bench->lost = difference < 0 ? (uint64_t)-difference : 0;
    }
    return is_good;
}
