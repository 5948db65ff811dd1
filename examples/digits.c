/* Elastic data-parallel training in one page: a small neural network learns to read handwritten
 * digits.
 *
 *   muster run -n 4 -- digits --data examples/data/digits.csv
 *
 * Started by itself it trains alone, with the same calls: for a first look, or under a debugger.
 *
 * Every worker holds the same weights and takes its share of each batch. Workers may die and come
 * back at any time: the others go on, and whoever returns gets the current weights from them. All
 * that this program has to do for it is the loop in train_model() and train_step(): begin, gradient,
 * all_reduce, update, commit. The dataset gives every image once in a pass, whoever dies.
 *
 * With --micro-batches N, or under `muster run --constant-batch N`, the weights at the end are the same bits
 * for any number of workers, and whoever dies: see train_micro_step(). */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <muster/muster.h>

enum {
    PIXELS = 64,   /* 8 x 8, each 0 … 16 in the file */
    HIDDEN_1 = 96, /* units of the two hidden layers */
    HIDDEN_2 = 48,
    CLASSES = 10,
    IMAGES_MAX = 4096,
    HOLD_OUT = 5, /* every fifth image is kept for the test */
};

static const float NOISE = 0.4f;

struct image {
    float pixels[PIXELS];
    int label;
};

struct images {
    struct image at[IMAGES_MAX];
    int count;
};

/* All weights in one block, so that one tensor holds them. */
struct network {
    float w1[HIDDEN_1][PIXELS], b1[HIDDEN_1];
    float w2[HIDDEN_2][HIDDEN_1], b2[HIDDEN_2];
    float w3[CLASSES][HIDDEN_2], b3[CLASSES];
};

enum { WEIGHTS = sizeof(struct network) / sizeof(float) };

/* The operand of a step's all-reduce: gradients, and the number of images that they cover. */
struct contribution {
    struct network gradient;
    float loss;
    float images;
    float claims[]; /* which of the step's images these are: MUSTER_DATASET_CLAIMS(batch) */
};

struct activations {
    float h1[HIDDEN_1], h2[HIDDEN_2], out[CLASSES];
};

struct settings {
    const char *data;
    uint64_t steps;
    uint64_t batch;         /* images per step, over all workers */
    uint64_t micro_batches; /* of a step; 0: each worker has one share */
    double learning_rate, momentum;
};

/* --- data --- */

/* A row: the pixels, then the label. */
static void parse_image(const struct muster_bytes *row, struct image *image)
{
    char line[1024] = "", *text = line;

    memcpy(line, row->data, row->size < sizeof(line) ? row->size : sizeof(line) - 1);
    for (int i = 0; i < PIXELS; i++) {
        image->pixels[i] = strtof(text, &text) / 16.0f;
        text += *text == ',';
    }
    image->label = (int)strtol(text, NULL, 10);
}

static enum muster_rc read_images(struct muster_dataset *rows, struct images *train,
                                  struct images *test, struct muster_error *error)
{
    struct muster_dataset_batch batch;
    enum muster_rc rc;

    while ((rc = muster_dataset_next(rows, &batch, error)) == MUSTER_OK) {
        struct images *set = batch.numbers[0] % HOLD_OUT == HOLD_OUT - 1 ? test : train;

        if (set->count == IMAGES_MAX)
            break;
        parse_image(&batch.records[0], &set->at[set->count++]);
    }
    return rc == MUSTER_OUT_OF_RANGE ? MUSTER_OK : rc;
}

static int load_images(const char *path, struct images *train, struct images *test)
{
    const struct muster_dataset_options of_rows = {
        .kind = MUSTER_DATASET_CSV, .paths = &path, .path_count = 1, .epoch_count = 1};
    struct muster_dataset *rows = NULL;
    struct muster_error error;
    enum muster_rc rc = muster_dataset_open(&of_rows, &rows, &error);

    if (rc == MUSTER_OK)
        rc = read_images(rows, train, test, &error);
    muster_dataset_close(rows);
    if (rc != MUSTER_OK) {
        fprintf(stderr, "digits: %s (give the file with --data)\n", error.text);
        return -1;
    }
    if (train->count == 0 || test->count == 0) {
        fprintf(stderr, "digits: %s holds no images\n", path);
        return -1;
    }
    return 0;
}

