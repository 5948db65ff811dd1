/* The environment: everything outside the library that muster may touch, real or simulated. */
#ifndef MUSTER_ENV_H
#define MUSTER_ENV_H

#include <muster/base.h>
#include <muster/log.h>
#include <muster/loop.h>
#include <muster/mem.h>
#include <muster/metrics.h>
#include <muster/status.h>
#include <muster/trace.h>

MUSTER_BEGIN

struct muster_net;  /* stream.h */
struct muster_http; /* http.h */
struct muster_rpc_metrics;
struct muster_backend; /* device collectives; NULL = host only */
struct muster_tls;     /* tls.h */

/* Environment variables. */
struct muster_vars;
struct muster_vars_ops {
    const char *(*get)(struct muster_vars *vars, const char *name);
    const char *(*at)(struct muster_vars *vars, size_t index); /* NULL: they cannot be listed */
};
struct muster_vars {
    const struct muster_vars_ops *ops;
};
/** Borrowed text, valid until the variable changes, or NULL. */
MUSTER_API const char *muster_vars_get(struct muster_vars *vars, const char *name);
/** Variable 0, 1 … in turn, "NAME=value", borrowed as by get; NULL behind the last one, where the walk must end. */
MUSTER_API const char *muster_vars_at(struct muster_vars *vars, size_t index);
MUSTER_API struct muster_vars *muster_vars_system(void);

/* Files (small, whole). */
struct muster_files;
struct muster_files_ops {
    enum muster_rc (*read)(struct muster_files *files, struct muster_mem *mem, const char *path,
                           size_t limit_bytes, char **ret_text, size_t *ret_bytes);
    enum muster_rc (*write)(struct muster_files *files, const char *path, const void *bytes,
                            size_t count);
    bool (*is_special)(struct muster_files *files, const char *path); /* NULL: nothing is */
    size_t (*count)(struct muster_files *files, const char *pattern); /* NULL: there are none */
};
struct muster_files {
    const struct muster_files_ops *ops;
};
/** The whole file, NUL-terminated (the NUL is not counted). Gives. Errors: NOT_FOUND,
 * PERMISSION_DENIED, RESOURCE_EXHAUSTED (larger than limit_bytes). */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_files_read(struct muster_files *files,
                                                              struct muster_mem *mem,
                                                              const char *path, size_t limit_bytes,
                                                              char **ret_text, size_t *ret_bytes);
/** Replace the file atomically (write and sync a neighbour, rename): whenever the power fails it is
 * the old one or the new one. What is no regular file (a device, a pipe) is written into. Of
 * muster_files_system: errno tells why it failed. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_files_write(struct muster_files *files,
                                                               const char *path, const void *bytes,
                                                               size_t count);
/** There is something else than a regular file: a pipe, say, that lets its reader wait for ever. */
MUSTER_API bool muster_files_is_special(struct muster_files *files, const char *path);
/** How many paths match a pattern of the shell ("/dev/nvidia[0-9]*"). */
MUSTER_API size_t muster_files_count(struct muster_files *files, const char *pattern);
MUSTER_API struct muster_files *muster_files_system(void);
/** The GPUs of this machine, by NVIDIA's device files (/dev/nvidia0, /dev/nvidia1 …): no driver is
 * asked. */
MUSTER_API uint32_t muster_host_count_gpus(struct muster_files *files);

/* Random numbers. */
struct muster_rng;
struct muster_rng_ops {
    uint64_t (*next)(struct muster_rng *rng);
};
struct muster_rng {
    const struct muster_rng_ops *ops;
};
MUSTER_API uint64_t muster_rng_next(struct muster_rng *rng);
/** Uniform in [0, bound); bound > 0. */
MUSTER_API uint64_t muster_rng_below(struct muster_rng *rng, uint64_t bound);
/** Fill with random bytes. */
MUSTER_API void muster_rng_fill(struct muster_rng *rng, void *bytes, size_t count);
/** value moved by a uniform factor in [1 - permille/1000, 1 + permille/1000]. */
MUSTER_API uint64_t muster_rng_jitter(struct muster_rng *rng, uint64_t value, uint32_t permille);
/** The kernel's generator. */
MUSTER_API struct muster_rng *muster_rng_system(void);
/** A seeded generator (xoshiro256**), the same sequence everywhere. */
struct muster_rng_seeded {
    struct muster_rng rng;
    uint64_t state[4];
};
MUSTER_API void muster_rng_seeded_init(struct muster_rng_seeded *seeded, uint64_t seed);

