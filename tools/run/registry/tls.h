/* --tls auto: the certificates of this launcher, its registry and its workers. */
#ifndef MUSTER_RUN_TLS_H
#define MUSTER_RUN_TLS_H

#include <muster/tls.h>

#include "common/job_tls.h"
#include "run/state/run.h"

bool run_tls_open(struct run *run, struct muster_error *ret_error);
void run_tls_close(struct run *run);
/** For the embedded registry; NULL: plain text. Borrowed. */
struct muster_tls *run_tls_served(const struct run *run);
/** For the registry's client; NULL: as MUSTER_REGISTRY_* say. Borrowed. */
struct muster_tls *run_tls_registry(const struct run *run);
/** Files and names that a task finds in its environment. */
struct run_tls_shown {
    char cert[JOB_TLS_PATH_BYTES], ca[JOB_TLS_PATH_BYTES];
    char peers[JOB_TLS_ID_BYTES], registry[JOB_TLS_ID_BYTES]; /* patterns of names */
    bool is_registry_of_job; /* under the same authority; else MUSTER_REGISTRY_* stay as they are */
    uint64_t reload_ns;
};
void run_tls_show(const struct run_task *task, struct run_tls_shown *ret_shown);
/** The descriptors of certificates that task gets, here. False: there are none. */
bool run_tls_find_fds(const struct run_task *task, int *ret_cert, int *ret_authority);
/** In the child of task: put certificates at RUN_TLS_FD and RUN_TLS_CA_FD, our own or those of a launcher above us,
 * of whose job our workers are members too. False: there are none. */
bool run_tls_inherit(const struct run_task *task);

#endif
