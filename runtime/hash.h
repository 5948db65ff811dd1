/* Hashes, for files that look for them in this folder. */
#ifndef MUSTER_RUNTIME_HASH_H
#define MUSTER_RUNTIME_HASH_H

#include <muster/hash.h>

#endif
