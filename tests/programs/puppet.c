/* A training program on strings: it reads one command per line from standard input and answers each
 * with one line, "ok …" or "NAME_OF_RC text", so that a test decides in which order the members of
 * a job do what. */
#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <muster/muster.h>

enum { WORDS_MAX = 8, TENSORS_MAX = 8, REDUCED_MAX = 100 };

struct words {
    char *at[WORDS_MAX];
    int count;
};

static struct muster_strategy *strategy;
static struct {
    char name[32];
    struct muster_tensor tensor;
} tensors[TENSORS_MAX]; /* the registered ones */
static int tensor_count;

static const char *next_word(const struct words *words, int i, const char *fallback)
{
    return i < words->count ? words->at[i] : fallback;
}

static uint64_t next_number(const struct words *words, int i, const char *fallback)
{
    return strtoull(next_word(words, i, fallback), NULL, 10);
}

static double next_seconds(const struct words *words, int i)
{
    return strtod(next_word(words, i, "0"), NULL);
}

static void answer_error(enum muster_rc rc, const char *text)
{
    printf("%s %s\n", muster_rc_name(rc), text);
}

/* "ok" and whatever the caller prints behind it, or the error. */
static bool is_ok(enum muster_rc rc)
{
    if (rc != MUSTER_OK)
        answer_error(rc, muster_strategy_error(strategy)->text);
    return rc == MUSTER_OK;
}

static void *make_tensor(uint64_t count, double value)
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
static struct muster_communication_options read_communication(const struct words *words)
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
        .op_timeout_ns = (uint64_t)(next_seconds(words, 1) * 1e9),
        .start_timeout_ns = (uint64_t)(next_seconds(words, 2) * 1e9),
        .resolver = strcmp(next_word(words, 3, "-"), "-") == 0 ? NULL : words->at[3],
        .communication = read_communication(words),
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
    open_as(words, &strategy);
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
    struct muster_tensor tensor = {.count = next_number(words, 2, "1"), .dtype = MUSTER_F64};

    if (tensor_count == TENSORS_MAX)
        abort();
    tensor.data = make_tensor(tensor.count, next_seconds(words, 3));
    if (!is_ok(muster_strategy_register(strategy, next_word(words, 1, ""), &tensor))) {
        free(tensor.data);
        return;
    }
    snprintf(tensors[tensor_count].name, sizeof(tensors[0].name), "%s", next_word(words, 1, ""));
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
    struct muster_tensor *tensor = find_tensor(next_word(words, 1, ""));

    for (uint64_t i = 0; i < tensor->count; i++)
        ((double *)tensor->data)[i] = next_seconds(words, 2);
    printf("ok\n");
}

/* The one value that all elements have. */
static void print_value(const struct muster_tensor *tensor)
{
    const double *data = tensor->data;

    /* Each element is as the one before it. */
    if (tensor->count > 1 && memcmp(data + 1, data, (tensor->count - 1) * sizeof(data[0])) != 0)
        printf(" value=mixed");
    else
        printf(" value=%.17g", tensor->count > 0 ? data[0] : 0.0);
}

static void command_get(const struct words *words)
{
    printf("ok");
    print_value(find_tensor(next_word(words, 1, "")));
    printf("\n");
}

static void command_begin(const struct words *words)
{
    uint64_t step = 0;
    bool is_restored = false;

    (void)words;
    if (is_ok(muster_strategy_begin(strategy, &step, &is_restored)))
        printf("ok step=%" PRIu64 " restored=%d rank=%u size=%u epoch=%" PRIu64 "\n", step,
               is_restored, muster_strategy_rank(strategy), muster_strategy_size(strategy),
               muster_strategy_epoch(strategy));
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
                        uint64_t *ret_step)
{
    bool is_restored = false;
    enum muster_rc rc;
    uint64_t step = 0;

    do {
        if (!is_ok(muster_strategy_begin(strategy, &step, &is_restored)))
            return false;
        /* a step that runs again has changed it already */
        if (!is_either(tensor, (double)step, is_restored ? (double)step : (double)step + 1)) {
            printf("torn step=%" PRIu64 " restored=%d", step, is_restored);
            print_value(tensor);
            printf("\n");
            return false;
        }
        fill_tensor(tensor, (double)step + 1);
        rc = muster_strategy_all_reduce(strategy, gradient, 1, MUSTER_SUM);
    } while (rc == MUSTER_ABORTED);
    *ret_step = step;
    return is_ok(rc) && is_ok(muster_strategy_commit(strategy));
}

