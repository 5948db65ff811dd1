/* The table of a resumable run: the facts that a successor of this launcher needs, as one JSON
 * object.
 *
 * It is replaced as a whole, by a rename, so that a launcher that is killed while it writes leaves
 * the table before. Changes that a successor cannot do without (a start, an end) are saved at once;
 * others, such as output that was read, within a second: a successor then prints at most that much
 * again. */
#include "run/resume/table.h"

#include "common/output.h"
#include "run/output/log.h"
#include "run/output/output.h"
#include "run/output/spool.h"
#include "run/registry/roll.h"
#include "run/report/anew.h"
#include "run/state/resume.h"

#include <stdlib.h>
#include <string.h>

#define SAVE_WITHIN_NS  MUSTER_NS_PER_S /* a busy run writes its table once a second */
#define TABLE_VERSION   2 /* another one is refused: a successor must be of the same muster */
#define TABLE_BYTES_MAX ((size_t)64 << 20)

struct run_table {
    struct muster_timer save_timer;
    bool is_changed; /* since it was saved last */
    bool has_failed; /* the last time: it was told */
};

static struct muster_json *number_new(uint64_t value)
{
    return muster_json_integer_new((int64_t)value);
}

/* Numbers that are saved and loaded alike. A name is the member's own, so one that is renamed is 0
 * when a table of before is loaded: TABLE_VERSION must change with it. */
struct field {
    const char *name;
    size_t offset;
    enum { U64, U32, INT, BOOL } kind;
};
#define TASK(kind, member)                                                                         \
    {                                                                                              \
#member, offsetof(struct run_task, member), kind                                           \
    }
#define RUN(kind, member)                                                                          \
    {                                                                                              \
#member, offsetof(struct run, member), kind                                                \
    }

static const struct field task_fields[] = {
    TASK(U64, restarts),
    TASK(U32, lives),
    TASK(U64, fruitless_lives),
    TASK(INT, misuse_code),
    TASK(INT, wait_status),
    TASK(INT, death_status),
    TASK(BOOL, has_reported),
    TASK(BOOL, has_committed),
    TASK(BOOL, is_too_late),
    TASK(BOOL, is_abandoned),
    TASK(U64, step),
    TASK(BOOL, has_result),
    TASK(U64, steps),
    TASK(U64, steps_lost),
    TASK(U64, ended_wall_ns),
    TASK(INT, worker_pid),
    TASK(U32, collected),
    TASK(U64, born_epoch),
    TASK(BOOL, is_loss_told),
    TASK(BOOL, is_loss_owed),
    TASK(U64, member_from),
    TASK(BOOL, is_unclosed),
    TASK(BOOL, is_in_step),
    TASK(U64, left_step),
    TASK(U64, last_step),
    TASK(BOOL, is_preempted),
    TASK(BOOL, is_saved),
    TASK(U64, unsaved_step),
    TASK(BOOL, is_refused),
    TASK(BOOL, is_silent),
    TASK(U64, skipped_step),
    TASK(U64, left_out_step),
    TASK(U64, undone_step),
    TASK(BOOL, has_left_others),
};
static const struct field run_fields[] = {
    RUN(U64, gang_restarts),
    RUN(U64, restarts),
    RUN(U64, kills),
    RUN(U64, checkpoints_saved),
    RUN(U64, checkpoints_failed),
    RUN(U64, checkpoint_step),
    RUN(U64, checkpoint_failed_step),
    RUN(U64, checkpoints_failed_since),
    RUN(U64, checkpoint_wall_ns),
    RUN(U64, checkpoint_duration_ns),
    RUN(U64, rejoins),
    RUN(U64, epoch_last),
    RUN(U64, survivors_restarted),
    RUN(U64, epoch_first),
    RUN(U64, joins),
    RUN(U64, epoch_told),
    RUN(INT, failed_code),
    RUN(BOOL, is_misuse),
    RUN(INT, stop_signal),
    RUN(U64, began_wall_ns),
    RUN(U64, epoch_anew),
    RUN(U64, steps_undone),
    RUN(U64, members_max),
    RUN(U64, anew_step),
    RUN(U64, epoch_restored),
};
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static bool save_fields(struct muster_json *object, const void *base, const struct field *fields,
                        size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const char *at = (const char *)base + fields[i].offset;
        uint64_t value = 0;

        if (fields[i].kind == U64)
            memcpy(&value, at, sizeof(uint64_t));
        else if (fields[i].kind == BOOL)
            value = *(const bool *)at;
        else
            value = (uint64_t)(int64_t)(*(const int *)(const void *)at);
        if (!muster_json_set(object, fields[i].name, number_new(value)))
            return false;
    }
    return true;
}

