/* Ten versions of weights by calls that wait, in a program without a loop of its own:
 *     weights_wait publish HOST:PORT   makes ten versions, each when a reader has the one before
 *     weights_wait read HOST:PORT      prints versions until it has the tenth
 * HOST:PORT is the registry's. */
#include <stdio.h>
#include <string.h>
#include <muster/env.h>
#include <muster/publication.h>
#include <muster/runtime.h>
#include <muster/stream.h>

#define COUNT      100000u
#define VERSIONS   10u
#define TIMEOUT_NS (30 * MUSTER_NS_PER_S)

static const char usage[] = "usage: weights_wait publish|read HOST:PORT\n";

static enum muster_rc versions_publish(struct muster_publication *publication,
                                       struct muster_error *ret_error)
{
    static float weights[COUNT];
    const struct muster_named_tensor tensor = {"weights", MUSTER_F32, COUNT, weights};
    const struct muster_publication_put put = {.tensors = &tensor, .count = 1, .wait_readers = 1};
    enum muster_rc rc = MUSTER_OK;
    uint64_t version = 0;

    while (rc == MUSTER_OK && version < VERSIONS) {
        for (unsigned i = 0; i < COUNT; i++) /* a step of the training */
            weights[i] += 1;
        rc = muster_publication_publish(publication, &put, TIMEOUT_NS, &version, ret_error);
    }
    if (rc == MUSTER_OK)
        printf("version %d has a reader\n", (int)version);
    return rc;
}

static enum muster_rc versions_read(struct muster_reader *reader, struct muster_error *ret_error)
{
    enum muster_rc rc = MUSTER_OK;
    uint64_t number = 0;

    while (rc == MUSTER_OK && number < VERSIONS) {
        const struct muster_version *version;

        rc = muster_reader_take(reader, number + 1, TIMEOUT_NS, &version, ret_error);
        if (rc != MUSTER_OK)
            break;
        number = version->number;
        printf("version %d: %g\n", (int)number,
               (double)((const float *)version->tensors[0].data)[0]);
        rc = muster_reader_put_back(reader, version, ret_error);
    }
    return rc;
}

static enum muster_rc role_publish(struct muster_runtime *runtime, const char *registry,
                                   const struct muster_address *listen, struct muster_error *error)
{
    const struct muster_publication_options options = {
        .name = "weights", .registry = registry, .listen = listen};
    struct muster_publication *publication;
    enum muster_rc rc =
        muster_publication_connect(runtime, &options, TIMEOUT_NS, &publication, error);

    if (rc != MUSTER_OK)
        return rc;
    rc = versions_publish(publication, error);
    return muster_publication_disconnect(publication, NULL) == MUSTER_OK ? rc : MUSTER_INTERNAL;
}

static enum muster_rc role_read(struct muster_runtime *runtime, const char *registry,
                                const struct muster_address *listen, struct muster_error *error)
{
    const struct muster_reader_options options = {
        .name = "weights", .registry = registry, .listen = listen};
    struct muster_reader *reader;
    enum muster_rc rc = muster_reader_connect(runtime, &options, &reader, error);

    if (rc != MUSTER_OK)
        return rc;
    rc = versions_read(reader, error);
    return muster_reader_disconnect(reader, NULL) == MUSTER_OK ? rc : MUSTER_INTERNAL;
}

int main(int argc, char **argv)
{
    struct muster_error error = {.rc = MUSTER_OK};
    struct muster_address listen;
    struct muster_env *env;
    struct muster_runtime *runtime;
    enum muster_rc rc;

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc != 3 || (strcmp(argv[1], "publish") != 0 && strcmp(argv[1], "read") != 0)) {
        fputs(usage, stderr);
        return 2;
    }
    if (muster_env_system_open(NULL, &env) != MUSTER_OK ||
        muster_net_system_open(env, &env->net) != MUSTER_OK ||
        muster_runtime_open(&(struct muster_runtime_options){.env = env}, &runtime) != MUSTER_OK) {
        fprintf(stderr, "weights_wait: no loop, network or runtime (memory, descriptors)\n");
        return 1;
    }
    rc = muster_address_parse("127.0.0.1:0", &listen, &error);
    if (rc == MUSTER_OK)
        rc = strcmp(argv[1], "publish") == 0 ? role_publish(runtime, argv[2], &listen, &error)
                                             : role_read(runtime, argv[2], &listen, &error);
    if (rc != MUSTER_OK)
        fprintf(stderr, "weights_wait: %s\n", error.text);
    muster_runtime_close(runtime);
    muster_net_system_close(env->net);
    muster_env_system_close(env);
    return rc == MUSTER_OK ? 0 : 1;
}
