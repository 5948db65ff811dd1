/* The jobs of one registry: names, launchers' records, views. Each read turns the loop until the
 * answers are there. */
#include "jobs/jobs_internal.h"

#include "common/text_bytes.h"
#include "jobs/job_keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WITHIN_NS  (5 * MUSTER_NS_PER_S)   /* for one request to a registry */
#define ANSWERS_NS (2 * MUSTER_NS_PER_S)   /* for the answers of launchers */
#define LOOK_NS    (50 * MUSTER_NS_PER_MS) /* between two looks for answers */
#define ASK_TTL_S  10                      /* the keys that ask outlive us by no more */

static uint64_t deadline_of(const struct jobs *jobs)
{
    return muster_loop_after_ns(jobs->env->loop, WITHIN_NS);
}

/* --- Requests, one after the other */

static void on_op(struct muster_registry_op *op, enum muster_rc rc)
{
    struct jobs *jobs = op->data;

    jobs->is_busy = false;
    jobs->rc = rc;
}

static enum muster_rc wait_for(struct jobs *jobs, enum muster_rc started)
{
    MUSTER_ASSERT(!jobs->is_busy);
    jobs->is_busy = started == MUSTER_OK;
    jobs->rc = started;
    while (jobs->is_busy)
        muster_loop_turn(jobs->env->loop, UINT64_MAX);
    return jobs->rc;
}

static enum muster_rc read_range(struct jobs *jobs, struct source *source, const char *key,
                                 enum muster_registry_reach reach, bool is_keys_only,
                                 muster_registry_op_fn *done)
{
    const struct muster_registry_range range = {
        .key = text_bytes(key), .reach = reach, .is_keys_only = is_keys_only};

    jobs->op.data = jobs;
    return wait_for(jobs, muster_registry_range_start(&jobs->op, source->client, &range,
                                                      deadline_of(jobs), done));
}

/* --- Names */

static bool is_shown(const struct jobs *jobs, const char *name)
{
    return jobs->job == NULL || strcmp(jobs->job, name) == 0;
}

/* One key of each job would do, but etcd cannot be asked for that: all keys of all jobs are read,
 * without their values. The watch of the names makes this read a rare one. */
static void on_names(struct muster_registry_op *op, enum muster_rc rc)
{
    struct jobs *jobs = op->data;

    for (size_t i = 0; rc == MUSTER_OK && i < op->kv_count; i++)
        jobs_names_take(&jobs->source->names, &op->kvs[i].key);
    on_op(op, rc);
}

static enum muster_rc names_read(struct jobs *jobs, struct source *source)
{
    enum muster_rc rc;

    if (jobs->job != NULL) {
        jobs_names_add(&source->names, jobs->job, strlen(jobs->job));
        return MUSTER_OK;
    }
    if (jobs_names_are_watched(&source->names, source->client))
        return MUSTER_OK;
    rc = read_range(jobs, source, JOB_KEYS_PREFIX, MUSTER_REGISTRY_PREFIX, true, on_names);
    if (rc == MUSTER_OK)
        source->names.revision = jobs->op.revision;
    return rc;
}

/* --- Records of launchers */

static struct record *record_find(struct jobs *jobs, const char *job, uint64_t node_rank)
{
    for (size_t i = 0; i < jobs->record_count; i++)
        if (jobs->records[i].node_rank == node_rank && strcmp(jobs->records[i].job, job) == 0)
            return &jobs->records[i];
    if (jobs->record_count == RECORDS_MAX)
        return NULL;
    jobs->records[jobs->record_count] = (struct record){.node_rank = node_rank};
    snprintf(jobs->records[jobs->record_count].job, JOB_KEY_BYTES, "%s", job);
    return &jobs->records[jobs->record_count++];
}

