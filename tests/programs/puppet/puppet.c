/* A training program on strings: it reads one command per line from standard input and answers each
 * with one line, "ok …" or "NAME_OF_RC text", so that a test decides in which order the members of
 * a job do what. */
#include "puppet.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TENSORS_MAX = 8 };

struct muster_strategy *puppet_strategy;
static struct {
    char name[32];
    struct muster_tensor tensor;
} tensors[TENSORS_MAX]; /* the registered ones */
static int tensor_count;

const char *puppet_word(const struct words *words, int i, const char *fallback)
{
    return i < words->count ? words->at[i] : fallback;
}

uint64_t puppet_number(const struct words *words, int i, const char *fallback)
{
    return strtoull(puppet_word(words, i, fallback), NULL, 10);
}

double puppet_seconds(const struct words *words, int i)
{
    return strtod(puppet_word(words, i, "0"), NULL);
}

static void answer_error(enum muster_rc rc, const char *text)
{
    printf("%s %s\n", muster_rc_name(rc), text);
}

/* "ok" and whatever the caller prints behind it, or the error. */
bool puppet_is_ok(enum muster_rc rc)
{
    if (rc != MUSTER_OK)
        answer_error(rc, muster_strategy_error(puppet_strategy)->text);
    return rc == MUSTER_OK;
}

void *puppet_make_tensor(uint64_t count, double value)
{
    double *data = calloc(count == 0 ? 1 : count, sizeof(*data));

    if (data == NULL)
        abort();
    for (uint64_t i = 0; i < count; i++)
        data[i] = value;
    return data;
}

/* The value of a word NAME=VALUE; NULL: there is none. */
static const char *find_named(const struct words *words, const char *name)
{
    size_t length = strlen(name);

    for (int i = 1; i < words->count; i++)
        if (strncmp(words->at[i], name, length) == 0 && words->at[i][length] == '=')
            return words->at[i] + length + 1;
    return NULL;
}

static uint64_t named_number(const struct words *words, const char *name)
{
    const char *text = find_named(words, name);

    return text == NULL ? 0 : strtoull(text, NULL, 10);
}

/* communication=NAME bytes_per_pack=N timeout_ms=N */
struct muster_communication_options puppet_read_communication(const struct words *words)
{
    struct muster_communication_options options = {
        .bytes_per_pack = named_number(words, "bytes_per_pack"),
        .timeout_ns = named_number(words, "timeout_ms") * 1000000,
    };
    const char *name = find_named(words, "communication");

    if (name != NULL &&
        muster_communication_parse(name, &options.implementation, NULL) != MUSTER_OK)
        abort();
    return options;
}

static void open_as(const struct words *words, struct muster_strategy **ret_strategy)
{
    struct muster_strategy_options options = {
        .op_timeout_ns = (uint64_t)(puppet_seconds(words, 1) * 1e9),
        .start_timeout_ns = (uint64_t)(puppet_seconds(words, 2) * 1e9),
        .resolver = strcmp(puppet_word(words, 3, "-"), "-") == 0 ? NULL : words->at[3],
        .communication = puppet_read_communication(words),
        .is_reproducible = named_number(words, "reproducible") != 0,
        .is_fixed_size = named_number(words, "fixed") != 0,
    };
    struct muster_error error = {0};
    enum muster_rc rc = muster_strategy_open(&options, ret_strategy, &error);

    if (rc == MUSTER_OK)
        printf("ok\n");
    else
        answer_error(rc, error.text);
}

/* open [op_timeout_s [start_timeout_s [resolver [communication=NAME …]]]]; 0 and - are the default
 * */
static void command_open(const struct words *words)
{
    open_as(words, &puppet_strategy);
}

/* The same, of a second one. */
static void command_open_another(const struct words *words)
{
    struct muster_strategy *another = NULL;

    open_as(words, &another);
    muster_strategy_close(another);
}

