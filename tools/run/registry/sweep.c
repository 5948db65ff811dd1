/* Keys of jobs that ended more than a day ago are removed: view, dead/, weights/. Once an hour one
 * of the launchers on a registry looks at all jobs. A job has ended when each member of its last
 * view has left or is confirmed dead; an expired lease alone says nothing, for the registry may
 * have been away. The first look at an ended job leaves a mark with the time; a later one removes
 * what has not changed since. */
#include "run/registry/sweep.h"

#include "common/output.h"
#include "common/text_bytes.h"
#include "run/registry/registry.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define EVERY_S    3600
#define KEPT_S     (24 * 3600)
#define REQUEST_NS (5 * MUSTER_NS_PER_S)
#define CLOSE_NS   MUSTER_NS_PER_S /* for the rest of a look when the run ends */
#define KEY_BYTES  224
#define JOBS_MAX   4096 /* in one look; others have their turn when some of these are gone */
#define ROOT       "/muster/"
#define TURN_KEY   "/muster-sweep" /* whoever has put it looks; it goes with its lease */

enum sweep_state {
    SWEEP_IDLE,    /* until the timer */
    SWEEP_LEASING, /* the lease of the turn is granted */
    SWEEP_TAKING,  /* the turn is put, if no other launcher has it */
    SWEEP_LISTING, /* the keys of all jobs are listed */
    SWEEP_READING, /* the keys of one job are read */
    SWEEP_WRITING, /* its mark is set, or its keys are removed */
};

struct sweep_job {
    char name[MUSTER_JOB_NAME_BYTES];
    bool is_kept; /* somebody is there, or may come back */
};

struct run_sweep {
    struct run *run;
    enum sweep_state state;
    struct muster_registry_op op, note;
    bool is_noting;
    struct muster_timer timer;
    uint64_t until_ns; /* the run ends: no further job after this; 0: it does not */
    struct sweep_job *jobs;
    size_t job_count, at;
    char keys[6][KEY_BYTES], mark[64], resumable_key[KEY_BYTES];
};

static uint64_t sweep_soon(const struct run_sweep *sweep)
{
    return muster_loop_after_ns(sweep->run->env->loop, REQUEST_NS);
}

static uint64_t sweep_now_s(const struct run_sweep *sweep)
{
    return muster_host_wall_ns(sweep->run->env->host) / MUSTER_NS_PER_S;
}

static void sweep_move(struct run_sweep *sweep, enum sweep_state to)
{
    static const unsigned allowed[] = {
        [SWEEP_IDLE] = 1u << SWEEP_LEASING,
        [SWEEP_LEASING] = 1u << SWEEP_TAKING | 1u << SWEEP_IDLE,
        [SWEEP_TAKING] = 1u << SWEEP_LISTING | 1u << SWEEP_IDLE,
        [SWEEP_LISTING] = 1u << SWEEP_READING | 1u << SWEEP_IDLE,
        [SWEEP_READING] = 1u << SWEEP_READING | 1u << SWEEP_WRITING | 1u << SWEEP_IDLE,
        [SWEEP_WRITING] = 1u << SWEEP_READING | 1u << SWEEP_IDLE,
    };

    MUSTER_ASSERT((allowed[sweep->state] & 1u << to) != 0);
    sweep->state = to;
}

static void sweep_end(struct run_sweep *sweep)
{
    sweep_move(sweep, SWEEP_IDLE);
    free(sweep->jobs);
    sweep->jobs = NULL;
    sweep->job_count = sweep->at = 0;
}

static void sweep_go_on(struct run_sweep *sweep, enum sweep_state state, enum muster_rc started)
{
    sweep_move(sweep, state);
    if (started != MUSTER_OK)
        sweep_end(sweep);
}

/* --- one job --- */

static void sweep_next(struct run_sweep *sweep);

static void on_swept(struct muster_registry_op *op, enum muster_rc rc)
{
    struct run_sweep *sweep = op->data;

    (void)rc; /* what has changed meanwhile, or has failed, is looked at an hour later */
    sweep->at++;
    sweep_next(sweep);
}

static const struct muster_registry_kv *find_key(const struct muster_registry_op *op,
                                                 const char *key)
{
    for (size_t i = 0; i < op->kv_count; i++)
        if (op->kvs[i].key.size == strlen(key) &&
            memcmp(op->kvs[i].key.data, key, op->kvs[i].key.size) == 0)
            return &op->kvs[i];
    return NULL;
}