/* train_early NAME SIZE STEPS: until that many members have made that many steps together */
static void command_train_early(const struct words *words)
{
    struct muster_tensor gradient = {.data = make_tensor(1, 1), .count = 1, .dtype = MUSTER_F64};
    uint64_t step = 0, steps = 0;
    bool is_going = true;

    while (is_going && steps < next_number(words, 3, "1")) {
        is_going = train_early(find_tensor(next_word(words, 1, "")), &gradient, &step);
        steps = muster_strategy_size(strategy) == next_number(words, 2, "1") ? steps + 1 : 0;
    }
    if (is_going)
        printf("ok step=%" PRIu64 "\n", step);
    free(gradient.data);
}

static enum muster_reduction reduction_of(const char *name)
{
    for (int i = 0; i <= MUSTER_XOR; i++)
        if (strcmp(muster_reduction_name((enum muster_reduction)i), name) == 0)
            return (enum muster_reduction)i;
    abort();
}

/* all_reduce COUNT VALUE [REDUCTION [TENSORS]]: in one call; the value is the last's */
static void command_all_reduce(const struct words *words)
{
    struct muster_tensor reduced[REDUCED_MAX];
    uint64_t count = next_number(words, 4, "1");

    if (count == 0 || count > REDUCED_MAX)
        abort();
    for (uint64_t i = 0; i < count; i++)
        reduced[i] = (struct muster_tensor){
            .data = make_tensor(next_number(words, 1, "1"), next_seconds(words, 2)),
            .count = next_number(words, 1, "1"),
            .dtype = MUSTER_F64};
    if (is_ok(muster_strategy_all_reduce(strategy, reduced, count,
                                         reduction_of(next_word(words, 3, "sum"))))) {
        printf("ok");
        print_value(&reduced[count - 1]);
        printf(" contributors=%u interrupted=%d\n", muster_strategy_contributors(strategy),
               muster_strategy_result(strategy)->is_interrupted);
    }
    for (uint64_t i = 0; i < count; i++)
        free(reduced[i].data);
}

/* all_reduce_weighted COUNT VALUE WEIGHT */
static void command_all_reduce_weighted(const struct words *words)
{
    struct muster_tensor tensor = {.count = next_number(words, 1, "1"), .dtype = MUSTER_F64};

    tensor.data = make_tensor(tensor.count, next_seconds(words, 2));
    if (is_ok(muster_strategy_all_reduce_weighted(strategy, &tensor, 1,
                                                  next_number(words, 3, "1")))) {
        printf("ok");
        print_value(&tensor);
        printf(" weight=%" PRIu64 "\n", muster_strategy_result(strategy)->total_weight);
    }
    free(tensor.data);
}

static enum muster_dtype dtype_of(const char *name)
{
    for (int i = 0; i <= MUSTER_BOOL; i++)
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
        .implementation = read_communication(words).implementation,
        .bytes_per_pack = next_number(words, 5, "0"),
        .timeout_ns = (uint64_t)(next_seconds(words, 6) * 1e9)};
    struct muster_tensor tensors_of_call[REDUCED_MAX];
    uint64_t count = next_number(words, 4, "1"), elements = next_number(words, 2, "1");
    enum muster_dtype dtype = dtype_of(next_word(words, 1, "f64"));
    size_t bytes = elements * muster_dtype_bytes(dtype), stride = (bytes + 15) / 8 * 8;
    uint8_t *memory = malloc(count * stride + 1);
    enum muster_rc rc;

    if (memory == NULL || count > REDUCED_MAX)
        abort();
    memset(memory, 1, count * stride + 1);
    for (uint64_t i = 0; i < count; i++)
        tensors_of_call[i] =
            (struct muster_tensor){.data = memory + i * stride, .count = elements, .dtype = dtype};
    rc = muster_strategy_all_reduce_with(strategy, tensors_of_call, count,
                                         reduction_of(next_word(words, 3, "sum")), &options);
    if (rc == MUSTER_OK)
        printf("ok first=%u last=%u input=%s\n", memory[0], memory[count * stride - stride],
               muster_strategy_result(strategy)->input);
    else
        printf("%s %s intact=%d\n", muster_rc_name(rc), muster_strategy_error(strategy)->text,
               are_bytes(memory, count * stride, 1));
    free(memory);
}

