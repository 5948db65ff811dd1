/* The coordination service on a gRPC server. It packs and unpacks, keeps the time of the state machine,
 * holds answers back until what they show is in the file, and takes the end of a connection for a death
 * where that was asked for. */
#include <muster/coordination_server.h>

#include <inttypes.h>
#include <string.h>

#include "cluster/coordination/keeper.h"
#include "cluster/coordination/coordination_proto.h"
#include "cluster/service/standard_service.h"

/* The times are jaxlib's defaults. */
#define HEARTBEAT_TIMEOUT_NS (100 * MUSTER_NS_PER_S)
#define SHUTDOWN_TIMEOUT_NS  (300 * MUSTER_NS_PER_S)
#define REGISTER_TIMEOUT_NS  (3600 * MUSTER_NS_PER_S)
/* A bound for a number that a typing error may have made large; memory is allocated by task. */
#define TASKS_MAX            1000000u
#define MESSAGE_BYTES_MAX    ((size_t)64 << 20) /* topologies of large jobs */
#define SERVER_STOPPED       "the coordination service is stopping"
#define NO_MEMORY            "out of memory"

static const struct {
    enum muster_coordination_dialect dialect;
    enum muster_coordination_method method;
    const char *path;
} rows[] = {
#define XLA(method, name)                                                                          \
    {MUSTER_COORDINATION_XLA, MUSTER_COORDINATION_##method,                                        \
     "/xla.coordination.CoordinationService/" name}
#define TENSORFLOW(method, name)                                                                   \
    {MUSTER_COORDINATION_TENSORFLOW, MUSTER_COORDINATION_##method,                                 \
     "/tensorflow.CoordinationService/" name}
#define BOTH(method, name) XLA(method, name), TENSORFLOW(method, name)
    BOTH(REGISTER, "RegisterTask"),
    TENSORFLOW(WAIT_FOR_ALL, "WaitForAllTasks"),
    BOTH(HEARTBEAT, "Heartbeat"),
    BOTH(POLL_FOR_ERROR, "PollForError"),
    BOTH(SHUTDOWN, "ShutdownTask"),
    BOTH(RESET, "ResetTask"),
    TENSORFLOW(REPORT_ERROR, "ReportErrorToService"),
    XLA(WATCH, "WatchTasks"),
    BOTH(WATCH, "WatchJobState"),
    TENSORFLOW(TASK_STATE, "GetTaskState"),
    BOTH(INSERT, "InsertKeyValue"),
    BOTH(GET, "GetKeyValue"),
    BOTH(TRY_GET, "TryGetKeyValue"),
    BOTH(INCREMENT, "IncrementKeyValue"),
    BOTH(DIRECTORY, "GetKeyValueDir"),
    BOTH(DELETE, "DeleteKeyValue"),
    BOTH(BARRIER, "Barrier"),
    BOTH(CANCEL_BARRIER, "CancelBarrier"),
    BOTH(ALIVE, "GetAliveTasks"),
};
#define METHODS (sizeof(rows) / sizeof(rows[0]))

enum server_state {
    SERVER_OPENING,
    SERVER_RESTORING, /* the state machine is told what the file holds: nothing of it is kept again */
    SERVER_SERVING,
    SERVER_CLOSING, /* requests are refused */
};
#define SERVER_STATES 4

#define IN(state) (1u << SERVER_##state)

/* moves[from]: the states that may follow. A server that cannot be opened closes at once. */
static const unsigned moves[SERVER_STATES] = {
    [SERVER_OPENING] = IN(RESTORING) | IN(SERVING) | IN(CLOSING),
    [SERVER_RESTORING] = IN(OPENING),
    [SERVER_SERVING] = IN(CLOSING),
    [SERVER_CLOSING] = 0,
};

enum question_state {
    QUESTION_WAITING, /* the state machine has it */
    QUESTION_HELD,    /* answered; the answer waits for the commit of what it shows */
    QUESTION_SENT,
};
#define QUESTION_STATES 3

