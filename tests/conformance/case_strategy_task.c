/* One task of a case of kind strategy_cluster: a process that opens a strategy by its TF_CONFIG, makes every call that
 * was recorded, and tells what it has seen. README.md of the cases says which values the tasks give. */
#include "cases.h"

#include <muster/muster.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WAIT_NS      (60 * MUSTER_NS_PER_S)
#define ELEMENTS_MAX 64

/** The task. */
struct task {
    const json_t *args;
    struct muster_strategy *strategy;
    json_t *seen;
    uint32_t id;
    double first, second; /* the variable */
};

/* Errors of calls that were recorded to work. */
static void check_ok(const struct task *task, const char *key, enum muster_rc rc)
{
    if (rc == MUSTER_OK)
        return;
    fprintf(stderr, "case_runner: task %u, %s: %s\n", task->id, key,
            muster_strategy_error(task->strategy)->text);
    exit(1);
}

static json_t *show_error(enum muster_rc rc, const char *text)
{
    return json_pack("{s:{s:s, s:s}}", "error", "status", muster_rc_name(rc), "text", text);
}

static void see_key(const struct task *task, const char *key, json_t *value)
{
    json_object_set_new(task->seen, key, value);
}

static json_t *show_floats(const float *values, uint64_t count)
{
    json_t *list = json_array();

    for (uint64_t i = 0; i < count; i++)
        json_array_append_new(list, json_real((double)values[i]));
    return list;
}

/* --- Construction --- */

static enum muster_rc open_strategy(struct task *task, struct muster_error *ret_error)
{
    const json_t *asked = json_object_get(task->args, "communication_options");
    const char *implementation = case_text(json_object_get(asked, "implementation"));
    struct muster_strategy_options options = {
        .op_timeout_ns = WAIT_NS,
        .start_timeout_ns = WAIT_NS,
        .communication = {.bytes_per_pack = (uint64_t)json_integer_value(
                              json_object_get(asked, "bytes_per_pack"))}};
    enum muster_rc rc = MUSTER_OK;

    if (implementation != NULL)
        rc = muster_communication_parse(implementation, &options.communication.implementation,
                                        ret_error);
    return rc == MUSTER_OK ? muster_strategy_open(&options, &task->strategy, ret_error) : rc;
}

/* A variable is what each task has made of it, until begin gives all what the chief has. */
static void register_variable(struct task *task)
{
    const struct muster_tensor first = {.data = &task->first, .count = 1, .dtype = MUSTER_F64};
    const struct muster_tensor second = {.data = &task->second, .count = 1, .dtype = MUSTER_F64};

    task->id = muster_strategy_id_in_cluster(task->strategy);
    task->first = 10 + task->id;
    task->second = 5;
    check_ok(task, "register", muster_strategy_register(task->strategy, "first", &first));
    check_ok(task, "register", muster_strategy_register(task->strategy, "second", &second));
}

/* --- What it knows of its place --- */

static json_t *show_devices(const struct task *task)
{
    json_t *devices = json_array();
    char name[MUSTER_DEVICE_TEXT_BYTES];

    for (uint32_t i = 0; i < muster_replicas_local(task->strategy); i++) {
        muster_replicas_device_name(task->strategy, i, name);
        json_array_append_new(devices, json_string(name));
    }
    return devices;
}

static void see_place(const struct task *task)
{
    const struct muster_strategy *strategy = task->strategy;
    struct muster_input_context input = muster_strategy_input_context(strategy);
    bool is_local = muster_strategy_is_local(strategy);
    uint64_t batch = 0;
    struct muster_error error;

    see_key(task, "properties",
            json_pack("{s:i, s:i, s:i, s:b, s:b, s:b, s:b, s:o, s:o, s:o, s:o}",
                      "num_replicas_in_sync", (int)muster_strategy_num_replicas_in_sync(strategy),
                      "num_workers", (int)muster_strategy_worker_count(strategy), "id_in_cluster",
                      (int)muster_strategy_id_in_cluster(strategy), "is_chief",
                      muster_strategy_is_chief(strategy), "should_checkpoint",
                      muster_strategy_should_checkpoint(strategy), "should_save_summary",
                      muster_strategy_should_save_summary(strategy), "experimental_between_graph",
                      muster_strategy_is_between_graph(strategy), "task_type",
                      is_local ? json_null() : json_string(muster_strategy_task_type(strategy)),
                      "task_id",
                      is_local ? json_null() : json_integer(muster_strategy_task_index(strategy)),
                      "worker_devices", show_devices(task), "parameter_devices",
                      show_devices(task)));
    if (muster_input_context_batch(&input, 12, &batch, &error) != MUSTER_OK)
        fprintf(stderr, "case_runner: %s\n", error.text);
    see_key(task, "input_context",
            json_pack("{s:i, s:i, s:i, s:i}", "num_input_pipelines", (int)input.num_input_pipelines,
                      "input_pipeline_id", (int)input.input_pipeline_id, "num_replicas_in_sync",
                      (int)input.num_replicas_in_sync, "per_replica_batch_of_12", (int)batch));
}