/* broadcast COUNT VALUE [ROOT] */
static void command_broadcast(const struct words *words)
{
    struct muster_tensor tensor = {.count = next_number(words, 1, "1"), .dtype = MUSTER_F64};

    tensor.data = make_tensor(tensor.count, next_seconds(words, 2));
    if (is_ok(muster_strategy_broadcast(strategy, &tensor, (uint32_t)next_number(words, 3, "0")))) {
        printf("ok");
        print_value(&tensor);
        printf("\n");
    }
    free(tensor.data);
}

/* reduce COUNT VALUE REDUCTION ROOT */
static void command_reduce(const struct words *words)
{
    struct muster_tensor tensor = {.count = next_number(words, 1, "1"), .dtype = MUSTER_F64};

    tensor.data = make_tensor(tensor.count, next_seconds(words, 2));
    if (is_ok(muster_strategy_reduce(strategy, &tensor, reduction_of(next_word(words, 3, "sum")),
                                     (uint32_t)next_number(words, 4, "0")))) {
        printf("ok");
        print_value(&tensor);
        printf("\n");
    }
    free(tensor.data);
}

/* The first element of each part. */
static void print_parts(const struct muster_tensor *tensor, uint32_t parts)
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
    uint32_t size = muster_strategy_size(strategy);
    struct muster_tensor input = {.count = next_number(words, 1, "1"), .dtype = MUSTER_F64};
    struct muster_tensor output = {.count = input.count * size, .dtype = MUSTER_F64};

    input.data = make_tensor(input.count, next_seconds(words, 2));
    output.data = make_tensor(output.count, 0);
    if (is_ok(muster_strategy_all_gather(strategy, &input, &output)))
        print_parts(&output, size);
    free(input.data);
    free(output.data);
}

/* all_to_all COUNT VALUE: VALUE + r for rank r */
static void command_all_to_all(const struct words *words)
{
    uint32_t size = muster_strategy_size(strategy);
    uint64_t count = next_number(words, 1, "1");
    struct muster_tensor input = {.count = count * size, .dtype = MUSTER_F64}, output = input;

    input.data = make_tensor(input.count, next_seconds(words, 2));
    output.data = make_tensor(output.count, 0);
    for (uint64_t i = 0; i < input.count; i++)
        ((double *)input.data)[i] += (double)(i / count);
    if (is_ok(muster_strategy_all_to_all(strategy, &input, &output)))
        print_parts(&output, size);
    free(input.data);
    free(output.data);
}

/* Device memory as a program with CUDA has it. The fake's is the host's, too. */
static double *device_memory(uint64_t count, double value)
{
    static void *library;
    int (*init)(unsigned), (*retain)(void **, int), (*use)(void *);
    int (*alloc)(unsigned long long *, size_t);
    unsigned long long address = 0;
    void *context = NULL;
    double *data;

    if (library == NULL)
        library = dlopen(getenv("MUSTER_CUDA_LIBRARY"), RTLD_NOW);
    if (library == NULL)
        abort();
    *(void **)&init = dlsym(library, "cuInit");
    *(void **)&retain = dlsym(library, "cuDevicePrimaryCtxRetain");
    *(void **)&use = dlsym(library, "cuCtxSetCurrent");
    *(void **)&alloc = dlsym(library, "cuMemAlloc_v2");
    if (init(0) != 0 || retain(&context, 0) != 0 || use(context) != 0 ||
        alloc(&address, count * sizeof(*data)) != 0)
        abort();
    data = (double *)(uintptr_t)address;
    for (uint64_t i = 0; i < count; i++)
        data[i] = value;
    return data;
}

/* device_all_reduce COUNT VALUE [REDUCTION [TENSORS [communication=NAME]]]: of device memory, which
 * is kept */