static void record_take(struct jobs *jobs, const struct muster_registry_kv *kv)
{
    char key[JOB_KEY_BYTES];
    char *job = key + strlen(JOB_STATUS_PREFIX), *slash;
    struct muster_json *json = NULL;
    struct record *record;

    if (kv->key.size >= sizeof(key) || kv->key.size <= strlen(JOB_STATUS_PREFIX))
        return;
    memcpy(key, kv->key.data, kv->key.size);
    key[kv->key.size] = '\0';
    slash = strrchr(job, '/');
    if (slash == NULL)
        return;
    *slash = '\0';
    record = is_shown(jobs, job) ? record_find(jobs, job, strtoull(slash + 1, NULL, 10)) : NULL;
    if (record == NULL || (record->json != NULL && record->revision == kv->mod_revision) ||
        muster_json_parse(kv->value.data, kv->value.size, &json, NULL) != MUSTER_OK)
        return;
    muster_json_free(record->json);
    record->json = json;
    record->revision = kv->mod_revision;
    jobs_names_add(&jobs->source->names, job, strlen(job));
}

static void on_records(struct muster_registry_op *op, enum muster_rc rc)
{
    struct jobs *jobs = op->data;

    for (size_t i = 0; rc == MUSTER_OK && i < op->kv_count; i++)
        record_take(jobs, &op->kvs[i]);
    on_op(op, rc);
}

static void key_of_records(const struct jobs *jobs, char key[2 * JOB_KEY_BYTES])
{
    snprintf(key, 2 * JOB_KEY_BYTES, "%s%s%s", JOB_STATUS_PREFIX,
             jobs->job != NULL ? jobs->job : "", jobs->job != NULL ? "/" : "");
}

static enum muster_rc records_read(struct jobs *jobs, struct source *source)
{
    char key[2 * JOB_KEY_BYTES];

    key_of_records(jobs, key);
    return read_range(jobs, source, key, MUSTER_REGISTRY_PREFIX, false, on_records);
}

void jobs_records_forget(struct jobs *jobs)
{
    for (size_t i = 0; i < jobs->record_count; i++)
        muster_json_free(jobs->records[i].json);
    jobs->record_count = 0;
}

/* --- Asking for new ones */

/* The keys that ask hang on a lease, so they go by themselves, however this process ends. At half
 * of its life a new one takes its place. */
static enum muster_rc lease_renew(struct jobs *jobs, struct source *source)
{
    uint64_t now_ns = muster_loop_now_ns(jobs->env->loop);
    enum muster_rc rc;

    if (source->lease != 0 && now_ns - source->lease_ns < ASK_TTL_S * MUSTER_NS_PER_S / 2)
        return MUSTER_OK;
    jobs->op.data = jobs;
    rc = wait_for(jobs, muster_registry_grant_start(&jobs->op, source->client, ASK_TTL_S, 0,
                                                    deadline_of(jobs), on_op));
    source->lease = rc == MUSTER_OK ? jobs->op.lease : 0;
    source->lease_ns = now_ns;
    return rc;
}

/* *ret_revision: of the first question; records that are newer are answers. */
static enum muster_rc jobs_ask(struct jobs *jobs, struct source *source, uint64_t *ret_revision)
{
    enum muster_rc rc = lease_renew(jobs, source);
    char key[2 * JOB_KEY_BYTES];

    for (size_t i = 0; rc == MUSTER_OK && i < jobs->record_count; i++) {
        if (i > 0 && strcmp(jobs->records[i].job, jobs->records[i - 1].job) == 0)
            continue; /* of another machine of the same job */
        snprintf(key, sizeof(key), "%s%s", JOB_ASK_PREFIX, jobs->records[i].job);
        jobs->op.data = jobs;
        rc = wait_for(jobs, muster_registry_put_start(&jobs->op, source->client, text_bytes(key),
                                                      text_bytes("1"), source->lease,
                                                      deadline_of(jobs), on_op));
        if (rc == MUSTER_OK && *ret_revision == 0)
            *ret_revision = jobs->op.revision;
    }
    return rc;
}

