/* Memory that lives until the program ends: names and texts. */
#ifndef MUSTER_PROTOC_GEN_POOL_H
#define MUSTER_PROTOC_GEN_POOL_H

#include <stddef.h>

#include <muster/base.h>

/** Zeroed; never NULL (the program ends without memory). */
void *pool_alloc(size_t count, size_t bytes);
char *pool_text(const char *format, ...) MUSTER_PRINTF(1, 2);
void pool_free_all(void);

#endif