/* Only confirmed deaths count. A view that cannot be read belongs to another version of muster, and
 * is left alone. */
static bool is_over(const struct muster_registry_op *op, const char *dead_prefix,
                    const struct muster_registry_kv *kv)
{
    struct muster_view *view = NULL;
    char key[KEY_BYTES], incarnation[MUSTER_INCARNATION_TEXT_BYTES];
    bool is_everybody_dead = true;

    if (kv == NULL)
        return true; /* it never began */
    if (muster_view_unpack(muster_mem_system(), kv->value.data, kv->value.size, &view) != MUSTER_OK)
        return false; /* of another version */
    for (uint32_t i = 0; i < view->member_count && is_everybody_dead; i++) {
        snprintf(key, sizeof(key), "%.180s%s", dead_prefix,
                 muster_incarnation_format(&view->members[i].incarnation, incarnation));
        is_everybody_dead = find_key(op, key) != NULL;
    }
    muster_view_unref(view);
    return is_everybody_dead;
}

/* The newest change of the job's keys but for the mark, which records it: a job that goes on has a
 * newer one. */
static uint64_t newest_revision(const struct muster_registry_op *op,
                                const struct muster_registry_kv *mark)
{
    uint64_t newest = 0;

    for (size_t i = 0; i < op->kv_count; i++)
        if (&op->kvs[i] != mark && op->kvs[i].mod_revision > newest)
            newest = op->kvs[i].mod_revision;
    return newest;
}

/* keys: view, dead/, weights/, were_members/, ended. As long as view and mark are as they were
 * read. */
static enum muster_rc remove_job(struct run_sweep *sweep, uint64_t view_revision,
                                 uint64_t mark_revision)
{
    struct muster_registry_compare compares[2] = {{.key = text_bytes(sweep->keys[0]),
                                                   .target = MUSTER_REGISTRY_MOD_REVISION,
                                                   .relation = MUSTER_REGISTRY_EQUAL,
                                                   .number = view_revision},
                                                  {.key = text_bytes(sweep->keys[4]),
                                                   .target = MUSTER_REGISTRY_MOD_REVISION,
                                                   .relation = MUSTER_REGISTRY_EQUAL,
                                                   .number = mark_revision}};
    struct muster_registry_step steps[5];
    struct muster_registry_txn txn = {
        .compares = compares, .compare_count = 2, .success = steps, .success_count = 5};

    for (size_t i = 0; i < 5; i++)
        steps[i] = (struct muster_registry_step){
            .kind = MUSTER_REGISTRY_DELETE,
            .key = text_bytes(sweep->keys[i]),
            .reach = i == 0 || i == 4 ? MUSTER_REGISTRY_KEY : MUSTER_REGISTRY_PREFIX};
    return muster_registry_txn_start(&sweep->op, run_registry_client(sweep->run), &txn,
                                     sweep_soon(sweep), on_swept);
}

/* Three cases: the mark is old enough and nothing has changed, so the keys go; the mark is young,
 * so nothing is done; else the mark is set, or set anew. */
static void judge_job(struct run_sweep *sweep, const struct muster_registry_op *op)
{
    const struct muster_registry_kv *view = find_key(op, sweep->keys[0]);
    const struct muster_registry_kv *mark = find_key(op, sweep->keys[4]);
    uint64_t newest = newest_revision(op, mark), now_s = sweep_now_s(sweep);
    unsigned long long since_s = 0, revision = 0;
    enum muster_rc rc;
    char text[64];

    if (!is_over(op, sweep->keys[1], view)) {
        sweep->at++;
        sweep_next(sweep);
        return;
    }
    if (mark != NULL) {
        snprintf(text, sizeof(text), "%.*s", (int)mark->value.size, (const char *)mark->value.data);
        if (sscanf(text, "%llu %llu", &since_s, &revision) != 2)
            revision = 0;
    }
    if (mark != NULL && revision == newest && now_s > since_s + KEPT_S) {
        rc = remove_job(sweep, view != NULL ? view->mod_revision : 0, mark->mod_revision);
    } else if (mark != NULL && revision == newest) {
        sweep->at++;
        sweep_next(sweep);
        return;
    } else {
        snprintf(sweep->mark, sizeof(sweep->mark), "%" PRIu64 " %" PRIu64, now_s, newest);
        rc = muster_registry_swap_start(&sweep->op, run_registry_client(sweep->run),
                                        text_bytes(sweep->keys[4]),
                                        mark != NULL ? mark->mod_revision : 0,
                                        text_bytes(sweep->mark), 0, sweep_soon(sweep), on_swept);
    }
    sweep_go_on(sweep, SWEEP_WRITING, rc);
}

