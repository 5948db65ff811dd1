/* The coordination service on a gRPC server: each call gets one status, whatever ends it; what it
 * says is kept is kept. */
#include "rpc_stand.h"
#include "torture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <muster/coordination_server.h>
#include <muster/stream.h>

#include "cluster/coordination/keeper.h"

#define XLA         "/xla.coordination.CoordinationService/"
#define TENSORFLOW  "/tensorflow.CoordinationService/"
#define BEAT_NS     (10 * MUSTER_NS_PER_S)
#define REGISTER_NS (30 * MUSTER_NS_PER_S)
#define NONE        (-1) /* no status yet */
#define CANCEL      8    /* RFC 9113 7 */
#define FILE_MAX    (1u << 20)

struct scene {
    struct rpc_stand stand;
    struct muster_coordination_server *server;
    struct rpc_raw *raws[2]; /* a connection for each task */
    uint32_t streams[2];     /* the last of each */
    char folder[40];
    char data[60], copy[60]; /* files */
    unsigned lives;
    bool is_closed;
};

static void serve_jobs(struct scene *scene, const char *data, bool is_closed_dead)
{
    struct muster_coordination_server_options options = {.task_count = 2,
                                                         .heartbeat_timeout_ns = BEAT_NS,
                                                         .register_timeout_ns = REGISTER_NS,
                                                         .data = data,
                                                         .is_closed_dead = is_closed_dead};
    struct muster_error error;

    rpc_stand_open(&scene->stand, NULL);
    for (unsigned i = 0; i < scene->lives; i++) /* it draws another number each time */
        (void)muster_rng_next(scene->stand.test.env.rng);
    scene->lives++;
    options.rpc_server = scene->stand.server;
    if (muster_coordination_server_open(&scene->stand.test.env, &options, &scene->server, &error) !=
        MUSTER_OK)
        fail_msg("%s", error.text);
    muster_coordination_server_set_data(scene->server, scene);
    for (int task = 0; task < 2; task++) {
        scene->raws[task] = rpc_raw_open(&scene->stand);
        scene->streams[task] = 0;
    }
}

static void on_closed(struct muster_coordination_server *server)
{
    ((struct scene *)muster_coordination_server_data(server))->is_closed = true;
}

static void stop_server(struct scene *scene)
{
    muster_coordination_server_drain(scene->server);
    rpc_stand_begin_close(&scene->stand, 0);
    rpc_stand_advance(&scene->stand, MUSTER_NS_PER_S);
    scene->is_closed = false;
    muster_coordination_server_close(scene->server, 0, on_closed);
    rpc_stand_advance(&scene->stand, 0);
    assert_true(scene->is_closed);
    rpc_stand_close(&scene->stand);
}

static int set_up(void **state)
{
    struct scene *scene = calloc(1, sizeof(*scene));

    strcpy(scene->folder, "/tmp/muster-coordinator-XXXXXX");
    assert_non_null(mkdtemp(scene->folder));
    (void)snprintf(scene->data, sizeof(scene->data), "%s/data", scene->folder);
    (void)snprintf(scene->copy, sizeof(scene->copy), "%s/copy", scene->folder);
    *state = scene;
    return 0;
}

static const char *const suffixes[] = {"", "-wal", "-shm"};

static void remove_files(const struct scene *scene)
{
    char path[80];

    for (size_t i = 0; i < 3; i++) {
        (void)snprintf(path, sizeof(path), "%s%s", scene->data, suffixes[i]);
        (void)unlink(path);
        (void)snprintf(path, sizeof(path), "%s%s", scene->copy, suffixes[i]);
        (void)unlink(path);
    }
}

static int tear_down(void **state)
{
    struct scene *scene = *state;

    (void)torture_tell(state);
    remove_files(scene);
    (void)rmdir(scene->folder);
    free(scene);
    return 0;
}

/* --- Calls --- */