/* --- Values of all replicas --- */

/* id … 2 * id + 1. */
static struct muster_shaped_tensor make_range(const struct task *task, float *values)
{
    struct muster_shaped_tensor range = {.data = values, .dtype = MUSTER_F32, .dimension_count = 1};

    range.dimensions[0] = task->id + 2;
    for (uint32_t i = 0; i < task->id + 2; i++)
        values[i] = (float)(task->id + i);
    return range;
}

static void see_reductions(const struct task *task)
{
    static const struct {
        const char *key, *axis_key;
        enum muster_reduction reduction;
    } rows[] = {{"reduce_sum", "reduce_sum_axis0", MUSTER_SUM},
                {"reduce_mean", "reduce_mean_axis0_uneven", MUSTER_MEAN}};
    float pair[2] = {(float)task->id + 1, 2}, elements[ELEMENTS_MAX], result[2];
    const struct muster_tensor both = {.data = result, .count = 2, .dtype = MUSTER_F32};
    const struct muster_tensor one = {.data = result, .count = 1, .dtype = MUSTER_F32};
    const struct muster_tensor given = {.data = pair, .count = 2, .dtype = MUSTER_F32};
    const struct muster_shaped_tensor value = muster_shaped_vector(&given);
    const struct muster_shaped_tensor range = make_range(task, elements);

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        check_ok(task, rows[i].key,
                 muster_replicas_reduce(task->strategy, &value, MUSTER_AXIS_NONE, rows[i].reduction,
                                        &both));
        see_key(task, rows[i].key, show_floats(result, 2));
        check_ok(task, rows[i].axis_key,
                 muster_replicas_reduce(task->strategy, &range, 0, rows[i].reduction, &one));
        see_key(task, rows[i].axis_key, json_real((double)result[0]));
    }
}

static void see_gather(const struct task *task)
{
    float elements[ELEMENTS_MAX];
    const struct muster_shaped_tensor range = make_range(task, elements);
    struct muster_shaped_tensor whole;

    check_ok(task, "gather", muster_replicas_gather(task->strategy, &range, 0, &whole));
    see_key(task, "gather_axis0_uneven", show_floats(whole.data, whole.dimensions[0]));
    muster_replicas_free(task->strategy, &whole);
}

/* --- Within a replica --- */

/** The replica's code has seen this. */
struct inside {
    const struct task *task;
    json_t *seen, *aggregates;
};

static enum muster_rc see_inside_sums(struct muster_replica *replica, const struct inside *inside)
{
    float id = (float)replica->id, sum = id + 1, means[3] = {id, 1, 2 * id};
    struct muster_tensor tensors[] = {{.data = &means[0], .count = 1, .dtype = MUSTER_F32},
                                      {.data = &means[1], .count = 2, .dtype = MUSTER_F32}};
    const struct muster_tensor one = {.data = &sum, .count = 1, .dtype = MUSTER_F32};
    enum muster_rc rc = muster_replica_all_reduce(replica, &one, 1, MUSTER_SUM);

    if (rc == MUSTER_OK)
        rc = muster_replica_all_reduce(replica, tensors, 2, MUSTER_MEAN);
    if (rc == MUSTER_OK)
        json_object_update_new(inside->seen,
                               json_pack("{s:[f], s:[f, [f, f]]}", "sum", (double)sum, "mean",
                                         (double)means[0], (double)means[1], (double)means[2]));
    return rc;
}

static json_t *show_rows(const float *values, uint64_t rows, uint64_t columns)
{
    json_t *list = json_array();

    for (uint64_t i = 0; i < rows; i++)
        json_array_append_new(list, show_floats(values + i * columns, columns));
    return list;
}

