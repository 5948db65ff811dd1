/* The bytes of the coordination service: three forms of requests, answers, details. */
#include "careful_mem.h"
#include "test_env.h"
#include "torture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/coordination/coordination_proto.h"

static size_t from_hex(const char *hex, uint8_t *out)
{
    size_t count = 0;

    for (; *hex != '\0'; hex++) {
        unsigned byte;

        if (*hex == ' ')
            continue;
        assert_int_equal(sscanf(hex, "%2x", &byte), 1);
        out[count++] = (uint8_t)byte;
        hex++;
    }
    return count;
}

static struct muster_coordination_message unpack_request(enum muster_coordination_dialect dialect,
                                                         enum muster_coordination_method method,
                                                         const char *hex)
{
    static uint8_t bytes[256];
    struct muster_coordination_message message;
    struct muster_error error;

    if (muster_coordination_unpack(muster_mem_system(), dialect, method,
                                   (struct muster_bytes){bytes, from_hex(hex, bytes)}, &message,
                                   &error) != MUSTER_OK)
        fail_msg("%s: %s", hex, error.text);
    return message;
}

#define INCARNATIONS "0a12 11 64911c7001778284 19 9f4b5cd04c5bf6b3"
#define TASK         UINT64_C(0x84827701701c9164)
#define SERVICE      UINT64_C(0xb3f65b4cd05c4b9f)

/* As they were seen on the wire (jaxlib 0.10.2, task 1). */
static void requests_of_today_are_read(void **state)
{
    struct muster_coordination_message message = unpack_request(
        MUSTER_COORDINATION_XLA, MUSTER_COORDINATION_REGISTER, "19 64911c7001778284 28 01");

    (void)state;
    assert_int_equal(message.request.task, 1);
    assert_true(message.request.incarnation == TASK);
    assert_false(message.request.has_service_incarnation);
    muster_coordination_release(&message);

    message = unpack_request(MUSTER_COORDINATION_XLA, MUSTER_COORDINATION_HEARTBEAT,
                             INCARNATIONS "11 64911c7001778284 18 01");
    assert_true(message.request.has_service_incarnation);
    assert_true(message.request.service_incarnation == SERVICE);
    assert_true(message.request.asker_incarnation == TASK);
    assert_true(message.request.incarnation == TASK);
    assert_int_equal(message.request.task, 1);
    muster_coordination_release(&message);

    message = unpack_request(MUSTER_COORDINATION_XLA, MUSTER_COORDINATION_POLL_FOR_ERROR,
                             INCARNATIONS "10 01");
    assert_int_equal(message.request.task, 1);
    muster_coordination_release(&message);
}

