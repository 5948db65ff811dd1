/* The settings of `muster run`, from its command line. */
#ifndef MUSTER_RUN_SETTINGS_H
#define MUSTER_RUN_SETTINGS_H

#include <muster/address.h>
#include <muster/options.h>
#include <muster/view.h>

#define RUN_COMMAND                "muster run"
#define RUN_WORKERS_MAX            4096
#define RUN_NODE_RANK_UNSET        UINT64_MAX
#define RUN_PREEMPTION_GRACE_UNSET UINT64_MAX

struct run_kill {
    uint32_t rank;
    char point[48];  /* "step=150,chunk=3", the value of MUSTER_KILL */
    bool is_reached; /* the first life of the task has ended by SIGKILL */
};

/** Which machine of how many this is, as a resolver sees it; each runs one `muster run`. */
struct run_place {
    uint32_t machines;
    uint32_t rank;
    uint16_t master_port;  /* of the first machine's task; 0: not told */
    char master_addr[256]; /* its host; "": not told */
    char address[MUSTER_HOST_TEXT_BYTES +
                 8]; /* of this machine's task, with its port; "": not told */
};

/** With --preload: how the program's interpreter is called, and what it runs. */
struct run_python {
    char line[256];  /* the first line of a script, cut into words */
    char *words[32]; /* the interpreter and its options */
    size_t word_count;
    const char *kind; /* script, module or code */
    char **target;    /* it and its arguments, NULL at the end */
};

struct run_settings {
    /* as given */
    const char *resolver;
    const char *procs_text;
    const char *nodes_text;
    const char *restart;
    const char *registry;
    const char *listen; /* NULL: not told */
    const char *job;
    const char *log_dir;
    const char *trace_dir;
    const char *tune_file, *reproducible;
    uint64_t stripes;
    const char *tee;
    const char *redirects;
    const char *json;
    const char *log_level; /* NULL: info for the launcher, MUSTER_LOG_LEVEL for its workers */
    const char *log_format;
    const char *status;      /* where to serve the pages; NULL: nowhere */
    const char *master_addr; /* NULL: not told */
    const char *preload;     /* NULL: workers import for themselves */
    const char *resumable;
    const char *resume;
    struct muster_option_texts kill_texts;
    uint64_t node_rank;   /* RUN_NODE_RANK_UNSET until all is read */
    uint64_t master_port; /* 0: not told */
    uint64_t restarts_max;
    uint64_t members_min;
    uint64_t members_min_timeout_ns;
    const char *checkpoint_dir, *checkpoint_every; /* NULL: none */
    uint64_t checkpoint_keep;
    uint64_t constant_batch; /* slots of a step; 0: not told */
    uint64_t grace_ns, preemption_grace_ns;
    const char *tls, *tls_secret, *tls_data;
    uint64_t tls_life_ns; /* of a certificate */
    bool is_quiet;
    bool is_force_new;
    /* worked out */
    char **program; /* program and arguments, NULL at the end */
    struct run_python python;
    uint32_t worker_count; /* on this machine */
    uint32_t nodes_min, nodes_max;
    uint32_t
        members_min_start; /* fewer may be on fewer machines than --nnodes asks for; 0: not told */
    uint32_t rank_first;
    uint32_t world_size;
    bool is_gang;
    bool is_embedded;
    bool is_tls_auto;
    struct run_kill kills[MUSTER_OPTION_TEXTS_MAX];
    size_t kill_count;
    char job_name[MUSTER_JOB_NAME_BYTES];
    char
        listen_text[MUSTER_ADDRESS_TEXT_BYTES + 8]; /* for the workers, names looked up; "": none */
    struct run_place place;                         /* with resolver */
    char place_text[16];                            /* its number of machines */
};

#endif