/* The training images: each once in a pass, whoever dies, in an order that the seed gives. */
static enum muster_rc open_dataset(struct images *train, const struct settings *settings,
                                   struct muster_dataset **ret_dataset, struct muster_error *error)
{
    static struct muster_bytes records[IMAGES_MAX];
    const struct muster_dataset_options options = {
        .kind = MUSTER_DATASET_MEMORY,
        .records = records,
        .record_count = (uint64_t)train->count,
        .is_shuffled = true,
        .seed = 20170525,
        .batch = (uint32_t)settings->batch,
    };

    for (int i = 0; i < train->count; i++)
        records[i] = (struct muster_bytes){&train->at[i], sizeof(train->at[i])};
    return muster_dataset_open(&options, ret_dataset, error);
}

/* --- the network --- */

static uint32_t next_random(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

static float next_uniform(uint32_t *state, float limit)
{
    return ((float)(next_random(state) >> 8) / 8388608.0f - 1.0f) * limit;
}

static void fill_layer(float *weights, int units, int inputs, uint32_t *random)
{
    float limit = sqrtf(6.0f / (float)(units + inputs));

    for (int i = 0; i < units * inputs; i++)
        weights[i] = next_uniform(random, limit);
}

static void init_network(struct network *net, uint32_t seed)
{
    memset(net, 0, sizeof(*net));
    fill_layer(&net->w1[0][0], HIDDEN_1, PIXELS, &seed);
    fill_layer(&net->w2[0][0], HIDDEN_2, HIDDEN_1, &seed);
    fill_layer(&net->w3[0][0], CLASSES, HIDDEN_2, &seed);
}

static void layer_forward(const float *weights, const float *bias, const float *in, int inputs,
                          float *out, int units)
{
    for (int u = 0; u < units; u++) {
        float sum = bias[u];
        for (int i = 0; i < inputs; i++)
            sum += weights[u * inputs + i] * in[i];
        out[u] = sum;
    }
}

static void apply_relu(float *values, int count)
{
    for (int i = 0; i < count; i++)
        values[i] = values[i] > 0.0f ? values[i] : 0.0f;
}

static void apply_softmax(float *values, int count)
{
    float largest = values[0], sum = 0.0f;

    for (int i = 1; i < count; i++)
        largest = fmaxf(largest, values[i]);
    for (int i = 0; i < count; i++) {
        values[i] = expf(values[i] - largest);
        sum += values[i];
    }
    for (int i = 0; i < count; i++)
        values[i] /= sum;
}

static void run_forward(const struct network *net, const float *pixels, struct activations *a)
{
    layer_forward(&net->w1[0][0], net->b1, pixels, PIXELS, a->h1, HIDDEN_1);
    apply_relu(a->h1, HIDDEN_1);
    layer_forward(&net->w2[0][0], net->b2, a->h1, HIDDEN_1, a->h2, HIDDEN_2);
    apply_relu(a->h2, HIDDEN_2);
    layer_forward(&net->w3[0][0], net->b3, a->h2, HIDDEN_2, a->out, CLASSES);
    apply_softmax(a->out, CLASSES);
}

/* Add this layer's gradient; hand the error on to the layer below (below NULL: there is none). */
static void layer_backward(const float *weights, const float *in, int inputs, const float *error,
                           int units, float *grad_weights, float *grad_bias, float *below)
{
    if (below != NULL)
        memset(below, 0, sizeof(float) * (size_t)inputs);
    for (int u = 0; u < units; u++) {
        if (error[u] == 0.0f)
            continue;
        grad_bias[u] += error[u];
        for (int i = 0; i < inputs; i++)
            grad_weights[u * inputs + i] += error[u] * in[i];
        for (int i = 0; below != NULL && i < inputs; i++)
            below[i] += error[u] * weights[u * inputs + i];
    }
    for (int i = 0; below != NULL && i < inputs; i++)
        below[i] = in[i] > 0.0f ? below[i] : 0.0f; /* relu */
}

/* Noise on the pixels makes every look at an image a new one; it is worth more than 1 % on the test
 * images. */
static void add_image(const struct network *net, const struct image *image, uint32_t noise,
                      struct contribution *c)
{
    struct activations a;
    float pixels[PIXELS], e1[HIDDEN_1], e2[HIDDEN_2];
    struct network *g = &c->gradient;

    for (int i = 0; i < PIXELS; i++)
        pixels[i] = image->pixels[i] + next_uniform(&noise, NOISE);
    run_forward(net, pixels, &a);
    c->loss -= logf(fmaxf(a.out[image->label], 1e-12f));
    c->images += 1.0f;

    a.out[image->label] -= 1.0f; /* softmax with cross entropy: error = probability - truth */
    layer_backward(&net->w3[0][0], a.h2, HIDDEN_2, a.out, CLASSES, &g->w3[0][0], g->b3, e2);
    layer_backward(&net->w2[0][0], a.h1, HIDDEN_1, e2, HIDDEN_2, &g->w2[0][0], g->b2, e1);
    layer_backward(&net->w1[0][0], pixels, PIXELS, e1, HIDDEN_1, &g->w1[0][0], g->b1, NULL);
}

static double measure_accuracy(const struct network *net, const struct images *set)
{
    int right = 0;

    for (int k = 0; k < set->count; k++) {
        struct activations a;
        int best = 0;

        run_forward(net, set->at[k].pixels, &a);
        for (int i = 1; i < CLASSES; i++)
            best = a.out[i] > a.out[best] ? i : best;
        right += best == set->at[k].label;
    }
    return (double)right / set->count;
}

/* --- training --- */

/* Add the gradient of these images of the step. The noise of an image follows from the step, so that it
 * is the same whoever has the image. */
static void compute_gradient(const struct network *net, const struct muster_dataset_batch *batch,
                             uint64_t step, struct contribution *c)
{
    for (size_t i = 0; i < batch->count; i++) {
        uint32_t noise = (uint32_t)(step * 2654435761u + batch->numbers[i] * 40503u) | 1u;

        (void)next_random(&noise);
        add_image(net, batch->records[i].data, noise, c);
    }
}

static void update_weights(struct network *net, struct network *velocity,
                           const struct contribution *sum, const struct settings *settings,
                           uint64_t step)
{
    float *weights = (float *)net, *speed = (float *)velocity;
    const float *gradient = (const float *)&sum->gradient;
    float rate = (float)settings->learning_rate *
                 (1.0f - (float)step / (float)(settings->steps + 1)); /* falls to zero */

    for (int i = 0; i < WEIGHTS; i++) {
        speed[i] = (float)settings->momentum * speed[i] - rate * gradient[i] / sum->images;
        weights[i] += speed[i];
    }
}

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

struct training {
    struct muster_strategy *strategy;
    struct muster_dataset *dataset;
    struct network *net, *velocity;
    const struct settings *settings;
    struct muster_tensor tensor; /* in memory that the other workers of this machine can see */
    struct muster_micro_batches *micro; /* NULL: without */
    double start, seen;
    struct muster_error error; /* of the dataset */
};

static void apply_sum(struct training *training, const struct contribution *sum, uint64_t used,
                      uint64_t step)
{
    update_weights(training->net, training->velocity, sum, training->settings, step);
    training->seen += (double)used;
    muster_strategy_report(training->strategy, "loss", (double)(sum->loss / sum->images));
    muster_strategy_report(training->strategy, "images_per_s",
                           training->seen / (now_s() - training->start));
}

/* The step in micro-batches: the bits of the sum follow from their number, and from no number of workers. */
static enum muster_rc train_micro_step(struct training *training, uint64_t step)
{
    struct muster_dataset_shares shares;
    struct muster_dataset_batch batch;
    struct muster_tensor tensor;
    uint32_t slot;
    enum muster_rc rc = muster_micro_batches_begin(training->micro, &shares);

    if (rc == MUSTER_OK)
        rc = muster_dataset_next_shares(training->dataset, &shares, &training->error);
    while (rc == MUSTER_OK && muster_micro_batches_next(training->micro, &slot, &tensor)) {
        rc = muster_dataset_share(training->dataset, slot, &batch, &training->error);
        if (rc == MUSTER_OK)
            compute_gradient(training->net, &batch, step, tensor.data);
    }
    if (rc == MUSTER_OK)
        rc = muster_micro_batches_sum(training->micro, &tensor);
    if (rc == MUSTER_OK) /* all images of the step are in the sum, or it was ABORTED */
        rc = muster_dataset_complete_step(training->dataset, &training->error);
    if (rc != MUSTER_OK)
        return rc;
    apply_sum(training, tensor.data, (uint64_t)((struct contribution *)tensor.data)->images, step);
    return muster_strategy_commit(training->strategy);
}

/* ABORTED: nothing was changed, and begin says where to go on. */
static enum muster_rc train_step(struct training *training, uint64_t step)
{
    struct muster_strategy *strategy = training->strategy;
    struct contribution *sum = training->tensor.data;
    struct muster_dataset_batch batch;
    uint64_t used;
    enum muster_rc rc =
        muster_dataset_next_share(training->dataset, muster_strategy_rank(strategy),
                                  muster_strategy_size(strategy), &batch, &training->error);

    if (rc != MUSTER_OK)
        return rc;
    memset(sum, 0, sizeof(*sum));
    compute_gradient(training->net, &batch, step, sum);
    muster_dataset_record_claims(training->dataset, sum->claims);
    rc = muster_strategy_all_reduce(strategy, &training->tensor, 1, MUSTER_SUM);
    if (rc != MUSTER_OK)
        return rc;
    rc = muster_dataset_apply_claims(training->dataset, sum->claims, &used, &training->error);
    if (rc == MUSTER_OK && used > 0)
        apply_sum(training, sum, used, step);
    else if (rc != MUSTER_OK && rc != MUSTER_ABORTED)
        return rc;
    return muster_strategy_commit(strategy); /* ABORTED: the step's images come again */
}

static enum muster_rc train_model(struct training *training)
{
    struct muster_strategy *strategy = training->strategy;
    uint64_t step, done = 0;
    enum muster_rc rc =
        muster_strategy_tensor_new(strategy, MUSTER_F32,
                                   sizeof(struct contribution) / sizeof(float) +
                                       MUSTER_DATASET_CLAIMS(training->settings->batch),
                                   &training->tensor);

    if (rc != MUSTER_OK)
        return rc;
    training->start = now_s();
    while (done < training->settings->steps) {
        rc = muster_strategy_begin_until(strategy, training->settings->steps, &step, NULL);
        if (rc == MUSTER_OUT_OF_RANGE) { /* all steps are done, here or by the others */
            rc = MUSTER_OK;
            break;
        }
        if (rc != MUSTER_OK)
            break;
        rc =
            training->micro != NULL ? train_micro_step(training, step) : train_step(training, step);
        if (rc == MUSTER_ABORTED)
            continue;
        if (rc != MUSTER_OK)
            break;
        done = step;
    }
    muster_strategy_tensor_free(strategy, &training->tensor);
    return rc;
}

static const struct muster_option rows[] = {
    {.name = "data",
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct settings, data),
     .fallback = "examples/data/digits.csv",
     .value = "FILE",
     .help = "The images."},
    {.name = "steps",
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct settings, steps),
     .fallback = "900",
     .min = 1,
     .help = "How long to train."},
    {.name = "batch",
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct settings, batch),
     .fallback = "512",
     .min = 1,
     .max = 1 << 20,
     .help = "Images per step, of all workers together."},
    {.name = "micro-batches",
     .variable = "MUSTER_CONSTANT_BATCH",
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct settings, micro_batches),
     .fallback = "0",
     .max = MUSTER_MICRO_SLOTS_MAX,
     .value = "N",
     .help =
         "Cut each batch into N parts, a divisor of --batch, and sum by a tree over these: the "
         "result is the same, bit by bit, for any number of workers. 0: a part for each worker."},
    {.name = "learning-rate",
     .kind = MUSTER_OPTION_REAL,
     .offset = offsetof(struct settings, learning_rate),
     .fallback = "0.2",
     .help = "Of the first step; it falls to zero."},
    {.name = "momentum",
     .kind = MUSTER_OPTION_REAL,
     .offset = offsetof(struct settings, momentum),
     .fallback = "0.9",
     .help = "How much of the last step goes on."},
};

