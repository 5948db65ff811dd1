/* The manifest of a cut, without files. */
#ifndef MUSTER_TEST_PARAMS_MANIFEST_H
#define MUSTER_TEST_PARAMS_MANIFEST_H

#include <stdint.h>

/** The folder's newest cut is this one, of one table. job: "": none. */
void params_manifest_save(const char *folder, const char *job, uint32_t shard_count, uint64_t cut);

#endif
