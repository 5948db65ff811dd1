/* The simulated world: hosts, processes, clocks and links of a whole cluster in one process, drawn
 * from one seed. */
#ifndef MUSTER_SIM_WORLD_H
#define MUSTER_SIM_WORLD_H

#include <stdio.h>

#include <muster/address.h>
#include <muster/env.h>
#include <muster/stream.h>

struct sim_world;
struct sim_host; /* a machine: address, processes, files */
struct sim_node; /* one life of one process */

/* Conditions of links and processes. Streams take these values when they connect. */
struct sim_conditions {
    uint64_t latency_min_ns; /* one way between two hosts; each pair of hosts draws its own */
    uint64_t latency_max_ns;
    uint64_t latency_local_ns;  /* within a host */
    uint32_t jitter_permille;   /* of the latency, drawn per segment */
    uint64_t bytes_per_ms;      /* of one direction of one stream */
    /* One direction of one host: all its streams to other hosts share it; 0: no limit. */
    uint64_t host_bytes_per_ms;
    uint32_t segment_bytes_max; /* what travels at once */
    uint32_t send_buffer_bytes; /* unless the stream's options say so */
    uint32_t receive_buffer_bytes;
    uint32_t split_permille; /* chance that a write, segment or read is cut at a random place */
    uint64_t turn_cost_ns;   /* processor time of a turn of a loop */
    uint64_t process_watch_delay_max_ns;
    uint64_t lookup_delay_max_ns;
};

/** A quiet network: 100 us, 1 GB/s, few cuts. */
extern const struct sim_conditions sim_conditions_calm;

/** Values drawn at random, from a quick host to a bad one. */
struct sim_conditions sim_conditions_draw(struct muster_rng *rng);

/* The world. */

/** Everything that happens follows from the seed. conditions NULL: calm. Gives. */
struct sim_world *sim_world_open(uint64_t seed, const struct sim_conditions *conditions);
/** Drops what still runs. Returns the number of blocks that processes which ended in order had
 * leaked. */
size_t sim_world_close(struct sim_world *world);

uint64_t sim_world_now_ns(const struct sim_world *world);
/** A generator of the scenario's own: what it draws does not move what the network draws. */
struct muster_rng *sim_world_rng(struct sim_world *world);
/** The hash of everything that has happened so far. Two runs of one seed must agree. */
uint64_t sim_world_hash(const struct sim_world *world);
uint64_t sim_world_event_count(const struct sim_world *world);
/** Write every event as a line. NULL: stop. Borrows file. */
void sim_world_set_trace(struct sim_world *world, FILE *file);
/** Records of the nodes' own logs go to the trace up to this level. */
void sim_world_set_log_level(struct sim_world *world, enum muster_log_level level);
/** Fresh memory of nodes is filled with this byte: two runs that differ show uninitialised bytes.
 */
void sim_world_set_fill(struct sim_world *world, uint8_t fill);
/** From now on all memory that processes share within their hosts is one block for each size, whatever the host: for
 * plays with many processes that write the same bytes there. */
void sim_world_share_once(struct sim_world *world);
/** A line and a number of the scenario's own in the trace and in the hash. kind is static text. */
void sim_note(struct sim_world *world, const char *kind, uint64_t a, uint64_t b, uint64_t c);

/** Say that something is wrong; the first text is kept and the run ends. */
void sim_fail(struct sim_world *world, const char *fmt, ...) MUSTER_PRINTF(2, 3);
/** The failure, or NULL. Borrowed. */
const char *sim_failure(const struct sim_world *world);

typedef bool sim_condition_fn(void *data);
typedef void sim_action_fn(void *data);

/** Run the next event only, then the oracles. False: nothing is left to happen, or something is
 * wrong. */
bool sim_step(struct sim_world *world);
/** Step until the condition holds, at most limit_ns from now. False: it does not hold. */
bool sim_run_until(struct sim_world *world, sim_condition_fn *condition, void *data,
                   uint64_t limit_ns);
/** Step for this long. False: something is wrong. */
bool sim_run_for(struct sim_world *world, uint64_t duration_ns);
/** Runs after every event. Borrows data until the world closes. */
void sim_oracle_add(struct sim_world *world, sim_action_fn *check, void *data);
/** Run action at a time of the world (not inside any process). */
void sim_at(struct sim_world *world, uint64_t time_ns, sim_action_fn *action, void *data);

