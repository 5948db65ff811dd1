/* Progress: one line that is drawn anew on a terminal, a plain line now and then elsewhere.
 *
 * Reports come from all workers, so drawing is driven by a timer and never by a report: the cost is
 * bounded however many workers there are. A job that stands still reports nothing, and the line
 * then says why. */
#include "run/report/progress.h"

#include "run/output/console.h"
#include "run/output/log.h"
#include "run/output/output.h"
#include "run/report/activity.h"

#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define DRAW_NS (100 * MUSTER_NS_PER_MS) /* the eye sees no more */
#define LOG_NS  (10 * MUSTER_NS_PER_S)   /* a log of a day stays below 10,000 lines */

/* "5,210" */
static void format_grouped(double value, char *text, size_t bytes)
{
    char digits[32];
    size_t length, used = 0;

    snprintf(digits, sizeof(digits), "%.0f", value);
    length = strlen(digits);
    for (size_t i = 0; i < length && used + 2 < bytes; i++) {
        if (i > 0 && (length - i) % 3 == 0 && digits[i - 1] != '-')
            text[used++] = ',';
        text[used++] = digits[i];
    }
    text[used] = '\0';
}

/* "images_per_s" is shown as "5,210 images/s", others as "loss 0.310". */
static size_t format_value(const char *name, double value, char *text, size_t bytes)
{
    const char *per_s = strstr(name, "_per_s");
    char number[40];
    int length;

    if (per_s != NULL && strcmp(per_s, "_per_s") == 0) {
        format_grouped(value, number, sizeof(number));
        length = snprintf(text, bytes, ", %s %.*s/s", number, (int)(per_s - name), name);
    } else {
        length = snprintf(text, bytes, ", %s %.4g", name, value);
    }
    return length > 0 && (size_t)length < bytes ? (size_t)length : 0;
}

static void format_progress(const struct run_progress *progress, char *text, size_t bytes)
{
    size_t length = (size_t)snprintf(text, bytes, "step %llu", (unsigned long long)progress->step);

    for (size_t i = 0; i < progress->values.count; i++)
        length += format_value(progress->values.at[i].name, progress->values.at[i].value,
                               text + length, bytes - length);
    snprintf(text + length, bytes - length, ", %llu members, view %llu",
             (unsigned long long)progress->members, (unsigned long long)progress->epoch);
}

/* A line that wraps could not be taken back. */
static void cut_to_terminal(char *text)
{
    struct winsize size = {.ws_col = 0};

    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 &&
        strlen(text) >= size.ws_col)
        text[size.ws_col - 1] = '\0';
}

static bool is_drawn(const struct run *run)
{
    return run->output->is_terminal && !run->output->is_log_json;
}

static void progress_start(struct run *run)
{
    struct muster_loop *loop = run->env->loop;

    muster_timer_start(&run->progress.timer, loop,
                       muster_loop_after_ns(loop, is_drawn(run) ? DRAW_NS : LOG_NS));
}

/* A job that stands still is told of, too: nobody reports a step then. */
static void on_due(struct muster_timer *timer)
{
    struct run *run = timer->data;
    char text[800], why[400] = "";
    size_t length;

    progress_start(run);
    if (!run_activity_is_stuck(run, why, sizeof(why)) && !run->progress.is_changed)
        return;
    format_progress(&run->progress, text, sizeof(text));
    length = strlen(text);
    if (why[0] != '\0')
        snprintf(text + length, sizeof(text) - length, ": %s", why);
    run->progress.is_changed = false;
    if (!is_drawn(run)) {
        run_log(run, why[0] != '\0' ? MUSTER_LOG_WARN : MUSTER_LOG_INFO, "progress",
                RUN_FIELDS(MUSTER_FIELD("step", run->progress.step),
                           MUSTER_FIELD("members", run->progress.members),
                           MUSTER_FIELD("view", run->progress.epoch),
                           MUSTER_FIELD("stands_still", (const char *)why)),
                "%s", text);
        return;
    }
    cut_to_terminal(text);
    run_console_draw(run, text);
}

void run_progress_on_report(struct run *run)
{
    if (!run->settings.is_quiet && !run->is_terminal_lent &&
        !muster_timer_is_started(&run->progress.timer))
        progress_start(run);
}

/* Drawn again once the other line is out. */
static void on_line_cleared(struct run *run)
{
    run->progress.is_changed = true;
    run_progress_on_report(run);
}

void run_progress_open(struct run *run)
{
    muster_timer_init(&run->progress.timer, on_due, run);
    run->output->on_line_cleared = on_line_cleared;
}

void run_progress_stop(struct run *run)
{
    muster_timer_stop(&run->progress.timer);
    run->output->on_line_cleared = NULL;
    run_console_draw(run, NULL);
}
