/* A publisher, its readers and the registry: versions are seen whole, in order, whatever dies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "publication_stand.h"
#include "scene_case.h"
#include "torture.h"

#include <stdio.h>
#include <string.h>

#include "params/publication/manifest.h"

#define PATIENCE_NS (30 * MUSTER_NS_PER_S)
#define SOON_NS     (50 * MUSTER_NS_PER_MS)

SCENE_CASES(struct publication_stand, publication_stand_open, publication_stand_close)

struct crowd {
    const struct muster_publication *publication;
    uint32_t count;
};

static bool is_crowd_there(void *data)
{
    const struct crowd *crowd = data;
    struct muster_publication_stats stats;

    muster_publication_stats(crowd->publication, &stats);
    return stats.readers == crowd->count;
}

static void readers_await(struct publication_stand *stand,
                          const struct muster_publication *publication, uint32_t count)
{
    struct crowd crowd = {.publication = publication, .count = count};

    test_env_run_until(stand->env, is_crowd_there, &crowd);
}

static void version_arrives_whole(void **state)
{
    struct publication_stand *stand = *state;
    struct muster_publication *publication = publication_stand_publish(stand);
    struct muster_reader *reader = publication_stand_read(stand, 0);
    struct muster_publication_op op;

    assert_null(muster_reader_current(reader));
    assert_int_equal(publication_stand_put(stand, publication, 1, 0, PATIENCE_NS, &op), MUSTER_OK);

    assert_int_equal(op.version, 1);
    publication_stand_await(stand, reader, 1);
    publication_stand_check(reader, 1, 1);
}

static void late_reader_gets_the_newest(void **state)
{
    struct publication_stand *stand = *state;
    struct muster_publication *publication = publication_stand_publish(stand);
    struct muster_reader *reader;
    struct muster_reader_stats stats;

    for (int i = 1; i <= 3; i++)
        publication_stand_commit(stand, publication, (float)i, 0);
    reader = publication_stand_read(stand, 0);
    publication_stand_await(stand, reader, 1);

    publication_stand_check(reader, 3, 3);
    muster_reader_stats(reader, &stats);
    assert_int_equal(stats.versions, 1);
}

static void put_waits_for_all_readers(void **state)
{
    enum { READERS = 5 };
    struct publication_stand *stand = *state;
    struct muster_publication *publication = publication_stand_publish(stand);
    struct muster_reader *readers[READERS];
    struct muster_publication_op op;

    for (int i = 0; i < READERS; i++)
        readers[i] = publication_stand_read(stand, 0);
    for (int i = 1; i <= 3; i++) {
        assert_int_equal(
            publication_stand_put(stand, publication, (float)i, READERS, PATIENCE_NS, &op),
            MUSTER_OK);
        assert_int_equal(op.readers, READERS);
        for (int j = 0; j < READERS; j++)
            publication_stand_check(readers[j], (uint64_t)i, (float)i);
    }
}

static void second_publisher_fences_the_first(void **state)
{
    struct publication_stand *stand = *state;
    struct muster_publication *first, *second;
    struct muster_reader *reader;
    struct muster_publication_op op;

    first = publication_stand_publish(stand);
    reader = publication_stand_read(stand, 0);
    publication_stand_commit(stand, first, 1, 1);
    second = publication_stand_publish(stand);
    assert_int_equal(muster_publication_version(second), 1);

    assert_int_equal(publication_stand_put(stand, first, 7, 0, PATIENCE_NS, &op), MUSTER_ABORTED);
    assert_int_equal(op.version, 0);
    assert_int_equal(publication_stand_put(stand, second, 2, 1, PATIENCE_NS, &op), MUSTER_OK);
    assert_int_equal(op.version, 2);
    publication_stand_check(reader, 2, 2);
}

/* There is room for two versions: the first is in use, and the second is the current one. */
static const struct muster_version *room_fill(struct publication_stand *stand,
                                              struct muster_publication *publication,
                                              struct muster_reader *reader)
{
    const struct muster_version *first;