static const unsigned question_moves[QUESTION_STATES] = {
    [QUESTION_WAITING] = 1u << QUESTION_HELD | 1u << QUESTION_SENT,
    [QUESTION_HELD] = 1u << QUESTION_SENT,
    [QUESTION_SENT] = 0,
};

struct endpoint {
    struct muster_coordination_server *server;
    enum muster_coordination_dialect dialect;
    enum muster_coordination_method method;
    struct muster_rpc_method rpc_method;
};

struct muster_coordination_server {
    struct muster_env *env;
    void *data;
    struct muster_coordination *coordination;
    struct muster_rpc_server *rpc_server;
    bool owns_rpc_server;
    uint32_t task_count;
    bool is_closed_dead;
    enum server_state state;
    struct muster_address address;
    struct endpoint endpoints[METHODS];
    struct muster_list questions; /* open calls, of struct question */
    bool has_keeper;
    struct muster_coordination_keeper keeper;
    struct muster_list held; /* answers that wait for the commit, by held_node */
    struct muster_task commit;
    struct muster_timer timer;
    struct muster_task close_task;
    muster_coordination_server_close_fn *closed;
};

struct question {
    struct muster_coordination_ask ask;
    struct muster_list node, held_node;
    const struct endpoint *endpoint;
    struct muster_rpc *rpc;
    bool is_task_known;
    uint32_t task; /* the asker, if known */
    enum question_state state;
    /* the answer, once it is not waited for any more */
    enum muster_rc rc;
    char *text;
    void *message, *details;
    size_t message_bytes, details_bytes;
};

static void server_move(struct muster_coordination_server *server, enum server_state to)
{
    MUSTER_ASSERT((moves[server->state] >> to & 1u) != 0);
    server->state = to;
}

static void question_move(struct question *question, enum question_state to)
{
    MUSTER_ASSERT((question_moves[question->state] >> to & 1u) != 0);
    question->state = to;
}

/* --- Answers --- */

/* An error whose details could not be packed goes out without them; without its text it says NO_MEMORY. */
static void send_answer(struct question *question)
{
    const struct muster_metadata_entry details = {"grpc-status-details-bin", question->details,
                                                  question->details_bytes};
    enum muster_rc rc = question->rc;

    question_move(question, QUESTION_SENT);
    if (rc == MUSTER_OK)
        rc = muster_rpc_send(question->rpc, question->message, question->message_bytes);
    else if (question->details_bytes > 0)
        muster_rpc_set_trailers(question->rpc, (struct muster_metadata){&details, 1});
    muster_rpc_finish(question->rpc, rc,
                      rc == MUSTER_OK || question->text != NULL ? question->text : NO_MEMORY);
}

/* The answer is packed at once: the fields that it borrows are gone after this call. While anything waits
 * for a commit every answer does, since it may show that; so the order of answers stays the order of
 * changes. */
static void on_answer(void *data, struct muster_coordination_ask *ask,
                      const struct muster_coordination_answer *answer)
{
    struct muster_coordination_server *server = data;
    struct question *question = MUSTER_CONTAINER_OF(ask, struct question, ask);
    const struct endpoint *endpoint = question->endpoint;
    struct muster_mem *mem = server->env->mem;

    MUSTER_ASSERT(question->state == QUESTION_WAITING);
    question->rc = answer->rc;
    if (answer->rc == MUSTER_OK)
        question->rc = muster_coordination_pack(mem, endpoint->dialect, endpoint->method, answer,
                                                &question->message, &question->message_bytes);
    else if (muster_coordination_pack_details(mem, endpoint->dialect, answer, &question->details,
                                              &question->details_bytes) != MUSTER_OK)
        question->details_bytes = 0; /* the status itself still goes out */
    if (answer->text != NULL)
        question->text = muster_mem_strdup(mem, answer->text);
    if (!server->has_keeper || !server->keeper.is_dirty) {
        send_answer(question);
        return;
    }
    question_move(question, QUESTION_HELD);
    muster_list_append(&server->held, &question->held_node);
}

/* --- State that outlives the process --- */

static void send_held(struct muster_coordination_server *server)
{
    struct muster_list *node;

    while ((node = muster_list_pop(&server->held)) != NULL)
        send_answer(MUSTER_CONTAINER_OF(node, struct question, held_node));
}