/* Revisions of a registry rise with every write: a record newer than the first question was written
 * after it. */
static bool are_answered(const struct jobs *jobs, uint64_t revision)
{
    for (size_t i = 0; i < jobs->record_count; i++)
        if (jobs->records[i].revision <= revision)
            return false;
    return true;
}

/* A user who may only read sees the records that the launchers have written unasked. */
static enum muster_rc answers_await(struct jobs *jobs, struct source *source)
{
    uint64_t until_ns = muster_loop_after_ns(jobs->env->loop, ANSWERS_NS), revision = 0;
    enum muster_rc rc;

    rc = jobs_ask(jobs, source, &revision);
    if (rc == MUSTER_PERMISSION_DENIED)
        return MUSTER_OK;
    while (rc == MUSTER_OK && !are_answered(jobs, revision) &&
           muster_loop_now_ns(jobs->env->loop) < until_ns) {
        uint64_t look_ns = muster_loop_after_ns(jobs->env->loop, LOOK_NS);

        while (muster_loop_now_ns(jobs->env->loop) < look_ns)
            muster_loop_turn(jobs->env->loop, LOOK_NS);
        rc = records_read(jobs, source);
    }
    return rc;
}

/* --- Views */

static void on_view(struct muster_registry_op *op, enum muster_rc rc)
{
    struct jobs *jobs = op->data;

    if (rc == MUSTER_OK && op->kv_count == 1 &&
        muster_view_unpack(jobs->env->mem, op->kvs[0].value.data, op->kvs[0].value.size,
                           &jobs->view) != MUSTER_OK)
        jobs->view = NULL; /* of another version: shown without it */
    on_op(op, rc);
}

/* Keys of members end with the incarnation (docs/protocol.md); one that is not in the view has been
 * replaced, or has not joined yet. */
static void on_members(struct muster_registry_op *op, enum muster_rc rc)
{
    struct jobs *jobs = op->data;

    for (size_t i = 0; rc == MUSTER_OK && i < op->kv_count; i++) {
        char text[MUSTER_INCARNATION_TEXT_BYTES];
        struct muster_incarnation who;
        uint32_t rank;

        if (op->kvs[i].key.size < sizeof(text) - 1)
            continue;
        memcpy(text, (const char *)op->kvs[i].key.data + op->kvs[i].key.size - (sizeof(text) - 1),
               sizeof(text) - 1);
        text[sizeof(text) - 1] = '\0';
        if (muster_incarnation_parse(text, &who) == MUSTER_OK &&
            muster_view_find(jobs->view, &who, &rank))
            jobs->is_registered[rank] = true;
    }
    on_op(op, rc);
}

static enum muster_rc view_read(struct jobs *jobs, struct source *source, const char *name)
{
    char key[2 * JOB_KEY_BYTES];
    enum muster_rc rc;

    snprintf(key, sizeof(key), "%s%s/view", JOB_KEYS_PREFIX, name);
    rc = read_range(jobs, source, key, MUSTER_REGISTRY_KEY, false, on_view);
    if (rc != MUSTER_OK || jobs->view == NULL)
        return rc;
    jobs->is_registered = calloc(jobs->view->member_count + 1, sizeof(bool));
    if (jobs->is_registered == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    snprintf(key, sizeof(key), "%s%s/members/", JOB_KEYS_PREFIX, name);
    return read_range(jobs, source, key, MUSTER_REGISTRY_PREFIX, true, on_members);
}

static void view_forget(struct jobs *jobs)
{
    muster_view_unref(jobs->view);
    free(jobs->is_registered);
    jobs->view = NULL;
    jobs->is_registered = NULL;
}

/* *ret_is_left: something is known of the job. */
static enum muster_rc job_add(struct jobs *jobs, struct source *source, const char *name,
                              struct muster_json *list, bool *ret_is_left)
{
    struct muster_json **records = calloc(jobs->record_count + 1, sizeof(records[0]));
    struct job_facts facts = {.name = name, .records = records};
    enum muster_rc rc = records == NULL ? MUSTER_RESOURCE_EXHAUSTED : MUSTER_OK;

