/* A server of parameters and its clients in one process, over real sockets. The server can die and
 * come back in the same memory. */
#ifndef MUSTER_TEST_PARAMS_STAND_H
#define MUSTER_TEST_PARAMS_STAND_H

#include <muster/params.h>
#include <muster/params_server.h>

#include "held_port.h"
#include "test_env.h"

struct params_stand {
    struct test_env test;
    struct muster_params_seat *seat;
    struct muster_params_server *server;
    uint8_t *memory;
    size_t bytes;
    uint32_t shard_count;
    struct held_ports ports;
    uint16_t port;
    char address[MUSTER_ADDRESS_TEXT_BYTES];
    const struct muster_authorization *authorization; /* of the next server; NULL: none */
    uint64_t receive_max_bytes; /* of the next server; 0: the default */
    unsigned closing;                                 /* asynchronous closes that are awaited */
};

void params_stand_open(struct params_stand *stand, uint32_t shard_count);
/** In memory of so many bytes, a multiple of 2 MiB; each table takes 4 MiB and more. */
void params_stand_open_in(struct params_stand *stand, uint32_t shard_count, size_t bytes);
/** In the memory of a real seat, which clients of the host read. It cannot be served again. */
void params_stand_open_seat(struct params_stand *stand, uint32_t shard_count, uint64_t memory_max);
/** Clients are closed before. */
void params_stand_close(struct params_stand *stand);
/** The server is gone at once; its memory stays. */
void params_stand_kill(struct params_stand *stand);
/** A server at the same address, in the memory that is there. */
void params_stand_serve(struct params_stand *stand);

/** A connected client; name NULL: a source of its own. */
struct muster_params *params_stand_client(struct params_stand *stand, const char *name);
/** The same, one of so many that tick. */
struct muster_params *params_stand_source(struct params_stand *stand, const char *name,
                                          uint32_t clock_sources);
/** Waits for what it has pushed. Returns the outcome. */
enum muster_rc params_stand_leave(struct params_stand *stand, struct muster_params *params);
struct muster_params_table *params_stand_table(struct params_stand *stand,
                                               struct muster_params *params,
                                               const struct muster_params_schema *schema);
/** Blocking, for cases: the outcome. */
enum muster_rc params_stand_push(struct params_stand *stand, struct muster_params_table *table,
                                 const uint64_t *keys, void *values, uint32_t count,
                                 struct muster_error *ret_error);
enum muster_rc params_stand_push_pull(struct params_stand *stand, struct muster_params_table *table,
                                      const uint64_t *keys, void *values, uint32_t count,
                                      void *ret_values, struct muster_error *ret_error);
/** Saves all tables to the folder. */
enum muster_rc params_stand_cut(struct params_stand *stand, struct muster_params *params,
                                const char *folder, struct muster_error *ret_error);
enum muster_rc params_stand_pull(struct params_stand *stand, struct muster_params_table *table,
                                 const uint64_t *keys, void *values, uint32_t count,
                                 struct muster_error *ret_error);
enum muster_rc params_stand_pull_after(struct params_stand *stand,
                                       struct muster_params_table *table, const uint64_t *keys,
                                       void *values, uint32_t count, uint64_t min_clock,
                                       uint64_t deadline_ns, struct muster_error *ret_error);
enum muster_rc params_stand_tick(struct params_stand *stand, struct muster_params *params,
                                 uint64_t clock, double weight, struct muster_error *ret_error);
uint64_t params_stand_deadline(const struct params_stand *stand);
struct muster_params_stats params_stand_stats(const struct params_stand *stand);

#endif