/* The commit is a task, so one turn's changes share it. A service that cannot write its file serves on
 * without one: its job then lives as long as the process, which is better than to end it now. */
static void on_commit(struct muster_task *task)
{
    struct muster_coordination_server *server = task->data;

    if (muster_coordination_keeper_commit(&server->keeper) != MUSTER_OK) {
        MUSTER_LOG(server->env, ERROR, "coordination_data_lost", "error",
                   server->keeper.error.text);
        muster_coordination_keeper_close(&server->keeper);
        server->has_keeper = false;
    }
    send_held(server);
}

/* NULL while restoring: what comes from the file need not be written again. */
static struct muster_coordination_keeper *keeper_of(struct muster_coordination_server *server)
{
    if (!server->has_keeper || server->state == SERVER_RESTORING)
        return NULL;
    muster_task_post(&server->commit, server->env->loop);
    return &server->keeper;
}

/* The callbacks of the state machine: each writes into the open transaction of the file and posts its
 * commit. */
static void keep_key(void *data, struct muster_bytes key, const struct muster_bytes *value)
{
    struct muster_coordination_keeper *keeper = keeper_of(data);

    if (keeper != NULL)
        muster_coordination_keeper_put_key(keeper, key, value);
}

static void keep_task(void *data, const struct muster_coordination_task_info *task)
{
    struct muster_coordination_keeper *keeper = keeper_of(data);

    if (keeper != NULL)
        muster_coordination_keeper_put_task(keeper, task);
}

static void keep_barrier(void *data, struct muster_bytes id, int64_t counter, enum muster_rc rc,
                         const char *text)
{
    struct muster_coordination_keeper *keeper = keeper_of(data);

    if (keeper != NULL)
        muster_coordination_keeper_put_barrier(keeper, id, counter, rc, text);
}

static void keep_nothing(void *data, uint64_t service_incarnation)
{
    const struct muster_coordination_server *server = data;
    struct muster_coordination_keeper *keeper = keeper_of(data);

    if (keeper == NULL)
        return;
    muster_coordination_keeper_clear(keeper);
    muster_coordination_keeper_put_service(keeper, service_incarnation, server->task_count);
}

static const struct muster_coordination_ops ops = {.answer = on_answer,
                                                   .keep_key = keep_key,
                                                   .keep_task = keep_task,
                                                   .keep_barrier = keep_barrier,
                                                   .keep_nothing = keep_nothing};

/* --- Calls --- */

/* A timer that is due too early is left: it looks, finds nothing, and is set again. So a heartbeat, which
 * only puts the due time off, costs no timer. */
static void set_timer(struct muster_coordination_server *server)
{
    uint64_t due_ns = muster_coordination_due_ns(server->coordination);

    MUSTER_ASSERT(server->coordination != NULL);
    if (due_ns == UINT64_MAX)
        muster_timer_stop(&server->timer);
    else if (!muster_timer_is_started(&server->timer) || server->timer.due_ns > due_ns)
        muster_timer_start(&server->timer, server->env->loop, due_ns);
}

static void on_timer(struct muster_timer *timer)
{
    struct muster_coordination_server *server = timer->data;

    muster_coordination_expire(server->coordination, muster_loop_now_ns(server->env->loop));
    set_timer(server);
}

/* A question lives as long as its call: on_end frees it, answered or not. */
static struct question *question_new(struct muster_rpc *rpc)
{
    const struct endpoint *endpoint = muster_rpc_service(rpc);
    struct muster_coordination_server *server = endpoint->server;
    struct question *question = muster_mem_alloc_zero(server->env->mem, 1, sizeof(*question));

    if (question == NULL)
        return NULL;
    question->endpoint = endpoint;
    question->rpc = rpc;
    muster_list_init(&question->held_node);
    muster_list_append(&server->questions, &question->node);
    muster_rpc_set_data(rpc, question);
    return question;
}