    publication_stand_commit(stand, publication, 1, 1);
    first = muster_reader_current(reader);
    publication_stand_commit(stand, publication, 2, 1);
    return first;
}

static void version_in_use_stays_as_it_is(void **state)
{
    struct publication_stand *stand = *state;
    struct muster_publication *publication = publication_stand_publish(stand);
    struct muster_reader *reader = publication_stand_read(stand, 0);
    const struct muster_version *first = room_fill(stand, publication, reader);

    assert_int_equal(publication_stand_put(stand, publication, 3, 1, SOON_NS, NULL),
                     MUSTER_DEADLINE_EXCEEDED);
    assert_true(((const float *)first->tensors[0].data)[PUBLICATION_STAND_COUNT - 1] == 1);
    publication_stand_check(reader, 2, 2);
    muster_reader_release(reader, first);
    publication_stand_await(stand, reader, 3);
    publication_stand_check(reader, 3, 3);
}

static void deadline_names_the_reader_that_is_missing(void **state)
{
    struct publication_stand *stand = *state;
    struct muster_publication *publication = publication_stand_publish(stand);
    struct muster_reader *reader = publication_stand_read(stand, 0);
    const struct muster_version *first = room_fill(stand, publication, reader);
    struct muster_publication_op op;
    char address[MUSTER_ADDRESS_TEXT_BYTES];

    assert_int_equal(
        publication_stand_put(stand, publication, 3, MUSTER_PUBLICATION_WAIT_FOR_ALL, SOON_NS, &op),
        MUSTER_DEADLINE_EXCEEDED);

    assert_int_equal(op.version, 3);
    assert_non_null(
        strstr(op.error.text, "version 3 is made, but 0 of 1 readers (wait_readers) have it; "));
    assert_non_null(
        strstr(op.error.text, muster_address_format(muster_reader_address(reader), address)));
    assert_non_null(strstr(op.error.text, "has 2"));
    muster_reader_release(reader, first);
}

static void deadline_says_that_too_few_readers_are_connected(void **state)
{
    struct publication_stand *stand = *state;
    struct muster_publication *publication = publication_stand_publish(stand);
    struct muster_publication_op op;

    assert_int_equal(publication_stand_put(stand, publication, 3, 2, SOON_NS, &op),
                     MUSTER_DEADLINE_EXCEEDED);

    assert_string_equal(op.error.text, "version 1 is made, but 0 of 2 readers (wait_readers) have "
                                       "it; 0 are connected: start more, or wait for fewer");
}

static void reader_shows_no_version_before_its_least(void **state)
{
    struct publication_stand *stand = *state;
    struct muster_publication *publication = publication_stand_publish(stand);
    struct muster_reader *reader = publication_stand_read(stand, 2);

    publication_stand_commit(stand, publication, 1, 1);
    assert_null(muster_reader_current(reader));
    publication_stand_commit(stand, publication, 2, 1);

    publication_stand_check(reader, 2, 2);
}

static void readers_survive_the_publisher(void **state)
{
    struct publication_stand *stand = *state;
    struct muster_publication *publication = publication_stand_publish(stand);
    struct muster_reader *readers[2], *late;

    for (int i = 0; i < 2; i++)
        readers[i] = publication_stand_read(stand, 0);
    publication_stand_commit(stand, publication, 1, 2);
    publication_stand_end(stand, publication);
    publication_stand_check(readers[0], 1, 1);
    publication = publication_stand_publish(stand); /* it does not have the bytes of version 1 */
    late = publication_stand_read(stand, 0);

    publication_stand_await(stand, late, 1);
    publication_stand_check(late, 1, 1);
    publication_stand_commit(stand, publication, 2, 3);
    publication_stand_check(readers[1], 2, 2);
}

