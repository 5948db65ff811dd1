/* The pages of `muster run --status`. */
#include "run/run.h"

#include "common/command.h"
#include "common/output.h"
#include "run/report/page.h"
#include "serve/service.h"

#include <muster/address.h>
#include <muster/http.h>
#include <muster/registry.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CSP                                                                                        \
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src "      \
    "'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

struct run_status {
    struct run *run;
    struct muster_http_server *server;
    struct muster_http_page page, json, metrics;
    struct muster_health_check check;
    bool is_closed;
    struct muster_registry_op op; /* reads the view, of a job on several machines */
    bool is_busy;
    uint64_t read_ns;
    struct muster_view *view; /* as it was read last; NULL: not yet */
    char url[MUSTER_ADDRESS_TEXT_BYTES + 16];
};

/* --- Health */

static enum muster_rc health_refuse(struct muster_error *ret_error, const char *why)
{
    return muster_error_set(ret_error, MUSTER_UNAVAILABLE, "%s", why);
}

static uint32_t tasks_in(const struct run *run, enum run_task_state state)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < run->task_count; i++)
        count += run->tasks[i].state == state;
    return count;
}

enum muster_rc run_status_check(const struct run *run, struct muster_error *ret_error)
{
    char why[400];

    if (run->failed != NULL)
        return muster_error_set(ret_error, MUSTER_UNAVAILABLE, "%s has failed: the job ends",
                                run->failed->name);
    if (run->state == RUN_STATE_STOPPING || run->stop_signal != 0)
        return health_refuse(ret_error, "the job is being ended");
    if (run->state == RUN_STATE_REGROUPING)
        return health_refuse(ret_error, "all workers start again");
    if (run->state == RUN_STATE_DONE)
        return MUSTER_OK; /* all have ended with 0, or failed is set */
    if (tasks_in(run, RUN_TASK_FAILED) > 0) {
        snprintf(why, sizeof(why), "%u of %u workers have failed and have no restart left",
                 tasks_in(run, RUN_TASK_FAILED), run->task_count);
        return health_refuse(ret_error, why);
    }
    if (run->progress.members > 0 && run->progress.members < run->settings.members_min &&
        tasks_in(run, RUN_TASK_LEFT) == 0) {
        snprintf(why, sizeof(why), "%llu members, and --min-members is %llu",
                 (unsigned long long)run->progress.members,
                 (unsigned long long)run->settings.members_min);
        return health_refuse(ret_error, why);
    }
    if (run_activity_is_stuck(run, why, sizeof(why)))
        return health_refuse(ret_error, why);
    return MUSTER_OK;
}

static enum muster_rc on_check(struct muster_health_check *check, struct muster_error *ret_error)
{
    return run_status_check(((struct run_status *)check->data)->run, ret_error);
}

/* --- JSON */

static struct muster_json *number_new(uint64_t value)
{
    return muster_json_integer_new((int64_t)value);
}

static struct muster_json *text_or_null(const char *text)
{
    return muster_json_text_new(text[0] != '\0' ? text : NULL);
}

static const char *host_name(void)
{
    static char name[256];

    if (name[0] == '\0' && gethostname(name, sizeof(name) - 1) != 0)
        strcpy(name, "unknown");
    return name;
}

static struct muster_json *counts_of(const struct run_activity *activity)
{
    static const struct {
        enum run_count count;
        const char *name;
    } rows[] = {
        {RUN_COUNT_COMPUTE_NS, "compute_ns"}, {RUN_COUNT_COLLECTIVE_NS, "collective_ns"},
        {RUN_COUNT_WAITING_NS, "waiting_ns"}, {RUN_COUNT_BEGIN_NS, "begin_ns"},
        {RUN_COUNT_OUTSIDE_NS, "outside_ns"}, {RUN_COUNT_SHM_BYTES, "shm_bytes"},
        {RUN_COUNT_TCP_BYTES, "tcp_bytes"},   {RUN_COUNT_NCCL_BYTES, "nccl_bytes"},
    };
    struct muster_json *object = muster_json_object_new();

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (!muster_json_set(object, rows[i].name,
                             number_new(run_counter_sum(&activity->counts[rows[i].count]))))
            break;
    return object;
}

