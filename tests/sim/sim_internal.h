/* Inside the simulated world. */
#ifndef MUSTER_SIM_INTERNAL_H
#define MUSTER_SIM_INTERNAL_H

#include "runtime/loop/timer_queue.h"
#include "tests/sim/world.h"

/* Events: one heap, ordered by (time, sequence). */
struct sim_event;
typedef void sim_event_fn(struct sim_event *event);
struct sim_event {
    sim_event_fn *on_time;
    void *data;
    uint64_t time_ns;
    uint64_t sequence;
    size_t place; /* in the heap, from 1; 0 = not scheduled */
};

void sim_event_init(struct sim_event *event, sim_event_fn *on_time, void *data);
void sim_event_schedule(struct sim_world *world, struct sim_event *event, uint64_t time_ns);
void sim_event_cancel(struct sim_world *world, struct sim_event *event);
static inline bool sim_event_is_scheduled(const struct sim_event *event)
{
    return event->place != 0;
}

/* Something of a process that its loop must look at in the poll of its next turn. */
struct sim_ready;
typedef void sim_ready_fn(struct sim_ready *ready);
struct sim_ready {
    sim_ready_fn *on_poll;
    void *data;
    struct sim_node *node;
    struct muster_list link; /* sim_node.ready */
};
void sim_ready_init(struct sim_ready *ready, struct sim_node *node, sim_ready_fn *on_poll,
                    void *data);
void sim_ready_signal(struct sim_ready *ready);
void sim_ready_cancel(struct sim_ready *ready);

/* Memory of one process: everything can be dropped at once. */
struct sim_mem {
    struct muster_mem mem;
    struct muster_list blocks;
    size_t block_count;
    uint8_t fill;
    bool is_sure;           /* for the scenario's own: never refused */
    sim_refuse_fn *refuses; /* NULL: nothing is refused */
    void *refuse_data;
};
void sim_mem_init(struct sim_mem *mem, uint8_t fill);
/** Free all; returns how many blocks there were. */
size_t sim_mem_drop(struct sim_mem *mem);

struct sim_oracle {
    sim_action_fn *check;
    void *data;
    struct sim_oracle *next;
};

/* A cut, one way. */
struct sim_cut {
    struct sim_host *from, *to;
    struct muster_list link;
};

struct sim_world {
    uint64_t seed;
    uint64_t now_ns;
    uint64_t next_sequence;
    uint64_t event_count;
    uint64_t hash;
    struct sim_event **heap;
    size_t heap_count, heap_room;
    struct muster_rng_seeded rng;          /* network and processes */
    struct muster_rng_seeded scenario_rng; /* the scenario's */
    struct sim_conditions conditions;
    struct muster_list hosts;
    struct muster_list nodes; /* all lives, in order of start */
    struct muster_list connections;
    struct muster_list cuts;
    struct muster_list actions; /* sim_at */
    size_t connection_count;
    struct sim_oracle *oracles;
    struct sim_oracle **oracles_tail;
    struct sim_node *running;         /* whose turn it is */
    const struct sim_node *last_node; /* whose turn the last event was; NULL: no turn */
    int64_t next_pid;
    uint64_t next_connection;
    size_t leak_count;
    uint8_t fill;
    bool is_shared_once;
    FILE *trace;
    enum muster_log_level log_level;
    bool is_failed;
    char failure[1024];
};

uint64_t sim_draw(struct sim_world *world, uint64_t bound); /* [0, bound), bound 0: 0 */
bool sim_chance(struct sim_world *world, uint32_t permille);
void *sim_alloc(size_t bytes); /* zeroed; of the test program itself */
void sim_hash_bytes(struct sim_world *world, const void *bytes, size_t count);
void sim_hash_u64(struct sim_world *world, uint64_t value);