static const struct muster_options options = {
    .command = "digits",
    .usage = "[options], under 'muster run -n 4 --' or alone",
    .about = "Train a classifier of hand-written digits.",
    .rows = rows,
    .row_count = sizeof(rows) / sizeof(rows[0]),
};

/* False: *ret_exit is the exit code. */
static bool parse_arguments(int argc, char **argv, struct settings *settings, int *ret_exit)
{
    struct muster_error error;
    char *page = NULL;
    size_t bytes = 0;
    int rest = argc;
    enum muster_rc rc =
        muster_options_parse(&options, muster_vars_system(), argc, argv, settings, &rest, &error);

    if (rc == MUSTER_OK && rest == argc &&
        (settings->micro_batches == 0 || settings->batch % settings->micro_batches == 0))
        return true;
    *ret_exit = rc == MUSTER_CANCELLED ? 0 : 2;
    if (rc == MUSTER_CANCELLED &&
        muster_options_help(&options, muster_mem_system(), &page, &bytes) == MUSTER_OK)
        fputs(page, stdout);
    else if (rc == MUSTER_OK && rest == argc)
        fprintf(
            stderr,
            "digits: --micro-batches (or MUSTER_CONSTANT_BATCH) must be a divisor of --batch %llu, "
            "got %llu (--help shows all)\n",
            (unsigned long long)settings->batch, (unsigned long long)settings->micro_batches);
    else if (rc == MUSTER_OK)
        fprintf(stderr, "digits: unexpected argument '%s' (--help shows all)\n", argv[rest]);
    else
        fprintf(stderr, "digits: %s (--help shows all)\n", error.text);
    muster_mem_free(muster_mem_system(), page);
    return false;
}