/* Hosts. */

/** A host with address 10.0.x.y and the given name, up. The world's. */
struct sim_host *sim_host_add(struct sim_world *world, const char *name);
struct muster_address sim_host_address(const struct sim_host *host, uint16_t port);
const char *sim_host_name(const struct sim_host *host);
/** Silent death of the machine: its processes are gone, nobody is told, packets vanish. */
void sim_crash(struct sim_host *host);
/** Up again, empty but for its files: old connections are answered with a reset. */
void sim_boot(struct sim_host *host);
bool sim_host_is_up(const struct sim_host *host);

/* Processes. */

/** Runs inside the process, first of all. env and what it allocates die with the process. */
typedef void sim_main_fn(struct sim_node *node, struct muster_env *env, void *data);

typedef void sim_death_fn(struct sim_node *node, void *data);
struct sim_node_options {
    const char *name;
    struct sim_host *host;
    sim_main_fn *start;
    void *data;
    sim_death_fn *on_death; /* may be NULL: at the instant of its death, before anything is lost */
    const char *const
        *vars; /* NAME, value, NAME, value, … NULL; borrowed for the life of the node */
};

/** Start a process; `start` runs in its first turn. The node's memory is the world's, and lasts. */
struct sim_node *sim_node_start(struct sim_world *world, const struct sim_node_options *options);
bool sim_node_is_alive(const struct sim_node *node);
bool sim_node_is_paused(const struct sim_node *node);
const char *sim_node_name(const struct sim_node *node);
struct sim_host *sim_node_host(const struct sim_node *node);
struct sim_world *sim_node_world(const struct sim_node *node);
int64_t sim_node_pid(const struct sim_node *node);
struct muster_env *sim_node_env(struct sim_node *node);
/** Between enter and leave the scenario acts as this process, between two of its turns. The process
 * must be alive; the world does not step meanwhile. */
void sim_enter(struct sim_node *node);
void sim_leave(struct sim_node *node);
/** The program's own object, for oracles; set in start. NULL after its death. */
void sim_node_set_program(struct sim_node *node, void *program);
void *sim_node_program(const struct sim_node *node);

/** kill -9: memory is dropped as it is, the kernel closes the streams (FIN, or reset when bytes are
 * unread). */
void sim_kill(struct sim_node *node);
/** kill -9 inside one of its turns, after `actions` more writes or callbacks, so that half is done.
 */
void sim_kill_within(struct sim_node *node, uint32_t actions);
/** The program has closed everything and returns from main: what it has not freed is counted as
 * leaked. */
void sim_exit(struct sim_node *node);
/** Whether the next allocation of the process fails; asked for each one. NULL: none does. Borrows
 * data for the life of the process. */
typedef bool sim_refuse_fn(void *data);
void sim_refuse(struct sim_node *node, sim_refuse_fn *refuses, void *data);
/** Memory of a process that is never refused: for what is the scenario's and not the library's. */
void *sim_mem_alloc_surely(struct muster_mem *mem, size_t bytes);
/** SIGSTOP and SIGCONT: no turns; the kernel still takes and acknowledges data. */
void sim_pause(struct sim_node *node);
void sim_resume(struct sim_node *node);
/** Every turn costs this many times more processor time. 1: normal. */
void sim_slow(struct sim_node *node, uint32_t factor);
/** The process's clock runs faster (or slower) by this many parts per million. */
void sim_drift(struct sim_node *node, int32_t parts_per_million);

/* Links. */

enum sim_direction { SIM_BOTH_WAYS, SIM_ONE_WAY /* a to b */ };

/** Nothing passes from a to b (and back); streams stay open and wait. */
void sim_cut(struct sim_world *world, struct sim_host *a, struct sim_host *b,
             enum sim_direction direction);
void sim_heal(struct sim_world *world, struct sim_host *a, struct sim_host *b);
void sim_heal_all(struct sim_world *world);
/** Reset the n-th (modulo) open stream of the world on both sides. False: there is none. */
bool sim_reset_stream(struct sim_world *world, uint64_t n);
/** Nothing moves in the n-th open stream for this long. False: there is none. */
bool sim_stall_stream(struct sim_world *world, uint64_t n, uint64_t duration_ns);
size_t sim_stream_count(const struct sim_world *world);

#endif
