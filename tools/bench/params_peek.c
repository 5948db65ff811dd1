/* Peeks of `muster bench params`: rows read from the server's memory, beside pushes. */
#include "bench/params.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PATIENCE_NS    MUSTER_NS_PER_S
#define PEEKS_PER_TURN 256u
#define TURN_NS        (10 * MUSTER_NS_PER_MS)

static uint64_t clock_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * MUSTER_NS_PER_S + (uint64_t)now.tv_nsec;
}

static void keys_draw(struct bench_params *bench, uint64_t *keys)
{
    for (uint32_t i = 0; i < bench->rows_per_batch; i++)
        keys[i] = bench_params_random(bench) % bench->settings->rows;
}

/* Each push adds 1 to each element of a row. */
static void rows_check(struct bench_params *bench, const float *values)
{
    for (uint32_t i = 0; i < bench->rows_per_batch; i++, values += bench->elements) {
        uint32_t j = 1;

        while (j < bench->elements && !(values[j] < values[0]) && !(values[j] > values[0]))
            j++;
        bench->torn += j < bench->elements;
    }
}

/* Returns the time when it has ended. */
static uint64_t peek_once(struct bench_params *bench, const struct muster_params_rows *rows)
{
    uint64_t begin_ns, end_ns;
    enum muster_rc rc;

    keys_draw(bench, (uint64_t *)(uintptr_t)rows->keys);
    begin_ns = clock_ns();
    rc = muster_params_peek(bench->clients[0].table, rows);
    end_ns = clock_ns();
    bench->peek_ns += end_ns - begin_ns;
    if (rc != MUSTER_OK)
        return end_ns;
    bench->peeked_rows += rows->count;
    if (strcmp(bench->settings->optimizer, "add") == 0)
        rows_check(bench, rows->values);
    return end_ns;
}

/* Rows may be large: the time is looked at after each call, and the loop's clients wait no longer than for one turn. */
static void peeks_make(struct bench_params *bench, const struct muster_params_rows *rows,
                       uint64_t end_ns)
{
    uint64_t begin_ns = clock_ns(), at_ns = begin_ns;

    for (unsigned i = 0; i < PEEKS_PER_TURN && at_ns < end_ns && at_ns - begin_ns < TURN_NS; i++)
        at_ns = peek_once(bench, rows);
}

static bool memory_await(struct bench_params *bench, const struct muster_params_rows *rows)
{
    uint64_t end_ns = clock_ns() + PATIENCE_NS;

    keys_draw(bench, (uint64_t *)(uintptr_t)rows->keys);
    while (muster_params_peek(bench->clients[0].table, rows) != MUSTER_OK) {
        if (clock_ns() > end_ns)
            return false;
        muster_loop_turn(bench->env->loop, 0);
    }
    return true;
}

bool bench_params_peek(struct bench_params *bench)
{
    uint64_t *keys = calloc(bench->rows_per_batch, sizeof(*keys));
    float *values = calloc((size_t)bench->rows_per_batch * bench->elements, sizeof(*values));
    const struct muster_params_rows rows = {keys, values, bench->rows_per_batch};
    bool is_wanted = !bench->is_tensor && strcmp(bench->settings->wire, "tcp") != 0 && bench->wire == NULL &&
                     keys != NULL && values != NULL;
    bool is_good = true;

    if (is_wanted && memory_await(bench, &rows)) {
        uint64_t end_ns = clock_ns() + bench->settings->duration_ns / 2;

        bench_params_start(bench);
        while (bench->failures == 0 && clock_ns() < end_ns) {
            peeks_make(bench, &rows, end_ns);
            muster_loop_turn(bench->env->loop, 0);
        }
        is_good = bench_params_stop(bench);
    } else if (strcmp(bench->settings->wire, "shm") == 0 && !bench->is_tensor) {
        fprintf(stderr, "muster bench params: the server's memory cannot be read\n");
        is_good = false;
    }
    if (bench->torn > 0)
        fprintf(stderr, "muster bench params: %" PRIu64 " rows were torn\n", bench->torn);
    free(keys);
    free(values);
    return is_good && bench->torn == 0;
}