static struct muster_json *waited_of(const struct run_activity *activity)
{
    struct muster_json *object = muster_json_object_new();

    for (size_t i = 0; i < activity->wait_count; i++)
        if (!muster_json_set(object, activity->waits[i].task,
                             number_new(run_counter_sum(&activity->waits[i].ns))))
            break;
    return object;
}

static struct muster_json *member_of(const struct run_task *task)
{
    const struct run_activity *activity = &task->activity;
    struct muster_json *object = muster_json_object_new();

    if (muster_json_set(object, "task", muster_json_text_new(task->name)) &&
        muster_json_set(object, "rank",
                        number_new(activity->is_member ? activity->rank : task->rank)) &&
        muster_json_set(object, "host", muster_json_text_new(host_name())) &&
        muster_json_set(object, "pid", number_new((uint64_t)task->worker_pid)) &&
        muster_json_set(object, "state", muster_json_text_new(run_activity_state(task))) &&
        muster_json_set(object, "waits_for", text_or_null(run_activity_waits_for(task))) &&
        muster_json_set(object, "op", text_or_null(activity->op)) &&
        muster_json_set(object, "step", number_new(task->step)) &&
        muster_json_set(object, "restarts", number_new(task->lives > 0 ? task->lives - 1 : 0)) &&
        muster_json_set(object, "counts", counts_of(activity)) &&
        muster_json_set(object, "waited_ns", waited_of(activity)))
        return object;
    muster_json_free(object);
    return NULL;
}

static struct muster_json *members_of(const struct run *run)
{
    struct muster_json *members = muster_json_array_new();

    for (uint32_t i = 0; i < run->task_count; i++)
        if (!muster_json_append(members, member_of(&run->tasks[i])))
            break;
    return members;
}

static struct muster_json *values_of(const struct run *run)
{
    struct muster_json *values = muster_json_object_new();

    for (size_t i = 0; i < run->progress.values.count; i++)
        (void)muster_json_set(values, run->progress.values.at[i].name, /* NAN has no word there */
                              muster_json_real_new(run->progress.values.at[i].value));
    return values;
}

static const char *state_of(const struct run *run, bool is_healthy)
{
    if (run->state == RUN_STATE_DONE)
        return run->exit_code == EXIT_OK ? "ended" : "failed";
    if (run->state == RUN_STATE_STOPPING || run->failed != NULL)
        return "ending";
    return is_healthy ? "running" : "waiting";
}

struct muster_json *run_status_json(const struct run *run)
{
    struct muster_json *object = muster_json_object_new();
    struct muster_error why = {.rc = MUSTER_OK};
    bool is_healthy = run_status_check(run, &why) == MUSTER_OK;
    uint64_t now_ns = muster_loop_now_ns(run->env->loop);

    if (muster_json_set(object, "job", muster_json_text_new(run->settings.job_name)) &&
        muster_json_set(object, "node_rank", number_new(run->settings.node_rank)) &&
        muster_json_set(object, "machines", number_new(run->settings.nodes_max)) &&
        muster_json_set(object, "host", muster_json_text_new(host_name())) &&
        muster_json_set(object, "pid", number_new((uint64_t)run->pid)) &&
        muster_json_set(object, "status", text_or_null(run_status_url(run))) &&
        muster_json_set(object, "registry", muster_json_text_new(run_registry_endpoint(run))) &&
        muster_json_set(object, "state", muster_json_text_new(state_of(run, is_healthy))) &&
        muster_json_set(object, "reason", text_or_null(is_healthy ? "" : why.text)) &&
        muster_json_set(object, "elapsed_ms",
                        number_new(run->started_ns > 0 && now_ns > run->started_ns
                                       ? (now_ns - run->started_ns) / MUSTER_NS_PER_MS
                                       : 0)) &&
        muster_json_set(object, "view", number_new(run->epoch_last)) &&
        muster_json_set(object, "members_in_view", number_new(run->progress.members)) &&
        muster_json_set(object, "step", number_new(run->progress.step)) &&
        muster_json_set(object, "restarts", number_new(run->restarts)) &&
        muster_json_set(object, "values", values_of(run)) &&
        muster_json_set(object, "members", members_of(run)))
        return object;
    muster_json_free(object);
    return NULL;
}

