#ifndef MUSTER_RESOLVERS_WORKER_STATUS_H
#define MUSTER_RESOLVERS_WORKER_STATUS_H
#include <muster/env.h>
struct muster_worker_status;
typedef void muster_worker_status_fn(struct muster_worker_status *status, enum muster_rc rc);
struct muster_worker_status { void *data; char **devices; size_t device_count; struct muster_error error; };
enum muster_rc muster_worker_status_start(struct muster_worker_status *status, struct muster_env *env, const char *const *addresses, size_t address_count, uint64_t deadline_ns, muster_worker_status_fn *done);
void muster_worker_status_cancel(struct muster_worker_status *status);
void muster_worker_status_fini(struct muster_worker_status *status);
#endif