static void load_fields(const struct muster_json *object, void *base, const struct field *fields,
                        size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char *at = (char *)base + fields[i].offset;
        int64_t value = muster_json_integer(muster_json_member(object, fields[i].name));
        int narrow = (int)value;
        bool is_true = value != 0;

        if (fields[i].kind == U64)
            memcpy(at, &value, sizeof(value));
        else if (fields[i].kind == BOOL)
            memcpy(at, &is_true, sizeof(is_true));
        else
            memcpy(at, &narrow, sizeof(narrow));
    }
}

/* --- tasks */

static struct muster_json *values_of(const struct run_values *values)
{
    struct muster_json *object = muster_json_object_new();

    for (size_t i = 0; i < values->count; i++) {
        if (!muster_json_set(object, values->at[i].name, muster_json_real_new(values->at[i].value)))
            continue;
    }
    return object;
}

static void load_values(struct run_values *values, const struct muster_json *object)
{
    struct muster_json_walk walk;

    for (bool more = muster_json_walk_first(&walk, object); more && values->count < RUN_VALUES_MAX;
         more = muster_json_walk_next(&walk)) {
        if (strlen(walk.name) >= RUN_VALUE_NAME_BYTES)
            continue;
        strcpy(values->at[values->count].name, walk.name);
        values->at[values->count++].value = muster_json_number(walk.value);
    }
}

/* Up to the last whole line: the rest is read again with its end. */
static struct muster_json *taken_of(const struct run_stream *stream)
{
    return number_new(stream->taken - stream->length);
}

static struct muster_json *task_of(const struct run_task *task)
{
    struct muster_json *object = muster_json_object_new();
    char incarnation[MUSTER_INCARNATION_TEXT_BYTES];

    if (muster_json_set(object, "task", muster_json_text_new(task->name)) &&
        muster_json_set(object, "state", number_new(task->state)) &&
        muster_json_set(
            object, "incarnation",
            muster_json_text_new(muster_incarnation_format(&task->incarnation, incarnation))) &&
        muster_json_set(object, "digest", muster_json_text_new(task->digest)) &&
        muster_json_set(object, "unsaved", muster_json_text_new(task->unsaved)) &&
        muster_json_set(object, "refusal", muster_json_text_new(task->refusal)) &&
        muster_json_set(object, "results", values_of(&task->results)) &&
        muster_json_set(object, "out_taken", taken_of(&task->output->out)) &&
        muster_json_set(object, "err_taken", taken_of(&task->output->err)) &&
        muster_json_set(object, "report_taken", taken_of(&task->output->report)) &&
        save_fields(object, task, task_fields, COUNT(task_fields)))
        return object;
    muster_json_free(object);
    return NULL;
}

static bool load_taken(struct run_stream *stream, const struct muster_json *object,
                       const char *name)
{
    int64_t taken = muster_json_integer(muster_json_member(object, name));

    stream->taken = (size_t)taken;
    return taken >= 0;
}

/* A table of before may lack it. */
static void load_text(const struct muster_json *object, const char *name, char *text, size_t bytes)
{
    const char *found = muster_json_text(muster_json_member(object, name));

    snprintf(text, bytes, "%s", found != NULL ? found : "");
}

/* At most one life is not collected yet, and that of a running task is not. The life counts from
 * the table saved before its process was started, whatever state the task had then. */
static bool are_lives_possible(const struct run_task *task, int64_t state)
{
    return task->collected <= task->lives && task->lives - task->collected <= 1 &&
           (state != RUN_TASK_RUNNING || task->collected < task->lives);
}

/* A task with a life has an incarnation; zeros stand for none. */
static bool load_task(struct run_task *task, const struct muster_json *object)
{
    const char *incarnation = muster_json_text(muster_json_member(object, "incarnation"));
    int64_t state = muster_json_integer(muster_json_member(object, "state"));

    load_fields(object, task, task_fields, COUNT(task_fields));
    if (incarnation == NULL || state < RUN_TASK_NEW || state > RUN_TASK_FAILED ||
        !are_lives_possible(task, state) ||
        (task->lives > 0 && muster_incarnation_parse(incarnation, &task->incarnation) != MUSTER_OK))
        return false;
    run_task_restore(task, (enum run_task_state)state);
    load_text(object, "digest", task->digest, sizeof(task->digest));
    load_text(object, "unsaved", task->unsaved, sizeof(task->unsaved));
    load_text(object, "refusal", task->refusal, sizeof(task->refusal));
    load_values(&task->results, muster_json_member(object, "results"));
    return load_taken(&task->output->out, object, "out_taken") &&
           load_taken(&task->output->err, object, "err_taken") &&
           load_taken(&task->output->report, object, "report_taken");
}

static struct muster_json *tasks_of(const struct run *run)
{
    struct muster_json *tasks = muster_json_array_new();

