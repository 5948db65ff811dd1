/* Local training in rounds (Douillard et al. 2023, DiLoCo): each learner trains on its own images for some steps,
 * and servers of parameters add what all have learned, with momentum, once a round.
 *
 *   rounds HOST:PORT --learner 0 --learners 4 --data examples/data/digits.csv
 *
 * A learner that is paused, or dies, does not hold up the others once --quorum of them have finished the
 * round. With all of them counted, the weights at the end are the same bytes whenever a server died. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <muster/muster.h>

#define TIMEOUT_NS (60 * MUSTER_NS_PER_S)

enum {
    PIXELS = 64,
    HIDDEN = 32,
    CLASSES = 10,
    IMAGES_MAX = 4096,
    HOLD_OUT = 5, /* every fifth image is kept for the test */
    ROW = 64,     /* weights in a row of the table */
};

static const float LOCAL_RATE = 0.05f;

struct image {
    float pixels[PIXELS];
    int label;
};

struct images {
    struct image at[IMAGES_MAX];
    int count;
};

struct network {
    float w1[HIDDEN][PIXELS], b1[HIDDEN];
    float w2[CLASSES][HIDDEN], b2[CLASSES];
};

enum { WEIGHTS = sizeof(struct network) / sizeof(float), ROWS = (WEIGHTS + ROW - 1) / ROW };

/* All weights, and the rest of the last row. */
union weights {
    struct network net;
    float rows[ROWS][ROW];
};

struct settings {
    const char *data, *job;
    uint64_t learner, learners, quorum, rounds, steps;
    bool is_carried;
};

/* --- Images --- */

static int load_images(const char *path, struct images *train, struct images *test)
{
    FILE *file = fopen(path, "r");
    char line[1024];

    if (file == NULL) {
        fprintf(stderr, "rounds: cannot read %s: %s (give the file with --data)\n", path,
                strerror(errno));
        return -1;
    }
    for (int row = 0; row < IMAGES_MAX && fgets(line, sizeof(line), file) != NULL; row++) {
        struct images *set = row % HOLD_OUT == HOLD_OUT - 1 ? test : train;
        struct image *image = &set->at[set->count++];
        char *text = line;

        for (int i = 0; i < PIXELS; i++) {
            image->pixels[i] = strtof(text, &text) / 16.0f;
            text += *text == ',';
        }
        image->label = (int)strtol(text, NULL, 10);
    }
    fclose(file);
    if (train->count > 0 && test->count > 0)
        return 0;
    fprintf(stderr, "rounds: %s holds no images\n", path);
    return -1;
}

/* --- The network --- */

static void run_forward(const struct network *net, const float *pixels, float *hidden, float *out)
{
    float sum = 0;

    for (int u = 0; u < HIDDEN; u++) {
        hidden[u] = net->b1[u];
        for (int i = 0; i < PIXELS; i++)
            hidden[u] += net->w1[u][i] * pixels[i];
        hidden[u] = hidden[u] > 0 ? hidden[u] : 0;
    }
    for (int u = 0; u < CLASSES; u++) {
        out[u] = net->b2[u];
        for (int i = 0; i < HIDDEN; i++)
            out[u] += net->w2[u][i] * hidden[i];
        out[u] = expf(fminf(out[u], 60));
        sum += out[u];
    }
    for (int u = 0; u < CLASSES; u++)
        out[u] /= sum;
}

/* One step of stochastic gradient descent with one image. */
static void train_image(struct network *net, const struct image *image)
{
    float hidden[HIDDEN], out[CLASSES], below[HIDDEN] = {0};

    run_forward(net, image->pixels, hidden, out);
    out[image->label] -= 1; /* softmax with cross entropy: error = probability - truth */
    for (int u = 0; u < CLASSES; u++) {
        for (int i = 0; i < HIDDEN; i++) {
            below[i] += out[u] * net->w2[u][i];
            net->w2[u][i] -= LOCAL_RATE * out[u] * hidden[i];
        }
        net->b2[u] -= LOCAL_RATE * out[u];
    }
    for (int u = 0; u < HIDDEN; u++) {
        if (hidden[u] <= 0)
            continue;
        for (int i = 0; i < PIXELS; i++)
            net->w1[u][i] -= LOCAL_RATE * below[u] * image->pixels[i];
        net->b1[u] -= LOCAL_RATE * below[u];
    }
}

static double measure_accuracy(const struct network *net, const struct images *set)
{
    int right = 0;

    for (int k = 0; k < set->count; k++) {
        float hidden[HIDDEN], out[CLASSES];
        int best = 0;

        run_forward(net, set->at[k].pixels, hidden, out);
        for (int i = 1; i < CLASSES; i++)
            best = out[i] > out[best] ? i : best;
        right += best == set->at[k].label;
    }
    return (double)right / set->count;
}

