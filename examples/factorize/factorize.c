/* Matrix factorisation on parameter servers: a vector for each noun of WordNet and for each word of its
 * definitions, so that their product says whether the word is in the definition.
 *
 *     factorize --server HOST:PORT[,HOST:PORT…] --job NAME --worker I [--workers N]
 *
 * Each worker takes its part of the pairs, in steps: it pulls the rows of a batch, pushes their
 * gradients, and ticks. The servers keep the rows and run Adagrad. A worker is at most --staleness steps
 * ahead of the slowest one. With --by-round the gradients of a step are applied together: then the rows
 * at the end are the same, bit by bit, in every run with as many workers. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "glosses.h"
#include "serving.h"

#include <muster/hash.h>
#include <muster/params.h>
#include <muster/runtime.h>

#define TIMEOUT_NS (60 * MUSTER_NS_PER_S)

enum {
    WIDTH = 32,
    BATCH = 512,   /* pairs of a step */
    NEGATIVES = 4, /* words for each pair that are not in the definition */
    WORDS_OF_BATCH = BATCH * (1 + NEGATIVES),
    TEST_NEGATIVES = 8,
    PULL_ROWS = 4096,
    TEST_SEED = 20240229,
};

struct settings {
    const char *server;
    const char *job;
    const char *data;
    uint64_t worker, workers, passes, staleness;
    bool is_by_round;
};

/* The rows of one table that a batch uses, each once. */
struct part {
    struct muster_params_table *table;
    uint32_t *place_of; /* by key: place in keys + 1; 0: not in this batch */
    uint64_t *keys;
    float (*rows)[WIDTH];
    float (*gradients)[WIDTH];
    uint32_t count;
};

struct trainer {
    struct settings settings;
    struct glosses glosses;
    struct muster_params *params;
    struct part nouns, words;
    uint64_t step; /* completed ones */
    struct muster_error error;
};

/* --- Rows of a batch --- */

static bool part_init(struct part *part, uint32_t key_count, uint32_t rows_max)
{
    part->place_of = calloc(key_count, sizeof(*part->place_of));
    part->keys = calloc(rows_max, sizeof(*part->keys));
    part->rows = calloc(rows_max, sizeof(*part->rows));
    part->gradients = calloc(rows_max, sizeof(*part->gradients));
    return part->place_of != NULL && part->keys != NULL && part->rows != NULL &&
           part->gradients != NULL;
}

static void part_fini(struct part *part)
{
    free(part->place_of);
    free(part->keys);
    free(part->rows);
    free(part->gradients);
}

static uint32_t part_add(struct part *part, uint32_t key)
{
    if (part->place_of[key] == 0) {
        part->keys[part->count] = key;
        part->place_of[key] = ++part->count;
    }
    return part->place_of[key] - 1;
}

static void part_clear(struct part *part)
{
    for (uint32_t i = 0; i < part->count; i++)
        part->place_of[part->keys[i]] = 0;
    memset(part->gradients, 0, part->count * sizeof(*part->gradients));
    part->count = 0;
}

static enum muster_rc part_pull(struct part *part, uint64_t min_clock,
                                struct muster_error *ret_error)
{
    const struct muster_params_rows rows = {part->keys, part->rows, part->count};

    return muster_params_pull_after(part->table, &rows, min_clock, TIMEOUT_NS, ret_error);
}

static enum muster_rc part_push(struct part *part, struct muster_error *ret_error)
{
    const struct muster_params_rows rows = {part->keys, part->gradients, part->count};

    return muster_params_push(part->table, &rows, TIMEOUT_NS, ret_error);
}

/* --- The model --- */

static float rows_product(const float *a, const float *b)
{
    float sum = 0.0f;

    for (int i = 0; i < WIDTH; i++)
        sum += a[i] * b[i];
    return sum;
}

struct sample {
    uint32_t noun, word; /* places in the parts */
    float is_pair;
};