static void on_job_read(struct muster_registry_op *op, enum muster_rc rc)
{
    struct run_sweep *sweep = op->data;

    if (rc == MUSTER_OK)
        judge_job(sweep, op);
    else
        sweep_end(sweep);
}

static bool sweep_is_late(const struct run_sweep *sweep)
{
    return sweep->until_ns != 0 && muster_loop_now_ns(sweep->run->env->loop) > sweep->until_ns;
}

static void sweep_next(struct run_sweep *sweep)
{
    static const char *const parts[] = {"view", "dead/", "weights/", "were_members/", "ended"};
    struct muster_registry_step steps[5];
    struct muster_registry_txn txn = {.success = steps, .success_count = 5};

    while (sweep->at < sweep->job_count && sweep->jobs[sweep->at].is_kept)
        sweep->at++;
    if (sweep->at == sweep->job_count || sweep_is_late(sweep)) {
        sweep_end(sweep);
        return;
    }
    for (size_t i = 0; i < 5; i++) {
        snprintf(sweep->keys[i], KEY_BYTES, ROOT "%s/%s", sweep->jobs[sweep->at].name, parts[i]);
        steps[i] = (struct muster_registry_step){
            .kind = MUSTER_REGISTRY_GET,
            .key = text_bytes(sweep->keys[i]),
            .reach = i == 0 || i == 4 ? MUSTER_REGISTRY_KEY : MUSTER_REGISTRY_PREFIX};
    }
    sweep_go_on(sweep, SWEEP_READING,
                muster_registry_txn_start(&sweep->op, run_registry_client(sweep->run), &txn,
                                          sweep_soon(sweep), on_job_read));
}

/* --- all jobs --- */

/* A range comes in the order of its keys, so that those of a job follow each other. A job with a
 * member, a launcher or a resumable run is kept, as is our own. */
static void note_key(struct run_sweep *sweep, const struct muster_registry_kv *kv)
{
    const char *name = (const char *)kv->key.data + strlen(ROOT);
    size_t bytes = kv->key.size - strlen(ROOT);
    const char *slash = memchr(name, '/', bytes);
    struct sweep_job *job = &sweep->jobs[sweep->job_count > 0 ? sweep->job_count - 1 : 0];
    size_t length;

    if (slash == NULL || slash - name >= MUSTER_JOB_NAME_BYTES)
        return;
    length = (size_t)(slash - name);
    if (sweep->job_count == 0 || strlen(job->name) != length ||
        memcmp(job->name, name, length) != 0) {
        if (sweep->job_count == JOBS_MAX)
            return;
        job = &sweep->jobs[sweep->job_count++];
        memcpy(job->name, name, length);
        job->is_kept = strcmp(job->name, sweep->run->settings.job_name) == 0;
    }
    slash++;
    bytes -= length + 1;
    if ((bytes > 8 && memcmp(slash, "members/", 8) == 0) ||
        (bytes > 10 && memcmp(slash, "launchers/", 10) == 0) ||
        (bytes > 10 && memcmp(slash, "resumable/", 10) == 0))
        job->is_kept = true;
}

static void on_listed(struct muster_registry_op *op, enum muster_rc rc)
{
    struct run_sweep *sweep = op->data;

    if (rc != MUSTER_OK) { /* a user of etcd may see its own job only */
        sweep_end(sweep);
        return;
    }
    sweep->jobs = calloc(JOBS_MAX, sizeof(sweep->jobs[0]));
    if (sweep->jobs == NULL)
        output_no_memory();
    for (size_t i = 0; i < op->kv_count; i++)
        note_key(sweep, &op->kvs[i]);
    sweep_next(sweep);
}