    for (uint32_t i = 0; i < run->task_count; i++) {
        if (!muster_json_append(tasks, task_of(&run->tasks[i])))
            break;
    }
    return tasks;
}

/* --- the run */

static struct muster_json *times_of(const double *times, size_t count)
{
    struct muster_json *list = muster_json_array_new();

    for (size_t i = 0; i < count; i++) {
        if (!muster_json_append(list, muster_json_real_new(times[i])))
            break;
    }
    return list;
}

static struct muster_json *kills_of(const struct run *run)
{
    struct muster_json *kills = muster_json_array_new();

    for (size_t i = 0; i < run->settings.kill_count; i++) {
        if (!muster_json_append(kills, muster_json_bool_new(run->settings.kills[i].is_reached)))
            break;
    }
    return kills;
}

static struct muster_json *table_of(const struct run *run)
{
    struct muster_json *root = muster_json_object_new();
    int64_t failed = run->failed == NULL ? -1 : run->failed - run->tasks;

    if (muster_json_set(root, "version", number_new(TABLE_VERSION)) &&
        muster_json_set(root, "state", number_new(run->state)) &&
        muster_json_set(root, "exit_code", muster_json_integer_new(run->exit_code)) &&
        muster_json_set(root, "job", muster_json_text_new(run->settings.job_name)) &&
        muster_json_set(root, "registry_port", number_new(run->resume->registry_port)) &&
        muster_json_set(root, "master_port", number_new(run->master_port)) &&
        muster_json_set(root, "tf_cluster", muster_json_text_new(run->tf_cluster)) &&
        muster_json_set(root, "log_dir", muster_json_text_new(run->log_dir)) &&
        muster_json_set(root, "preempt_cause", muster_json_text_new(run->preempt_cause)) &&
        muster_json_set(root, "program_checkpoint_dir",
                        muster_json_text_new(run->program_checkpoint_dir)) &&
        muster_json_set(root, "failed", muster_json_integer_new(failed)) &&
        muster_json_set(root, "recoveries_ms", times_of(run->recoveries_ms, run->recovery_count)) &&
        muster_json_set(root, "detections_ms",
                        times_of(run->detections_ms, run->detection_count)) &&
        muster_json_set(root, "anew_at", run_anew_steps(run)) &&
        muster_json_set(root, "kills_reached", kills_of(run)) &&
        muster_json_set(root, "were_members", run_roll_save(run->roll)) &&
        save_fields(root, run, run_fields, COUNT(run_fields)) &&
        muster_json_set(root, "tasks", tasks_of(run)))
        return root;
    muster_json_free(root);
    return NULL;
}

static size_t load_times(const struct muster_json *root, const char *name, double *times)
{
    const struct muster_json *list = muster_json_member(root, name);
    size_t count = muster_json_count(list);

    count = count > RUN_RECOVERIES_MAX ? RUN_RECOVERIES_MAX : count;
    for (size_t i = 0; i < count; i++)
        times[i] = muster_json_number(muster_json_at(list, i));
    return count;
}

static void load_lists(struct run *run, const struct muster_json *root)
{
    const struct muster_json *anew = muster_json_member(root, "anew_at");
    const struct muster_json *kills = muster_json_member(root, "kills_reached");

    run->recovery_count = load_times(root, "recoveries_ms", run->recoveries_ms);
    run->detection_count = load_times(root, "detections_ms", run->detections_ms);
    for (size_t i = 0; i < muster_json_count(anew) && i < RUN_ANEW_MAX; i++)
        run->anew_at[run->anew_count++] = (uint64_t)muster_json_integer(muster_json_at(anew, i));
    for (size_t i = 0; i < run->settings.kill_count; i++)
        run->settings.kills[i].is_reached = muster_json_is_true(muster_json_at(kills, i));
}