/* Hosts. */
struct sim_file {
    char *path;
    void *bytes;
    size_t count;
    struct muster_list link;
};
struct sim_host {
    struct sim_world *world;
    struct muster_list link;
    char name[64];
    uint32_t number;
    bool is_up;
    uint16_t next_port;
    uint64_t sending_until_ns, receiving_until_ns; /* with conditions.host_bytes_per_ms */
    struct muster_list listeners;                  /* sim_listener.host_link */
    struct muster_list files;
    uint64_t file_last; /* of shared memory */
};
bool sim_link_is_cut(const struct sim_world *world, const struct sim_host *from,
                     const struct sim_host *to);
/** Packets from `from` do not reach `to` now: cut, or a host is down. */
bool sim_link_is_dead(const struct sim_world *world, const struct sim_host *from,
                      const struct sim_host *to);
uint64_t sim_link_latency_ns(struct sim_world *world, const struct sim_host *from,
                             const struct sim_host *to);
/** The host that has the address, seen from `from` (loopback is its own). NULL: none has it. */
struct sim_host *sim_host_find(struct sim_host *from, const struct muster_address *address);
struct sim_host *sim_host_by_name(struct sim_world *world, const char *name);
void sim_host_free(struct sim_host *host);

/* A process. */
struct sim_node {
    struct muster_loop loop;
    struct muster_net net;
    struct muster_host host_api;
    struct muster_vars vars;
    struct muster_files files;
    struct muster_log log;
    struct muster_rng_seeded rng;
    struct sim_mem mem;
    struct muster_env env;
    struct sim_world *world;
    struct sim_host *host;
    struct muster_list link; /* sim_world.nodes */
    char name[64];
    char key[MUSTER_ADDRESS_TEXT_BYTES];
    int64_t pid;
    struct sim_node_options options;
    void *program;
    enum sim_life { SIM_ALIVE, SIM_DYING, SIM_DEAD } life;
    bool is_paused, is_exiting;
    uint32_t slow_factor;
    uint32_t kill_countdown; /* 0: not armed */
    /* clock */
    uint64_t clock_world_ns, clock_node_ns; /* they were equal here */
    int32_t clock_ppm;
    uint64_t now_ns;
    /* loop */
    struct sim_event turn;
    uint64_t busy_until_ns;
    struct muster_timer_queue timers;
    struct muster_list tasks;
    struct muster_list ready;
    struct muster_task start_task;
    /* what the kernel holds for it */
    struct muster_list streams;   /* sim_stream.link */
    struct muster_list listeners; /* sim_listener.node_link */
    struct muster_list dials;     /* sim_dial.link */
    struct muster_list lookups;   /* sim_lookup.link */
    struct muster_list watches;   /* sim_watch.link */
    struct muster_list views;     /* sim_view.link */
    uint32_t view_last;
};
/** Make sure that a turn comes soon enough. */
void sim_node_wake(struct sim_node *node);
uint64_t sim_node_to_world_ns(const struct sim_node *node, uint64_t node_ns);
void sim_node_loop_init(struct sim_node *node);
void sim_node_host_init(struct sim_node *node);
void sim_node_net_init(struct sim_node *node);
void sim_node_log_init(struct sim_node *node);
/** Counts down to an armed death. True: the process is gone, do nothing more. */
bool sim_node_is_gone(struct sim_node *node);
/** Asserts that the caller is this process's own code. */
void sim_node_enter(const struct sim_node *node);
/** Close what the kernel holds. is_silent: nobody is told. */
void sim_node_drop_net(struct sim_node *node, bool is_silent);
void sim_node_drop_host(struct sim_node *node);
void sim_node_drop_shares(struct sim_node *node);
/** A process asks its host (sim_share.c). */
enum muster_rc sim_share_open(struct muster_host *host, size_t size,
                              struct muster_host_memory *ret_memory);
enum muster_rc sim_share_map(struct muster_host *host, const struct muster_host_memory *theirs,
                             struct muster_host_memory *ret_memory);
void sim_share_close(struct muster_host *host, struct muster_host_memory *memory);
void sim_node_die(struct sim_node *node, bool is_silent);
void sim_node_free(struct sim_node *node);