/* register NAME COUNT VALUE: of f64 */
static void command_register(const struct words *words)
{
    struct muster_tensor tensor = {.count = puppet_number(words, 2, "1"), .dtype = MUSTER_F64};

    if (tensor_count == TENSORS_MAX)
        abort();
    tensor.data = puppet_make_tensor(tensor.count, puppet_seconds(words, 3));
    if (!puppet_is_ok(
            muster_strategy_register(puppet_strategy, puppet_word(words, 1, ""), &tensor))) {
        free(tensor.data);
        return;
    }
    snprintf(tensors[tensor_count].name, sizeof(tensors[0].name), "%s", puppet_word(words, 1, ""));
    tensors[tensor_count++].tensor = tensor;
    printf("ok\n");
}

static struct muster_tensor *find_tensor(const char *name)
{
    for (int i = 0; i < tensor_count; i++)
        if (strcmp(tensors[i].name, name) == 0)
            return &tensors[i].tensor;
    abort();
}

/* set NAME VALUE: every element */
static void command_set(const struct words *words)
{
    struct muster_tensor *tensor = find_tensor(puppet_word(words, 1, ""));

    for (uint64_t i = 0; i < tensor->count; i++)
        ((double *)tensor->data)[i] = puppet_seconds(words, 2);
    printf("ok\n");
}

/* The one value that all elements have. */
void puppet_print_value(const struct muster_tensor *tensor)
{
    const double *data = tensor->data;

    /* Each element is as the one before it. */
    if (tensor->count > 1 && memcmp(data + 1, data, (tensor->count - 1) * sizeof(data[0])) != 0)
        printf(" value=mixed");
    else
        printf(" value=%.17g", tensor->count > 0 ? data[0] : 0.0);
}

/* change NAME VALUE: set it, as the only part that the step changes */
static void command_change(const struct words *words)
{
    const struct muster_tensor *tensor = find_tensor(puppet_word(words, 1, ""));

    if (puppet_is_ok(muster_strategy_update_begin_parts(puppet_strategy, tensor, 1)))
        command_set(words);
}

static void command_get(const struct words *words)
{
    printf("ok");
    puppet_print_value(find_tensor(puppet_word(words, 1, "")));
    printf("\n");
}

static void command_begin(const struct words *words)
{
    uint64_t step = 0;
    bool is_restored = false;

    (void)words;
    if (puppet_is_ok(muster_strategy_begin(puppet_strategy, &step, &is_restored)))
        printf("ok step=%" PRIu64 " restored=%d rank=%u size=%u epoch=%" PRIu64 " joined=%u\n",
               step, is_restored, muster_strategy_rank(puppet_strategy),
               muster_strategy_size(puppet_strategy), muster_strategy_epoch(puppet_strategy),
               muster_strategy_joined(puppet_strategy));
}

static void fill_tensor(const struct muster_tensor *tensor, double value)
{
    for (uint64_t i = 0; i < tensor->count; i++)
        ((double *)tensor->data)[i] = value;
}

/* Every element is low or high, and all are the same. */
static bool is_either(const struct muster_tensor *tensor, double low, double high)
{
    const double *data = tensor->data;

    for (uint64_t i = 0; i < tensor->count; i++)
        if (data[i] != data[0])
            return false;
    return data[0] == low || data[0] == high;
}

/* One step whose state is its number + 1, which it becomes directly behind begin, as the statistics
 * of a forward pass do. Answers what is wrong. */
static bool train_early(const struct muster_tensor *tensor, const struct muster_tensor *gradient,
                        uint64_t *ret_step, uint32_t *ret_members)
{
    bool is_restored = false;
    enum muster_rc rc;
    uint64_t step = 0;

    do {
        if (!puppet_is_ok(muster_strategy_begin(puppet_strategy, &step, &is_restored)))
            return false;
        /* a step that runs again has changed it already */
        if (!is_either(tensor, (double)step, is_restored ? (double)step : (double)step + 1)) {
            printf("torn step=%" PRIu64 " restored=%d", step, is_restored);
            puppet_print_value(tensor);
            printf("\n");
            return false;
        }
        fill_tensor(tensor, (double)step + 1);
        rc = muster_strategy_all_reduce(puppet_strategy, gradient, 1, MUSTER_SUM);
    } while (rc == MUSTER_ABORTED);
    *ret_step = step;
    *ret_members = muster_strategy_contributors(puppet_strategy);
    return puppet_is_ok(rc) && puppet_is_ok(muster_strategy_commit(puppet_strategy));
}