static void equal_chunks_are_not_fetched_again(void **state)
{
    struct publication_stand *stand = *state;
    struct muster_publication *publication = publication_stand_publish(stand);
    struct muster_reader *reader = publication_stand_read(stand, 0);
    struct muster_reader_stats before, after;

    publication_stand_commit(stand, publication, 1, 1);
    muster_reader_stats(reader, &before);
    publication_stand_commit(stand, publication, 1, 1);
    muster_reader_stats(reader, &after);

    /* The second tensor has changed; it lies in the last chunk. */
    assert_int_equal(after.chunks_equal - before.chunks_equal, before.chunks_received - 1);
    assert_true(after.bytes_received - before.bytes_received < before.bytes_received / 2);
    publication_stand_check(reader, 2, 1);
}

static float minus_one(uint32_t element)
{
    (void)element;
    return -1;
}

static float own_place(uint32_t element)
{
    return (float)element;
}

/* One weight in `every` changes, in each chunk: less than the share of the bytes is sent. */
static void changes_check(struct publication_stand *stand, uint32_t every,
                          float (*value_of)(uint32_t element), uint64_t share)
{
    struct muster_publication *publication = publication_stand_publish(stand);
    struct muster_reader *reader = publication_stand_read(stand, 0);
    struct muster_publication_stats sent;
    struct muster_reader_stats before, after;
    const struct muster_version *current;

    publication_stand_commit(stand, publication, 1, 1);
    muster_reader_stats(reader, &before);
    for (uint32_t i = 0; i < PUBLICATION_STAND_COUNT; i += every)
        stand->weights[i] = value_of(i);
    assert_int_equal(publication_stand_put_weights(stand, publication, 1, PATIENCE_NS, NULL),
                     MUSTER_OK);
    muster_reader_stats(reader, &after);
    muster_publication_stats(publication, &sent);

    assert_int_equal(after.deltas_received - before.deltas_received, before.chunks_received);
    assert_int_equal(after.chunks_received, before.chunks_received);
    assert_int_equal(sent.deltas_sent, before.chunks_received);
    assert_true(after.bytes_received - before.bytes_received < before.bytes_received / share);
    current = muster_reader_current(reader);
    assert_int_equal(current->number, 2);
    assert_memory_equal(current->tensors[0].data, stand->weights,
                        PUBLICATION_STAND_COUNT * sizeof(float));
    muster_reader_release(reader, current);
}

static void changes_of_a_chunk_are_sent_instead_of_it(void **state)
{
    changes_check(*state, 200, minus_one, 100);
}

static void changes_to_different_values_are_sent_too(void **state)
{
    changes_check(*state, 100, own_place, 25);
}

/* The readers of a process share its host: one fetches from the publisher, the others from each other. */
static void publisher_sends_each_chunk_once(void **state)
{
    enum { READERS = 6, CHUNKS = 4 };
    struct publication_stand *stand = *state;
    struct muster_publication *publication = publication_stand_publish(stand);
    struct muster_publication_stats stats;

    for (int i = 0; i < READERS; i++)
        publication_stand_read(stand, 0);
    readers_await(stand, publication, READERS);
    publication_stand_commit(stand, publication, 1, READERS);

    muster_publication_stats(publication, &stats);
    assert_int_equal(stats.readers, READERS);
    assert_int_equal(stats.chunks_sent, CHUNKS);
}

static void on_wait(struct muster_reader_op *op, enum muster_rc rc)
{
    *(enum muster_rc *)op->data = rc;
}

static bool is_ended(void *data)
{
    return *(enum muster_rc *)data != MUSTER_OK;
}

static bool is_cancelled(void *data)
{
    return *(enum muster_rc *)data == MUSTER_CANCELLED;
}

static void wait_ends_when_it_is_cancelled(void **state)
{
    struct publication_stand *stand = *state;
    struct muster_reader *reader = publication_stand_read(stand, 0);
    enum muster_rc rc = MUSTER_OK;
    struct muster_reader_op op = {.data = &rc};

    assert_int_equal(muster_reader_wait_start(&op, reader, 1, UINT64_MAX, on_wait), MUSTER_OK);
    muster_reader_wait_cancel(&op);
    muster_reader_wait_cancel(&op);
    test_env_run_until(stand->env, is_cancelled, &rc);
}