/* --- The others, of whom the view tells */

static bool is_own(const struct run *run, const struct muster_member *member)
{
    return strcmp(member->task_type, "worker") == 0 &&
           member->task_index >= run->settings.rank_first &&
           member->task_index - run->settings.rank_first < run->task_count;
}

static struct muster_json *other_of(const struct muster_member *member, uint32_t rank)
{
    struct muster_json *object = muster_json_object_new();
    char task[MUSTER_JOB_NAME_BYTES + 16], address[MUSTER_ADDRESS_TEXT_BYTES];

    snprintf(task, sizeof(task), "%s:%u", member->task_type, member->task_index);
    if (muster_json_set(object, "task", muster_json_text_new(task)) &&
        muster_json_set(object, "rank", number_new(rank)) &&
        muster_json_set(object, "address",
                        muster_json_text_new(muster_address_format(&member->address, address))) &&
        muster_json_set(object, "pid", number_new((uint64_t)member->pid)))
        return object;
    muster_json_free(object);
    return NULL;
}

static struct muster_json *others_of(const struct run_status *status)
{
    struct muster_json *others = muster_json_array_new();

    for (uint32_t i = 0; status->view != NULL && i < status->view->member_count; i++)
        if (!is_own(status->run, &status->view->members[i]) &&
            !muster_json_append(others, other_of(&status->view->members[i], i)))
            break;
    return others;
}

static void on_view(struct muster_registry_op *op, enum muster_rc rc)
{
    struct run_status *status = op->data;
    struct muster_view *view = NULL;

    status->is_busy = false;
    if (rc != MUSTER_OK || op->kv_count != 1 ||
        muster_view_unpack(status->run->env->mem, op->kvs[0].value.data, op->kvs[0].value.size,
                           &view) != MUSTER_OK)
        return;
    muster_view_unref(status->view);
    status->view = view;
}

/* For the next request: while somebody looks the view is read once a second. */
static void view_read(struct run_status *status)
{
    const struct run *run = status->run;
    uint64_t now_ns = muster_loop_now_ns(run->env->loop);
    struct muster_registry_range range = {.reach = MUSTER_REGISTRY_KEY};
    char key[MUSTER_JOB_NAME_BYTES + 24];

    if (run->settings.nodes_max == 1 || status->is_busy ||
        (status->read_ns != 0 && now_ns - status->read_ns < MUSTER_NS_PER_S))
        return;
    range.key.data = key;
    range.key.size = (size_t)snprintf(key, sizeof(key), "/muster/%s/view", run->settings.job_name);
    status->read_ns = now_ns;
    status->op.data = status;
    status->is_busy =
        muster_registry_range_start(&status->op, run_registry_client(run), &range,
                                    muster_loop_after_ns(run->env->loop, MUSTER_NS_PER_S),
                                    on_view) == MUSTER_OK;
}

/* --- Pages */

static void on_json(struct muster_http_page *page, struct muster_http_reply *reply)
{
    struct run_status *status = page->data;
    const struct run *run = status->run;
    struct muster_json *json = run_status_json(run);
    char *text = NULL;

    view_read(status);
    muster_http_reply_set_type(reply, "application/json");
    if (json == NULL || !muster_json_set(json, "others", others_of(status)) ||
        !run_history_add(run, json) ||
        muster_json_format(json, false, run->env->mem, &text) != MUSTER_OK)
        muster_http_reply_set_status(reply, 500);
    else
        muster_http_reply_printf(reply, "%s\n", text);
    muster_mem_free(run->env->mem, text);
    muster_json_free(json);
}

