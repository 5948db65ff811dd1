/* The settings of `muster run`, from its command line. */
#ifndef MUSTER_RUN_OPTIONS_H
#define MUSTER_RUN_OPTIONS_H

#include <muster/options.h>
#include <muster/view.h>

#define RUN_WORKERS_MAX 4096

struct run_kill {
    uint32_t rank;
    char point[48]; /* "step=150,chunk=3", the value of MUSTER_KILL */
    bool is_reached; /* the first life of the task has ended by SIGKILL */
};

struct run_settings {
    /* as given */
    const char *procs_text;
    const char *nodes_text;
    const char *restart;
    const char *registry;
    const char *job;
    const char *log_dir;
    const char *tee;
    const char *redirects;
    const char *json;
    const char *master_addr;
    const char *resumable;
    const char *resume;
    struct muster_option_texts kill_texts;
    uint64_t node_rank;
    uint64_t master_port;
    uint64_t restarts_max;
    uint64_t members_min;
    uint64_t members_min_timeout_ns;
    uint64_t grace_ns;
    bool is_quiet;
    /* worked out */
    char **program;        /* program and arguments, NULL at the end */
    uint32_t worker_count; /* on this machine */
    uint32_t nodes_min, nodes_max;
    uint32_t rank_first;
    uint32_t world_size;
    bool is_gang;
    bool is_embedded;
    struct run_kill kills[MUSTER_OPTION_TEXTS_MAX];
    size_t kill_count;
    char job_name[MUSTER_JOB_NAME_BYTES];
};

/** Parse and check the command line. False: *ret_exit says how to end. */
bool run_settings_read(struct run_settings *settings, int argc, char **argv, int *ret_exit);

enum run_stream_mask { RUN_MASK_OUT = 1, RUN_MASK_ERR = 2 };
/** "3" or "0:1,2:3": which streams of this local rank are meant. text NULL: none. False: malformed.
 */
bool run_mask_of(const char *text, uint32_t local_rank, unsigned *ret_mask);

#endif
