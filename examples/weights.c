/* Versions of weights from one process to many:
 *     weights publish HOST:PORT   makes a version every tenth of a second
 *     weights read HOST:PORT      prints each version that it gets
 * HOST:PORT is the registry's. Any of them may die and be started again. */
#include <stdio.h>
#include <string.h>
#include <muster/env.h>
#include <muster/publication.h>
#include <muster/stream.h>

#define COUNT    1000000u
#define PAUSE_NS (100 * MUSTER_NS_PER_MS)

static struct muster_env *env;
static float weights[COUNT];
static const struct muster_named_tensor tensor = {"weights", MUSTER_F32, COUNT, weights};
static struct muster_publication *publication;
static struct muster_publication_op op;
static struct muster_timer timer;

static void on_put(struct muster_publication_op *done, enum muster_rc rc)
{
    if (rc == MUSTER_OK) {
        printf("version %d is there\n", (int)done->version);
        muster_timer_start(&timer, env->loop, muster_loop_after_ns(env->loop, PAUSE_NS));
        return;
    }
    fprintf(stderr, "weights: %s\n", done->error.text);
    muster_loop_stop(env->loop);
}

/* The next step of the training: all weights change. */
static void on_step(struct muster_timer *expired)
{
    const struct muster_publication_put put = {
        .tensors = &tensor,
        .count = 1,
        .deadline_ns = muster_loop_after_ns(env->loop, 30 * MUSTER_NS_PER_S)};

    (void)expired;
    for (unsigned i = 0; i < COUNT; i++)
        weights[i] = (float)(muster_publication_version(publication) + 1);
    if (muster_publication_put_start(&op, publication, &put, on_put) != MUSTER_OK)
        on_put(&op, op.error.rc);
}

static void on_opened(struct muster_publication *opened, enum muster_rc rc)
{
    if (rc == MUSTER_OK) {
        on_step(&timer);
        return;
    }
    fprintf(stderr, "weights: %s\n", muster_publication_error(opened)->text);
    muster_loop_stop(env->loop);
}

/* A service would answer with this version until the next one comes. */
static void on_version(struct muster_reader *reader)
{
    const struct muster_version *version = muster_reader_current(reader);
    const float *values = version->tensors[0].data;
    unsigned different = 0;

    for (unsigned i = 0; i < COUNT; i++)
        different += values[i] != values[0];
    printf("version %d: all weights are %g, but for %u\n", (int)version->number, (double)values[0],
           different);
    muster_reader_release(reader, version);
}

int main(int argc, char **argv)
{
    struct muster_error error = {.rc = MUSTER_INVALID_ARGUMENT, .text = "publish or read?"};
    struct muster_address listen;
    struct muster_reader *reader;
    enum muster_rc rc = MUSTER_INVALID_ARGUMENT;

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc != 3 || muster_env_system_open(NULL, &env) != MUSTER_OK ||
        muster_net_system_open(env, &env->net) != MUSTER_OK ||
        muster_address_parse("127.0.0.1:0", &listen, &error) != MUSTER_OK) {
        fprintf(stderr, "usage: weights publish|read HOST:PORT\n");
        return 2;
    }
    muster_timer_init(&timer, on_step, NULL);
    if (strcmp(argv[1], "publish") == 0)
        rc = muster_publication_open(
            env,
            &(struct muster_publication_options){
                .name = "weights",
                .registry = argv[2],
                .listen = &listen,
                .deadline_ns = muster_loop_after_ns(env->loop, 30 * MUSTER_NS_PER_S)},
            on_opened, &publication, &error);
    else if (strcmp(argv[1], "read") == 0)
        rc = muster_reader_open(env,
                                &(struct muster_reader_options){
                                    .name = "weights", .registry = argv[2], .listen = &listen},
                                on_version, &reader, &error);
    if (rc != MUSTER_OK) {
        fprintf(stderr, "weights: %s\n", error.text);
        return 1;
    }
    muster_loop_run(env->loop);
    return 1;
}