/* Logistic loss of one sample: the gradient of its score is probability - truth. */
static void add_gradient(struct trainer *trainer, const struct sample *sample)
{
    const float *noun = trainer->nouns.rows[sample->noun];
    const float *word = trainer->words.rows[sample->word];
    float *noun_gradient = trainer->nouns.gradients[sample->noun];
    float *word_gradient = trainer->words.gradients[sample->word];
    float error = 1.0f / (1.0f + expf(-rows_product(noun, word))) - sample->is_pair;

    for (int i = 0; i < WIDTH; i++) {
        noun_gradient[i] += error * word[i];
        word_gradient[i] += error * noun[i];
    }
}

/* The samples of this worker's batch: its pairs, and for each of them words by frequency. The words depend
 * on worker and step alone, so that a step is the same in every run. */
static uint32_t fill_batch(struct trainer *trainer, uint64_t first, struct sample *samples)
{
    const struct settings *settings = &trainer->settings;
    const struct glosses *glosses = &trainer->glosses;
    uint32_t random =
        (uint32_t)(trainer->step * settings->workers + settings->worker + 1) * 2654435761u | 1u;
    uint32_t count = 0;

    part_clear(&trainer->nouns);
    part_clear(&trainer->words);
    for (uint64_t i = 0; i < BATCH; i++) {
        uint64_t at = (first + i) * settings->workers + settings->worker;

        if (at >= glosses->train_count)
            break;
        uint32_t noun = part_add(&trainer->nouns, glosses->train[at].noun);
        samples[count++] =
            (struct sample){noun, part_add(&trainer->words, glosses->train[at].word), 1.0f};
        for (int k = 0; k < NEGATIVES; k++) {
            uint32_t word = glosses_draw_word(glosses, &random);

            samples[count++] = (struct sample){noun, part_add(&trainer->words, word), 0.0f};
        }
    }
    return count;
}

/* --- Training --- */

static enum muster_rc train_step(struct trainer *trainer, uint64_t first)
{
    static struct sample samples[WORDS_OF_BATCH];
    uint64_t staleness = trainer->settings.staleness;
    uint64_t min_clock = trainer->step > staleness ? trainer->step - staleness : 0;
    uint32_t count = fill_batch(trainer, first, samples);
    enum muster_rc rc = MUSTER_OK;

    if (count > 0) {
        rc = part_pull(&trainer->nouns, min_clock, &trainer->error);
        if (rc == MUSTER_OK)
            rc = part_pull(&trainer->words, min_clock, &trainer->error);
        if (rc != MUSTER_OK)
            return rc;
        for (uint32_t i = 0; i < count; i++)
            add_gradient(trainer, &samples[i]);
        rc = part_push(&trainer->nouns, &trainer->error);
        if (rc == MUSTER_OK)
            rc = part_push(&trainer->words, &trainer->error);
    }
    if (rc == MUSTER_OK)
        rc = muster_params_tick(trainer->params, ++trainer->step, 1.0, TIMEOUT_NS, &trainer->error);
    return rc;
}

static uint64_t steps_of_pass(const struct trainer *trainer)
{
    uint64_t pairs_of_step = trainer->settings.workers * BATCH;

    return (trainer->glosses.train_count + pairs_of_step - 1) / pairs_of_step;
}

/* All rows of a table, of its first `count` keys. */
static enum muster_rc pull_all(struct trainer *trainer, struct muster_params_table *table,
                               uint32_t count, uint64_t min_clock, float (*ret_rows)[WIDTH])
{
    uint64_t keys[PULL_ROWS];
    enum muster_rc rc = MUSTER_OK;

    for (uint32_t first = 0; rc == MUSTER_OK && first < count; first += PULL_ROWS) {
        uint32_t few = count - first < PULL_ROWS ? count - first : PULL_ROWS;

        for (uint32_t i = 0; i < few; i++)
            keys[i] = first + i;
        rc = muster_params_pull_after(table,
                                      &(struct muster_params_rows){keys, ret_rows[first], few},
                                      min_clock, TIMEOUT_NS, &trainer->error);
    }
    return rc;
}