/* The id of a barrier, its timeout, tasks packed and not, who asks, the instance. */
static void both_numberings_and_tensorflow_say_the_same(void **state)
{
    static const struct {
        enum muster_coordination_dialect dialect;
        const char *hex;
    } rows[] = {
        {MUSTER_COORDINATION_XLA, INCARNATIONS "12 02 6231 18 e807 22 02 0002 28 02 30 04"},
        {MUSTER_COORDINATION_XLA, INCARNATIONS "12 02 6231 18 e807 20 00 20 02 28 02 30 04"},
        {MUSTER_COORDINATION_XLA, "0a 02 6231 10 e807 1a 02 0002 20 02 28 04"},
        {MUSTER_COORDINATION_TENSORFLOW,
         "0a 02 6231 10 e807 1a 05 0a 01 77 10 00 1a 05 0a 01 77 10 02 22 05 0a 01 77 10 02 28 04"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_coordination_message message =
            unpack_request(rows[i].dialect, MUSTER_COORDINATION_BARRIER, rows[i].hex);
        const struct muster_coordination_request *request = &message.request;

        assert_int_equal(request->key.size, 2);
        assert_memory_equal(request->key.data, "b1", 2);
        assert_int_equal(request->timeout_ms, 1000);
        assert_int_equal(request->task_count, 2);
        assert_int_equal(request->tasks[0], 0);
        assert_int_equal(request->tasks[1], 2);
        assert_int_equal(request->task, 2);
        assert_int_equal(request->counter, 4);
        muster_coordination_release(&message);
    }
}

static void a_key_that_looks_like_a_message_is_a_key(void **state)
{
    struct muster_coordination_message message =
        unpack_request(MUSTER_COORDINATION_XLA, MUSTER_COORDINATION_GET,
                       "0a 04 61 2f 62 63"); /* "a/bc", earlier */

    (void)state;
    assert_int_equal(message.request.key.size, 4);
    assert_false(message.request.has_service_incarnation);
    muster_coordination_release(&message);
    message = unpack_request(MUSTER_COORDINATION_XLA, MUSTER_COORDINATION_INSERT,
                             INCARNATIONS "12 06 0a 01 6b 12 01 ff 18 01");
    assert_memory_equal(message.request.key.data, "k", 1);
    assert_memory_equal(message.request.value.data, "\xff", 1);
    assert_true(message.request.is_overwriting);
    muster_coordination_release(&message);
    message = unpack_request(MUSTER_COORDINATION_XLA, MUSTER_COORDINATION_INSERT, "0a 03 0a 01 6b");
    assert_memory_equal(message.request.key.data, "k", 1);
    assert_int_equal(message.request.value.size, 0);
    muster_coordination_release(&message);
    message = unpack_request(MUSTER_COORDINATION_XLA, MUSTER_COORDINATION_INSERT, "");
    assert_int_equal(message.request.key.size, 0);
    muster_coordination_release(&message);
}

static void cut_off_bytes_are_refused(void **state)
{
    struct muster_coordination_message message;
    struct muster_error error;
    uint8_t bytes[64];
    size_t count = from_hex(INCARNATIONS "12 06 0a 01 6b 12 01 ff 18 01", bytes);
    unsigned refused = 0;

    (void)state;
    for (size_t cut = 0; cut < count; cut++) {
        enum muster_rc rc = muster_coordination_unpack(
            muster_mem_system(), MUSTER_COORDINATION_XLA, MUSTER_COORDINATION_INSERT,
            (struct muster_bytes){bytes, cut}, &message, &error);

        assert_true(rc == MUSTER_OK || rc == MUSTER_INVALID_ARGUMENT);
        refused += rc != MUSTER_OK;
        muster_coordination_release(&message);
    }
    assert_true(refused >= count - 4); /* whole fields are whole messages, too */
}

static void expect_bytes(const void *bytes, size_t size, const char *hex)
{
    uint8_t expected[256];

    assert_int_equal(size, from_hex(hex, expected));
    assert_memory_equal(bytes, expected, size);
}

struct packing {
    const char *name; /* of a row: answers without bytes take no memory */
    enum muster_coordination_dialect dialect;
    enum muster_coordination_method method;
    const struct muster_coordination_answer *answer;
    const char *hex; /* NULL: the details are packed, which have these names */
    const char *names[3];
};

static void run_packing(struct torture *torture, const void *data)
{
    const struct packing *packing = data;
    struct muster_mem_limited mem;
    void *bytes = NULL;
    size_t size = 0;
    enum muster_rc rc;

    muster_mem_limited_init(&mem, careful_mem(), 0);
    torture_arm_limited(torture, &mem);
    rc = packing->hex != NULL
             ? muster_coordination_pack(&mem.mem, packing->dialect, packing->method,
                                        packing->answer, &bytes, &size)
             : muster_coordination_pack_details(&mem.mem, packing->dialect, packing->answer,
                                                &bytes, &size);
    torture_disarm(torture);
    assert_int_equal(rc, torture->refused > 0 ? MUSTER_RESOURCE_EXHAUSTED : MUSTER_OK);
    if (rc == MUSTER_OK && packing->hex != NULL)
        expect_bytes(bytes, size, packing->hex);
    for (size_t i = 0; rc == MUSTER_OK && i < 3 && packing->names[i] != NULL; i++)
        assert_non_null(memmem(bytes, size, packing->names[i], strlen(packing->names[i])));
    muster_mem_free(&mem.mem, bytes);
    assert_int_equal(muster_mem_limited_fini(&mem), 0);
}

static void expect_packed(enum muster_coordination_dialect dialect,
                          enum muster_coordination_method method,
                          const struct muster_coordination_answer *answer, const char *hex)
{
    const struct packing packing[] = {{"an answer", dialect, method, answer, hex, {NULL}}};

    TORTURE_RUN_ROWS(run_packing, packing);
}

static void answers_are_written(void **state)
{
    const struct muster_coordination_entry short_one = {{"k", 1}, {"v", 1}};
    const struct muster_coordination_answer of_short = {.entries = &short_one, .entry_count = 1};
    const struct muster_coordination_answer of_none = {.rc = MUSTER_OK};
    const struct muster_coordination_entry entries[] = {{{"d/a", 3}, {"1", 1}},
                                                        {{"d/b", 3}, {"", 0}}};
    const struct muster_coordination_task_info tasks[] = {
        {.id = 0, .state = MUSTER_TASK_CONNECTED, .incarnation = 1},
        {.id = 2, .state = MUSTER_TASK_CONNECTED, .incarnation = 2}};
    const struct muster_coordination_answer answer = {.service_incarnation = SERVICE,
                                                      .counter = 3,
                                                      .entries = entries,
                                                      .entry_count = 2,
                                                      .tasks = tasks,
                                                      .task_count = 2};

    (void)state;
    expect_packed(MUSTER_COORDINATION_XLA, MUSTER_COORDINATION_REGISTER, &answer,
                  "09 9f4b5cd04c5bf6b3");
    expect_packed(MUSTER_COORDINATION_XLA, MUSTER_COORDINATION_BARRIER, &answer, "08 03");
    expect_packed(MUSTER_COORDINATION_XLA, MUSTER_COORDINATION_INSERT, &answer, "");
    expect_packed(MUSTER_COORDINATION_XLA, MUSTER_COORDINATION_GET, &answer,
                  "0a 08 0a 03 642f61 12 01 31");
    expect_packed(MUSTER_COORDINATION_XLA, MUSTER_COORDINATION_GET, &of_short,
                  "0a 06 0a 01 6b 12 01 76");
    expect_packed(MUSTER_COORDINATION_XLA, MUSTER_COORDINATION_DIRECTORY, &of_none, "");
    expect_packed(MUSTER_COORDINATION_XLA, MUSTER_COORDINATION_ALIVE, &of_none, "");
    expect_packed(MUSTER_COORDINATION_XLA, MUSTER_COORDINATION_DIRECTORY, &answer,
                  "12 08 0a 03 642f61 12 01 31 12 05 0a 03 642f62");
    expect_packed(MUSTER_COORDINATION_XLA, MUSTER_COORDINATION_ALIVE, &answer,
                  "0a 02 0002 12 10 0100000000000000 0200000000000000");
    expect_packed(MUSTER_COORDINATION_TENSORFLOW, MUSTER_COORDINATION_ALIVE, &answer,
                  "0a 00 0a 02 10 02 12 10 0100000000000000 0200000000000000");
}

static void details_are_written_or_refused_for_want_of_memory(void **state)
{
    const struct muster_coordination_answer answer = {
        .rc = MUSTER_INTERNAL,
        .details = MUSTER_COORDINATION_DETAIL_ERROR | MUSTER_COORDINATION_DETAIL_BARRIER |
                   MUSTER_COORDINATION_DETAIL_MISMATCH,
        .key = {"b", 1},
        .counter = 2,
        .service_incarnation = SERVICE};
    const struct packing packing[] = {
        {.name = "details",
         .dialect = MUSTER_COORDINATION_XLA,
         .answer = &answer,
         .names = {"CoordinationServiceError", "BarrierError", "ServiceMismatchError"}}};

    (void)state;
    TORTURE_RUN_ROWS(run_packing, packing);
}

static void details_are_written(void **state)
{
    const struct muster_coordination_answer answer = {.rc = MUSTER_INTERNAL,
                                                      .details = MUSTER_COORDINATION_DETAIL_ERROR};
    struct muster_coordination_answer none = {.rc = MUSTER_ALREADY_EXISTS};
    static const char key[] = "type.googleapis.com/tensorflow.CoordinationServiceError";
    void *bytes = NULL;
    size_t size = 0;

    (void)state;
    assert_int_equal(muster_coordination_pack_details(muster_mem_system(), MUSTER_COORDINATION_XLA,
                                                      &answer, &bytes, &size),
                     MUSTER_OK);
    assert_true(size >= 4 + sizeof(key) - 1);
    assert_memory_equal((const char *)bytes + 2, "\x0a\x37", 2);
    assert_memory_equal((const char *)bytes + 4, key, sizeof(key) - 1);
    muster_mem_free(muster_mem_system(), bytes);
    assert_int_equal(muster_coordination_pack_details(muster_mem_system(), MUSTER_COORDINATION_XLA,
                                                      &none, &bytes, &size),
                     MUSTER_OK);
    assert_int_equal(size, 0);
}

int main(void)
{
    const struct CMUnitTest coordination_proto[] = {
        cmocka_unit_test(requests_of_today_are_read),
        cmocka_unit_test(both_numberings_and_tensorflow_say_the_same),
        cmocka_unit_test(a_key_that_looks_like_a_message_is_a_key),
        cmocka_unit_test(cut_off_bytes_are_refused),
        cmocka_unit_test(answers_are_written),
        cmocka_unit_test(details_are_written),
        cmocka_unit_test(details_are_written_or_refused_for_want_of_memory),
    };

    return cmocka_run_group_tests(coordination_proto, NULL, NULL);
}
