/* The TPU resolver, and the questions to it. */
#ifndef MUSTER_RESOLVERS_TPU_QUESTION_H
#define MUSTER_RESOLVERS_TPU_QUESTION_H

#include <muster/tpu.h>

struct muster_tpu_resolver {
    struct muster_resolver resolver;
    struct muster_tpu_resolver_options options; /* texts stand in `texts` */
    char *texts;
    const char *job_name;
    struct muster_tpu_client *client;
    char *coordinator; /* address of the server that was started; NULL: none yet */
    char source[160];
};

/** The job of the workers: what the task type was set to, else job_name. A task type that names the
 * coordinator does not name the workers. Borrowed. */
const char *muster_tpu_resolver_job(const struct muster_tpu_resolver *own);

void muster_tpu_question_start(struct muster_resolver *resolver, struct muster_resolve *resolve);
void muster_tpu_question_cancel(struct muster_resolver *resolver, struct muster_resolve *resolve);

#endif