/* The images of a learner are those whose place has its remainder, in an order that the round gives. */
static void train_locally(struct network *net, const struct images *train,
                          const struct settings *settings, uint64_t round)
{
    uint32_t random =
        (uint32_t)((round * settings->learners + settings->learner + 1) * 2654435761u);
    uint32_t own =
        ((uint32_t)train->count - 1 - (uint32_t)settings->learner) / (uint32_t)settings->learners +
        1;

    for (uint64_t i = 0; i < settings->steps; i++) {
        random ^= random << 13;
        random ^= random >> 17;
        random ^= random << 5;
        train_image(net, &train->at[random % own * settings->learners + settings->learner]);
    }
}

/* --- Rounds --- */

struct learner {
    const struct settings *settings;
    const struct images *train;
    struct muster_params *params;
    struct muster_params_table *table;
    union weights weights; /* at the begin of the round */
    uint64_t keys[ROWS];
};

static enum muster_rc pull_weights(struct learner *learner, uint64_t round,
                                   struct muster_error *ret_error)
{
    const struct muster_params_rows rows = {learner->keys, learner->weights.rows, ROWS};

    return muster_params_pull_after(learner->table, &rows, round, TIMEOUT_NS, ret_error);
}

/* With --carry-late the others may have closed the round: what was pushed counts in the one that is open. */
static uint64_t round_reached(const struct learner *learner, uint64_t round)
{
    uint64_t open = muster_params_table_round(learner->table);

    return learner->settings->is_carried && open > round ? open : round;
}

/* The weights before training, less those after it, count as a gradient. */
static enum muster_rc run_round(struct learner *learner, uint64_t round,
                                struct muster_error *ret_error)
{
    static union weights change;
    const struct muster_params_rows rows = {learner->keys, change.rows, ROWS};
    enum muster_rc rc = pull_weights(learner, round, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    change = learner->weights;
    train_locally(&change.net, learner->train, learner->settings, round);
    for (int i = 0; i < ROWS * ROW; i++)
        change.rows[i / ROW][i % ROW] =
            learner->weights.rows[i / ROW][i % ROW] - change.rows[i / ROW][i % ROW];
    rc = muster_params_push(learner->table, &rows, TIMEOUT_NS, ret_error);
    return rc != MUSTER_OK
               ? rc
               : muster_params_tick(learner->params, round_reached(learner, round) + 1,
                                    (double)learner->settings->steps, TIMEOUT_NS, ret_error);
}

static enum muster_rc run_rounds(struct learner *learner, struct muster_error *ret_error)
{
    enum muster_rc rc = MUSTER_OK;
    uint64_t round = 0;

    while (round < learner->settings->rounds && rc == MUSTER_OK) {
        rc = run_round(learner, round, ret_error);
        if (rc != MUSTER_OUT_OF_RANGE) {
            printf("round %llu\n", (unsigned long long)round++);
            fflush(stdout);
            if (rc == MUSTER_OK)
                round = round_reached(learner, round);
            continue;
        }
        /* The others have closed it meanwhile: go on where they are. */
        printf("round %llu missed\n", (unsigned long long)round);
        fflush(stdout);
        round = muster_params_table_round(learner->table);
        if (round > learner->settings->rounds)
            round = learner->settings->rounds;
        rc = muster_params_tick(learner->params, round, 1, TIMEOUT_NS, ret_error);
    }
    if (rc == MUSTER_OK)
        rc = pull_weights(learner, round, ret_error);
    if (rc == MUSTER_OK) /* nobody waits for it any more */
        rc =
            muster_params_tick(learner->params, MUSTER_PARAMS_CLOCK_DONE, 1, TIMEOUT_NS, ret_error);
    return rc;
}

/* --- The program --- */

static enum muster_rc train_model(struct learner *learner, const char *servers,
                                  struct muster_runtime *runtime, struct muster_error *ret_error)
{
    const struct settings *settings = learner->settings;
    const struct muster_params_schema schema = {.name = "digits",
                                                .row_elements = ROW,
                                                .wire_dtype = MUSTER_F32,
                                                .optimizer = MUSTER_PARAMS_NESTEROV,
                                                .learning_rate = 0.7f,
                                                .beta1 = 0.8f,
                                                .init = MUSTER_PARAMS_INIT_UNIFORM,
                                                .init_scale = 0.2f,
                                                .init_seed = 20170525,
                                                .is_by_round = true,
                                                .is_round_mean = true,
                                                .is_round_carried = settings->is_carried,
                                                .round_quorum = (uint32_t)settings->quorum,
                                                .round_grace_ns = 500 * MUSTER_NS_PER_MS};
    char name[32];
    const struct muster_params_options options = {.server = servers,
                                                  .job = settings->job,
                                                  .source = name,
                                                  .clock_sources = (uint32_t)settings->learners};
    enum muster_rc rc, ended;

