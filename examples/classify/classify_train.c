/* A trainer that publishes its weights after each pass over the images:
 *
 *     classify_train --registry HOST:PORT [--data FILE] [--versions N] [--pause TIME]
 *
 * It may be killed and started again: a new one goes on with the number of the newest version. With
 * --versions it makes so many and then only serves the last one. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"
#include "serving.h"

#define LEARNING_RATE  0.05f
#define PUT_TIMEOUT_NS (30 * MUSTER_NS_PER_S)

enum {
    IMAGES_MAX = 4096,
    HOLD_OUT = 5, /* every fifth image is kept for the test */
};

struct image {
    float pixels[MODEL_PIXELS];
    int label;
};

struct settings {
    const char *registry;
    const char *data;
    uint64_t versions;
    uint64_t pause_ns;
};

static struct settings settings;
static struct image images[IMAGES_MAX];
static int image_count;
static struct model model;
static struct muster_env *env;
static struct muster_publication *publication;
static struct muster_publication_op op;
static struct muster_named_tensor tensors[MODEL_TENSORS];
static struct muster_timer timer;
static uint64_t versions_made;
static int exit_code;

static bool load_images(const char *path)
{
    char line[1024];
    FILE *file = fopen(path, "r");

    if (file == NULL) {
        fprintf(stderr, "classify_train: cannot read %s: %s (give the file with --data)\n", path,
                strerror(errno));
        return false;
    }
    while (image_count < IMAGES_MAX && fgets(line, sizeof(line), file) != NULL) {
        struct image *image = &images[image_count];
        const char *rest = model_parse_pixels(line, image->pixels);
        int label = rest != NULL && *rest == ',' ? atoi(rest + 1) : -1;

        if (label < 0 || label >= MODEL_CLASSES)
            break;
        image->label = label;
        image_count++;
    }
    bool is_whole = feof(file) != 0;
    fclose(file);
    if (!is_whole || image_count < HOLD_OUT)
        fprintf(stderr, "classify_train: %s: line %d is not an image\n", path, image_count + 1);
    return is_whole && image_count >= HOLD_OUT;
}

static bool is_for_test(int image)
{
    return image % HOLD_OUT == HOLD_OUT - 1;
}

/* A step down the gradient of the cross entropy for each image. */
static void train_one_pass(void)
{
    float error[MODEL_CLASSES];

    for (int k = 0; k < image_count; k++) {
        if (is_for_test(k))
            continue;
        model_classify(&model.weights[0][0], model.bias, images[k].pixels, error);
        error[images[k].label] -= 1.0f;
        for (int c = 0; c < MODEL_CLASSES; c++) {
            model.bias[c] -= LEARNING_RATE * error[c];
            for (int i = 0; i < MODEL_PIXELS; i++)
                model.weights[c][i] -= LEARNING_RATE * error[c] * images[k].pixels[i];
        }
    }
}

static double measure_accuracy(void)
{
    float probabilities[MODEL_CLASSES];
    int right = 0, count = 0;

    for (int k = 0; k < image_count; k++) {
        if (!is_for_test(k))
            continue;
        model_classify(&model.weights[0][0], model.bias, images[k].pixels, probabilities);
        right += model_best(probabilities) == images[k].label;
        count++;
    }
    return (double)right / count;
}

static void end_with(const char *text)
{
    fprintf(stderr, "classify_train: %s\n", text);
    exit_code = 1;
    muster_loop_stop(env->loop);
}

static void on_put(struct muster_publication_op *done, enum muster_rc rc)
{
    if (rc != MUSTER_OK) {
        end_with(done->error.text);
        return;
    }
    printf("version %llu: accuracy %.3f\n", (unsigned long long)done->version, measure_accuracy());
    versions_made++;
    if (versions_made != settings.versions)
        muster_timer_start(&timer, env->loop, muster_loop_after_ns(env->loop, settings.pause_ns));
}

static void on_step(struct muster_timer *expired)
{
    const struct muster_publication_put put = {.tensors = tensors,
                                               .count = MODEL_TENSORS,
                                               .deadline_ns =
                                                   muster_loop_after_ns(env->loop, PUT_TIMEOUT_NS)};

    (void)expired;
    train_one_pass();
    if (muster_publication_put_start(&op, publication, &put, on_put) != MUSTER_OK)
        end_with("the publication takes no version");
}

static void on_opened(struct muster_publication *opened, enum muster_rc rc)
{
    if (rc == MUSTER_OK)
        on_step(&timer);
    else
        end_with(muster_publication_error(opened)->text);
}

static const struct muster_option rows[] = {
    {.name = "registry",
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct settings, registry),
     .value = "HOST:PORT",
     .help = "The registry that classify uses."},
    {.name = "data",
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct settings, data),
     .fallback = "examples/data/digits.csv",
     .value = "FILE",
     .help = "The images."},
    {.name = "versions",
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct settings, versions),
     .fallback = "0",
     .help = "Versions to make before the last one is only served; 0: no end."},
    {.name = "pause",
     .kind = MUSTER_OPTION_DURATION,
     .offset = offsetof(struct settings, pause_ns),
     .fallback = "1",
     .unit = "s",
     .help = "Time between two versions."},
};

static const struct muster_options options = {
    .command = "classify_train",
    .usage = "--registry HOST:PORT [options]",
    .about = "Train a classifier of hand-written digits and publish its weights.",
    .rows = rows,
    .row_count = sizeof(rows) / sizeof(rows[0]),
};

int main(int argc, char **argv)
{
    struct muster_error error;
    struct muster_address listen;
    int code;

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!serving_parse(&options, argc, argv, &settings, &code))
        return code;
    if (settings.registry == NULL) {
        fprintf(stderr, "usage: classify_train %s\n", options.usage);
        return 2;
    }
    if (!load_images(settings.data))
        return 2;
    if (muster_env_system_open(NULL, &env) != MUSTER_OK ||
        muster_net_system_open(env, &env->net) != MUSTER_OK)
        return 1;
    model_describe(&model, tensors);
    muster_timer_init(&timer, on_step, NULL);
    if (muster_address_parse("127.0.0.1:0", &listen, &error) != MUSTER_OK ||
        muster_publication_open(env,
                                &(struct muster_publication_options){
                                    .name = MODEL_PUBLICATION,
                                    .registry = settings.registry,
                                    .listen = &listen,
                                    .deadline_ns = muster_loop_after_ns(env->loop, PUT_TIMEOUT_NS)},
                                on_opened, &publication, &error) != MUSTER_OK) {
        fprintf(stderr, "classify_train: %s\n", error.text);
        return 1;
    }
    muster_loop_run(env->loop);
    return exit_code;
}
