/* Curves that are thinned out, and events of which the last ones are kept: a job of a month takes
 * as much memory as one of an hour.
 *
 * Samples are taken at an interval that doubles whenever the array is full, after every second one
 * is dropped, so that the curves always cover the whole run. It exists only with --status. */
#include "run/report/history.h"

#include "common/output.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The first interval between samples: short, for jobs of a minute. */
#define INTERVAL_NS (500 * MUSTER_NS_PER_MS)

const double run_recovery_bounds_s[RUN_RECOVERY_BOUNDS] = {
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 60};

static const char *const verdicts[RUN_VERDICTS] = {"adopt", "retry", "aborted", "none"};

static uint64_t elapsed_ms(const struct run *run)
{
    uint64_t now_ns = muster_loop_now_ns(run->env->loop);

    return now_ns > run->started_ns ? (now_ns - run->started_ns) / MUSTER_NS_PER_MS : 0;
}

/* --- Curves */

static void thin_out(struct run_history *history)
{
    size_t kept = 0;

    for (size_t i = 1; i < history->sample_count; i += 2)
        history->samples[kept++] = history->samples[i];
    history->sample_count = kept;
    history->interval_ns *= 2;
}

/* A value that is not reported yet is NAN, which becomes null. */
static void take_sample(struct run_history *history)
{
    const struct run *run = history->run;
    const struct run_values *values = &run->progress.values;
    struct run_sample *sample;

    if (history->sample_count == RUN_SAMPLES_MAX)
        thin_out(history);
    MUSTER_ASSERT(history->sample_count < RUN_SAMPLES_MAX);
    sample = &history->samples[history->sample_count++];
    sample->at_ms = elapsed_ms(run);
    sample->step = run->progress.step;
    sample->members = run->progress.members;
    sample->view = run->epoch_last;
    for (size_t i = 0; i < RUN_VALUES_MAX; i++)
        sample->values[i] = i < values->count ? values->at[i].value : (double)NAN;
}

static void on_sample_due(struct muster_timer *timer)
{
    struct run_history *history = timer->data;
    struct muster_loop *loop = history->run->env->loop;

    take_sample(history);
    muster_timer_start(timer, loop, muster_loop_after_ns(loop, history->interval_ns));
}

/* --- Events */

static struct run_event *event_add(struct run_history *history, const char *kind)
{
    struct run_event *event = &history->events[history->event_count++ % RUN_EVENTS_MAX];

    *event = (struct run_event){
        .at_ms = elapsed_ms(history->run), .kind = kind, .recovery_ms = -1, .verdict = ""};
    return event;
}

static struct run_lifeline *lifeline_of(const struct run_task *task)
{
    return &task->run->history->lifelines[task->local_rank];
}

void run_history_on_start(struct run_task *task)
{
    struct run_lifeline *line;

    if (task->run->history == NULL)
        return;
    line = lifeline_of(task);
    line->at[line->count++ % RUN_LIVES_MAX] =
        (struct run_life){.from_ms = elapsed_ms(task->run), .to_ms = 0};
}

void run_history_on_death(struct run_task *task)
{
    struct run_history *history = task->run->history;
    struct run_lifeline *line;
    struct run_event *event;
    struct run_life *life;

    if (history == NULL)
        return;
    line = lifeline_of(task);
    if (line->count == 0)
        run_history_on_start(task); /* taken over from another launcher */
    life = &line->at[(line->count - 1) % RUN_LIVES_MAX];
    life->to_ms = elapsed_ms(task->run);
    run_task_death(task->wait_status, life->end, sizeof(life->end));
    if (task->wait_status == 0)
        return;
    event = event_add(history, "death");
    snprintf(event->text, sizeof(event->text), "%s %s at step %llu", task->name, life->end,
             (unsigned long long)run_task_last_step(task));
}

void run_history_on_rejoin(struct run_task *task)
{
    struct run_event *event;

    if (task->run->history == NULL)
        return;
    event = event_add(task->run->history, "rejoin");
    event->view = task->join_epoch > 0 ? (uint64_t)task->join_epoch : 0;
    snprintf(event->text, sizeof(event->text),
             "%s %s: it has the state of the others after %.0f ms", task->name,
             task->is_again ? "rejoined" : "joined", task->catch_up_ms);
}

/* A recovery without an interrupted operation counts under the last row, "none". */
static struct run_recoveries *recoveries_of(struct run_history *history, const char *verdict)
{
    for (size_t i = 0; i < RUN_VERDICTS - 1; i++)
        if (strcasecmp(verdict, verdicts[i]) == 0)
            return &history->recoveries[i];
    return &history->recoveries[RUN_VERDICTS - 1];
}

static void recovery_count(struct run_recoveries *recoveries, double recovery_s)
{
    size_t i = 0;

    while (i < RUN_RECOVERY_BOUNDS && recovery_s > run_recovery_bounds_s[i])
        i++;
    recoveries->buckets[i]++;
    recoveries->sum_s += recovery_s;
    recoveries->count++;
}

void run_history_on_view(struct run *run, const struct run_epoch *epoch, bool is_recovery,
                         const char *who)
{
    struct run_recoveries *recoveries;
    struct run_event *event;

    if (run->history == NULL)
        return;
    event = event_add(run->history, "view");
    event->view = epoch->epoch;
    snprintf(event->text, sizeof(event->text), "view %llu with %llu member%s: %s",
             (unsigned long long)epoch->epoch, (unsigned long long)epoch->members,
             epoch->members == 1 ? "" : "s", is_recovery ? who : epoch->reason);
    if (!is_recovery)
        return;
    recoveries = recoveries_of(run->history, epoch->verdict);
    recovery_count(recoveries, epoch->recovery_ms / 1e3);
    event->recovery_ms = epoch->recovery_ms;
    event->verdict = recoveries->verdict;
}

