/* The thread beside a server's loop, in the simulated world. */
#ifndef MUSTER_SIM_PARAMS_ASIDE_H
#define MUSTER_SIM_PARAMS_ASIDE_H

/** Programs that simulate servers of parameters call it, so that the linker finds this file. */
void params_aside_link(void);

#endif