static enum muster_rc see_inside_gather(struct muster_replica *replica, const struct inside *inside)
{
    float elements[ELEMENTS_MAX];
    struct muster_shaped_tensor value = {
        .data = elements, .dtype = MUSTER_F32, .dimension_count = 2};
    struct muster_shaped_tensor whole;
    enum muster_rc rc;

    value.dimensions[0] = replica->id + 1;
    value.dimensions[1] = 1;
    for (uint32_t i = 0; i <= replica->id; i++)
        elements[i] = (float)replica->id;
    rc = muster_replica_gather(replica, &value, 0, &whole);
    if (rc != MUSTER_OK)
        return rc;
    json_object_set_new(inside->seen, "gather",
                        show_rows(whole.data, whole.dimensions[0], whole.dimensions[1]));
    muster_replicas_free(replica->strategy, &whole);
    return MUSTER_OK;
}

/* id + 1 rows of value id + 1 at indices id …; TensorFlow concatenates them. */
static enum muster_rc see_inside_slices(struct muster_replica *replica, const struct inside *inside)
{
    static const struct muster_slices_options options = {.is_concatenated = true};
    uint64_t indices[ELEMENTS_MAX];
    float values[2 * ELEMENTS_MAX];
    const struct muster_slices slices = {.indices = indices,
                                         .values = values,
                                         .count = replica->id + 1,
                                         .row_elements = 2,
                                         .dtype = MUSTER_F32};
    struct muster_slices_sum sum;
    json_t *places = json_array();
    enum muster_rc rc;

    for (uint32_t i = 0; i <= replica->id; i++) {
        indices[i] = replica->id + i;
        values[2 * i] = values[2 * i + 1] = (float)replica->id + 1;
    }
    rc = muster_replica_sum_slices(replica, &slices, MUSTER_SUM, &options, &sum);
    if (rc != MUSTER_OK)
        return rc;
    for (uint64_t i = 0; i < sum.slices.count; i++)
        json_array_append_new(places, json_integer((json_int_t)sum.slices.indices[i]));
    json_object_set_new(inside->seen, "slices_sum_indices", places);
    json_object_set_new(inside->seen, "slices_sum_values",
                        show_rows(sum.slices.values, sum.slices.count, sum.slices.row_elements));
    muster_slices_sum_free(&sum);
    return MUSTER_OK;
}

static enum muster_rc see_inside_aggregates(struct muster_replica *replica,
                                            const struct inside *inside)
{
    static const struct {
        const char *key;
        enum muster_aggregation aggregation;
    } rows[] = {{"SUM", MUSTER_AGGREGATION_SUM},
                {"MEAN", MUSTER_AGGREGATION_MEAN},
                {"ONLY_FIRST_REPLICA", MUSTER_AGGREGATION_ONLY_FIRST_REPLICA}};
    float variables[3] = {0}, own = (float)replica->id + 1;
    const struct muster_tensor value = {.data = &own, .count = 1, .dtype = MUSTER_F32};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct muster_tensor variable = {
            .data = &variables[i], .count = 1, .dtype = MUSTER_F32};
        enum muster_rc rc =
            muster_replica_assign(replica, &variable, &value, rows[i].aggregation, true);

        if (rc != MUSTER_OK)
            return rc;
        json_object_set_new(inside->aggregates, rows[i].key, json_real((double)variables[i]));
    }
    return MUSTER_OK;
}

static enum muster_rc see_inside(struct muster_replica *replica)
{
    const struct inside *inside = replica->data;
    enum muster_rc rc;

    see_key(inside->task, "replica_id", json_integer(replica->id));
    rc = see_inside_sums(replica, inside);
    if (rc == MUSTER_OK)
        rc = see_inside_gather(replica, inside);
    if (rc == MUSTER_OK)
        rc = see_inside_slices(replica, inside);
    return rc == MUSTER_OK ? see_inside_aggregates(replica, inside) : rc;
}

static void see_replica(const struct task *task)
{
    struct inside inside = {task, json_object(), json_object()};

    check_ok(task, "replica", muster_replicas_run(task->strategy, see_inside, &inside));
    see_key(task, "replica_all_reduce", inside.seen);
    see_key(task, "assign_aggregates", inside.aggregates);
}

/* --- Data --- */

static json_t *show_batch(const struct muster_dataset_batch *batch)
{
    json_t *elements = json_array();

    for (size_t i = 0; i < batch->count; i++)
        json_array_append_new(elements,
                              json_integer(*(const unsigned char *)batch->records[i].data));
    return elements;
}