/* train_early NAME SIZE STEPS: until that many members have made that many steps together. A step is counted by its
 * contributors, who are the same on all; its size is that of the view at begin, which two members may see differ when
 * one joins between their begins. */
static void command_train_early(const struct words *words)
{
    struct muster_tensor gradient = {
        .data = puppet_make_tensor(1, 1), .count = 1, .dtype = MUSTER_F64};
    uint64_t step = 0, steps = 0;
    uint32_t members = 0;
    bool is_going = true;

    while (is_going && steps < puppet_number(words, 3, "1")) {
        is_going = train_early(find_tensor(puppet_word(words, 1, "")), &gradient, &step, &members);
        steps = members == puppet_number(words, 2, "1") ? steps + 1 : 0;
    }
    if (is_going)
        printf("ok step=%" PRIu64 "\n", step);
    free(gradient.data);
}

enum muster_reduction puppet_reduction_of(const char *name)
{
    for (int i = 0; i <= MUSTER_XOR; i++)
        if (strcmp(muster_reduction_name((enum muster_reduction)i), name) == 0)
            return (enum muster_reduction)i;
    abort();
}

/* all_reduce COUNT VALUE [REDUCTION [TENSORS]]: in one call; the value is the last's */
static void command_all_reduce(const struct words *words)
{
    struct muster_tensor reduced[PUPPET_TENSORS_MAX];
    uint64_t count = puppet_number(words, 4, "1");

    if (count == 0 || count > PUPPET_TENSORS_MAX)
        abort();
    for (uint64_t i = 0; i < count; i++)
        reduced[i] = (struct muster_tensor){
            .data = puppet_make_tensor(puppet_number(words, 1, "1"), puppet_seconds(words, 2)),
            .count = puppet_number(words, 1, "1"),
            .dtype = MUSTER_F64};
    if (puppet_is_ok(muster_strategy_all_reduce(
            puppet_strategy, reduced, count, puppet_reduction_of(puppet_word(words, 3, "sum"))))) {
        printf("ok");
        puppet_print_value(&reduced[count - 1]);
        printf(" contributors=%u interrupted=%d\n", muster_strategy_contributors(puppet_strategy),
               muster_strategy_result(puppet_strategy)->is_interrupted);
    }
    for (uint64_t i = 0; i < count; i++)
        free(reduced[i].data);
}

/* all_reduce_weighted COUNT VALUE WEIGHT */
static void command_all_reduce_weighted(const struct words *words)
{
    struct muster_tensor tensor = {.count = puppet_number(words, 1, "1"), .dtype = MUSTER_F64};

    tensor.data = puppet_make_tensor(tensor.count, puppet_seconds(words, 2));
    if (puppet_is_ok(muster_strategy_all_reduce_weighted(puppet_strategy, &tensor, 1,
                                                         puppet_number(words, 3, "1")))) {
        printf("ok");
        puppet_print_value(&tensor);
        printf(" weight=%" PRIu64 "\n", muster_strategy_result(puppet_strategy)->total_weight);
    }
    free(tensor.data);
}

static enum muster_dtype dtype_of(const char *name)
{
    for (int i = 0; muster_dtype_bytes((enum muster_dtype)i) > 0; i++)
        if (strcmp(muster_dtype_name((enum muster_dtype)i), name) == 0)
            return (enum muster_dtype)i;
    abort();
}

static bool are_bytes(const uint8_t *at, size_t bytes, uint8_t value)
{
    for (size_t i = 0; i < bytes; i++)
        if (at[i] != value)
            return false;
    return true;
}

/* all_reduce_packed DTYPE COUNT REDUCTION TENSORS BYTES_PER_PACK [TIMEOUT_S [communication=NAME]]:
 * of bytes 1, in packs; after an error: whether the memory is as it was. */