/* Requests in the numbering of jaxlib before 0.10, from task 0. */
struct request {
    const char *path;
    const char *bytes;
    size_t size;
};
#define REQUEST(path, bytes) {(path), (bytes), sizeof(bytes) - 1}

/* Sent, and not a turn of the loop. Returns the stream. */
static uint32_t send_request(struct scene *scene, int task, struct request request)
{
    uint32_t stream = scene->streams[task] == 0 ? 1 : scene->streams[task] + 2;

    scene->streams[task] = stream;
    rpc_raw_headers(scene->raws[task], stream, request.path, NULL, NULL, 0);
    rpc_raw_message(scene->raws[task], stream, 0, request.size, request.bytes, request.size,
                    FLAG_END_STREAM);
    return stream;
}

static uint32_t ask_service(struct scene *scene, int task, struct request request)
{
    uint32_t stream = send_request(scene, task, request);

    rpc_stand_advance(&scene->stand, 0);
    return stream;
}

static int64_t status_of(const struct scene *scene, int task, uint32_t stream)
{
    return rpc_raw_status(scene->raws[task], stream);
}

static int64_t ask_status(struct scene *scene, int task, struct request request)
{
    return status_of(scene, task, ask_service(scene, task, request));
}

static const struct request register_0 = REQUEST(XLA "RegisterTask", ""),
                            register_1 = REQUEST(XLA "RegisterTask", "\x28\x01"),
                            poll_0 = REQUEST(XLA "PollForError", ""),
                            poll_1 = REQUEST(XLA "PollForError", "\x08\x01"),
                            beat_0 = REQUEST(XLA "Heartbeat", ""),
                            barrier_0 = REQUEST(XLA "Barrier", "\x0a\x01"
                                                               "b\x10\xff\xff\x03"),
                            barrier_1 = REQUEST(XLA "Barrier", "\x0a\x01"
                                                               "b\x10\xff\xff\x03\x20\x01"),
                            insert = REQUEST(XLA "InsertKeyValue", "\x0a\x06\x0a\x01k\x12\x01v"),
                            try_get = REQUEST(XLA "TryGetKeyValue", "\x0a\x01k");

static void register_both(struct scene *scene)
{
    uint32_t first = ask_service(scene, 0, register_0);

    assert_int_equal(ask_status(scene, 1, register_1), MUSTER_OK);
    assert_int_equal(status_of(scene, 0, first), MUSTER_OK);
}

static void every_method_answers_what_it_cannot_read(void **state)
{
#define BOTH(name) XLA name, TENSORFLOW name
    static const char *const paths[] = {
        BOTH("RegisterTask"),
        BOTH("Heartbeat"),
        BOTH("PollForError"),
        BOTH("ShutdownTask"),
        BOTH("ResetTask"),
        BOTH("WatchJobState"),
        BOTH("InsertKeyValue"),
        BOTH("GetKeyValue"),
        BOTH("TryGetKeyValue"),
        BOTH("IncrementKeyValue"),
        BOTH("GetKeyValueDir"),
        BOTH("DeleteKeyValue"),
        BOTH("Barrier"),
        BOTH("CancelBarrier"),
        BOTH("GetAliveTasks"),
        XLA "WatchTasks",
        TENSORFLOW "WaitForAllTasks",
        TENSORFLOW "GetTaskState",
        TENSORFLOW "ReportErrorToService",
    };
    struct scene *scene = *state;

    serve_jobs(scene, NULL, false);
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        int64_t got = ask_status(scene, 0, (struct request)REQUEST(paths[i], "\xff"));

        if (got != MUSTER_INVALID_ARGUMENT)
            fail_msg("%s: %d", paths[i], (int)got);
    }
    stop_server(scene);
}