static void wait_until_the_deadline(struct publication_stand *stand, struct muster_reader *reader,
                                    struct muster_reader_op *op)
{
    enum muster_rc rc = MUSTER_OK;

    op->data = &rc;
    assert_int_equal(muster_reader_wait_start(op, reader, 1, 0, on_wait), MUSTER_OK);
    test_env_run_until(stand->env, is_ended, &rc);
    assert_int_equal(rc, MUSTER_DEADLINE_EXCEEDED);
}

static bool has_error(void *data)
{
    return muster_reader_error(data)->rc != MUSTER_OK;
}

static bool has_no_error(void *data)
{
    return muster_reader_error(data)->rc == MUSTER_OK;
}

static void expect_text(const struct muster_reader_op *op, const char *registry,
                        const char *endpoints, const char *state)
{
    char text[240];

    snprintf(text, sizeof(text), "version 1 is not here: this reader has 0%s%s%s", registry,
             endpoints, state);
    if (strncmp(op->error.text, text, strlen(text)) != 0)
        fail_msg("%s", op->error.text);
}

/* The newest version in the registry is not known then. */
static void reader_whose_registry_is_away_names_it(void **state)
{
    struct publication_stand *stand = *state;
    const char *endpoints = stand->registry.endpoints;
    struct muster_reader_op op;
    struct muster_reader *reader;
    char listen[MUSTER_ADDRESS_TEXT_BYTES];

    registry_pair_stop_server(&stand->registry);
    reader = publication_stand_read(stand, 0);
    wait_until_the_deadline(stand, reader, &op);
    expect_text(&op, "; the registry at ", endpoints, " has not answered yet");
    test_env_run_until(stand->env, has_error, reader);
    wait_until_the_deadline(stand, reader, &op);
    expect_text(&op, "; the registry at ", endpoints, " is away: ");

    strcpy(listen, endpoints);
    registry_pair_start_server(&stand->registry, listen);
    test_env_run_until(stand->env, has_no_error, reader);
    wait_until_the_deadline(stand, reader, &op);
    expect_text(&op, ", the registry 0", "", "");
    publication_stand_commit(stand, publication_stand_publish(stand), 1, 1);
    publication_stand_check(reader, 1, 1);
}

/* Memory may end at its first request, and nobody is told: it goes on by itself. */
static void run_reader(struct torture *torture, const void *data)
{
    struct publication_stand *stand = *(struct publication_stand *const *)data;
    struct muster_address listen;
    const struct muster_reader_options options = {.name = PUBLICATION_STAND_NAME,
                                                  .job = "test",
                                                  .registry = stand->registry.endpoints,
                                                  .listen = &listen,
                                                  .data = stand};
    struct muster_reader *reader = NULL;
    struct muster_error error;
    enum muster_rc rc;

    assert_int_equal(muster_address_parse("127.0.0.1:0", &listen, &error), MUSTER_OK);
    torture_arm_limited(torture, &stand->registry.test.mem);
    rc = muster_reader_open(stand->reader_env, &options, NULL, &reader, &error);
    torture_disarm(torture);
    assert_true(rc == MUSTER_OK || (torture->refused > 0 && rc == MUSTER_RESOURCE_EXHAUSTED));
    if (rc != MUSTER_OK)
        return;
    stand->readers[0] = reader;
    publication_stand_await(stand, reader, 1);
    publication_stand_check(reader, 1, 1);
    publication_stand_leave(stand, reader);
}

static void reader_without_memory_for_its_request_asks_again(void **state)
{
    struct publication_stand *stand = *state;

    publication_stand_commit(stand, publication_stand_publish(stand), 1, 0);
    torture_run(&(struct torture_scenario){.name = "reader", .run = run_reader, .data = &stand});
}

static bool is_denied(void *data)
{
    return muster_reader_error(data)->rc == MUSTER_PERMISSION_DENIED;
}