static void command_all_reduce_packed(const struct words *words)
{
    const struct muster_communication_options options = {
        .implementation = puppet_read_communication(words).implementation,
        .bytes_per_pack = puppet_number(words, 5, "0"),
        .timeout_ns = (uint64_t)(puppet_seconds(words, 6) * 1e9)};
    struct muster_tensor tensors_of_call[PUPPET_TENSORS_MAX];
    uint64_t count = puppet_number(words, 4, "1"), elements = puppet_number(words, 2, "1");
    enum muster_dtype dtype = dtype_of(puppet_word(words, 1, "f64"));
    size_t bytes = elements * muster_dtype_bytes(dtype), stride = (bytes + 15) / 8 * 8;
    uint8_t *memory = malloc(count * stride + 1);
    enum muster_rc rc;

    if (memory == NULL || count > PUPPET_TENSORS_MAX)
        abort();
    memset(memory, 1, count * stride + 1);
    for (uint64_t i = 0; i < count; i++)
        tensors_of_call[i] =
            (struct muster_tensor){.data = memory + i * stride, .count = elements, .dtype = dtype};
    rc = muster_strategy_all_reduce_with(puppet_strategy, tensors_of_call, count,
                                         puppet_reduction_of(puppet_word(words, 3, "sum")),
                                         &options);
    if (rc == MUSTER_OK)
        printf("ok first=%u last=%u input=%s\n", memory[0], memory[count * stride - stride],
               muster_strategy_result(puppet_strategy)->input);
    else
        printf("%s %s intact=%d\n", muster_rc_name(rc),
               muster_strategy_error(puppet_strategy)->text, are_bytes(memory, count * stride, 1));
    free(memory);
}

/* broadcast COUNT VALUE [ROOT] */
static void command_broadcast(const struct words *words)
{
    struct muster_tensor tensor = {.count = puppet_number(words, 1, "1"), .dtype = MUSTER_F64};

    tensor.data = puppet_make_tensor(tensor.count, puppet_seconds(words, 2));
    if (puppet_is_ok(muster_strategy_broadcast(puppet_strategy, &tensor,
                                               (uint32_t)puppet_number(words, 3, "0")))) {
        printf("ok");
        puppet_print_value(&tensor);
        printf("\n");
    }
    free(tensor.data);
}

/* reduce COUNT VALUE REDUCTION ROOT */
static void command_reduce(const struct words *words)
{
    struct muster_tensor tensor = {.count = puppet_number(words, 1, "1"), .dtype = MUSTER_F64};

    tensor.data = puppet_make_tensor(tensor.count, puppet_seconds(words, 2));
    if (puppet_is_ok(muster_strategy_reduce(puppet_strategy, &tensor,
                                            puppet_reduction_of(puppet_word(words, 3, "sum")),
                                            (uint32_t)puppet_number(words, 4, "0")))) {
        printf("ok");
        puppet_print_value(&tensor);
        printf("\n");
    }
    free(tensor.data);
}

/* The first element of each part. */
void puppet_print_parts(const struct muster_tensor *tensor, uint32_t parts)
{
    const double *data = tensor->data;

    printf("ok parts=");
    for (uint32_t i = 0; i < parts; i++)
        printf("%s%.17g", i == 0 ? "" : ",", data[i * (tensor->count / parts)]);
    printf("\n");
}

/* all_gather COUNT VALUE */
static void command_all_gather(const struct words *words)
{
    uint32_t size = muster_strategy_size(puppet_strategy);
    struct muster_tensor input = {.count = puppet_number(words, 1, "1"), .dtype = MUSTER_F64};
    struct muster_tensor output = {.count = input.count * size, .dtype = MUSTER_F64};

    input.data = puppet_make_tensor(input.count, puppet_seconds(words, 2));
    output.data = puppet_make_tensor(output.count, 0);
    if (puppet_is_ok(muster_strategy_all_gather(puppet_strategy, &input, &output)))
        puppet_print_parts(&output, size);
    free(input.data);
    free(output.data);
}

