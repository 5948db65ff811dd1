/* The log of `muster run` on standard error: lines for people, or with --log-format json one JSON object
 * per line. */
#ifndef MUSTER_RUN_LOG_H
#define MUSTER_RUN_LOG_H

#include <stddef.h>

#include <muster/log.h>

struct run;
struct run_task;

/** Once the options are read and the sinks are open. */
void run_log_open(struct run *run);

/** "TIME [muster] text", or {"time":…,"level":…,"event":…,fields…,"text":…}. Nothing with --quiet, or
 * when the level is above --log-level. */
void run_log(struct run *run, enum muster_log_level level, const char *event,
             const struct muster_field *fields, size_t count, const char *fmt, ...)
    MUSTER_PRINTF(6, 7);
#define RUN_FIELDS(...)                                                                            \
    (const struct muster_field[]){__VA_ARGS__},                                                    \
        sizeof((const struct muster_field[]){__VA_ARGS__}) / sizeof(struct muster_field)
#define RUN_NO_FIELDS NULL, 0

/** The same at level info, of no event of its own. */
void run_tell(struct run *run, const char *fmt, ...) MUSTER_PRINTF(2, 3);

/** An error that nobody may miss, --quiet or not: "muster run: text", one event "error" in JSON. Also
 * before run_log_open. */
void run_log_error(const char *fmt, ...) MUSTER_PRINTF(1, 2);

/** With --log-format json: a line that a worker has printed, event "output"; what is a JSON object itself
 * stands in "record" as it is. */
void run_log_output(struct run_task *task, const char *stream, const char *line, size_t length);

/** A report of several lines, which end with newlines: as it is, or one event with the whole text. */
void run_log_report(struct run *run, const char *event, const struct muster_field *fields,
                    size_t count, char *text);

#endif
