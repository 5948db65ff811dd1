/* The table of sub-commands, in the order in which `muster help` lists them: what a user needs
 * first stands first. This file alone knows all commands. */
#include "table/commands.h"

#include "bench/bench.h"
#include "checkpoint/checkpoint.h"
#include "common/version.h"
#include "jobs/status.h"
#include "params/params.h"
#include "resolve/resolve.h"
#include "run/options/options.h"
#include "run/run.h"
#include "serve/serve.h"
#include "trace/trace.h"

const struct command commands[] = {
    {"run", "start workers and keep the job going when some die", command_run, &run_options},
    {"status", "show the jobs of a registry: members, steps, waits", command_status,
     &status_options},
    {"top", "show the same, live", command_top, &top_options},
    {"resolve", "show the cluster of this process", command_resolve, &resolve_options},
    {"coordinator", "serve JAX's coordination service", command_coordinator, &coordinator_options},
    {"server", "serve a task of a cluster, as tf.distribute.Server", command_server,
     &server_options},
    {"registry", "serve the registry over the etcd v3 API", command_registry, &registry_options},
    {"params", "serve tables of parameters; 'muster params' lists the commands", command_params,
     NULL},
    {"checkpoint", "look at checkpoints; 'muster checkpoint' lists the commands",
     command_checkpoint, NULL},
    {"bench", "run a benchmark; 'muster bench' lists them", command_bench, NULL},
    {"trace", "merge flight recorders of members into one trace for Perfetto", command_trace,
     &trace_options},
    {"version", "show the version", command_version, &version_options},
    {"help", "show this, or 'help COMMAND', 'help options', 'help exit-codes'", command_help, NULL},
};
const size_t command_count = sizeof(commands) / sizeof(commands[0]);