/* all_to_all COUNT VALUE: VALUE + r for rank r */
static void command_all_to_all(const struct words *words)
{
    uint32_t size = muster_strategy_size(puppet_strategy);
    uint64_t count = puppet_number(words, 1, "1");
    struct muster_tensor input = {.count = count * size, .dtype = MUSTER_F64}, output = input;

    input.data = puppet_make_tensor(input.count, puppet_seconds(words, 2));
    output.data = puppet_make_tensor(output.count, 0);
    for (uint64_t i = 0; i < input.count; i++)
        ((double *)input.data)[i] += (double)(i / count);
    if (puppet_is_ok(muster_strategy_all_to_all(puppet_strategy, &input, &output)))
        puppet_print_parts(&output, size);
    free(input.data);
    free(output.data);
}

static void command_barrier(const struct words *words)
{
    (void)words;
    if (puppet_is_ok(muster_strategy_barrier(puppet_strategy)))
        printf("ok\n");
}

static void command_commit(const struct words *words)
{
    (void)words;
    if (puppet_is_ok(muster_strategy_commit(puppet_strategy)))
        printf("ok\n");
}

/* Print the options that the members have agreed on. */
static void command_options(const struct words *words)
{
    struct muster_communication_options options = muster_strategy_communication(puppet_strategy);

    (void)words;
    printf("ok epoch=%" PRIu64 " communication=%s bytes_per_pack=%" PRIu64 " timeout_ms=%" PRIu64
           " reproducible=%d\n",
           muster_strategy_epoch(puppet_strategy),
           muster_communication_name(options.implementation), options.bytes_per_pack,
           options.timeout_ns / 1000000, muster_strategy_is_reproducible(puppet_strategy));
}

/* check_health TIMEOUT_S */
static void command_check_health(const struct words *words)
{
    if (puppet_is_ok(muster_strategy_check_health(puppet_strategy,
                                                  (uint64_t)(puppet_seconds(words, 1) * 1e9))))
        printf("ok\n");
}

static void command_role(const struct words *words)
{
    struct muster_input_context input = muster_strategy_input_context(puppet_strategy);

    (void)words;
    printf("ok type=%s index=%u chief=%d id=%u count=%u alone=%d checkpoint=%d summary=%d "
           "pipelines=%u pipeline=%u replicas=%u\n",
           muster_strategy_task_type(puppet_strategy), muster_strategy_task_index(puppet_strategy),
           muster_strategy_is_chief(puppet_strategy),
           muster_strategy_id_in_cluster(puppet_strategy),
           muster_strategy_worker_count(puppet_strategy), muster_strategy_is_alone(puppet_strategy),
           muster_strategy_should_checkpoint(puppet_strategy),
           muster_strategy_should_save_summary(puppet_strategy), input.num_input_pipelines,
           input.input_pipeline_id, input.num_replicas_in_sync);
}

static void command_digest(const struct words *words)
{
    char text[MUSTER_DIGEST_TEXT_BYTES];

    (void)words;
    muster_strategy_state_digest(puppet_strategy, text);
    printf("ok digest=%s\n", text);
}

static void command_close(const struct words *words)
{
    (void)words;
    puppet_micro_close();
    muster_strategy_close(puppet_strategy);
    puppet_strategy = NULL;
    puppet_splits_forget();
    while (tensor_count > 0)
        free(tensors[--tensor_count].tensor.data);
    printf("ok\n");
}

/* abandon TEXT */
static void command_abandon(const struct words *words)
{
    muster_strategy_abandon(puppet_strategy, puppet_word(words, 1, "on command"));
    printf("ok\n");
}