static void command_device_all_reduce(const struct words *words)
{
    const struct muster_communication_options options = read_communication(words);
    struct muster_tensor reduced[REDUCED_MAX];
    uint64_t count = next_number(words, 4, "1");

    for (uint64_t i = 0; i < count; i++)
        reduced[i] = (struct muster_tensor){
            .data = device_memory(next_number(words, 1, "1"), next_seconds(words, 2)),
            .count = next_number(words, 1, "1"),
            .dtype = MUSTER_F64};
    if (!is_ok(muster_strategy_all_reduce_with(strategy, reduced, count,
                                               reduction_of(next_word(words, 3, "sum")), &options)))
        return;
    printf("ok");
    print_value(&reduced[count - 1]);
    printf(" contributors=%u\n", muster_strategy_contributors(strategy));
}

/* device_broadcast COUNT VALUE ROOT */
static void command_device_broadcast(const struct words *words)
{
    struct muster_tensor tensor = {.count = next_number(words, 1, "1"), .dtype = MUSTER_F64};

    tensor.data = device_memory(tensor.count, next_seconds(words, 2));
    if (is_ok(muster_strategy_broadcast(strategy, &tensor, (uint32_t)next_number(words, 3, "0")))) {
        printf("ok");
        print_value(&tensor);
        printf("\n");
    }
}

/* device_all_gather COUNT VALUE */
static void command_device_all_gather(const struct words *words)
{
    uint32_t size = muster_strategy_size(strategy);
    struct muster_tensor input = {.count = next_number(words, 1, "1"), .dtype = MUSTER_F64};
    struct muster_tensor output = {.count = input.count * size, .dtype = MUSTER_F64};

    input.data = device_memory(input.count, next_seconds(words, 2));
    output.data = device_memory(output.count, 0);
    if (is_ok(muster_strategy_all_gather(strategy, &input, &output)))
        print_parts(&output, size);
}

/* device_register NAME */
static void command_device_register(const struct words *words)
{
    const struct muster_tensor tensor = {
        .data = device_memory(1, 0), .count = 1, .dtype = MUSTER_F64};

    if (is_ok(muster_strategy_register(strategy, next_word(words, 1, ""), &tensor)))
        printf("ok\n");
}

/* knob LIBRARY NAME VALUE: of the fake libraries, "cuda" or "nccl" */
static void command_knob(const struct words *words)
{
    bool is_cuda = strcmp(next_word(words, 1, ""), "cuda") == 0;
    void *library = dlopen(getenv(is_cuda ? "MUSTER_CUDA_LIBRARY" : "MUSTER_NCCL_LIBRARY"),
                           RTLD_NOW | RTLD_NOLOAD);
    void (*set)(const char *, long);

    if (library == NULL)
        abort();
    *(void **)&set = dlsym(library, is_cuda ? "fake_cuda_set" : "fake_nccl_set");
    set(next_word(words, 2, ""), (long)next_number(words, 3, "0"));
    printf("ok\n");
}

static uint32_t color_of(void *data, const struct muster_member *member)
{
    const char *kind = data;

    if (strcmp(kind, "column") == 0)
        return member->task_index % 2;
    if (strcmp(kind, "row") == 0)
        return member->task_index / 2;
    return member->task_index == 0 ? MUSTER_COLOR_NO_GROUP : 0; /* "rest" */
}

static struct {
    char kind[16];
    struct muster_strategy_split *split;
} splits[MUSTER_SPLITS_MAX];
static uint32_t split_count;

/* split KIND: column (index % 2), row (index / 2) or rest (all but index 0) */
static void command_split(const struct words *words)
{
    if (split_count == MUSTER_SPLITS_MAX)
        abort();
    snprintf(splits[split_count].kind, sizeof(splits[0].kind), "%s", next_word(words, 1, ""));
    if (!is_ok(muster_strategy_split(strategy, color_of, splits[split_count].kind,
                                     &splits[split_count].split)))
        return;
    split_count++;
    printf("ok\n");
}

static struct muster_strategy_split *split_of(const struct words *words)
{
    for (uint32_t i = 0; i < split_count; i++)
        if (strcmp(splits[i].kind, next_word(words, 1, "")) == 0)
            return splits[i].split;
    abort();
}