/* The host: who am I, is that process dead. */
struct muster_host;
struct muster_command; /* command.h */
struct muster_shares;  /* memory that other processes of the host map: tensor.h */
struct muster_process_watch;
typedef void muster_process_exit_fn(struct muster_process_watch *watch);
/** Tells once when a process of this host has died. Caller's memory. */
struct muster_process_watch {
    void *data;
    muster_process_exit_fn *on_exit;
    int64_t pid;
    uint64_t started; /* what muster_host_started said in that process; 0: not known */
    /* private */
    struct muster_host *host;
    struct muster_fd_watch fd_watch;
    struct muster_list node;
};
/** Memory that other processes of the host may map for reading. */
struct muster_host_memory {
    uint8_t *bytes; /* NULL: none */
    size_t size;
    /* Where others find it. They are told by messages, so that they may be wrong. */
    int64_t pid;
    uint32_t number; /* of that process */
    uint64_t file;   /* the same for all that map it */
};
struct muster_host_ops {
    const char *(*key)(struct muster_host *host);
    int64_t (*pid)(struct muster_host *host);
    uint64_t (*started)(struct muster_host *host, int64_t pid); /* or NULL: not known */
    uint64_t (*wall_ns)(struct muster_host *host);
    enum muster_rc (*watch)(struct muster_host *host, struct muster_process_watch *watch);
    void (*unwatch)(struct muster_host *host, struct muster_process_watch *watch);
    enum muster_rc (*run)(struct muster_host *host, struct muster_command *command); /* or NULL */
    void (*cancel_run)(struct muster_host *host, struct muster_command *command);
    struct muster_shares *(*shares)(struct muster_host *host); /* or NULL: nothing can be shared */
    /* Or NULL, all three. */
    enum muster_rc (*memory_open)(struct muster_host *host, size_t size,
                                  struct muster_host_memory *ret_memory);
    enum muster_rc (*memory_map)(struct muster_host *host, const struct muster_host_memory *theirs,
                                 struct muster_host_memory *ret_memory);
    void (*memory_close)(struct muster_host *host, struct muster_host_memory *memory);
};
struct muster_host {
    const struct muster_host_ops *ops;
};
#define MUSTER_HOST_KEY_BYTES 64 /* with its NUL */
/** Names the machine and its namespaces of processes and of the network: two processes with equal
 * keys may watch each other, and share memory. */
MUSTER_API const char *muster_host_key(struct muster_host *host);
/** Processes with these keys reach each other at loopback addresses: the keys are equal, or both of
 * the system's form and of one machine and network (containers on the host's network). */
MUSTER_API bool muster_host_key_shares_loopback(const char *a, const char *b);
MUSTER_API int64_t muster_host_pid(struct muster_host *host);
/** When the process of that number began, in ticks since the boot; never 0 of a living one. Two processes
 * of one host key that have the same number began at different times. 0: no such process, or not
 * known. */
MUSTER_API uint64_t muster_host_started(struct muster_host *host, int64_t pid);
/** Wall clock, ns since 1970: for people and records only, never for protocols. */
MUSTER_API uint64_t muster_host_wall_ns(struct muster_host *host);
/** Watch watch->pid; on_exit runs on the loop, once, and the watch is closed then. Errors:
 * NOT_FOUND (no such process, or one that began at another time: it is dead already), UNIMPLEMENTED
 * (a kernel or sandbox without pidfd). */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_process_watch_open(
    struct muster_process_watch *watch, struct muster_host *host);
/** Idempotent. */
MUSTER_API void muster_process_watch_close(struct muster_process_watch *watch);
/** The real host; process watches run on loop. The key is boot id and inode of the pid
 * namespace. Gives. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_host_system_open(struct muster_mem *mem,
                                                                    struct muster_loop *loop,
                                                                    struct muster_host **ret_host);
MUSTER_API void muster_host_system_close(struct muster_host *host);

/** One environment. The owner of the world builds it; everybody else borrows it. */
struct muster_env {
    struct muster_mem *mem;
    struct muster_loop *loop;
    struct muster_net *net;
    struct muster_tls *tls; /* of links to other members, both ways; NULL: they are plain */
    /* With tls: links of data and state prove who is there by a key of the control link, and are
     * not encrypted (docs/tls.md). */
    bool is_data_authenticated_only;
    struct muster_http *http;
    struct muster_backend *backend;
    struct muster_host *host;
    struct muster_files *files;
    struct muster_vars *vars;
    struct muster_rng *rng;
    struct muster_log *log;                 /* NULL: silent */
    struct muster_metrics *metrics;         /* NULL: not counted */
    struct muster_rpc_metrics *rpc_metrics; /* rpc_metrics.h; NULL: calls are not counted */
    struct muster_trace *trace;             /* NULL: not traced */
};

/* env_system.c: a real environment: libevent loop, host, files, variables, kernel random
 * numbers. */
struct muster_env_system_options {
    struct event_base *base; /* NULL: a loop of its own */
    struct muster_mem *mem;  /* NULL: the C library's heap */
};
/** Gives a real environment without net, http, backend and sinks: these belong to higher layers,
 * so whoever assembles the program adds what it needs, first of all muster_net_system_open(env,
 * &env->net). */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_env_system_open(
    const struct muster_env_system_options *options, struct muster_env **ret_env);
MUSTER_API void muster_env_system_close(struct muster_env *env);

MUSTER_END

#endif