/* One direction of a connection: the sender's buffer, the wire, the receiver's buffer. */
#define SIM_SEGMENTS_MAX 32
struct sim_segment {
    uint64_t end; /* offset behind its last byte */
    uint64_t arrival_ns;
    bool is_fin;
};
struct sim_connection;
struct sim_pipe {
    struct sim_connection *connection;
    uint32_t from;  /* side */
    uint8_t *bytes; /* ring of [read, taken) */
    size_t room;
    uint64_t taken, sent, arrived, read; /* offsets in the stream */
    uint64_t known_arrived, known_read;  /* as far as the sender has heard */
    uint64_t ack_arrived, ack_read;      /* on the way back */
    uint32_t send_buffer, receive_buffer;
    uint64_t user_timeout_ns, progress_ns;
    bool is_fin_wanted, is_fin_sent, is_fin_arrived;
    bool is_dead; /* the receiver's side has told the sender so, or will never answer */
    uint64_t link_free_ns, last_arrival_ns;
    struct sim_segment segments[SIM_SEGMENTS_MAX];
    uint32_t segment_first, segment_count;
    struct sim_event arrival, ack, timeout, wake;
};
void sim_pipe_init(struct sim_pipe *pipe, struct sim_connection *connection, uint32_t from);
void sim_pipe_fini(struct sim_pipe *pipe);
/** Bytes that the send buffer can take now. */
size_t sim_pipe_space(const struct sim_pipe *pipe);
void sim_pipe_put(struct sim_pipe *pipe, const void *bytes, size_t count);
/** Bytes that the receiver may read now. */
size_t sim_pipe_available(const struct sim_pipe *pipe);
void sim_pipe_get(struct sim_pipe *pipe, void *bytes, size_t count);
/** FIN behind what was put. */
void sim_pipe_finish(struct sim_pipe *pipe);
/** Send what may be sent. Also after a link came back. */
void sim_pipe_pump(struct sim_pipe *pipe);
void sim_pipe_resume(struct sim_pipe *pipe);
void sim_pipe_stop(struct sim_pipe *pipe);

/* A connection: two sides, two pipes. Side 0 connected, side 1 accepted. */
struct sim_stream {
    struct muster_stream stream;
    struct sim_connection *connection;
    uint32_t side;
    struct sim_node *node;
    struct muster_list link; /* sim_node.streams */
    struct muster_address local, peer;
    struct muster_list writes;
    struct muster_stream_read *read;
    uint8_t unread[MUSTER_STREAM_UNREAD_MAX];
    uint32_t unread_first, unread_count;
    enum sim_side { SIM_SIDE_NONE, SIM_SIDE_OPEN, SIM_SIDE_CLOSING, SIM_SIDE_GONE } phase;
    bool is_accepted;  /* the program has it */
    bool is_shut;      /* no more submits */
    bool is_reset;     /* the peer or the network ended it */
    bool is_head_free; /* the rest of a recalled write may go first */
    bool is_silent;    /* gone without a word: its host crashed */
    muster_stream_close_fn *closed;
    struct sim_ready ready;
    struct sim_event reset;
};
struct sim_connection {
    struct sim_world *world;
    struct muster_list link;
    uint64_t number;
    struct sim_host *hosts[2];
    struct sim_stream sides[2];
    struct sim_pipe pipes[2]; /* pipes[i] carries from side i */
    struct sim_conditions conditions;
};
struct sim_connection *sim_connection_new(struct sim_world *world, struct sim_host *client,
                                          struct sim_host *server);
void sim_connection_open_side(struct sim_connection *connection, uint32_t side,
                              struct sim_node *node, const struct muster_stream_options *options);
/** The process or its kernel lets go of this side. Frees the connection when both are gone. */
void sim_stream_drop(struct sim_stream *stream, bool is_silent);
/** A reset packet sets out towards this side. */
void sim_stream_send_reset(struct sim_stream *stream);
void sim_stream_reset(struct sim_stream *stream);
void sim_connection_free(struct sim_connection *connection);
void sim_connections_print(const struct sim_world *world, FILE *file);
/** The links between these hosts (NULL: all) work again: go on. */
void sim_connections_resume(struct sim_world *world, const struct sim_host *a,
                            const struct sim_host *b);

#endif