    snprintf(name, sizeof(name), "learner:%llu", (unsigned long long)settings->learner);
    for (uint64_t i = 0; i < ROWS; i++)
        learner->keys[i] = i;
    rc = muster_params_connect(runtime, &options, TIMEOUT_NS, &learner->params, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    rc = muster_params_table(learner->params, &schema, TIMEOUT_NS, &learner->table, ret_error);
    if (rc == MUSTER_OK)
        rc = run_rounds(learner, ret_error);
    ended =
        muster_params_disconnect(learner->params, TIMEOUT_NS, rc == MUSTER_OK ? ret_error : NULL);
    return rc != MUSTER_OK ? rc : ended;
}

static const struct muster_option rows[] = {
    {.name = "learner",
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct settings, learner),
     .fallback = "0",
     .max = 1023,
     .help = "Which of the learners this one is, from 0."},
    {.name = "learners",
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct settings, learners),
     .fallback = "4",
     .min = 1,
     .max = 1024,
     .help = "How many there are."},
    {.name = "quorum",
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct settings, quorum),
     .fallback = "0",
     .max = 1024,
     .help = "So many are enough, half a second later; 0: all."},
    {.name = "carry-late",
     .kind = MUSTER_OPTION_FLAG,
     .offset = offsetof(struct settings, is_carried),
     .help = "A learner that misses a round counts in the next one with both."},
    {.name = "rounds",
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct settings, rounds),
     .fallback = "20",
     .min = 1,
     .help = "How long to train."},
    {.name = "steps",
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct settings, steps),
     .fallback = "500",
     .min = 1,
     .help = "Images that a learner looks at in a round."},
    {.name = "job",
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct settings, job),
     .value = "NAME",
     .help = "The servers' --job."},
    {.name = "data",
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct settings, data),
     .fallback = "examples/data/digits.csv",
     .value = "FILE",
     .help = "The images."},
};

static const struct muster_options options = {
    .command = "rounds",
    .usage = "HOST:PORT [options]",
    .about = "Train a classifier of hand-written digits in rounds, with servers of parameters.",
    .rows = rows,
    .row_count = sizeof(rows) / sizeof(rows[0]),
};

/* NULL: *ret_exit is the exit code. */
static const char *parse_arguments(int argc, char **argv, struct settings *settings, int *ret_exit)
{
    struct muster_error error;
    char *page = NULL;
    size_t bytes = 0;
    int rest = argc;
    enum muster_rc rc =
        muster_options_parse(&options, muster_vars_system(), argc, argv, settings, &rest, &error);

    if (rc == MUSTER_OK && rest == argc - 1 && settings->learner < settings->learners)
        return argv[rest];
    *ret_exit = rc == MUSTER_CANCELLED ? 0 : 2;
    if (rc == MUSTER_CANCELLED &&
        muster_options_help(&options, muster_mem_system(), &page, &bytes) == MUSTER_OK)
        fputs(page, stdout);
    else if (rc == MUSTER_OK)
        fprintf(stderr, "rounds: one address of a server, and a --learner below --learners "
                        "(--help shows all)\n");
    else
        fprintf(stderr, "rounds: %s (--help shows all)\n", error.text);
    muster_mem_free(muster_mem_system(), page);
    return NULL;
}

static uint64_t hash_weights(const union weights *weights)
{
    const unsigned char *bytes = (const unsigned char *)weights;
    uint64_t hash = 14695981039346656037u; /* FNV-1a */

    for (size_t i = 0; i < sizeof(*weights); i++)
        hash = (hash ^ bytes[i]) * 1099511628211u;
    return hash;
}

int main(int argc, char **argv)
{
    static struct images train_set, test_set;
    static struct learner learner = {.train = &train_set};
    struct settings settings = {.data = NULL};
    struct muster_error error = {.rc = MUSTER_OK};
    struct muster_runtime *runtime;
    struct muster_env *env;
    enum muster_rc rc;
    int code = 0;
    const char *servers = parse_arguments(argc, argv, &settings, &code);

    if (servers == NULL)
        return code;
    if (load_images(settings.data, &train_set, &test_set) != 0)
        return 2;
    if (muster_env_system_open(NULL, &env) != MUSTER_OK ||
        muster_net_system_open(env, &env->net) != MUSTER_OK ||
        muster_runtime_open(&(struct muster_runtime_options){.env = env}, &runtime) != MUSTER_OK) {
        fprintf(stderr, "rounds: no loop, network or runtime (memory, descriptors)\n");
        return 1;
    }
    learner.settings = &settings;
    rc = train_model(&learner, servers, runtime, &error);
    if (rc == MUSTER_OK)
        printf("accuracy %.3f weights %016llx\n", measure_accuracy(&learner.weights.net, &test_set),
               (unsigned long long)hash_weights(&learner.weights));
    else
        fprintf(stderr, "rounds: %s\n", error.text);
    muster_runtime_close(runtime);
    muster_net_system_close(env->net);
    muster_env_system_close(env);
    return rc == MUSTER_OK ? 0 : 1;
}