static void question_free(struct question *question)
{
    struct muster_mem *mem = question->endpoint->server->env->mem;

    muster_list_remove(&question->node);
    muster_list_remove(&question->held_node);
    muster_mem_free(mem, question->text);
    muster_mem_free(mem, question->message);
    muster_mem_free(mem, question->details);
    muster_mem_free(mem, question);
}

static void on_message(struct muster_rpc *rpc, struct muster_bytes bytes)
{
    const struct endpoint *endpoint = muster_rpc_service(rpc);
    struct muster_coordination_server *server = endpoint->server;
    struct muster_coordination_message message;
    struct muster_error error = {.rc = MUSTER_OK};
    struct question *question;

    if (server->state == SERVER_CLOSING) {
        muster_rpc_finish(rpc, MUSTER_CANCELLED, SERVER_STOPPED);
        return;
    }
    if (muster_coordination_unpack(server->env->mem, endpoint->dialect, endpoint->method, bytes,
                                   &message, &error) != MUSTER_OK) {
        muster_rpc_finish(rpc, error.rc, error.text);
        muster_coordination_release(&message);
        return;
    }
    question = question_new(rpc);
    if (question == NULL) {
        muster_rpc_finish(rpc, MUSTER_RESOURCE_EXHAUSTED, NO_MEMORY);
    } else {
        question->is_task_known =
            muster_coordination_find_asker(server->coordination, &message.request, &question->task);
        muster_coordination_handle(server->coordination, muster_loop_now_ns(server->env->loop),
                                   &message.request, &question->ask);
        set_timer(server);
    }
    muster_coordination_release(&message);
}

/* The end of a call without an answer may be the death of its task (is_closed_dead). UNAVAILABLE is the end
 * of the connection; a client that cancels its call lives. The ask is dropped before the task is lost, or it
 * would be answered. */
static void on_end(struct muster_rpc *rpc, enum muster_rc rc)
{
    struct question *question = muster_rpc_data(rpc);
    struct muster_coordination_server *server;
    bool is_lost;

    if (question == NULL)
        return;
    server = question->endpoint->server;
    is_lost =
        question->state == QUESTION_WAITING && question->is_task_known && rc == MUSTER_UNAVAILABLE;
    if (question->state == QUESTION_WAITING)
        muster_coordination_drop(server->coordination, &question->ask);
    if (is_lost && server->is_closed_dead && server->state != SERVER_CLOSING) {
        muster_coordination_lost(server->coordination, muster_loop_now_ns(server->env->loop),
                                 question->task);
        set_timer(server);
    }
    question_free(question);
}

/* --- Opening --- */

/* Every path has its own endpoint, so a call knows dialect and method without looking at its path again. */
static enum muster_rc add_methods(struct muster_coordination_server *server)
{
    for (size_t i = 0; i < METHODS; i++) {
        struct endpoint *endpoint = &server->endpoints[i];
        enum muster_rc rc;

        endpoint->server = server;
        endpoint->dialect = rows[i].dialect;
        endpoint->method = rows[i].method;
        endpoint->rpc_method =
            (struct muster_rpc_method){.path = rows[i].path,
                                       .on_message = on_message,
                                       .on_end = on_end,
                                       .is_unary = true,
                                       .receive_message_max_bytes = MESSAGE_BYTES_MAX};
        rc = muster_rpc_server_add(server->rpc_server, &endpoint->rpc_method, 1, endpoint);
        if (rc != MUSTER_OK)
            return rc;
    }
    return MUSTER_OK;
}

/* A server that the caller brought is only given the methods: its port, TLS and guards are the caller's. */
static enum muster_rc open_rpc(struct muster_coordination_server *server,
                               const struct muster_coordination_server_options *options,
                               struct muster_error *ret_error)
{
    const struct muster_interceptor *guard =
        options->authorization != NULL ? muster_authorization_interceptor(options->authorization)
                                       : NULL;
    const struct muster_rpc_server_options rpc_options = {.connections_max = TASKS_MAX,
                                                          .tls = options->tls,
                                                          .interceptors = &guard,
                                                          .interceptor_count =
                                                              guard != NULL ? 1 : 0};
    struct muster_address wanted;
    enum muster_rc rc;

