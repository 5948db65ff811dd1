/* Memory, processor time and descriptors of this process, from /proc (proc(5)).
 *
 * The names are those of Prometheus' client libraries, so that ready-made dashboards work.
 * Everything is read when somebody asks for the metrics. */
#include "common/process_metrics.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define STAT_BYTES     1024
#define MILLI          1000
#define FIELDS_SKIPPED 2 /* pid and name, which stand before the last parenthesis */

static const struct {
    const char *name, *help;
    enum muster_metric_kind kind;
    int64_t per_unit;
} rows[PROCESS_METRIC_COUNT] = {
    [PROCESS_RESIDENT_BYTES] = {"process_resident_memory_bytes", "memory in use", MUSTER_GAUGE, 0},
    [PROCESS_VIRTUAL_BYTES] = {"process_virtual_memory_bytes", "address space in use", MUSTER_GAUGE,
                               0},
    [PROCESS_CPU_SECONDS] = {"process_cpu_seconds_total", "processor time used", MUSTER_COUNTER,
                             MILLI},
    [PROCESS_OPEN_FDS] = {"process_open_fds", "file descriptors in use", MUSTER_GAUGE, 0},
    [PROCESS_MAX_FDS] = {"process_max_fds", "file descriptors that the process may have",
                         MUSTER_GAUGE, 0},
    [PROCESS_START_SECONDS] = {"process_start_time_seconds", "when it started, since 1970",
                               MUSTER_GAUGE, MILLI},
};

/* Fields of /proc/self/stat by their number in proc(5). */
enum { FIELD_USER_TICKS = 14, FIELD_SYSTEM_TICKS = 15, FIELD_START_TICKS = 22 };
enum { FIELD_VIRTUAL_BYTES = 23, FIELD_RESIDENT_PAGES = 24, FIELD_COUNT };

/* The name of the process may hold blanks and parentheses, so the fields are counted from the last
 * one. */
static bool read_stat(int64_t ret_fields[FIELD_COUNT])
{
    char text[STAT_BYTES];
    FILE *file = fopen("/proc/self/stat", "re");
    size_t bytes = file != NULL ? fread(text, 1, sizeof(text) - 1, file) : 0;
    const char *at;
    int field = FIELDS_SKIPPED;

    if (file != NULL)
        (void)fclose(file);
    text[bytes] = '\0';
    at = strrchr(text, ')');
    while (at != NULL && ++field < FIELD_COUNT && (at = strchr(at, ' ')) != NULL)
        if (sscanf(++at, "%" SCNd64, &ret_fields[field]) != 1)
            ret_fields[field] = 0; /* the state, a letter */
    return field == FIELD_COUNT;
}

static int64_t count_fds(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int64_t count = -1; /* the folder's own */

    if (folder == NULL)
        return 0;
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;)
        count += entry->d_name[0] != '.';
    (void)closedir(folder);
    return count;
}

/* The start of a process is told in ticks since the boot of the machine. */
static int64_t boot_time_s(void)
{
    char line[256];
    int64_t boot_s = 0;
    FILE *file = fopen("/proc/stat", "re");

    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        if (sscanf(line, "btime %" SCNd64, &boot_s) == 1)
            break;
    if (file != NULL)
        (void)fclose(file);
    return boot_s;
}

static void on_collect(struct muster_metrics_collector *collector)
{
    struct process_metrics *process = collector->data;
    struct muster_metric *of = process->metrics;
    int64_t fields[FIELD_COUNT] = {0};
    int64_t tick_ms = MILLI / sysconf(_SC_CLK_TCK);
    struct rlimit limit;

    if (read_stat(fields)) {
        muster_metric_set(&of[PROCESS_RESIDENT_BYTES],
                          fields[FIELD_RESIDENT_PAGES] * sysconf(_SC_PAGESIZE));
        muster_metric_set(&of[PROCESS_VIRTUAL_BYTES], fields[FIELD_VIRTUAL_BYTES]);
        muster_metric_set(&of[PROCESS_CPU_SECONDS],
                          (fields[FIELD_USER_TICKS] + fields[FIELD_SYSTEM_TICKS]) * tick_ms);
        muster_metric_set(&of[PROCESS_START_SECONDS],
                          boot_time_s() * MILLI + fields[FIELD_START_TICKS] * tick_ms);
    }
    muster_metric_set(&of[PROCESS_OPEN_FDS], count_fds());
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
        muster_metric_set(&of[PROCESS_MAX_FDS], (int64_t)limit.rlim_cur);
}

void process_metrics_open(struct process_metrics *process, struct muster_metrics *metrics)
{
    for (size_t i = 0; i < PROCESS_METRIC_COUNT; i++) {
        muster_metric_init(&process->metrics[i], metrics, rows[i].kind, rows[i].name, rows[i].help,
                           NULL);
        process->metrics[i].per_unit = rows[i].per_unit;
    }
    process->collector = (struct muster_metrics_collector){.data = process, .collect = on_collect};
    muster_metrics_collector_add(metrics, &process->collector);
}

void process_metrics_close(struct process_metrics *process)
{
    muster_metrics_collector_remove(&process->collector);
    for (size_t i = 0; i < PROCESS_METRIC_COUNT; i++)
        muster_metric_fini(&process->metrics[i]);
}
