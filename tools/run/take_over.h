/* A successor takes over the workers of a launcher that was killed (--resume). */
#ifndef MUSTER_RUN_TAKE_OVER_H
#define MUSTER_RUN_TAKE_OVER_H

struct run;

/** After run_table_load: take over what lives, collect what has ended meanwhile, start what is missing. */
void run_take_over(struct run *run);

#endif