/* Clients tell the service's errors from those of the connection by the details. */
static void a_refusal_says_in_its_details_that_it_is_the_service_s(void **state)
{
    static const char error[] = "N3R5cGUuZ29vZ2xlYXBpcy5jb20v"; /* "7type.googleapis.com/" */
    struct scene *scene = *state;
    char value[600] = "";
    uint32_t stream;

    serve_jobs(scene, NULL, false);
    register_both(scene);
    stream = ask_service(scene, 0, try_get);

    assert_int_equal(status_of(scene, 0, stream), MUSTER_NOT_FOUND);
    assert_true(
        rpc_raw_header(scene->raws[0], stream, "grpc-status-details-bin", value, sizeof(value)));
    assert_non_null(strstr(value, error));
    stop_server(scene);
}

/* --- What waits --- */

static const struct {
    struct request request;
    bool is_registered; /* both tasks are, before it */
} waitings[] = {
    {REQUEST(XLA "RegisterTask", ""), false},
    {REQUEST(TENSORFLOW "RegisterTask", ""), false},
    {REQUEST(TENSORFLOW "WaitForAllTasks", ""), true},
    {REQUEST(XLA "PollForError", ""), true},
    {REQUEST(XLA "ShutdownTask", ""), true},
    {REQUEST(XLA "WatchJobState", "\x10\x64"), true},
    {REQUEST(XLA "GetKeyValue", "\x0a\x01k"), true},
    {REQUEST(XLA "Barrier", "\x0a\x01"
                            "b\x10\xff\xff\x03"),
     true},
    {REQUEST(XLA "GetAliveTasks", "\x12\x02\x00\x01"), true},
};
#define WAITINGS (sizeof(waitings) / sizeof(waitings[0]))

static uint32_t wait_in(struct scene *scene, size_t i)
{
    uint32_t stream;

    if (waitings[i].is_registered)
        register_both(scene);
    stream = ask_service(scene, 0, waitings[i].request);
    if (status_of(scene, 0, stream) != NONE)
        fail_msg("%s is answered at once", waitings[i].request.path);
    return stream;
}

static void what_waits_ends_with_the_service(void **state)
{
    struct scene *scene = *state;

    for (size_t i = 0; i < WAITINGS; i++) {
        uint32_t stream;
        int64_t got;

        serve_jobs(scene, NULL, false);
        stream = wait_in(scene, i);
        muster_coordination_server_drain(scene->server);
        rpc_stand_advance(&scene->stand, 0);
        got = status_of(scene, 0, stream);

        if (got != MUSTER_CANCELLED)
            fail_msg("%s: %d", waitings[i].request.path, (int)got);
        assert_int_equal(ask_status(scene, 0, waitings[i].request), MUSTER_CANCELLED);
        stop_server(scene);
    }
}

static void what_its_client_cancels_is_forgotten(void **state)
{
    struct scene *scene = *state;

    for (size_t i = 0; i < WAITINGS; i++) {
        uint32_t stream;

        serve_jobs(scene, NULL, false);
        stream = wait_in(scene, i);
        rpc_raw_reset(scene->raws[0], stream, CANCEL);
        rpc_stand_advance(&scene->stand, 100 * MUSTER_NS_PER_S);

        assert_int_equal(status_of(scene, 0, stream), NONE);
        stop_server(scene);
    }
}

static void who_cancels_a_barrier_has_arrived_all_the_same(void **state)
{
    struct scene *scene = *state;
    uint32_t stream;

    serve_jobs(scene, NULL, false);
    register_both(scene);
    stream = ask_service(scene, 0, barrier_0);
    rpc_raw_reset(scene->raws[0], stream, CANCEL);

    assert_int_equal(ask_status(scene, 1, barrier_1), MUSTER_OK);
    stop_server(scene);
}