    if (options->rpc_server != NULL) {
        server->rpc_server = options->rpc_server;
        rc = add_methods(server);
        return rc == MUSTER_OK ? rc : muster_error_set(ret_error, rc, "no memory for the service");
    }
    if (options->listen == NULL)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "listen of the options must be HOST:PORT, got none");
    rc = muster_address_parse_listen(options->listen, &wanted, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    rc = muster_rpc_server_open(server->env, &rpc_options, &server->rpc_server);
    if (rc == MUSTER_OK) {
        server->owns_rpc_server = true;
        rc = add_methods(server);
    }
    if (rc == MUSTER_OK)
        rc = muster_standard_service_add(server->rpc_server, MUSTER_STANDARD_COORDINATION);
    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, rc, "no memory for the service");
    return muster_rpc_server_listen(server->rpc_server, &wanted, &server->address, ret_error);
}

static uint64_t or_default(uint64_t value, uint64_t fallback)
{
    return value != 0 ? value : fallback;
}

/* Take the number of the service from its file; a new file is given ours. */
static enum muster_rc open_keeper(struct muster_coordination_server *server, const char *path,
                                  uint64_t *incarnation, struct muster_error *ret_error)
{
    struct muster_error error;
    uint64_t kept = 0;
    enum muster_rc rc =
        muster_coordination_keeper_open(&server->keeper, server->env->mem, path, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    server->has_keeper = true;
    rc =
        muster_coordination_keeper_load_service(&server->keeper, server->task_count, &kept, &error);
    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, rc, "%s: %s", path, error.text);
    if (kept == 0) {
        muster_coordination_keeper_put_service(&server->keeper, *incarnation, server->task_count);
        rc = muster_coordination_keeper_commit(&server->keeper);
    }
    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, rc, "%s cannot be written: %s", path,
                                server->keeper.error.text);
    if (kept != 0)
        *incarnation = kept;
    return MUSTER_OK;
}

/* The file is loaded before the port is open: the first request meets the state of the last process. */
static enum muster_rc open_coordination(struct muster_coordination_server *server,
                                        const struct muster_coordination_server_options *options,
                                        struct muster_error *ret_error)
{
    struct muster_coordination_options own = {
        .task_count = options->task_count,
        .heartbeat_timeout_ns = or_default(options->heartbeat_timeout_ns, HEARTBEAT_TIMEOUT_NS),
        .shutdown_timeout_ns = or_default(options->shutdown_timeout_ns, SHUTDOWN_TIMEOUT_NS),
        .register_timeout_ns = or_default(options->register_timeout_ns, REGISTER_TIMEOUT_NS),
        .service_incarnation = muster_rng_next(server->env->rng) | 1,
        .is_recoverable = options->is_recoverable,
        .ends_polls = options->data != NULL,
    };
    enum muster_rc rc = MUSTER_OK;

    if (options->data != NULL)
        rc = open_keeper(server, options->data, &own.service_incarnation, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    rc = muster_coordination_new(server->env->mem, &own, &ops, server, &server->coordination);
    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, rc, "no memory for the service");
    if (!server->has_keeper)
        return MUSTER_OK;
    server_move(server, SERVER_RESTORING);
    rc = muster_coordination_keeper_load(&server->keeper, server->coordination,
                                         muster_loop_now_ns(server->env->loop));
    server_move(server, SERVER_OPENING);
    set_timer(server);
    return rc == MUSTER_OK
               ? rc
               : muster_error_set(ret_error, rc, "%s: %s", options->data,
                                  rc == MUSTER_RESOURCE_EXHAUSTED ? "no memory to read it"
                                                                  : "its content is damaged");
}

static void free_server(struct muster_coordination_server *server)
{
    muster_timer_stop(&server->timer);
    muster_task_cancel(&server->commit);
    muster_coordination_free(server->coordination);
    if (server->has_keeper)
        muster_coordination_keeper_close(&server->keeper);
    muster_mem_free(server->env->mem, server);
}

static void on_abandoned(struct muster_rpc_server *rpc_server)
{
    free_server(muster_rpc_server_data(rpc_server));
}