static bool load_from(struct run *run, const struct muster_json *root)
{
    const struct muster_json *tasks = muster_json_member(root, "tasks");
    const char *job = muster_json_text(muster_json_member(root, "job"));
    const char *log_dir = muster_json_text(muster_json_member(root, "log_dir"));
    const char *cluster = muster_json_text(muster_json_member(root, "tf_cluster"));
    int64_t failed = muster_json_integer(muster_json_member(root, "failed"));
    int64_t state = muster_json_integer(muster_json_member(root, "state"));

    if (state < RUN_STATE_RUNNING || state > RUN_STATE_STOPPING ||
        (state == RUN_STATE_REGROUPING && !run->settings.is_gang) ||
        muster_json_integer(muster_json_member(root, "version")) != TABLE_VERSION || job == NULL ||
        muster_json_count(tasks) != run->task_count || failed >= (int64_t)run->task_count)
        return false;
    for (uint32_t i = 0; i < run->task_count; i++) {
        if (!load_task(&run->tasks[i], muster_json_at(tasks, i)))
            return false;
    }
    run_restore(run, (enum run_state)state);
    run->exit_code = (int)muster_json_integer(muster_json_member(root, "exit_code"));
    run->failed = failed >= 0 ? &run->tasks[failed] : NULL;
    run->master_port = (uint16_t)muster_json_integer(muster_json_member(root, "master_port"));
    run->resume->registry_port =
        (uint16_t)muster_json_integer(muster_json_member(root, "registry_port"));
    snprintf(run->settings.job_name, sizeof(run->settings.job_name), "%s", job);
    snprintf(run->log_dir, sizeof(run->log_dir), "%s", log_dir != NULL ? log_dir : "");
    load_text(root, "preempt_cause", run->preempt_cause, sizeof(run->preempt_cause));
    load_text(root, "program_checkpoint_dir", run->program_checkpoint_dir,
              sizeof(run->program_checkpoint_dir));
    run->tf_cluster = cluster != NULL ? strdup(cluster) : NULL;
    load_fields(root, run, run_fields, COUNT(run_fields));
    load_lists(run, root);
    run_roll_load(run->roll, muster_json_member(root, "were_members"));
    return true;
}

static void table_path(const struct run *run, char *path, size_t bytes)
{
    snprintf(path, bytes, "%s/table.json", run->resume->dir);
}

bool run_table_load(struct run *run, const char **ret_why)
{
    char path[600];
    char *bytes = NULL;
    size_t size = 0;
    struct muster_json *root = NULL;
    bool is_good;

    table_path(run, path, sizeof(path));
    *ret_why = "must hold a run, got a directory whose table.json cannot be read";
    if (muster_files_read(run->env->files, run->env->mem, path, TABLE_BYTES_MAX, &bytes, &size) !=
        MUSTER_OK)
        return false;
    *ret_why =
        "must hold the run of a launcher of this version, got a table.json that is damaged or "
        "of another version; end its workers, whose processes lives/*.keeper names, and "
        "begin again with --resumable and another directory";
    is_good = muster_json_parse(bytes, size, &root, NULL) == MUSTER_OK && load_from(run, root);
    muster_json_free(root);
    muster_mem_free(run->env->mem, bytes);
    return is_good;
}

/* Once for each time that it begins to fail. */
static void table_tell(struct run *run, const char *path, enum muster_rc rc)
{
    if (rc != MUSTER_OK && !run->table->has_failed)
        run_tell(run,
                 "the table of this run cannot be written to %s: %s; make room there, or mend the "
                 "disk: meanwhile output and reports of the workers may be lost, members may wait "
                 "for this launcher's registry, and a successor (--resume) finds the table as it "
                 "was",
                 path, muster_rc_text(rc));
    else if (rc == MUSTER_OK && run->table->has_failed)
        run_tell(run, "the table of this run is written again to %s", path);
    run->table->has_failed = rc != MUSTER_OK;
}

bool run_table_save(struct run *run)
{
    char path[600];
    struct muster_json *root;
    char *text = NULL;
    enum muster_rc rc = MUSTER_RESOURCE_EXHAUSTED;

    if (run->table == NULL)
        return true;
    run->table->is_changed = false;
    muster_timer_stop(&run->table->save_timer);
    table_path(run, path, sizeof(path));
    root = table_of(run);
    if (root != NULL && muster_json_format(root, false, run->env->mem, &text) == MUSTER_OK)
        rc = muster_files_write(run->env->files, path, text, strlen(text));
    muster_mem_free(run->env->mem, text);
    muster_json_free(root);
    if (rc == MUSTER_OK)
        run_spool_free_taken(run);
    table_tell(run, path, rc);
    return rc == MUSTER_OK;
}

static void on_save(struct muster_timer *timer)
{
    run_table_save(timer->data);
}

void run_table_open(struct run *run)
{
    if (run->resume == NULL)
        return;
    MUSTER_ASSERT(run->table == NULL);
    run->table = calloc(1, sizeof(*run->table));
    if (run->table == NULL)
        output_no_memory();
    muster_timer_init(&run->table->save_timer, on_save, run);
}

void run_table_close(struct run *run)
{
    if (run->table == NULL)
        return;
    muster_timer_stop(&run->table->save_timer);
    free(run->table);
    run->table = NULL;
}

void run_table_changed(struct run *run)
{
    struct muster_loop *loop = run->env->loop;
    struct run_table *table = run->table;

    if (table == NULL || table->is_changed || run->state == RUN_STATE_DONE)
        return;
    table->is_changed = true;
    muster_timer_start(&table->save_timer, loop, muster_loop_after_ns(loop, SAVE_WITHIN_NS));
}