static void deadlines_pass_by_themselves(void **state)
{
    struct scene *scene = *state;
    uint32_t stream;

    serve_jobs(scene, NULL, false);
    stream = ask_service(scene, 0, register_0);
    rpc_stand_advance(&scene->stand, REGISTER_NS - 1);
    assert_int_equal(status_of(scene, 0, stream), NONE);
    rpc_stand_advance(&scene->stand, 1);
    assert_int_equal(status_of(scene, 0, stream), MUSTER_DEADLINE_EXCEEDED);
    register_both(scene);
    stream = ask_service(scene, 0, poll_0);
    rpc_stand_advance(&scene->stand, BEAT_NS - 1);
    assert_int_equal(status_of(scene, 0, stream), NONE);
    rpc_stand_advance(&scene->stand, 1);

    assert_int_equal(status_of(scene, 0, stream), MUSTER_UNAVAILABLE);
    stop_server(scene);
}

/* --- The end of a connection --- */

static void a_connection_that_ends_is_a_death_where_that_was_asked_for(void **state)
{
    static const struct {
        bool is_closed_dead, is_reset;
        int64_t told;
    } rows[] = {{true, false, MUSTER_UNAVAILABLE}, {true, true, NONE}, {false, false, NONE}};
    struct scene *scene = *state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint32_t stream, other;

        serve_jobs(scene, NULL, rows[i].is_closed_dead);
        register_both(scene);
        stream = ask_service(scene, 0, poll_0);
        other = ask_service(scene, 1, poll_1);
        if (rows[i].is_reset)
            rpc_raw_reset(scene->raws[1], other, CANCEL);
        else
            played_stream_feed_end(&scene->raws[1]->played);
        rpc_stand_advance(&scene->stand, BEAT_NS - 1);

        assert_int_equal(status_of(scene, 0, stream), rows[i].told);
        stop_server(scene);
    }
}

/* --- What is kept --- */

static void copy_file(const char *from, const char *to, const char *suffix)
{
    static char bytes[FILE_MAX];
    char path[80];
    FILE *file;
    size_t count;

    (void)snprintf(path, sizeof(path), "%s%s", from, suffix);
    file = fopen(path, "r");
    if (file == NULL)
        return;
    count = fread(bytes, 1, sizeof(bytes), file);
    (void)fclose(file);
    assert_true(count < sizeof(bytes));
    (void)snprintf(path, sizeof(path), "%s%s", to, suffix);
    file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    (void)fclose(file);
}

/* Task after task, until the status is there. */
static void run_until_answered(struct scene *scene, uint32_t stream)
{
    struct muster_list *node;

    while (status_of(scene, 0, stream) == NONE) {
        struct muster_task *task;

        node = muster_list_pop(&scene->stand.loop.tasks);
        assert_non_null(node);
        task = MUSTER_CONTAINER_OF(node, struct muster_task, node);
        task->on_run(task);
    }
}

static void what_is_answered_is_in_the_file(void **state)
{
    struct scene *scene = *state;

    serve_jobs(scene, scene->data, false);
    run_until_answered(scene, send_request(scene, 0, insert));
    for (size_t i = 0; i < 2; i++) /* what a machine would find that dies now */
        copy_file(scene->data, scene->copy, suffixes[i]);
    stop_server(scene);

    serve_jobs(scene, scene->copy, false);
    assert_int_equal(ask_status(scene, 0, try_get), MUSTER_OK);
    stop_server(scene);
}

static void what_waits_for_the_file_is_answered_at_the_end_too(void **state)
{
    struct scene *scene = *state;
    uint32_t stream;

    serve_jobs(scene, scene->data, false);
    stream = send_request(scene, 0, insert);
    assert_int_equal(status_of(scene, 0, stream), NONE);
    muster_coordination_server_drain(scene->server);
    rpc_stand_advance(&scene->stand, 0);

    assert_int_equal(status_of(scene, 0, stream), MUSTER_OK);
    stop_server(scene);
    serve_jobs(scene, scene->data, false);
    assert_int_equal(ask_status(scene, 0, try_get), MUSTER_OK);
    stop_server(scene);
}

