/* Metrics of a server. */
#ifndef MUSTER_PARAMS_SERVER_STATS_H
#define MUSTER_PARAMS_SERVER_STATS_H

#include "params/server/core/server_internal.h"

/** Show the counts in env->metrics, from now until close. */
void muster_params_metrics_open(struct muster_params_server *server);
void muster_params_metrics_close(struct muster_params_server *server);

#endif
