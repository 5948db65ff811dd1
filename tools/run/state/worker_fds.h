/* Descriptors that a worker inherits from its launcher. */
#ifndef MUSTER_RUN_WORKER_FDS_H
#define MUSTER_RUN_WORKER_FDS_H

#include <stdbool.h>

#define RUN_REPORT_FD     3 /* reports to the launcher: MUSTER_REPORT_FD */
#define RUN_TLS_FD        4 /* the worker's certificate and key */
#define RUN_TLS_CA_FD     5 /* the certificate of the job's authority */
#define RUN_INHERITED_FMT "/proc/self/fd/%d"

/** This process is a worker of a launcher with --tls auto, and its descriptors are that launcher's. */
bool run_worker_fds_have_tls(void);

#endif