static void the_service_is_the_same_after_restarts(void **state)
{
    struct scene *scene = *state;
    uint8_t answers[3][14]; /* the message's prefix, a tag, the service's number */

    for (size_t i = 0; i < 3; i++) {
        const uint8_t *frame;

        serve_jobs(scene, scene->data, false);
        register_both(scene);
        frame = played_stream_sent_frame(&scene->raws[0]->played, FRAME_DATA, 0);
        assert_non_null(frame);
        memcpy(answers[i], frame + 9, sizeof(answers[i]));
        stop_server(scene);
        assert_memory_equal(answers[i], answers[0], sizeof(answers[i]));
    }
}

static void silence_counts_after_a_restart(void **state)
{
    struct scene *scene = *state;

    serve_jobs(scene, scene->data, false);
    register_both(scene);
    stop_server(scene);
    serve_jobs(scene, scene->data, false);
    rpc_stand_advance(&scene->stand, BEAT_NS);

    assert_int_equal(ask_status(scene, 0, beat_0), MUSTER_UNAVAILABLE);
    stop_server(scene);
}

/* A record that no coordinator has written. */
static void put_record(struct scene *scene, struct muster_bytes key, struct muster_bytes value)
{
    struct muster_mvcc_request request = {.kind = MUSTER_MVCC_PUT,
                                          .put = {.key = key, .value = value}};
    struct muster_coordination_keeper keeper;
    struct muster_mvcc_result result;
    struct muster_error error;
    bool is_broken = false;

    assert_int_equal(
        muster_coordination_keeper_open(&keeper, muster_mem_system(), scene->data, &error),
        MUSTER_OK);
    assert_int_equal(
        muster_mvcc_apply(&keeper.mvcc, &request, &keeper.arena, &result, &error, &is_broken),
        MUSTER_OK);
    assert_int_equal(muster_coordination_keeper_commit(&keeper), MUSTER_OK);
    muster_coordination_keeper_close(&keeper);
}

static void a_damaged_file_is_refused(void **state)
{
#define BYTES(text)          {(text), sizeof(text) - 1}
#define TASK(name, bytes)    {name, BYTES("t/\0\0\0\0"), BYTES(bytes), DAMAGED}
#define BARRIER(name, bytes) {name, BYTES("b/x"), BYTES(bytes), DAMAGED}
#define DAMAGED              "its content is damaged"
    static const struct {
        const char *name;
        struct muster_bytes key, value;
        const char *text;
    } rows[] = {
        BARRIER("a barrier that is not a message", "\xff"),
        BARRIER("an instance before the first", "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        BARRIER("an instance without a next", "\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f"),
        BARRIER("a result that is not a status", "\x10\x11"),
        TASK("a task that is not a message", "\xff"),
        TASK("no state", ""),
        TASK("a state that there is not", "\x08\x05"),
        TASK("an error that is not a status", "\x08\x04\x18\x11"),
        TASK("in error without an error", "\x08\x04"),
        TASK("connected with an error", "\x08\x03\x18\x05"),
        TASK("connected after its shutdown", "\x08\x03\x28\x01"),
        {"a task without a number", BYTES("t/short"), BYTES("\x08\x03"), DAMAGED},
        {"a task behind the last", BYTES("t/\2\0\0\0"), BYTES("\x08\x03"), DAMAGED},
        {"the service", BYTES("s"), BYTES("\xff"), "the file cannot be read"},
    };
    struct scene *scene = *state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_coordination_server_options options = {.task_count = 2, .data = scene->data};
        struct muster_coordination_server *server = NULL;
        struct muster_error error;

        serve_jobs(scene, scene->data, false);
        stop_server(scene);
        put_record(scene, rows[i].key, rows[i].value);
        rpc_stand_open(&scene->stand, NULL);
        options.rpc_server = scene->stand.server;
        if (muster_coordination_server_open(&scene->stand.test.env, &options, &server, &error) ==
            MUSTER_OK)
            fail_msg("%s: it is opened", rows[i].name);
        if (strstr(error.text, rows[i].text) == NULL)
            fail_msg("%s: '%s' has no '%s'", rows[i].name, error.text, rows[i].text);
        rpc_stand_close(&scene->stand);
        remove_files(scene);
    }
}