static void reader_that_may_not_read_is_told_so(void **state)
{
    struct publication_stand *stand = *state;
    struct muster_publication *publication;
    struct muster_reader *reader;
    char address[MUSTER_ADDRESS_TEXT_BYTES];

    publication_stand_authorize(stand, "{\"name\":\"p\",\"allow_rules\":[{\"name\":\"friends\","
                                       "\"source\":{\"principals\":[\"nobody\"]}}]}");
    publication = publication_stand_publish(stand);
    publication_stand_commit(stand, publication, 1, 0);
    reader = publication_stand_read(stand, 0);
    test_env_run_until(stand->env, is_denied, reader);

    assert_non_null(
        strstr(muster_reader_error(reader)->text,
               muster_address_format(muster_publication_address(publication), address)));
    assert_int_equal(muster_reader_newest(reader), 1);
    assert_null(muster_reader_current(reader));
}

/* A chunk of the same source came before it. */
static void wrong_chunk_is_fetched_from_another_source(void **state)
{
    enum { CHUNKS = 4, WRONG = (2 * MUSTER_VERSION_CHUNK_BYTES) / sizeof(float) + 5 };
    struct publication_stand *stand = *state;
    struct muster_publication *publication = publication_stand_publish(stand);
    struct muster_reader *liar, *late;
    const struct muster_version *version;
    struct muster_reader_stats stats;
    float *bytes;

    liar = publication_stand_read(stand, 0);
    publication_stand_commit(stand, publication, 1, 1);
    version = muster_reader_current(liar);
    memcpy(&bytes, &version->tensors[0].data, sizeof(bytes)); /* a fault of its memory */
    bytes[WRONG] = 7;
    late = publication_stand_read(stand, 0);
    publication_stand_await(stand, late, 1);

    publication_stand_check(late, 1, 1);
    muster_reader_stats(late, &stats);
    assert_int_equal(stats.chunks_wrong, 1);
    assert_int_equal(stats.parents_lost, 1);
    assert_int_equal(stats.chunks_received,
                     CHUNKS); /* those that came before are not asked for again */
    muster_reader_stats(liar, &stats);
    assert_true(stats.bytes_sent > 0);
    muster_reader_release(liar, version);
}

static void on_put(struct muster_publication_op *op, enum muster_rc rc)
{
    *(enum muster_rc *)op->data = rc;
}

static bool is_put_over(void *data)
{
    return *(enum muster_rc *)data != MUSTER_UNKNOWN;
}

static void publisher_that_ends_before_the_commit_leaves_no_version(void **state)
{
    struct publication_stand *stand = *state;
    struct muster_publication *publication;
    struct muster_reader *reader;
    enum muster_rc rc = MUSTER_OK;
    struct muster_publication_op op = {.data = &rc};
    const uint64_t number = 1;
    const struct muster_named_tensor tensor = {"n", MUSTER_U64, 1, &number};
    const struct muster_publication_put put = {
        .tensors = &tensor, .count = 1, .deadline_ns = UINT64_MAX};

    reader = publication_stand_read(stand, 0);
    publication = publication_stand_publish(stand);
    assert_int_equal(muster_publication_put_start(&op, publication, &put, on_put), MUSTER_OK);
    publication_stand_end(stand, publication);
    assert_int_equal(rc, MUSTER_CANCELLED);
    assert_int_equal(op.version, 0);
    publication = publication_stand_publish(stand);

    assert_int_equal(muster_publication_version(publication), 0);
    assert_null(muster_reader_current(reader));
    assert_int_equal(publication_stand_put(stand, publication, 3, 1, PATIENCE_NS, &op), MUSTER_OK);
    publication_stand_check(reader, 1, 3);
}

