/* Cases of the area batching: a global batch over workers and replicas, and batches cut anew. */
#include "cases.h"

#include <string.h>

static json_int_t number_of(const json_t *holder, const char *name)
{
    return json_integer_value(case_argument(holder, name));
}

/* --- global_batch --- */

static json_t *show_sizes(const struct muster_batch_split *split)
{
    json_t *sizes = json_array();

    for (uint64_t i = 0; i < (uint64_t)split->num_workers * split->replicas_per_worker; i++)
        json_array_append_new(sizes, json_integer((json_int_t)muster_batch_split_size(split, i)));
    return sizes;
}

/* Empty batches still follow elements that have ended with a full batch. */
static bool is_over(const json_t *elements, uint64_t first, uint64_t size)
{
    uint64_t count = json_array_size(elements);

    return first > count || (first == count && size > 0);
}

/* Each worker's stream is its own, and is cut to the sizes of the split in turn. */
static json_t *follow_split(const json_t *elements, const struct muster_batch_split *split)
{
    json_t *batches = json_array();
    uint64_t first = 0;

    for (uint64_t i = 0;; i++) {
        uint64_t size = muster_batch_split_size(split, i);

        if (is_over(elements, first, size))
            break;
        json_array_append_new(batches, case_input_part(elements, first, size));
        first += size;
    }
    return batches;
}

/* Everybody reads everything, and has its pieces of each global batch. */
static json_t *cut_batches(const json_t *batches, const struct muster_batch_split *split)
{
    uint32_t count = split->num_workers * split->replicas_per_worker;
    json_t *own = json_array();

    for (size_t i = 0; i < json_array_size(batches); i++)
        for (uint32_t piece = split->worker; piece < count; piece += split->num_workers) {
            const json_t *batch = json_array_get(batches, i);
            uint64_t first, size;

            muster_batch_cut(json_array_size(batch), count, piece, &first, &size);
            json_array_append_new(own, case_input_part(batch, first, size));
        }
    return own;
}

static json_t *read_elements(const struct case_run *run, const struct muster_shard *shard)
{
    const json_t *source = case_argument(run->one, "source");
    json_t *range, *elements;

    if (source != NULL)
        return case_input_read(source, shard);
    range = json_pack("{s:I}", "n", number_of(run->one, "elements"));
    elements = case_input_read(range, NULL);
    json_decref(range);
    return elements;
}

static void find_batches(const struct case_run *run, const struct muster_batch_split *split,
                         struct case_outcome *outcome)
{
    const json_t *source = case_argument(run->one, "source");
    const struct muster_shard shard = {
        .policy = case_shard_policy(case_text(case_argument(run->one, "policy"))),
        .num_workers = split->num_workers,
        .index = split->worker,
    };
    const struct muster_shard_input input = {
        .has_files = case_input_has_files(source),
        .file_count = json_array_size(json_object_get(source, "files")),
    };
    enum muster_shard_unit unit;
    json_t *elements, *batches;

    outcome->rc = muster_shard_choose(&shard, &input, &unit, &outcome->error);
    if (outcome->rc != MUSTER_OK)
        return;
    elements = read_elements(run, unit == MUSTER_SHARD_FILES ? &shard : NULL);
    batches = case_input_batch(elements, split->global_batch,
                               json_is_true(case_argument(run->one, "drop_remainder")));
    json_decref(elements);
    elements = case_input_flatten(batches);
    outcome->value =
        unit == MUSTER_SHARD_ELEMENTS ? cut_batches(batches, split) : follow_split(elements, split);
    json_decref(batches);
    json_decref(elements);
}

static void run_global_batch(struct case_run *run, const json_t *call, struct case_outcome *outcome)
{
    struct muster_batch_split split = {
        .global_batch = (uint64_t)number_of(run->one, "global_batch"),
        .num_workers = (uint32_t)number_of(run->one, "num_workers"),
        .replicas_per_worker = (uint32_t)number_of(run->one, "replicas_per_worker"),
        .worker = (uint32_t)number_of(call, "worker"),
    };
    const char *name = case_text(json_object_get(call, "call"));

    outcome->rc = muster_batch_split_check(&split, &outcome->error);
    if (outcome->rc != MUSTER_OK)
        return;
    if (name != NULL && strcmp(name, "batch_sizes") == 0)
        outcome->value = show_sizes(&split);
    else
        find_batches(run, &split, outcome);
}