/* split_place KIND */
static void command_split_place(const struct words *words)
{
    printf("ok rank=%u size=%u\n", muster_strategy_split_rank(split_of(words)),
           muster_strategy_split_size(split_of(words)));
}

/* split_all_reduce KIND COUNT VALUE */
static void command_split_all_reduce(const struct words *words)
{
    struct muster_tensor tensor = {.count = next_number(words, 2, "1"), .dtype = MUSTER_F64};

    tensor.data = make_tensor(tensor.count, next_seconds(words, 3));
    if (is_ok(muster_strategy_split_all_reduce(split_of(words), &tensor, 1, MUSTER_SUM))) {
        printf("ok");
        print_value(&tensor);
        printf(" contributors=%u interrupted=%d\n", muster_strategy_contributors(strategy),
               muster_strategy_result(strategy)->is_interrupted);
    }
    free(tensor.data);
}

/* split_broadcast KIND COUNT VALUE ROOT, split_reduce likewise */
static void command_split_broadcast(const struct words *words)
{
    struct muster_tensor tensor = {.count = next_number(words, 2, "1"), .dtype = MUSTER_F64};
    uint32_t root = (uint32_t)next_number(words, 4, "0");

    tensor.data = make_tensor(tensor.count, next_seconds(words, 3));
    if (is_ok(strcmp(words->at[0], "split_reduce") == 0
                  ? muster_strategy_split_reduce(split_of(words), &tensor, MUSTER_SUM, root)
                  : muster_strategy_split_broadcast(split_of(words), &tensor, root))) {
        printf("ok");
        print_value(&tensor);
        printf("\n");
    }
    free(tensor.data);
}

/* split_all_gather KIND COUNT VALUE; split_all_to_all likewise: VALUE + r for rank r of the group
 * */
static void command_split_all_gather(const struct words *words)
{
    bool is_gather = strcmp(words->at[0], "split_all_gather") == 0;
    uint32_t size = muster_strategy_split_size(split_of(words));
    uint64_t count = next_number(words, 2, "1");
    struct muster_tensor input = {.count = is_gather ? count : count * size, .dtype = MUSTER_F64};
    struct muster_tensor output = {.count = count * size, .dtype = MUSTER_F64};

    input.data = make_tensor(input.count, next_seconds(words, 3));
    output.data = make_tensor(output.count, 0);
    for (uint64_t i = 0; i < input.count; i++)
        ((double *)input.data)[i] += (double)(i / count);
    if (is_ok(is_gather ? muster_strategy_split_all_gather(split_of(words), &input, &output)
                        : muster_strategy_split_all_to_all(split_of(words), &input, &output)))
        print_parts(&output, size);
    free(input.data);
    free(output.data);
}

/* split_exchange KIND COUNT VALUE TO FROM: ranks in the group, - for nobody */
static void command_split_exchange(const struct words *words)
{
    struct muster_tensor output = {.count = next_number(words, 2, "1"), .dtype = MUSTER_F64};
    struct muster_tensor input = output;
    const char *to = next_word(words, 4, "-"), *from = next_word(words, 5, "-");

    output.data = make_tensor(output.count, next_seconds(words, 3));
    input.data = make_tensor(input.count, 0);
    if (is_ok(muster_strategy_split_exchange(
            split_of(words), &output,
            *to == '-' ? MUSTER_SPLIT_NOBODY : (uint32_t)strtoul(to, NULL, 10), &input,
            *from == '-' ? MUSTER_SPLIT_NOBODY : (uint32_t)strtoul(from, NULL, 10)))) {
        printf("ok");
        print_value(&input);
        printf("\n");
    }
    free(output.data);
    free(input.data);
}

/* split_barrier KIND */
static void command_split_barrier(const struct words *words)
{
    if (is_ok(muster_strategy_split_barrier(split_of(words))))
        printf("ok\n");
}

static void command_barrier(const struct words *words)
{
    (void)words;
    if (is_ok(muster_strategy_barrier(strategy)))
        printf("ok\n");
}

static void command_commit(const struct words *words)
{
    (void)words;
    if (is_ok(muster_strategy_commit(strategy)))
        printf("ok\n");
}