/* --- No memory --- */

struct hungry_row {
    const char *name;
    struct request request;
    bool is_registered, is_kept;
};

static struct scene *hungry_scene;

/* Also where the file fails it: the job lives as long as the service does. */
static void run_question(struct torture *torture, const void *data)
{
    const struct hungry_row *row = data;
    struct scene *scene = hungry_scene;
    uint32_t stream;

    serve_jobs(scene, row->is_kept ? scene->data : NULL, false);
    if (row->is_registered)
        register_both(scene);
    torture_arm_limited(torture, &scene->stand.test.mem);
    stream = ask_service(scene, 0, row->request);
    torture_disarm(torture);
    rpc_stand_advance(&scene->stand, 0);

    assert_true(status_of(scene, 0, stream) != NONE ||
                rpc_raw_reset_code(scene->raws[0], stream) != NONE ||
                scene->raws[0]->played.is_closed);
    assert_int_not_equal(ask_status(scene, 1, try_get), NONE);
    stop_server(scene);
    remove_files(scene);
}

static void no_memory_is_an_end_too(void **state)
{
    static const struct hungry_row rows[] = {
        {"insert", REQUEST(XLA "InsertKeyValue", "\x0a\x06\x0a\x01k\x12\x01v"), false, false},
        {"insert, kept", REQUEST(XLA "InsertKeyValue", "\x0a\x06\x0a\x01k\x12\x01v"), false, true},
        {"states", REQUEST(TENSORFLOW "GetTaskState", ""), true, false},
        {"a barrier ahead", REQUEST(XLA "Barrier", "\x28\x03"), true, false},
        {"reset, kept", REQUEST(XLA "ResetTask", ""), true, true},
        {"alive, of nobody", REQUEST(XLA "GetAliveTasks", ""), true, false},
    };

    hungry_scene = *state;
    TORTURE_RUN_ROWS(run_question, rows);
}

static enum muster_rc open_hungry(struct scene *scene, struct torture *torture)
{
    const struct muster_coordination_server_options options = {
        .task_count = 2, .data = scene->data, .rpc_server = scene->stand.server};
    struct muster_error error = {.text = ""};
    enum muster_rc rc;

    torture_arm_limited(torture, &scene->stand.test.mem);
    rc = muster_coordination_server_open(&scene->stand.test.env, &options, &scene->server, &error);
    torture_disarm(torture);
    assert_int_equal(rc, torture->refused > 0 ? MUSTER_RESOURCE_EXHAUSTED : MUSTER_OK);
    if (rc != MUSTER_OK && strstr(error.text, "memory") == NULL)
        fail_msg("'%s' does not name the lack of memory", error.text);
    return rc;
}

/* The state holds tasks, a key, barriers, and an error with a text. */
static void write_file(struct scene *scene)
{
    serve_jobs(scene, scene->data, false);
    register_both(scene);
    assert_int_equal(ask_status(scene, 0, insert), MUSTER_OK);
    (void)ask_service(scene, 0, barrier_0);
    rpc_stand_advance(&scene->stand, BEAT_NS);
    stop_server(scene);
}

static void run_opening(struct torture *torture, const void *data)
{
    struct scene *scene = hungry_scene;

    if (data != NULL)
        write_file(scene);
    rpc_stand_open(&scene->stand, NULL);
    if (open_hungry(scene, torture) == MUSTER_OK) {
        muster_coordination_server_set_data(scene->server, scene);
        stop_server(scene);
    } else {
        rpc_stand_close(&scene->stand);
    }
    if (data != NULL) { /* what it holds was not harmed */
        serve_jobs(scene, scene->data, false);
        assert_int_equal(ask_status(scene, 0, try_get), MUSTER_OK);
        stop_server(scene);
    }
    remove_files(scene);
}