/* Only a server of its own is closed, and that is asynchronous; the memory goes with its callback. */
static void server_abandon(struct muster_coordination_server *server)
{
    if (!server->owns_rpc_server) {
        free_server(server);
        return;
    }
    muster_rpc_server_set_data(server->rpc_server, server);
    muster_rpc_server_close(server->rpc_server, 0, on_abandoned);
}

enum muster_rc muster_coordination_server_open(
    struct muster_env *env, const struct muster_coordination_server_options *options,
    struct muster_coordination_server **ret_server, struct muster_error *ret_error)
{
    static const struct muster_coordination_server_options none = {0};
    struct muster_coordination_server *server;
    enum muster_rc rc;

    if (options == NULL)
        options = &none;
    if (options->task_count == 0 || options->task_count > TASKS_MAX)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "task_count of the options must be 1 to %u, got %" PRIu32
                                "; set it to the number of tasks of the job",
                                TASKS_MAX, options->task_count);
    server = muster_mem_alloc_zero(env->mem, 1, sizeof(*server));
    if (server == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for the service");
    server->env = env;
    server->task_count = options->task_count;
    server->is_closed_dead = options->is_closed_dead;
    muster_list_init(&server->questions);
    muster_list_init(&server->held);
    muster_task_init(&server->commit, on_commit, server);
    muster_timer_init(&server->timer, on_timer, server);
    rc = open_coordination(server, options, ret_error);
    if (rc == MUSTER_OK)
        rc = open_rpc(server, options, ret_error);
    if (rc != MUSTER_OK) {
        server_abandon(server);
        return rc;
    }
    server_move(server, SERVER_SERVING);
    *ret_server = server;
    return MUSTER_OK;
}

const struct muster_address *muster_coordination_server_address(
    const struct muster_coordination_server *server)
{
    return server->owns_rpc_server ? &server->address : NULL;
}

void muster_coordination_server_set_data(struct muster_coordination_server *server, void *data)
{
    server->data = data;
}

void *muster_coordination_server_data(const struct muster_coordination_server *server)
{
    return server->data;
}

/* --- Closing --- */

/* The callback comes before the memory goes: it may still ask for the data of the server. */
static void finish_close(struct muster_coordination_server *server)
{
    MUSTER_ASSERT(server->state == SERVER_CLOSING);
    if (server->closed != NULL)
        server->closed(server);
    free_server(server);
}

static void on_close_task(struct muster_task *task)
{
    finish_close(task->data);
}

static void on_rpc_closed(struct muster_rpc_server *rpc_server)
{
    finish_close(muster_rpc_server_data(rpc_server));
}

/* Questions that wait are cancelled. Answers that are held leave after a last commit, which is made here and
 * not in a later turn. */
static void end_questions(struct muster_coordination_server *server)
{
    MUSTER_LIST_EACH (&server->questions, question, struct question, node) {
        if (question->state != QUESTION_WAITING)
            continue;
        question_move(question, QUESTION_SENT);
        muster_coordination_drop(server->coordination, &question->ask);
        muster_rpc_finish(question->rpc, MUSTER_CANCELLED, SERVER_STOPPED);
    }
    if (muster_task_is_posted(&server->commit)) {
        muster_task_cancel(&server->commit);
        on_commit(&server->commit);
    }
}

/* Idempotent, because close drains too. Time stands still from here on: a task that is silent now is not
 * lost. */
void muster_coordination_server_drain(struct muster_coordination_server *server)
{
    if (server->state != SERVER_CLOSING)
        server_move(server, SERVER_CLOSING);
    muster_timer_stop(&server->timer);
    end_questions(server);
}

void muster_coordination_server_close(struct muster_coordination_server *server,
                                      uint64_t deadline_ns,
                                      muster_coordination_server_close_fn *closed)
{
    server->closed = closed;
    muster_coordination_server_drain(server);
    if (!server->owns_rpc_server) {
        muster_task_init(&server->close_task, on_close_task, server);
        muster_task_post(&server->close_task, server->env->loop);
        return;
    }
    muster_rpc_server_set_data(server->rpc_server, server);
    muster_rpc_server_close(server->rpc_server, deadline_ns, on_rpc_closed);
}
