/* The counts of publishers and readers as metrics. */
#ifndef MUSTER_PARAMS_PUBLICATION_METERS_H
#define MUSTER_PARAMS_PUBLICATION_METERS_H

#include <muster/env.h>
#include <muster/metrics.h>
#include <muster/publication.h>

#define MUSTER_PUBLICATION_METERS_MAX  16u
#define MUSTER_PUBLICATION_LABEL_BYTES (MUSTER_PUBLICATION_NAME_BYTES + 48)

/** In the memory of its publication or reader; all zero: not open. */
struct muster_publication_meters {
    struct muster_metrics_collector collector;
    size_t count;
    struct muster_metric metrics[MUSTER_PUBLICATION_METERS_MAX];
    char labels[MUSTER_PUBLICATION_METERS_MAX][MUSTER_PUBLICATION_LABEL_BYTES];
};

/** Borrow owner until close. collect runs when somebody asks for metrics: it calls the one of the two below. */
void muster_publication_meters_open(struct muster_publication_meters *meters,
                                    struct muster_env *env, const char *name,
                                    muster_metrics_collect_fn *collect, void *owner);
void muster_publication_meters_set(struct muster_publication_meters *meters,
                                   const struct muster_publication_stats *stats);
void muster_reader_meters_open(struct muster_publication_meters *meters, struct muster_env *env,
                               const char *name, muster_metrics_collect_fn *collect, void *owner);
void muster_reader_meters_set(struct muster_publication_meters *meters,
                              const struct muster_reader_stats *stats);
/** Idempotent. */
void muster_publication_meters_close(struct muster_publication_meters *meters);

#endif