static void no_memory_to_open_leaves_nothing(void **state)
{
    static const bool is_written = true;
    static const struct torture_scenario scenarios[] = {
        {.name = "a new file", .run = run_opening},
        {.name = "a file of before", .run = run_opening, .data = &is_written},
    };

    hungry_scene = *state;
    torture_run_all(scenarios, sizeof(scenarios) / sizeof(scenarios[0]));
}

/* --- Opening --- */

static void options_that_make_no_service_are_refused(void **state)
{
    static const struct {
        struct muster_coordination_server_options options;
        const char *text;
    } rows[] = {
        {{.task_count = 0, .listen = "127.0.0.1:0"}, "task_count of the options must be 1 to"},
        {{.task_count = 1000001, .listen = "127.0.0.1:0"}, "got 1000001"},
        {{.task_count = 1}, "listen of the options must be HOST:PORT"},
        {{.task_count = 1, .listen = "nowhere"}, "nowhere"},
        {{.task_count = 1, .listen = "127.0.0.1:0", .data = "/nowhere/data"}, "/nowhere/data"},
    };
    struct scene *scene = *state;
    struct muster_coordination_server *server = NULL;

    rpc_stand_open(&scene->stand, NULL);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_error error;

        assert_int_not_equal(muster_coordination_server_open(&scene->stand.test.env,
                                                             &rows[i].options, &server, &error),
                             MUSTER_OK);
        if (strstr(error.text, rows[i].text) == NULL)
            fail_msg("'%s' has no '%s'", error.text, rows[i].text);
    }
    assert_null(server);
    rpc_stand_close(&scene->stand);
}

/* --- A server of its own --- */

static void a_service_of_its_own_listens_and_closes(void **state)
{
    struct scene *scene = *state;
    struct muster_coordination_server_options options = {.task_count = 1, .listen = "127.0.0.1:0"};
    struct muster_coordination_server *second = NULL;
    char address[MUSTER_ADDRESS_TEXT_BYTES];
    struct muster_error error;
    struct test_env test;

    test_env_open(&test);
    assert_int_equal(muster_net_system_open(&test.env, &test.env.net), MUSTER_OK);
    assert_int_equal(muster_coordination_server_open(&test.env, &options, &scene->server, &error),
                     MUSTER_OK);
    muster_coordination_server_set_data(scene->server, scene);
    options.listen =
        muster_address_format(muster_coordination_server_address(scene->server), address);
    assert_int_equal(muster_coordination_server_open(&test.env, &options, &second, &error),
                     MUSTER_ALREADY_EXISTS);
    muster_coordination_server_close(scene->server, 0, on_closed);
    test_env_run_until(&test.env, test_env_is_true, &scene->is_closed);

    muster_net_system_close(test.env.net);
    test_env_close(&test);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest coordination_server[] = {
        CASE(every_method_answers_what_it_cannot_read),
        CASE(what_waits_ends_with_the_service),
        CASE(what_its_client_cancels_is_forgotten),
        CASE(who_cancels_a_barrier_has_arrived_all_the_same),
        CASE(deadlines_pass_by_themselves),
        CASE(a_connection_that_ends_is_a_death_where_that_was_asked_for),
        CASE(what_is_answered_is_in_the_file),
        CASE(what_waits_for_the_file_is_answered_at_the_end_too),
        CASE(the_service_is_the_same_after_restarts),
        CASE(silence_counts_after_a_restart),
        CASE(a_refusal_says_in_its_details_that_it_is_the_service_s),
        CASE(a_damaged_file_is_refused),
        CASE(no_memory_is_an_end_too),
        CASE(options_that_make_no_service_are_refused),
        CASE(no_memory_to_open_leaves_nothing),
        CASE(a_service_of_its_own_listens_and_closes),
    };

    return cmocka_run_group_tests(coordination_server, NULL, NULL);
}
