/* Memory of this process that others of the host find by its process, number and file, and map for reading. */
#ifndef MUSTER_RUNTIME_HOST_MEMORY_H
#define MUSTER_RUNTIME_HOST_MEMORY_H

#include <muster/env.h>

/** Zeroes that only this process can write. Gives, muster_host_memory_close. Errors: UNIMPLEMENTED (host NULL,
 * or one without), RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_host_memory_open(struct muster_host *host, size_t size,
                                                         struct muster_host_memory *ret_memory);
/** Map theirs (pid, number, file, size) for reading. It stays as its owner writes it, and stays after the owner's
 * death; others may map it from here. Gives. Errors: UNIMPLEMENTED, NOT_FOUND (it is not there, has another
 * size, or is not of this user), RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_host_memory_map(struct muster_host *host,
                                                        const struct muster_host_memory *theirs,
                                                        struct muster_host_memory *ret_memory);
/** Those that have mapped it keep it. Nothing happens without memory. */
void muster_host_memory_close(struct muster_host *host, struct muster_host_memory *memory);

/** The same on the real host. */
enum muster_rc muster_host_memory_system_open(size_t size, struct muster_host_memory *ret_memory);
enum muster_rc muster_host_memory_system_map(const struct muster_host_memory *theirs,
                                             struct muster_host_memory *ret_memory);
void muster_host_memory_system_close(struct muster_host_memory *memory);

#endif