/* --- rebatch --- */

static void run_rebatch(struct case_run *run, const json_t *call, struct case_outcome *outcome)
{
    const json_t *listed = case_argument(run->one, "sizes");
    size_t count = json_array_size(listed);
    struct muster_rebatch rebatch;
    json_t *elements;
    int64_t sizes[16];

    (void)call;
    for (size_t i = 0; i < count && i < 16; i++)
        sizes[i] = json_integer_value(json_array_get(listed, i));
    outcome->rc = muster_rebatch_init(&rebatch, sizes, count < 16 ? count : 16, &outcome->error);
    if (outcome->rc != MUSTER_OK)
        return;
    elements = read_elements(run, NULL);
    outcome->value = json_array();
    for (uint64_t first = 0;;) {
        uint64_t size = muster_rebatch_next(&rebatch);

        if (is_over(elements, first, size))
            break;
        json_array_append_new(outcome->value, case_input_part(elements, first, size));
        first += size;
    }
    json_decref(elements);
}

/* --- batches of a pipeline for replicas --- */

/* The batches that the stages make; INVALID_ARGUMENT when they make none. */
static json_t *run_stages(struct case_run *run, struct case_outcome *outcome)
{
    const json_t *stages = case_argument(run->one, "ops");
    int64_t size;

    outcome->rc = case_input_batch_size(stages, &size, &outcome->error);
    if (outcome->rc != MUSTER_OK)
        return NULL;
    return case_input_apply(case_input_read(case_argument(run->one, "source"), NULL), stages, NULL);
}

static json_t *cut_batch(const json_t *batch, uint32_t count)
{
    json_t *pieces = json_array();

    for (uint32_t i = 0; i < count; i++) {
        uint64_t first, size;

        muster_batch_cut(json_array_size(batch), count, i, &first, &size);
        json_array_append_new(pieces, case_input_part(batch, first, size));
    }
    return pieces;
}

static json_t *cut_each_batch(struct case_run *run, uint32_t count, struct case_outcome *outcome)
{
    json_t *batches = run_stages(run, outcome);
    json_t *steps;

    if (batches == NULL)
        return NULL;
    steps = json_array();
    for (size_t i = 0; i < json_array_size(batches); i++)
        json_array_append_new(steps, cut_batch(json_array_get(batches, i), count));
    json_decref(batches);
    return steps;
}

static void run_strategy_batches(struct case_run *run, const json_t *call,
                                 struct case_outcome *outcome)
{
    (void)call;
    outcome->value = cut_each_batch(run, (uint32_t)number_of(run->one, "replicas"), outcome);
}

static void run_legacy_rebatch(struct case_run *run, const json_t *call,
                               struct case_outcome *outcome)
{
    json_t *steps = cut_each_batch(run, (uint32_t)number_of(run->one, "num_replicas"), outcome);

    (void)call;
    outcome->value = case_input_flatten(steps);
    json_decref(steps);
}

static void run_batch_size(struct case_run *run, const json_t *call, struct case_outcome *outcome)
{
    int64_t size = 0;

    (void)call;
    outcome->rc = case_input_batch_size(case_argument(run->one, "ops"), &size, &outcome->error);
    if (outcome->rc == MUSTER_OK)
        outcome->value = json_integer(size);
}

void case_batching(struct case_run *run)
{
    static const struct {
        const char *kind;
        void (*make)(struct case_run *run, const json_t *call, struct case_outcome *outcome);
    } kinds[] = {
        {"global_batch", run_global_batch},         {"rebatch", run_rebatch},
        {"strategy_batches", run_strategy_batches}, {"legacy_rebatch", run_legacy_rebatch},
        {"batch_size_of", run_batch_size},
    };
    const char *kind = case_text(json_object_get(run->one, "kind"));
    const json_t *calls = case_calls(run);

    for (size_t i = 0; i < json_array_size(calls) && !run->is_failed; i++) {
        const json_t *call = json_array_get(calls, i);
        struct case_outcome outcome = {0};

        for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++)
            if (strcmp(kinds[k].kind, kind) == 0)
                kinds[k].make(run, call, &outcome);
        case_judge(run, kind, call, &outcome);
    }
}
