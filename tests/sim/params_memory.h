/* Memory of a simulated host that outlives its process, and deaths in the middle of a push. */
#ifndef MUSTER_SIM_PARAMS_MEMORY_H
#define MUSTER_SIM_PARAMS_MEMORY_H

#include "tests/sim/world.h"

struct params_memory;

/** Zeroes, as a fresh seat has. Gives. */
struct params_memory *params_memory_open(size_t bytes);
/** The memory is this process's from now on. Borrowed until params_memory_close. */
void *params_memory_take(struct params_memory *memory, struct sim_node *node);
/** The process has died: a turn that it is in the middle of goes on, but its stores are lost. */
void params_memory_leave(struct params_memory *memory);
/** The process that has the memory dies when its pushes have changed so many values more. */
void params_memory_kill_within(struct params_memory *memory, uint32_t values);
/** It does not. */
void params_memory_spare(struct params_memory *memory);
/** NULL is accepted. */
void params_memory_close(struct params_memory *memory);

#endif