static enum muster_rc register_state(struct training *training)
{
    struct muster_tensor weights = {training->net, WEIGHTS, MUSTER_F32};
    struct muster_tensor velocity = {training->velocity, WEIGHTS, MUSTER_F32};
    struct muster_tensor position = muster_dataset_position(training->dataset);
    enum muster_rc rc = muster_strategy_register(training->strategy, "weights", &weights);

    if (rc == MUSTER_OK)
        rc = muster_strategy_register(training->strategy, "velocity", &velocity);
    if (rc == MUSTER_OK)
        rc = muster_strategy_register(training->strategy, "position", &position);
    if (rc == MUSTER_OK && training->settings->micro_batches > 0)
        rc = muster_micro_batches_open(
            training->strategy,
            &(struct muster_micro_batches_options){
                .slot_count = (uint32_t)training->settings->micro_batches,
                .dtype = MUSTER_F32,
                .element_count = sizeof(struct contribution) / sizeof(float)},
            &training->micro, &training->error);
    return rc;
}

int main(int argc, char **argv)
{
    static struct images train_set, test_set;
    static struct network net, velocity;
    struct settings settings = {.data = NULL};
    struct training training = {.net = &net, .velocity = &velocity, .settings = &settings};
    struct muster_error error = {0};
    enum muster_rc rc, closed;
    int code;

    if (!parse_arguments(argc, argv, &settings, &code))
        return code;
    if (load_images(settings.data, &train_set, &test_set) != 0)
        return 2;
    init_network(&net, 20170525);

    rc = open_dataset(&train_set, &settings, &training.dataset, &error);
    if (rc == MUSTER_OK)
        rc = muster_strategy_open(NULL, &training.strategy, &error);
    if (rc != MUSTER_OK) {
        fprintf(stderr, "digits: %s\n", error.text);
        muster_dataset_close(training.dataset);
        return 1;
    }
    rc = register_state(&training);
    if (rc == MUSTER_OK)
        rc = train_model(&training);
    if (rc == MUSTER_OK) {
        double accuracy = measure_accuracy(&net, &test_set);

        muster_strategy_report_result(training.strategy, "accuracy", accuracy);
        if (muster_strategy_is_alone(training.strategy)) /* without a launcher that shows results */
            printf("accuracy %.4f\n", accuracy);
    } else
        fprintf(stderr, "digits: %s\n",
                training.error.rc == rc ? training.error.text
                                        : muster_strategy_error(training.strategy)->text);
    muster_micro_batches_close(training.micro);
    closed = muster_strategy_close_checked(training.strategy, &error);
    if (closed != MUSTER_OK)
        fprintf(stderr, "digits: %s\n", error.text);
    muster_dataset_close(training.dataset);
    if (rc == MUSTER_OK)
        rc = closed;
    return rc == MUSTER_OK ? 0 : rc == MUSTER_CANCELLED ? MUSTER_EXIT_PREEMPTED : 1;
}