static const struct {
    const char *name;
    void (*run)(const struct words *words);
    bool needs_strategy;
} commands[] = {
    {"open", command_open, false},
    {"open_another", command_open_another, false},
    {"register", command_register, true},
    {"set", command_set, true},
    {"change", command_change, true},
    {"get", command_get, true},
    {"begin", command_begin, true},
    {"register_blob", puppet_register_blob, true},
    {"set_blob", puppet_set_blob, true},
    {"blob", puppet_blob, true},
    {"checkpoint", puppet_checkpoint, true},
    {"restore", puppet_restore, true},
    {"train_early", command_train_early, true},
    {"all_reduce", command_all_reduce, true},
    {"all_reduce_weighted", command_all_reduce_weighted, true},
    {"all_reduce_packed", command_all_reduce_packed, true},
    {"broadcast", command_broadcast, true},
    {"reduce", command_reduce, true},
    {"all_gather", command_all_gather, true},
    {"all_to_all", command_all_to_all, true},
    {"reduce_scatter", puppet_reduce_scatter, true},
    {"gather", puppet_gather, true},
    {"scatter", puppet_scatter, true},
    {"all_gather_uneven", puppet_all_gather_uneven, true},
    {"reduce_scatter_uneven", puppet_reduce_scatter_uneven, true},
    {"all_to_all_uneven", puppet_all_to_all_uneven, true},
    {"send", puppet_message, true},
    {"receive", puppet_message, true},
    {"exchange", puppet_exchange, true},
    {"device_all_reduce", puppet_device_all_reduce, true},
    {"device_broadcast", puppet_device_broadcast, true},
    {"device_all_gather", puppet_device_all_gather, true},
    {"device_register", puppet_device_register, true},
    {"device_set", puppet_device_set, true},
    {"device_change", puppet_device_change, true},
    {"device_get", puppet_device_get, true},
    {"device_copied", puppet_device_copied, true},
    {"knob", puppet_knob, false},
    {"micro", puppet_micro, true},
    {"micro_begin", puppet_micro_begin, true},
    {"micro_sum", puppet_micro_sum, true},
    {"replicas", puppet_replicas, true},
    {"replicas_reduce", puppet_replicas_reduce, true},
    {"replicas_gather", puppet_replicas_gather, true},
    {"slices", puppet_slices, true},
    {"split", puppet_split, true},
    {"split_place", puppet_split_place, true},
    {"split_all_reduce", puppet_split_all_reduce, true},
    {"split_broadcast", puppet_split_broadcast, true},
    {"split_reduce", puppet_split_broadcast, true},
    {"split_all_gather", puppet_split_all_gather, true},
    {"split_all_to_all", puppet_split_all_gather, true},
    {"split_exchange", puppet_split_exchange, true},
    {"split_barrier", puppet_split_barrier, true},
    {"barrier", command_barrier, true},
    {"commit", command_commit, true},
    {"options", command_options, true},
    {"check_health", command_check_health, true},
    {"role", command_role, true},
    {"digest", command_digest, true},
    {"abandon", command_abandon, true},
    {"exit", puppet_exit, false},
    {"finalize", puppet_finalize, false},
    {"background_barrier", puppet_background_barrier, true},
    {"background_end", puppet_background_end, true},
    {"report_twice", puppet_report_twice, true},
    {"fork", puppet_fork, true},
    {"close", command_close, false},
};

static void obey_line(char *line)
{
    struct words words = {.count = 0};
    char *rest = NULL;

    for (char *at = strtok_r(line, " \n", &rest); at != NULL && words.count < PUPPET_WORDS_MAX;
         at = strtok_r(NULL, " \n", &rest))
        words.at[words.count++] = at;
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        if (strcmp(commands[i].name, puppet_word(&words, 0, "")) != 0)
            continue;
        if (commands[i].needs_strategy && puppet_strategy == NULL)
            printf("unheard: there is no strategy\n");
        else
            commands[i].run(&words);
        fflush(stdout);
        return;
    }
    printf("unheard: what is %s?\n", puppet_word(&words, 0, "nothing"));
    fflush(stdout);
}

int main(void)
{
    char line[256];

    atexit(puppet_wait_for_end); /* runs after muster's own */
    while (fgets(line, sizeof(line), stdin) != NULL)
        obey_line(line);
    command_close(&(struct words){.count = 0});
    return 0;
}