/* Its first requests are not sent: they are tried again, long before the deadline. */
static void version_is_committed_though_its_request_finds_no_memory(void **state)
{
    struct publication_stand *stand = *state;
    struct muster_mem_limited *mem = &stand->registry.test.mem;
    struct muster_publication *publication = publication_stand_publish(stand);
    const uint64_t number = 1;
    const struct muster_named_tensor tensor = {"n", MUSTER_U64, 1, &number};
    const struct muster_publication_put put = {
        .tensors = &tensor, .count = 1, .deadline_ns = UINT64_MAX};

    for (uint64_t i = 1; i <= 3; i++) {
        enum muster_rc rc = MUSTER_UNKNOWN;
        struct muster_publication_op op = {.data = &rc};

        assert_int_equal(muster_publication_put_start(&op, publication, &put, on_put), MUSTER_OK);
        test_env_turn(stand->env, 1); /* copies; the next turn seals the version and sends */
        mem->fail_at = i;
        test_env_turn(stand->env, 1);
        assert_int_equal(mem->fail_at, 0);
        test_env_run_until(stand->env, is_put_over, &rc);
        assert_int_equal(rc, i == 1 ? MUSTER_RESOURCE_EXHAUSTED : MUSTER_OK);
        assert_int_equal(muster_publication_version(publication), i - 1);
    }
}

static void put_refuses_what_is_no_version(void **state)
{
    struct publication_stand *stand = *state;
    struct muster_publication *publication;
    const uint64_t number = 1;
    const struct muster_named_tensor twice[] = {{"n", MUSTER_U64, 1, &number},
                                                {"n", MUSTER_U64, 1, &number}};
    const struct muster_named_tensor without_data = {"n", MUSTER_U64, 1, NULL};
    const struct {
        const char *name;
        const struct muster_named_tensor *tensors;
        size_t count;
        const char *text;
    } rows[] = {{"no tensor", twice, 0, "1 to 65536"},
                {"one name twice", twice, 2, "twice"},
                {"no data", &without_data, 1, "no data"}};

    publication = publication_stand_publish(stand);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_publication_op op = {.data = NULL};
        const struct muster_publication_put put = {
            .tensors = rows[i].tensors, .count = rows[i].count, .deadline_ns = UINT64_MAX};

        if (muster_publication_put_start(&op, publication, &put, on_put) !=
                MUSTER_INVALID_ARGUMENT ||
            strstr(op.error.text, rows[i].text) == NULL)
            fail_msg("%s: %s", rows[i].name, op.error.text);
    }
}

/* Readers get a manifest in one message. With 65536 tensors it is as large as a message may be when all names but
 * one have 240 bytes, and that one 192: 32 bytes are a head, 16 those of each tensor and of the only chunk. */
static void manifest_that_no_message_holds_is_refused(void **state)
{
    enum { LONG = 240, SHORT = 192 };
    struct publication_stand *stand = *state;
    struct muster_publication *publication = publication_stand_publish(stand);
    struct muster_named_tensor *tensors =
        calloc(MUSTER_PUBLICATION_TENSORS_MAX, sizeof(tensors[0]));
    char *names = calloc(MUSTER_PUBLICATION_TENSORS_MAX, LONG + 1);
    const uint8_t byte = 1;

    for (uint32_t more = 0; more <= 1; more++) {
        enum muster_rc rc = MUSTER_UNKNOWN;
        struct muster_publication_op op = {.data = &rc};
        const struct muster_publication_put put = {
            .tensors = tensors, .count = MUSTER_PUBLICATION_TENSORS_MAX, .deadline_ns = UINT64_MAX};

        for (uint32_t i = 0; i < MUSTER_PUBLICATION_TENSORS_MAX; i++) {
            char *name = names + (size_t)i * (LONG + 1);

            snprintf(name, LONG + 1, "%0*u", i == 0 ? (int)(SHORT + more) : LONG, i);
            tensors[i] = (struct muster_named_tensor){name, MUSTER_U8, i == 0, &byte};
        }
        if (more == 1) {
            assert_int_equal(muster_publication_put_start(&op, publication, &put, on_put),
                             MUSTER_RESOURCE_EXHAUSTED);
            assert_non_null(strstr(op.error.text, "has 16777217 bytes and does not fit into a "
                                                  "message of 16777216"));
        } else {
            assert_int_equal(muster_publication_put_start(&op, publication, &put, on_put),
                             MUSTER_OK);
            test_env_run_until(stand->env, is_put_over, &rc);
            assert_int_equal(rc, MUSTER_OK);
        }
    }
    free(names);
    free(tensors);
}