static void on_turn(struct muster_registry_op *op, enum muster_rc rc)
{
    struct run_sweep *sweep = op->data;
    struct muster_registry_range all = {
        .key = text_bytes(ROOT), .reach = MUSTER_REGISTRY_PREFIX, .is_keys_only = true};

    if (rc != MUSTER_OK || !op->is_succeeded) {
        sweep_end(sweep); /* another launcher has looked within the hour */
        return;
    }
    sweep_go_on(sweep, SWEEP_LISTING,
                muster_registry_range_start(&sweep->op, run_registry_client(sweep->run), &all,
                                            sweep_soon(sweep), on_listed));
}

static void on_leased(struct muster_registry_op *op, enum muster_rc rc)
{
    struct run_sweep *sweep = op->data;

    if (rc != MUSTER_OK) {
        sweep_end(sweep);
        return;
    }
    sweep_go_on(sweep, SWEEP_TAKING,
                muster_registry_swap_start(&sweep->op, run_registry_client(sweep->run),
                                           text_bytes(TURN_KEY), 0, text_bytes("1"), op->lease,
                                           sweep_soon(sweep), on_turn));
}

/* The turn is a key under a lease of an hour, put if it is not there: of all launchers on a
 * registry one looks per hour. */
static void on_timer(struct muster_timer *timer)
{
    struct run_sweep *sweep = timer->data;
    struct muster_loop *loop = sweep->run->env->loop;

    muster_timer_start(timer, loop, muster_loop_after_ns(loop, EVERY_S * MUSTER_NS_PER_S));
    if (sweep->state != SWEEP_IDLE)
        return;
    sweep_go_on(sweep, SWEEP_LEASING,
                muster_registry_grant_start(&sweep->op, run_registry_client(sweep->run), EVERY_S, 0,
                                            sweep_soon(sweep), on_leased));
}

/* --- what can be resumed --- */

static void on_noted(struct muster_registry_op *op, enum muster_rc rc)
{
    (void)rc;
    ((struct run_sweep *)op->data)->is_noting = false;
}

/* The key stays when this launcher is killed: its workers live on, and a successor may come after
 * more than a day. */
static void sweep_note_resumable(struct run_sweep *sweep, bool is_resumable)
{
    struct muster_registry *client = run_registry_client(sweep->run);
    struct muster_bytes key = text_bytes(sweep->resumable_key);
    enum muster_rc rc =
        is_resumable ? muster_registry_put_start(&sweep->note, client, key, text_bytes("1"), 0,
                                                 sweep_soon(sweep), on_noted)
                     : muster_registry_delete_start(&sweep->note, client, key, MUSTER_REGISTRY_KEY,
                                                    sweep_soon(sweep), on_noted);

    sweep->is_noting = rc == MUSTER_OK;
}

void run_sweep_open(struct run *run)
{
    struct run_sweep *sweep;

    MUSTER_ASSERT(run->sweep == NULL && run->registry != NULL);
    if (run->settings.is_embedded)
        return;
    sweep = run->sweep = calloc(1, sizeof(*sweep));
    if (sweep == NULL)
        output_no_memory();
    sweep->run = run;
    sweep->op.data = sweep->note.data = sweep;
    snprintf(sweep->resumable_key, KEY_BYTES, ROOT "%s/resumable/%llu", run->settings.job_name,
             (unsigned long long)run->settings.node_rank);
    sweep_note_resumable(sweep, run->resume != NULL);
    muster_timer_init(&sweep->timer, on_timer, sweep);
    muster_timer_start(&sweep->timer, run->env->loop, muster_loop_now_ns(run->env->loop));
}

void run_sweep_close(struct run *run)
{
    struct run_sweep *sweep = run->sweep;
    struct muster_loop *loop = run->env->loop;

    if (sweep == NULL)
        return;
    muster_timer_stop(&sweep->timer);
    sweep->until_ns = muster_loop_after_ns(loop, CLOSE_NS);
    while (sweep->is_noting)
        muster_loop_turn(loop, UINT64_MAX);
    if (run->resume != NULL && run->state == RUN_STATE_DONE)
        sweep_note_resumable(sweep, false);
    while (sweep->is_noting || sweep->state != SWEEP_IDLE)
        muster_loop_turn(loop, UINT64_MAX);
    free(sweep);
    run->sweep = NULL;
}