/* How often a pair that nobody has trained on scores higher than its noun with a word by frequency. */
static double measure_auc(const struct glosses *glosses, float (*nouns)[WIDTH],
                          float (*words)[WIDTH])
{
    uint32_t random = TEST_SEED;
    double right = 0;

    for (size_t i = 0; i < glosses->held_count; i++) {
        const float *noun = nouns[glosses->held[i].noun];
        float score = rows_product(noun, words[glosses->held[i].word]);

        for (int k = 0; k < TEST_NEGATIVES; k++) {
            float other = rows_product(noun, words[glosses_draw_word(glosses, &random)]);

            right += score > other ? 1.0 : score < other ? 0.0 : 0.5;
        }
    }
    return right / (double)(glosses->held_count * TEST_NEGATIVES);
}

/* The quality, and a digest of all rows, once all workers have completed min_clock steps. */
static enum muster_rc report_pass(struct trainer *trainer, uint64_t pass, uint64_t min_clock)
{
    const struct glosses *glosses = &trainer->glosses;
    uint32_t rows = glosses->noun_count + glosses->word_count;
    float(*all)[WIDTH] = calloc(rows, sizeof(*all));
    float(*words)[WIDTH] = all != NULL ? all + glosses->noun_count : NULL;
    enum muster_rc rc =
        all != NULL ? pull_all(trainer, trainer->nouns.table, glosses->noun_count, min_clock, all)
                    : muster_error_set(&trainer->error, MUSTER_RESOURCE_EXHAUSTED,
                                       "no memory for all rows");

    if (rc == MUSTER_OK)
        rc = pull_all(trainer, trainer->words.table, glosses->word_count, min_clock, words);
    if (rc == MUSTER_OK) {
        printf("pass %d auc %.4f digest %016llx\n", (int)pass, measure_auc(glosses, all, words),
               (unsigned long long)muster_hash64(all, rows * sizeof(*all), 0));
        (void)fflush(stdout);
    }
    free(all);
    return rc;
}

/* Worker 0 reports. By round its own clock is that of all, and no round closes while it looks; otherwise it
 * waits for the others after the last pass only. */
static enum muster_rc train_model(struct trainer *trainer)
{
    const struct settings *settings = &trainer->settings;
    uint64_t steps = steps_of_pass(trainer);
    enum muster_rc rc = MUSTER_OK;

    for (uint64_t pass = 1; rc == MUSTER_OK && pass <= settings->passes; pass++) {
        for (uint64_t i = 0; rc == MUSTER_OK && i < steps; i++)
            rc = train_step(trainer, i * BATCH);
        if (rc == MUSTER_OK && settings->worker == 0)
            rc = report_pass(trainer, pass,
                             settings->is_by_round || pass == settings->passes ? trainer->step : 0);
    }
    if (rc == MUSTER_OK)
        rc = muster_params_tick(trainer->params, MUSTER_PARAMS_CLOCK_DONE, 1.0, TIMEOUT_NS,
                                &trainer->error);
    return rc;
}

static enum muster_rc open_tables(struct trainer *trainer)
{
    struct muster_params_schema schema = {.name = "nouns",
                                          .row_elements = WIDTH,
                                          .wire_dtype = MUSTER_F32,
                                          .optimizer = MUSTER_PARAMS_ADAGRAD,
                                          .learning_rate = 0.1f,
                                          .init = MUSTER_PARAMS_INIT_NORMAL,
                                          .init_scale = 0.1f,
                                          .init_seed = 1,
                                          .is_by_round = trainer->settings.is_by_round};
    enum muster_rc rc = muster_params_table(trainer->params, &schema, TIMEOUT_NS,
                                            &trainer->nouns.table, &trainer->error);

    schema.name = "words";
    schema.init_seed = 2;
    if (rc == MUSTER_OK)
        rc = muster_params_table(trainer->params, &schema, TIMEOUT_NS, &trainer->words.table,
                                 &trainer->error);
    return rc;
}

static enum muster_rc run_trainer(struct trainer *trainer, struct muster_runtime *runtime)
{
    const struct settings *settings = &trainer->settings;
    char source[32];
    const struct muster_params_options options = {.server = settings->server,
                                                  .job = settings->job,
                                                  .source = source,
                                                  .clock_sources = (uint32_t)settings->workers};

