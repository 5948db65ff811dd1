#include "publication_stand.h"

#include "task_tls.h"

#include <stdlib.h>
#include <string.h>

void publication_stand_open(struct publication_stand *stand)
{
    memset(stand, 0, sizeof(*stand));
    registry_pair_open(&stand->registry);
    stand->env = stand->reader_env = stand->registry.env;
    stand->own_host_ops = stand->env->host->ops;
    stand->host_ops = *stand->own_host_ops;
    stand->host_ops.memory_open = NULL;
    stand->host_ops.memory_map = NULL;
    stand->env->host->ops = &stand->host_ops;
    stand->weights = calloc(PUBLICATION_STAND_COUNT, sizeof(float));
    assert_non_null(stand->weights);
}

/* In a list of open ones, where NULL is room. */
static void stand_replace(void **list, size_t count, const void *before, void *after)
{
    size_t i = 0;

    while (i < count && list[i] != before)
        i++;
    assert_true(i < count);
    list[i] = after;
}

static uint64_t stand_deadline(const struct publication_stand *stand)
{
    return muster_loop_after_ns(stand->env->loop, 60 * MUSTER_NS_PER_S);
}

static void on_publication(struct muster_publication *publication, enum muster_rc rc)
{
    struct publication_stand *stand = muster_publication_data(publication);

    stand->is_done = true;
    stand->rc = rc;
}

struct muster_publication *publication_stand_publish(struct publication_stand *stand)
{
    struct muster_address listen;
    struct muster_publication_options options = {.name = PUBLICATION_STAND_NAME,
                                                 .job = "test",
                                                 .registry = stand->registry.endpoints,
                                                 .listen = &listen,
                                                 .authorization = stand->authorization,
                                                 .history = stand->history,
                                                 .deadline_ns = stand_deadline(stand),
                                                 .data = stand};
    struct muster_publication *publication = NULL;
    struct muster_error error;

    assert_int_equal(muster_address_parse("127.0.0.1:0", &listen, &error), MUSTER_OK);
    stand->is_done = false;
    if (muster_publication_open(stand->env, &options, on_publication, &publication, &error) !=
        MUSTER_OK)
        fail_msg("%s", error.text);
    test_env_run_until(stand->env, test_env_is_true, &stand->is_done);
    if (stand->rc != MUSTER_OK)
        fail_msg("%s", muster_publication_error(publication)->text);
    stand_replace((void **)stand->publications, PUBLICATION_STAND_PUBLISHERS_MAX, NULL,
                  publication);
    return publication;
}

void publication_stand_end(struct publication_stand *stand, struct muster_publication *publication)
{
    stand->is_done = false;
    stand_replace((void **)stand->publications, PUBLICATION_STAND_PUBLISHERS_MAX, publication,
                  NULL);
    muster_publication_close(publication, on_publication);
    test_env_run_until(stand->env, test_env_is_true, &stand->is_done);
    test_env_turn(stand->env, 8); /* the links of its readers end */
}

void publication_stand_secure(struct publication_stand *stand,
                              const struct fake_authority *authority,
                              const struct fake_cert *publisher, const struct fake_cert *reader)
{
    assert_null(stand->env->tls);
    stand->env->tls = task_tls_open(stand->env, authority, publisher, true);
    stand->own_reader_env = *stand->env;
    stand->own_reader_env.tls = task_tls_open(&stand->own_reader_env, authority, reader, true);
    stand->reader_env = &stand->own_reader_env;
}

void publication_stand_share(struct publication_stand *stand)
{
    stand->host_ops = *stand->own_host_ops;
}

void publication_stand_authorize(struct publication_stand *stand, const char *policy)
{
    assert_null(stand->authorization);
    stand->authorization = task_policy_new(stand->env, policy);
}

static void on_put(struct muster_publication_op *op, enum muster_rc rc)
{
    struct publication_stand *stand = op->data;

    stand->is_done = true;
    stand->rc = rc;
}

enum muster_rc publication_stand_put_weights(struct publication_stand *stand,
                                             struct muster_publication *publication,
                                             uint32_t wait_readers, uint64_t timeout_ns,
                                             struct muster_publication_op *ret_op)
{
    const struct muster_named_tensor tensors[] = {
        {.name = "weights",
         .dtype = MUSTER_F32,
         .count = PUBLICATION_STAND_COUNT,
         .data = stand->weights},
        {.name = "step", .dtype = MUSTER_U64, .count = 1, .data = &stand->step},
    };
    const struct muster_publication_put put = {
        .tensors = tensors,
        .count = 2,
        .wait_readers = wait_readers,
        .deadline_ns = muster_loop_after_ns(stand->env->loop, timeout_ns)};
    struct muster_publication_op op = {.data = stand};
    enum muster_rc rc;