/* --- Open and close */

void run_history_open(struct run *run)
{
    struct run_history *history = calloc(1, sizeof(*history));

    if (history == NULL)
        output_no_memory();
    history->lifelines = calloc(run->task_count, sizeof(history->lifelines[0]));
    if (history->lifelines == NULL)
        output_no_memory();
    history->run = run;
    history->interval_ns = INTERVAL_NS;
    for (size_t i = 0; i < RUN_VERDICTS; i++)
        history->recoveries[i].verdict = verdicts[i];
    muster_timer_init(&history->timer, on_sample_due, history);
    MUSTER_ASSERT(run->history == NULL);
    run->history = history;
    muster_timer_start(&history->timer, run->env->loop,
                       muster_loop_after_ns(run->env->loop, history->interval_ns));
}

void run_history_close(struct run *run)
{
    if (run->history == NULL)
        return;
    muster_timer_stop(&run->history->timer);
    free(run->history->lifelines);
    free(run->history);
    run->history = NULL;
}

/* --- As JSON */

static struct muster_json *number_new(uint64_t value)
{
    return muster_json_integer_new((int64_t)value);
}

static struct muster_json *real_or_null(double value)
{
    return isfinite(value) ? muster_json_real_new(value) : muster_json_null_new();
}

/* The first letter tells the four fields of curves_of apart. */
static uint64_t sample_field(const struct run_sample *sample, const char *name)
{
    switch (name[0]) {
    case 'a':
        return sample->at_ms;
    case 's':
        return sample->step;
    case 'm':
        return sample->members;
    default:
        return sample->view;
    }
}

static struct muster_json *curve_of(const struct run_history *history, const char *field)
{
    struct muster_json *curve = muster_json_array_new();

    for (size_t i = 0; i < history->sample_count; i++)
        if (!muster_json_append(curve, number_new(sample_field(&history->samples[i], field))))
            break;
    return curve;
}

static struct muster_json *value_curve(const struct run_history *history, size_t value)
{
    struct muster_json *curve = muster_json_array_new();

    for (size_t i = 0; i < history->sample_count; i++)
        if (!muster_json_append(curve, real_or_null(history->samples[i].values[value])))
            break;
    return curve;
}

static struct muster_json *curves_of(const struct run_history *history)
{
    static const char *const fields[] = {"at_ms", "step", "members", "view"};
    const struct run_values *values = &history->run->progress.values;
    struct muster_json *curves = muster_json_object_new(), *named = muster_json_object_new();
    bool is_whole = true;

    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        is_whole = is_whole && muster_json_set(curves, fields[i], curve_of(history, fields[i]));
    for (size_t i = 0; i < values->count; i++)
        is_whole = is_whole && muster_json_set(named, values->at[i].name, value_curve(history, i));
    if (muster_json_set(curves, "values", named) && is_whole)
        return curves;
    muster_json_free(curves);
    return NULL;
}

static struct muster_json *event_of(const struct run_event *event)
{
    struct muster_json *object = muster_json_object_new();

    if (muster_json_set(object, "at_ms", number_new(event->at_ms)) &&
        muster_json_set(object, "kind", muster_json_text_new(event->kind)) &&
        muster_json_set(object, "text", muster_json_text_new(event->text)) &&
        muster_json_set(object, "view", number_new(event->view)) &&
        muster_json_set(object, "verdict", muster_json_text_new(event->verdict)) &&
        muster_json_set(object, "recovery_ms",
                        real_or_null(event->recovery_ms < 0 ? (double)NAN : event->recovery_ms)))
        return object;
    muster_json_free(object);
    return NULL;
}

static struct muster_json *events_of(const struct run_history *history)
{
    uint64_t first =
        history->event_count > RUN_EVENTS_MAX ? history->event_count - RUN_EVENTS_MAX : 0;
    struct muster_json *events = muster_json_array_new();

    for (uint64_t i = first; i < history->event_count; i++)
        if (!muster_json_append(events, event_of(&history->events[i % RUN_EVENTS_MAX])))
            break;
    return events;
}

static struct muster_json *life_of(const struct run_life *life)
{
    struct muster_json *object = muster_json_object_new();

    if (muster_json_set(object, "from_ms", number_new(life->from_ms)) &&
        muster_json_set(object, "to_ms",
                        life->end[0] != '\0' ? number_new(life->to_ms) : muster_json_null_new()) &&
        muster_json_set(object, "end", muster_json_text_new(life->end)))
        return object;
    muster_json_free(object);
    return NULL;
}

static struct muster_json *lifelines_of(const struct run_history *history)
{
    struct muster_json *lines = muster_json_object_new();

    for (uint32_t i = 0; i < history->run->task_count; i++) {
        const struct run_lifeline *line = &history->lifelines[i];
        uint64_t first = line->count > RUN_LIVES_MAX ? line->count - RUN_LIVES_MAX : 0;
        struct muster_json *lives = muster_json_array_new();

        for (uint64_t k = first; k < line->count; k++)
            if (!muster_json_append(lives, life_of(&line->at[k % RUN_LIVES_MAX])))
                break;
        if (!muster_json_set(lines, history->run->tasks[i].name, lives))
            break;
    }
    return lines;
}

bool run_history_add(const struct run *run, struct muster_json *object)
{
    return run->history == NULL ||
           (muster_json_set(object, "curves", curves_of(run->history)) &&
            muster_json_set(object, "events", events_of(run->history)) &&
            muster_json_set(object, "lifelines", lifelines_of(run->history)));
}
