/* The pages of `muster run --status`: one for people, its data as JSON, metrics for Prometheus,
 * health for probes.
 *
 * All of them are made when they are asked for, from the state that the launcher has anyway.
 * Members on other machines are known from the view in the registry, which is read for the next
 * request, at most once a second. */
#include "run/report/status.h"

#include "common/command.h"
#include "common/output.h"
#include "run/output/log.h"
#include "run/output/output.h"
#include "run/registry/registry.h"
#include "run/report/health.h"
#include "run/report/history.h"
#include "run/report/metrics.h"
#include "run/report/page.h"
#include "run/report/status_json.h"
#include "serve/service.h"

#include <muster/address.h>
#include <muster/http.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The page carries its own style and script and speaks to its own server only; nothing may embed
 * it. */
#define CSP                                                                                        \
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src "      \
    "'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

struct run_status {
    struct run *run;
    struct muster_http_server *server;
    struct muster_http_page page, json, metrics;
    struct muster_health_check check, checkpoints;
    bool is_closed;
    struct muster_registry_op op; /* reads the view, of a job on several machines */
    bool is_busy;
    uint64_t read_ns;
    struct muster_view *view; /* as it was read last; NULL: not yet */
    char url[MUSTER_ADDRESS_TEXT_BYTES + 16];
};

/* --- Health */

static enum muster_rc on_check(struct muster_health_check *check, struct muster_error *ret_error)
{
    return run_health_check(((struct run_status *)check->data)->run, ret_error);
}

static enum muster_rc on_check_checkpoints(struct muster_health_check *check,
                                           struct muster_error *ret_error)
{
    return run_health_check_checkpoints(((struct run_status *)check->data)->run, ret_error);
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
        muster_json_set(object, "rank", muster_json_integer_new(rank)) &&
        muster_json_set(object, "address",
                        muster_json_text_new(muster_address_format(&member->address, address))) &&
        muster_json_set(object, "pid", muster_json_integer_new(member->pid)))
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
    struct muster_json *json = run_status_json(run, status->url);
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
    status->checkpoints = (struct muster_health_check){
        .data = status, .name = "checkpoints", .check = on_check_checkpoints};
    rc = muster_http_page_add(status->server, &status->page);
    if (rc == MUSTER_OK)
        rc = muster_http_page_add(status->server, &status->json);
    if (rc == MUSTER_OK)
        rc = muster_http_page_add(status->server, &status->metrics);
    if (rc == MUSTER_OK) {
        muster_health_check_add(status->server, &status->check);
        muster_health_check_add(status->server, &status->checkpoints);
    }
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
    MUSTER_ASSERT(run->status == NULL);
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
    if (run->output->is_log_json)
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