    stand->is_done = false;
    stand->step++;
    rc = muster_publication_put_start(&op, publication, &put, on_put);
    if (rc == MUSTER_OK) {
        test_env_run_until(stand->env, test_env_is_true, &stand->is_done);
        rc = stand->rc;
    }
    if (ret_op != NULL)
        *ret_op = op;
    return rc;
}

enum muster_rc publication_stand_put(struct publication_stand *stand,
                                     struct muster_publication *publication, float value,
                                     uint32_t wait_readers, uint64_t timeout_ns,
                                     struct muster_publication_op *ret_op)
{
    for (uint32_t i = 0; i < PUBLICATION_STAND_COUNT; i++)
        stand->weights[i] = value;
    return publication_stand_put_weights(stand, publication, wait_readers, timeout_ns, ret_op);
}

void publication_stand_commit(struct publication_stand *stand,
                              struct muster_publication *publication, float value,
                              uint32_t wait_readers)
{
    assert_int_equal(
        publication_stand_put(stand, publication, value, wait_readers, 30 * MUSTER_NS_PER_S, NULL),
        MUSTER_OK);
}

struct muster_reader *publication_stand_read(struct publication_stand *stand, uint64_t min_version)
{
    struct muster_address listen;
    struct muster_reader_options options = {.name = PUBLICATION_STAND_NAME,
                                            .job = "test",
                                            .registry = stand->registry.endpoints,
                                            .listen = &listen,
                                            .host_key = stand->host_key,
                                            .min_version = min_version,
                                            .data = stand};
    struct muster_reader *reader = NULL;
    struct muster_error error;

    assert_int_equal(muster_address_parse("127.0.0.1:0", &listen, &error), MUSTER_OK);
    if (muster_reader_open(stand->reader_env, &options, NULL, &reader, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    stand_replace((void **)stand->readers, PUBLICATION_STAND_READERS_MAX, NULL, reader);
    return reader;
}

static void on_wait(struct muster_reader_op *op, enum muster_rc rc)
{
    struct publication_stand *stand = op->data;

    stand->is_done = true;
    stand->rc = rc;
}

void publication_stand_await(struct publication_stand *stand, struct muster_reader *reader,
                             uint64_t version)
{
    struct muster_reader_op op = {.data = stand};

    stand->is_done = false;
    assert_int_equal(muster_reader_wait_start(
                         &op, reader, version,
                         muster_loop_after_ns(stand->env->loop, 30 * MUSTER_NS_PER_S), on_wait),
                     MUSTER_OK);
    test_env_run_until(stand->env, test_env_is_true, &stand->is_done);
    if (stand->rc != MUSTER_OK)
        fail_msg("%s", op.error.text);
}

static void on_reader_closed(struct muster_reader *reader)
{
    struct publication_stand *stand = muster_reader_data(reader);

    stand->is_done = true;
}

void publication_stand_leave(struct publication_stand *stand, struct muster_reader *reader)
{
    stand->is_done = false;
    stand_replace((void **)stand->readers, PUBLICATION_STAND_READERS_MAX, reader, NULL);
    muster_reader_close(reader, on_reader_closed);
    test_env_run_until(stand->env, test_env_is_true, &stand->is_done);
    test_env_turn(stand->env, 8);
}

void publication_stand_check(struct muster_reader *reader, uint64_t version, float value)
{
    const struct muster_version *current = muster_reader_current(reader);
    const float *weights;

    assert_non_null(current);
    assert_int_equal(current->number, version);
    assert_int_equal(current->count, 2);
    assert_string_equal(current->tensors[0].name, "weights");
    assert_int_equal(current->tensors[0].count, PUBLICATION_STAND_COUNT);
    weights = current->tensors[0].data;
    for (uint32_t i = 0; i < PUBLICATION_STAND_COUNT; i++) {
        if (weights[i] != value)
            fail_msg("element %u of version %u is %g, not %g", i, (unsigned)version,
                     (double)weights[i], (double)value);
    }
    muster_reader_release(reader, current);
}

void publication_stand_close(struct publication_stand *stand)
{
    for (uint32_t i = 0; i < PUBLICATION_STAND_READERS_MAX; i++) {
        if (stand->readers[i] != NULL)
            publication_stand_leave(stand, stand->readers[i]);
    }
    for (uint32_t i = 0; i < PUBLICATION_STAND_PUBLISHERS_MAX; i++) {
        if (stand->publications[i] != NULL)
            publication_stand_end(stand, stand->publications[i]);
    }
    test_env_turn(stand->env, 8);
    muster_authorization_free(stand->authorization);
    muster_tls_close(stand->own_reader_env.tls);
    muster_tls_close(stand->env->tls);
    stand->env->tls = NULL;
    free(stand->weights);
    stand->env->host->ops = stand->own_host_ops;
    registry_pair_close(&stand->registry);
}