    (void)snprintf(source, sizeof(source), "worker:%d", (int)settings->worker);
    enum muster_rc rc =
        muster_params_connect(runtime, &options, TIMEOUT_NS, &trainer->params, &trainer->error);
    if (rc != MUSTER_OK)
        return rc;
    rc = open_tables(trainer);
    if (rc == MUSTER_OK)
        rc = train_model(trainer);
    enum muster_rc closed = muster_params_disconnect(trainer->params, TIMEOUT_NS,
                                                     rc == MUSTER_OK ? &trainer->error : NULL);
    return rc != MUSTER_OK ? rc : closed;
}

/* --- The command --- */

static const struct muster_option rows[] = {
    {.name = "server",
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct settings, server),
     .fallback = "127.0.0.1:7301",
     .value = "HOST:PORT",
     .help = "Servers of the job, joined by commas; one is enough."},
    {.name = "job",
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct settings, job),
     .fallback = "words",
     .value = "NAME",
     .help = "The servers' job."},
    {.name = "data",
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct settings, data),
     .fallback = "examples/data/wordnet-glosses.txt",
     .value = "FILE",
     .help = "Nouns and words of their definitions."},
    {.name = "worker",
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct settings, worker),
     .fallback = "0",
     .max = MUSTER_PARAMS_ROUND_SOURCES_MAX - 1,
     .help = "Number of this worker, from 0."},
    {.name = "workers",
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct settings, workers),
     .fallback = "4",
     .min = 1,
     .max = MUSTER_PARAMS_ROUND_SOURCES_MAX,
     .help = "How many there are."},
    {.name = "passes",
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct settings, passes),
     .fallback = "20",
     .min = 1,
     .max = 100000,
     .help = "Passes over the data."},
    {.name = "staleness",
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct settings, staleness),
     .fallback = "2",
     .max = 1000000,
     .help = "Steps that a worker may be ahead of the slowest one."},
    {.name = "by-round",
     .kind = MUSTER_OPTION_FLAG,
     .offset = offsetof(struct settings, is_by_round),
     .fallback = "false",
     .help = "Apply the gradients of a step together; implies --staleness 0."},
};

static const struct muster_options options = {
    .command = "factorize",
    .usage = "[options]",
    .about = "Factorize words and definitions of WordNet on parameter servers.",
    .rows = rows,
    .row_count = sizeof(rows) / sizeof(rows[0]),
};

static int run_program(struct trainer *trainer)
{
    struct muster_env *env;
    struct muster_runtime *runtime;

    if (!part_init(&trainer->nouns, trainer->glosses.noun_count, BATCH) ||
        !part_init(&trainer->words, trainer->glosses.word_count, WORDS_OF_BATCH) ||
        muster_env_system_open(NULL, &env) != MUSTER_OK ||
        muster_net_system_open(env, &env->net) != MUSTER_OK ||
        muster_runtime_open(&(struct muster_runtime_options){.env = env}, &runtime) != MUSTER_OK) {
        fprintf(stderr, "factorize: no loop, network or runtime (memory, descriptors)\n");
        return 1;
    }
    enum muster_rc rc = run_trainer(trainer, runtime);
    if (rc != MUSTER_OK)
        fprintf(stderr, "factorize: %s\n", trainer->error.text);
    muster_runtime_close(runtime);
    muster_net_system_close(env->net);
    muster_env_system_close(env);
    return rc == MUSTER_OK ? 0 : 1;
}

int main(int argc, char **argv)
{
    static struct trainer trainer;
    int code;

    if (!serving_parse(&options, argc, argv, &trainer.settings, &code))
        return code;
    if (trainer.settings.worker >= trainer.settings.workers) {
        fprintf(stderr, "factorize: --worker must be below --workers, got %d of %d\n",
                (int)trainer.settings.worker, (int)trainer.settings.workers);
        return 2;
    }
    if (trainer.settings.is_by_round)
        trainer.settings.staleness = 0;
    if (!glosses_load(trainer.settings.data, &trainer.glosses))
        return 2;
    code = run_program(&trainer);
    part_fini(&trainer.nouns);
    part_fini(&trainer.words);
    glosses_fini(&trainer.glosses);
    return code;
}
