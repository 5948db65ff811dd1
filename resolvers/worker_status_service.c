#include "resolvers/worker_status.h"
enum muster_rc muster_worker_status_start(struct muster_worker_status *status, struct muster_env *env, const char *const *addresses, size_t address_count, uint64_t deadline_ns, muster_worker_status_fn *done)
{ (void)status;(void)env;(void)addresses;(void)address_count;(void)deadline_ns;(void)done; return MUSTER_UNIMPLEMENTED; }
void muster_worker_status_cancel(struct muster_worker_status *status) { (void)status; }
void muster_worker_status_fini(struct muster_worker_status *status) { (void)status; }
