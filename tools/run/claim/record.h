/* A launcher's record in the registry, by which each place of a job has one launcher. */
#ifndef MUSTER_RUN_CLAIM_RECORD_H
#define MUSTER_RUN_CLAIM_RECORD_H

#include <muster/env.h>
#include <muster/view.h>

#include "run/state/settings.h"

#define RUN_CLAIM_TEXT_BYTES 160

/** The value of /muster/<job>/launchers/<node rank>: JSON, under the launcher's lease. */
struct run_claim_record {
    uint64_t launcher; /* drawn at its start */
    uint64_t node_rank;
    char host[65];    /* its name */
    char address[64]; /* from which it speaks to the registry; "" not known */
    int64_t pid;
    uint64_t started; /* muster_host_started of it */
    char host_key[MUSTER_HOST_KEY_BYTES];
    char nodes[24]; /* --nnodes */
    uint64_t workers;
    char tls[8]; /* --tls */
    char checkpoints[24]; /* --checkpoint-every; "none" without --checkpoint-dir */
    char constant_batch[8]; /* --constant-batch; "none" without */
    char version[24];
};

/** Fill in the record of this process. */
void run_claim_record_init(struct run_claim_record *record, struct muster_env *env,
                           const struct run_settings *settings, const char *registry);
/** Gives a text of the heap. */
char *run_claim_record_format(const struct run_claim_record *record);
/** INVALID_ARGUMENT: the text is not a record. RESOURCE_EXHAUSTED: there is no memory to read it.
 */
enum muster_rc run_claim_record_parse(const char *text, size_t bytes,
                                      struct run_claim_record *ret_record);
/** "host (10.0.0.1), pid 4711". Returns text. */
const char *run_claim_record_describe(const struct run_claim_record *record,
                                      char text[RUN_CLAIM_TEXT_BYTES]);
/** The first option in which two launchers of one job must agree and do not: "--nnodes", with both
 * values. NULL: they agree. */
const char *run_claim_record_difference(const struct run_claim_record *ours,
                                        const struct run_claim_record *other, char ret_ours[24],
                                        char ret_other[24]);
/** The process of this number has ended: it is of the host whose key is given, and the system says
 * so. A living one, one of another host, and one that nobody can tell of are not known to be dead.
 */
bool run_claim_is_dead(struct muster_env *env, const char *host_key, int64_t pid, uint64_t started);

#endif