static void on_page(struct muster_http_page *page, struct muster_http_reply *reply)
{
    (void)page;
    muster_http_reply_set_type(reply, "text/html; charset=utf-8");
    muster_http_reply_add_header(reply, "Content-Security-Policy", CSP);
    muster_http_reply_add_header(reply, "Referrer-Policy", "no-referrer");
    muster_http_reply_add(reply, run_page_bytes, run_page_size);
}

static void on_metrics(struct muster_http_page *page, struct muster_http_reply *reply)
{
    run_metrics_write(((struct run_status *)page->data)->run, reply);
}

/* --- Open and close */

const char *run_status_url(const struct run *run)
{
    return run->status != NULL ? run->status->url : "";
}

static enum muster_rc pages_add(struct run_status *status)
{
    enum muster_rc rc;

    status->page = (struct muster_http_page){.data = status, .path = "/", .on_request = on_page};
    status->json =
        (struct muster_http_page){.data = status, .path = "/status.json", .on_request = on_json};
    status->metrics =
        (struct muster_http_page){.data = status, .path = "/metrics", .on_request = on_metrics};
    status->check = (struct muster_health_check){.data = status, .name = "job", .check = on_check};
    rc = muster_http_page_add(status->server, &status->page);
    if (rc == MUSTER_OK)
        rc = muster_http_page_add(status->server, &status->json);
    if (rc == MUSTER_OK)
        rc = muster_http_page_add(status->server, &status->metrics);
    if (rc == MUSTER_OK)
        muster_health_check_add(status->server, &status->check);
    return rc;
}

static bool status_refuse(const struct muster_error *error, int *ret_exit)
{
    *ret_exit = command_fail("run", error);
    service_tell_listen("run", "--status", "--status", error);
    return false;
}

bool run_status_open(struct run *run, int *ret_exit)
{
    struct muster_error error = {.rc = MUSTER_OK};
    struct muster_address address;
    char text[MUSTER_ADDRESS_TEXT_BYTES];
    struct run_status *status;

    if (run->settings.status == NULL)
        return true;
    status = calloc(1, sizeof(*status));
    if (status == NULL)
        output_no_memory();
    status->run = run;
    if (muster_address_parse_listen(run->settings.status, &address, &error) != MUSTER_OK ||
        muster_http_server_open(run->env, &address, &status->server, &error) != MUSTER_OK) {
        free(status);
        return status_refuse(&error, ret_exit);
    }
    muster_http_server_set_data(status->server, status);
    run->status = status;
    snprintf(status->url, sizeof(status->url), "http://%s",
             muster_address_format(muster_http_server_address(status->server), text));
    if (pages_add(status) != MUSTER_OK)
        output_no_memory();
    run_history_open(run);
    if (run->is_log_json)
        run_log(run, MUSTER_LOG_INFO, "status", RUN_FIELDS(MUSTER_FIELD("url", status->url)),
                "status %s", status->url);
    else
        fprintf(stderr, "status %s\n", status->url);
    return true;
}

static void on_closed(struct muster_http_server *server)
{
    struct run_status *status = muster_http_server_data(server);

    status->is_closed = true;
}

void run_status_close(struct run *run)
{
    struct run_status *status = run->status;

    if (status == NULL)
        return;
    if (status->is_busy)
        muster_registry_op_cancel(&status->op);
    muster_http_server_close(status->server, on_closed);
    while (!status->is_closed || status->is_busy)
        muster_loop_turn(run->env->loop, UINT64_MAX);
    run_history_close(run);
    muster_view_unref(status->view);
    free(status);
    run->status = NULL;
}
