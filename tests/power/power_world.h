/* A registry's store in a folder that is recorded (power_disk.h), written to in a fixed way. */
#ifndef MUSTER_TEST_POWER_WORLD_H
#define MUSTER_TEST_POWER_WORLD_H

#include "test_env.h"

#include "cluster/store/store.h"

#define MOMENTS_MAX 64
#define PATH_BYTES  128

/* The store as it was once: each commit makes one. */
struct power_moment {
    size_t steps; /* of the disk, when it was confirmed */
    bool is_safe; /* whatever happens from then on */
    char *text;
};

struct power_world {
    struct muster_mem_limited mem;
    char folder[64], after[64];
    char path[96];
    bool is_durable;
    struct muster_registry_store *store;
    struct power_moment moments[MOMENTS_MAX];
    size_t count;
    int64_t revision;
};

void power_world_open(struct power_world *world, bool is_durable);
/** Deletes both folders. */
void power_world_close(struct power_world *world);

struct muster_registry_store *power_world_open_store(struct power_world *world, const char *path);
/** One revision more: a key of its own, one that each writes anew, one that is deleted every other
 * time, a lease more and a lease less. Not committed. */
void power_world_write(struct power_world *world);
void power_world_commit(struct power_world *world);
/** The store as it is now is a moment. */
void power_world_note(struct power_world *world, bool is_safe);

/** All that a store holds, as text. Gives (free). */
char *power_world_text_of(struct muster_registry_store *store);
char *power_world_text_of_file(struct power_world *world, const char *path);
void power_world_check_integrity(struct muster_registry_store *store);

void power_world_path(char path[PATH_BYTES], const char *folder, const char *name);
bool power_world_has_file(const char *folder, const char *name);

#endif