/* Print the options that the members have agreed on. */
static void command_options(const struct words *words)
{
    struct muster_communication_options options = muster_strategy_communication(strategy);

    (void)words;
    printf("ok epoch=%" PRIu64 " communication=%s bytes_per_pack=%" PRIu64 " timeout_ms=%" PRIu64
           " reproducible=%d\n",
           muster_strategy_epoch(strategy), muster_communication_name(options.implementation),
           options.bytes_per_pack, options.timeout_ns / 1000000,
           muster_strategy_is_reproducible(strategy));
}

/* check_health TIMEOUT_S */
static void command_check_health(const struct words *words)
{
    if (is_ok(muster_strategy_check_health(strategy, (uint64_t)(next_seconds(words, 1) * 1e9))))
        printf("ok\n");
}

static void command_role(const struct words *words)
{
    struct muster_input_context input = muster_strategy_input_context(strategy);

    (void)words;
    printf("ok type=%s index=%u chief=%d id=%u count=%u alone=%d checkpoint=%d summary=%d "
           "pipelines=%u pipeline=%u replicas=%u\n",
           muster_strategy_task_type(strategy), muster_strategy_task_index(strategy),
           muster_strategy_is_chief(strategy), muster_strategy_id_in_cluster(strategy),
           muster_strategy_worker_count(strategy), muster_strategy_is_alone(strategy),
           muster_strategy_should_checkpoint(strategy),
           muster_strategy_should_save_summary(strategy), input.num_input_pipelines,
           input.input_pipeline_id, input.num_replicas_in_sync);
}

static void command_digest(const struct words *words)
{
    char text[MUSTER_DIGEST_TEXT_BYTES];

    (void)words;
    muster_strategy_state_digest(strategy, text);
    printf("ok digest=%s\n", text);
}

static void command_close(const struct words *words)
{
    (void)words;
    muster_strategy_close(strategy);
    strategy = NULL;
    split_count = 0;
    while (tensor_count > 0)
        free(tensors[--tensor_count].tensor.data);
    printf("ok\n");
}

/* abandon TEXT */
static void command_abandon(const struct words *words)
{
    muster_strategy_abandon(strategy, next_word(words, 1, "on command"));
    printf("ok\n");
}

/* A program may need time to end: PUPPET_LINGERS_S. */
static void wait_for_end(void)
{
    const char *text = getenv("PUPPET_LINGERS_S");

    if (text != NULL)
        sleep((unsigned)strtoul(text, NULL, 10));
}

/* exit CODE: without close */
static void command_exit(const struct words *words)
{
    exit((int)next_number(words, 1, "0"));
}

/* As a process in which CPython takes itself down. */
static int is_finalizing;
int Py_IsFinalizing(void);
__attribute__((visibility("default"))) int Py_IsFinalizing(void)
{
    return __atomic_load_n(&is_finalizing, __ATOMIC_SEQ_CST);
}

static void command_finalize(const struct words *words)
{
    (void)words;
    __atomic_store_n(&is_finalizing, 1, __ATOMIC_SEQ_CST);
    printf("ok\n");
}

static pthread_t background;
static enum muster_rc background_rc;

static void *run_barrier(void *data)
{
    (void)data;
    background_rc = muster_strategy_barrier(strategy);
    return NULL;
}

/* A barrier in another thread, until background_end. */
static void command_background_barrier(const struct words *words)
{
    (void)words;
    if (pthread_create(&background, NULL, run_barrier, NULL) != 0)
        abort();
    pthread_setname_np(background, "loader");
    printf("ok\n");
}

static void command_background_end(const struct words *words)
{
    (void)words;
    pthread_join(background, NULL);
    if (is_ok(background_rc))
        printf("ok\n");
}

enum { REPORTS_MAX = 2000000 };

static bool is_refused; /* some report of one of two threads */

static void *report_often(void *data)
{
    (void)data;
    for (int i = 0; i < REPORTS_MAX && !__atomic_load_n(&is_refused, __ATOMIC_RELAXED); i++) {
        muster_strategy_report(strategy, "value", i);
        if (strstr(muster_strategy_error(strategy)->text, "report by thread") != NULL)
            __atomic_store_n(&is_refused, true, __ATOMIC_RELAXED);
    }
    return NULL;
}