static struct muster_dataset *open_dataset(const struct task *task, const json_t *asked,
                                           const struct muster_bytes *records)
{
    struct muster_input_context input = muster_strategy_input_context(task->strategy);
    struct muster_dataset_options options = {
        .kind = MUSTER_DATASET_MEMORY,
        .records = records,
        .record_count = (uint64_t)json_integer_value(json_object_get(asked, "elements")),
        .batch = (uint32_t)json_integer_value(json_object_get(asked, "global_batch")),
        .epoch_count = 1,
        .shard = {.policy = case_shard_policy(case_text(json_object_get(asked, "policy"))),
                  .num_workers = input.num_input_pipelines,
                  .index = input.input_pipeline_id},
        .replicas_per_worker = muster_replicas_local(task->strategy)};
    struct muster_dataset *dataset = NULL;
    struct muster_error error;

    if (muster_dataset_open(&options, &dataset, &error) != MUSTER_OK) {
        fprintf(stderr, "case_runner: task %u, dataset: %s\n", task->id, error.text);
        exit(1);
    }
    return dataset;
}

static json_t *show_steps(const struct task *task, struct muster_dataset *dataset)
{
    struct muster_dataset_batch batches[MUSTER_REPLICAS_MAX];
    json_t *steps = json_array();
    enum muster_rc rc;

    while ((rc = muster_replicas_next_batches(task->strategy, dataset, batches)) == MUSTER_OK) {
        json_t *step = json_array();

        for (uint32_t i = 0; i < muster_replicas_local(task->strategy); i++)
            json_array_append_new(step, show_batch(&batches[i]));
        json_array_append_new(steps, step);
    }
    if (rc != MUSTER_OUT_OF_RANGE)
        check_ok(task, "dataset", rc);
    return steps;
}

static void see_datasets(const struct task *task)
{
    const json_t *asked = json_object_get(task->args, "datasets");
    struct muster_bytes records[ELEMENTS_MAX];
    unsigned char elements[ELEMENTS_MAX];
    json_t *seen = json_array();

    for (unsigned i = 0; i < ELEMENTS_MAX; i++) {
        elements[i] = (unsigned char)i;
        records[i] = (struct muster_bytes){.data = &elements[i], .size = 1};
    }
    for (size_t i = 0; i < json_array_size(asked); i++) {
        struct muster_dataset *dataset = open_dataset(task, json_array_get(asked, i), records);

        json_array_append_new(seen, show_steps(task, dataset));
        muster_dataset_close(dataset);
    }
    see_key(task, "dataset", seen);
}

static void see_logical_devices(const struct task *task)
{
    uint32_t device = 0;
    enum muster_rc rc = muster_replicas_assign_to_logical_device(task->strategy, 0, 1, &device);

    see_key(task, "assign_logical_1",
            rc == MUSTER_OK ? json_integer(device)
                            : show_error(rc, muster_strategy_error(task->strategy)->text));
}

/* --- The task --- */

static void make_step(struct task *task)
{
    uint64_t step;

    register_variable(task);
    check_ok(task, "begin", muster_strategy_begin(task->strategy, &step, NULL));
    see_key(task, "variable_after_create", json_pack("[f, f]", task->first, task->second));
    see_place(task);
    see_reductions(task);
    see_gather(task);
    see_replica(task);
    see_datasets(task);
    see_logical_devices(task);
    check_ok(task, "commit", muster_strategy_commit(task->strategy));
    muster_strategy_close(task->strategy);
}

int case_strategy_task(void)
{
    struct muster_error error = {.text = ""};
    json_error_t unread;
    json_t *args = json_loadf(stdin, 0, &unread);
    struct task task = {.args = args, .seen = json_object()};
    enum muster_rc rc;

    if (args == NULL) {
        fprintf(stderr, "case_runner: a task was told nothing: %s\n", unread.text);
        return 1;
    }
    rc = open_strategy(&task, &error);
    see_key(&task, "construct",
            rc == MUSTER_OK ? json_pack("{s:b}", "ok", 1) : show_error(rc, error.text));
    if (rc == MUSTER_OK)
        make_step(&task);
    json_dumpf(task.seen, stdout, JSON_COMPACT);
    json_decref(task.seen);
    json_decref(args);
    return 0;
}
