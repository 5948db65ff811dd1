/* Metrics are set when somebody asks for them: counting costs nothing beyond the stats. */
#include "params/publication/meters.h"

#include <stddef.h>
#include <stdio.h>

struct meter_row {
    const char *name, *help;
    const char *kind; /* a label; NULL: none */
    enum muster_metric_kind metric;
    size_t offset, bytes; /* of the number in the stats */
};

#define PUBLICATION_FIELD(name)                                                                    \
    offsetof(struct muster_publication_stats, name),                                               \
        sizeof(((struct muster_publication_stats *)NULL)->name)
#define READER_FIELD(name)                                                                         \
    offsetof(struct muster_reader_stats, name), sizeof(((struct muster_reader_stats *)NULL)->name)

#define SENT_CHUNKS "muster_publication_sent_chunks_total", "chunks that the publisher has sent"
#define RECEIVED_CHUNKS                                                                            \
    "muster_reader_received_chunks_total", "chunks of versions, and how they came"

static const struct meter_row publication_rows[] = {
    {"muster_publication_version", "the newest version that the registry has", NULL, MUSTER_GAUGE,
     PUBLICATION_FIELD(version)},
    {"muster_publication_readers", "readers that are connected", NULL, MUSTER_GAUGE,
     PUBLICATION_FIELD(readers)},
    {SENT_CHUNKS, "whole", MUSTER_COUNTER, PUBLICATION_FIELD(chunks_sent)},
    {SENT_CHUNKS, "delta", MUSTER_COUNTER, PUBLICATION_FIELD(deltas_sent)},
    {"muster_publication_sent_bytes_total", "bytes of these chunks", NULL, MUSTER_COUNTER,
     PUBLICATION_FIELD(bytes_sent)},
};

static const struct meter_row reader_rows[] = {
    {"muster_reader_version", "the newest version that is here, whole", NULL, MUSTER_GAUGE,
     READER_FIELD(current)},
    {"muster_reader_newest_version", "the newest version that the registry has told of", NULL,
     MUSTER_GAUGE, READER_FIELD(newest)},
    {"muster_reader_versions_total", "versions that were fetched", NULL, MUSTER_COUNTER,
     READER_FIELD(versions)},
    {RECEIVED_CHUNKS, "whole", MUSTER_COUNTER, READER_FIELD(chunks_received)},
    {RECEIVED_CHUNKS, "delta", MUSTER_COUNTER, READER_FIELD(deltas_received)},
    {RECEIVED_CHUNKS, "equal", MUSTER_COUNTER, READER_FIELD(chunks_equal)},
    {RECEIVED_CHUNKS, "mapped", MUSTER_COUNTER, READER_FIELD(chunks_mapped)},
    {"muster_reader_wrong_chunks_total", "chunks and manifests with other bytes than announced",
     NULL, MUSTER_COUNTER, READER_FIELD(chunks_wrong)},
    {"muster_reader_received_bytes_total", "bytes of whole chunks and deltas", NULL, MUSTER_COUNTER,
     READER_FIELD(bytes_received)},
    {"muster_reader_sent_bytes_total", "bytes that other readers were sent", NULL, MUSTER_COUNTER,
     READER_FIELD(bytes_sent)},
    {"muster_reader_lost_sources_total", "sources that were left for the next one", NULL,
     MUSTER_COUNTER, READER_FIELD(parents_lost)},
};

#define COUNT(rows) (sizeof(rows) / sizeof((rows)[0]))
_Static_assert(COUNT(publication_rows) <= MUSTER_PUBLICATION_METERS_MAX, "room for them");
_Static_assert(COUNT(reader_rows) <= MUSTER_PUBLICATION_METERS_MAX, "room for them");

static void meters_set(struct muster_publication_meters *meters, const struct meter_row *rows,
                       const void *stats)
{
    for (size_t i = 0; i < meters->count; i++) {
        const void *at = (const uint8_t *)stats + rows[i].offset;

        muster_metric_set(&meters->metrics[i], rows[i].bytes == sizeof(uint64_t)
                                                   ? (int64_t) * (const uint64_t *)at
                                                   : (int64_t) * (const uint32_t *)at);
    }
}

void muster_publication_meters_set(struct muster_publication_meters *meters,
                                   const struct muster_publication_stats *stats)
{
    meters_set(meters, publication_rows, stats);
}

void muster_reader_meters_set(struct muster_publication_meters *meters,
                              const struct muster_reader_stats *stats)
{
    meters_set(meters, reader_rows, stats);
}

static void meters_open(struct muster_publication_meters *meters, struct muster_metrics *metrics,
                        const char *name, const struct meter_row *rows, size_t count)
{
    meters->count = count;
    for (size_t i = 0; i < count; i++) {
        snprintf(meters->labels[i], sizeof(meters->labels[i]),
                 rows[i].kind != NULL ? "publication=\"%s\",kind=\"%s\"" : "publication=\"%s\"",
                 name, rows[i].kind);
        muster_metric_init(&meters->metrics[i], metrics, rows[i].metric, rows[i].name, rows[i].help,
                           meters->labels[i]);
    }
    muster_metrics_collector_add(metrics, &meters->collector);
}

void muster_publication_meters_open(struct muster_publication_meters *meters,
                                    struct muster_env *env, const char *name,
                                    muster_metrics_collect_fn *collect, void *owner)
{
    meters->collector = (struct muster_metrics_collector){.data = owner, .collect = collect};
    meters_open(meters, env->metrics, name, publication_rows, COUNT(publication_rows));
}

void muster_reader_meters_open(struct muster_publication_meters *meters, struct muster_env *env,
                               const char *name, muster_metrics_collect_fn *collect, void *owner)
{
    meters->collector = (struct muster_metrics_collector){.data = owner, .collect = collect};
    meters_open(meters, env->metrics, name, reader_rows, COUNT(reader_rows));
}

void muster_publication_meters_close(struct muster_publication_meters *meters)
{
    if (meters->count == 0)
        return;
    muster_metrics_collector_remove(&meters->collector);
    for (size_t i = 0; i < meters->count; i++)
        muster_metric_fini(&meters->metrics[i]);
    meters->count = 0;
}