/* Two threads report until one of them is refused. */
static void command_report_twice(const struct words *words)
{
    pthread_t other;

    (void)words;
    if (pthread_create(&other, NULL, report_often, NULL) != 0)
        abort();
    report_often(NULL);
    pthread_join(other, NULL);
    printf("ok refused=%d\n", is_refused);
}

/* A child of fork tries every call: each call's code, one after the other, then close and exit. */
static void command_fork(const struct words *words)
{
    struct muster_tensor tensor = {.data = make_tensor(1, 1), .count = 1, .dtype = MUSTER_F64};
    uint64_t step;
    int status = -1;
    pid_t child;

    (void)words;
    fflush(stdout);
    child = fork();
    if (child == 0) {
        printf("ok begin=%s", muster_rc_name(muster_strategy_begin(strategy, &step, NULL)));
        printf(" all_reduce=%s",
               muster_rc_name(muster_strategy_all_reduce(strategy, &tensor, 1, MUSTER_SUM)));
        printf(" commit=%s", muster_rc_name(muster_strategy_commit(strategy)));
        printf(" fork=%d", strstr(muster_strategy_error(strategy)->text, "fork") != NULL);
        muster_strategy_abandon(strategy, "a child");
        muster_strategy_close(strategy);
        exit(7);
    }
    waitpid(child, &status, 0);
    printf(" exit=%d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    free(tensor.data);
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
    {"get", command_get, true},
    {"begin", command_begin, true},
    {"train_early", command_train_early, true},
    {"all_reduce", command_all_reduce, true},
    {"all_reduce_weighted", command_all_reduce_weighted, true},
    {"all_reduce_packed", command_all_reduce_packed, true},
    {"broadcast", command_broadcast, true},
    {"reduce", command_reduce, true},
    {"all_gather", command_all_gather, true},
    {"all_to_all", command_all_to_all, true},
    {"device_all_reduce", command_device_all_reduce, true},
    {"device_broadcast", command_device_broadcast, true},
    {"device_all_gather", command_device_all_gather, true},
    {"device_register", command_device_register, true},
    {"knob", command_knob, false},
    {"split", command_split, true},
    {"split_place", command_split_place, true},
    {"split_all_reduce", command_split_all_reduce, true},
    {"split_broadcast", command_split_broadcast, true},
    {"split_reduce", command_split_broadcast, true},
    {"split_all_gather", command_split_all_gather, true},
    {"split_all_to_all", command_split_all_gather, true},
    {"split_exchange", command_split_exchange, true},
    {"split_barrier", command_split_barrier, true},
    {"barrier", command_barrier, true},
    {"commit", command_commit, true},
    {"options", command_options, true},
    {"check_health", command_check_health, true},
    {"role", command_role, true},
    {"digest", command_digest, true},
    {"abandon", command_abandon, true},
    {"exit", command_exit, false},
    {"finalize", command_finalize, false},
    {"background_barrier", command_background_barrier, true},
    {"background_end", command_background_end, true},
    {"report_twice", command_report_twice, true},
    {"fork", command_fork, true},
    {"close", command_close, false},
};

static void obey_line(char *line)
{
    struct words words = {.count = 0};
    char *rest = NULL;

    for (char *at = strtok_r(line, " \n", &rest); at != NULL && words.count < WORDS_MAX;
         at = strtok_r(NULL, " \n", &rest))
        words.at[words.count++] = at;
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        if (strcmp(commands[i].name, next_word(&words, 0, "")) != 0)
            continue;
        if (commands[i].needs_strategy && strategy == NULL)
            printf("unheard: there is no strategy\n");
        else
            commands[i].run(&words);
        fflush(stdout);
        return;
    }
    printf("unheard: what is %s?\n", next_word(&words, 0, "nothing"));
    fflush(stdout);
}

int main(void)
{
    char line[256];

    atexit(wait_for_end); /* runs after muster's own */
    while (fgets(line, sizeof(line), stdin) != NULL)
        obey_line(line);
    command_close(&(struct words){.count = 0});
    return 0;
}