    for (size_t i = 0; rc == MUSTER_OK && i < jobs->record_count; i++)
        if (strcmp(jobs->records[i].job, name) == 0)
            records[facts.record_count++] = jobs->records[i].json;
    if (rc == MUSTER_OK)
        rc = view_read(jobs, source, name);
    facts.view = jobs->view;
    facts.is_registered = jobs->is_registered;
    *ret_is_left = rc != MUSTER_OK || facts.view != NULL || facts.record_count > 0;
    if (rc == MUSTER_OK && *ret_is_left && !muster_json_append(list, jobs_merge(&facts)))
        rc = MUSTER_RESOURCE_EXHAUSTED;
    view_forget(jobs);
    free(records);
    return rc;
}

/* --- One registry */

/* The names are copied: meanwhile the watch may tell of new ones, after the present ones. */
static enum muster_rc jobs_add(struct jobs *jobs, struct source *source, struct muster_json *list)
{
    enum muster_rc rc = MUSTER_OK;
    char name[JOB_KEY_BYTES];

    jobs_names_sort(&source->names);
    for (size_t i = 0, count = source->names.count; rc == MUSTER_OK && i < count;) {
        bool is_left = true;

        memcpy(name, source->names.at[i], sizeof(name));
        rc = job_add(jobs, source, name, list, &is_left);
        if (is_left) {
            i++;
        } else {
            jobs_names_drop(&source->names, i);
            count--;
        }
    }
    return rc;
}

enum muster_rc jobs_source_read(struct jobs *jobs, struct source *source, struct muster_json *list)
{
    enum muster_rc rc;

    jobs_records_forget(jobs);
    jobs->source = source;
    rc = names_read(jobs, source);
    if (rc == MUSTER_OK)
        rc = records_read(jobs, source);
    if (rc == MUSTER_OK && jobs->record_count > 0)
        rc = answers_await(jobs, source);
    return rc == MUSTER_OK ? jobs_add(jobs, source, list) : rc;
}

enum muster_rc jobs_source_explain(const struct jobs *jobs, const struct source *source,
                                   enum muster_rc rc, struct muster_error *ret_error)
{
    const struct muster_error *refusal = muster_registry_refusal(source->client);
    const char *why = refusal != NULL
                          ? refusal->text
                          : muster_endpoint_cause(jobs->op.error.text, source->endpoint);

    if (refusal != NULL && (refusal->rc == MUSTER_FAILED_PRECONDITION || jobs->tls != NULL))
        return muster_error_set(ret_error, rc, "%s", refusal->text);
    if (refusal != NULL && source->launcher == 0)
        return muster_error_set(ret_error, rc, "%.206s; or give --tls-secret and --job",
                                refusal->text);
    if (refusal != NULL)
        return muster_error_set(ret_error, rc,
                                "the registry of 'muster run' (pid %ld) at %s admits its own job "
                                "only (--tls auto): watch that job by its --status page, or let it "
                                "use a 'muster registry' whose certificates you have",
                                (long)source->launcher, source->endpoint);
    if (refusal == NULL && (rc == MUSTER_DEADLINE_EXCEEDED || rc == MUSTER_UNAVAILABLE))
        return muster_error_set(ret_error, rc,
                                "the registry at %s does not answer%s%.160s%s; is 'muster "
                                "registry' running there? Name "
                                "another one with --registry",
                                source->endpoint, why[0] != '\0' ? " (" : "", why,
                                why[0] != '\0' ? ")" : "");
    return muster_error_set(ret_error, rc, "the registry at %s: %.120s", source->endpoint,
                            why[0] != '\0' ? why : muster_rc_text(rc));
}