static void wrong_options_open_no_publication(void **state)
{
    static const struct {
        const char *name;
        uint32_t history;
        const char *text, *job;
    } rows[] = {{"", 1, "name", NULL},
                {"a b", 1, "name", NULL},
                {"weights", 1, "must not have a '/'", "a/b"},
                {"weights", MUSTER_PUBLICATION_HISTORY_MAX + 1, "history must be at most", NULL}};
    struct publication_stand *stand = *state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct muster_publication_options options = {.name = rows[i].name,
                                                           .history = rows[i].history,
                                                           .job = rows[i].job,
                                                           .registry = stand->registry.endpoints};
        struct muster_publication *publication = NULL;
        struct muster_error error;

        if (muster_publication_open(stand->env, &options, NULL, &publication, &error) !=
                MUSTER_INVALID_ARGUMENT ||
            strstr(error.text, rows[i].text) == NULL)
            fail_msg("%s: %s", rows[i].text, error.text);
        assert_null(publication);
    }
}

static void a_reader_of_a_job_that_cannot_be_is_not_opened(void **state)
{
    struct publication_stand *stand = *state;
    const struct muster_reader_options options = {
        .name = PUBLICATION_STAND_NAME, .job = "a\tb", .registry = stand->registry.endpoints};
    struct muster_reader *reader = NULL;
    struct muster_error error;

    assert_int_equal(muster_reader_open(stand->env, &options, NULL, &reader, &error),
                     MUSTER_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "got byte 0x09 behind \"a\""));
    assert_null(reader);
}

static void reader_without_memory_is_not_opened(void **state)
{
    struct publication_stand *stand = *state;
    const struct muster_reader_options options = {.name = PUBLICATION_STAND_NAME,
                                                  .registry = stand->registry.endpoints};
    struct muster_reader *reader = NULL;
    struct muster_error error;

    stand->registry.test.mem.fail_at = 1;

    assert_int_equal(muster_reader_open(stand->reader_env, &options, NULL, &reader, &error),
                     MUSTER_RESOURCE_EXHAUSTED);
    assert_string_equal(error.text, "no memory for a reader");
    assert_null(reader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(version_arrives_whole),
        CASE(late_reader_gets_the_newest),
        CASE(put_waits_for_all_readers),
        CASE(second_publisher_fences_the_first),
        CASE(version_in_use_stays_as_it_is),
        CASE(deadline_names_the_reader_that_is_missing),
        CASE(deadline_says_that_too_few_readers_are_connected),
        CASE(reader_shows_no_version_before_its_least),
        CASE(readers_survive_the_publisher),
        CASE(changes_of_a_chunk_are_sent_instead_of_it),
        CASE(publisher_sends_each_chunk_once),
        CASE(wait_ends_when_it_is_cancelled),
        CASE(reader_whose_registry_is_away_names_it),
        CASE(reader_without_memory_for_its_request_asks_again),
        CASE(reader_that_may_not_read_is_told_so),
        CASE(changes_to_different_values_are_sent_too),
        CASE(wrong_chunk_is_fetched_from_another_source),
        CASE(publisher_that_ends_before_the_commit_leaves_no_version),
        CASE(version_is_committed_though_its_request_finds_no_memory),
        CASE(put_refuses_what_is_no_version),
        CASE(manifest_that_no_message_holds_is_refused),
        CASE(wrong_options_open_no_publication),
        CASE(a_reader_of_a_job_that_cannot_be_is_not_opened),
        CASE(reader_without_memory_is_not_opened),
        CASE(equal_chunks_are_not_fetched_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
