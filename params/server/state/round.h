/* Tables by round. What a source pushes at clock c is kept in a table of its own, NAME#ID. The server that
 * leads the home shard of the rounds decides who counts in round c, and stores that as a row of NAME#rounds.
 * It tells the clients, and these tell all servers, before anything that they send at clock c + 1; then
 * each server pushes the sums to the rows of its shards, as a source that all servers know alike. So
 * what is kept, the decision and the sums are pushes like others: replicas have them, and each is
 * applied once. */
#ifndef MUSTER_PARAMS_SERVER_ROUND_H
#define MUSTER_PARAMS_SERVER_ROUND_H

#include "params/server/state/clock.h"
#include "params/server/state/rows.h"

void muster_params_rounds_init(struct muster_params_server *server);
/** Rounds are as the memory of a dead process says. Errors: RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_params_rounds_open(struct muster_params_server *server);
void muster_params_rounds_close(struct muster_params_server *server);
/** A client opens this table, which may be by round, and be new. It is told the newest rounds that are
 * closed. False: no memory. */
MUSTER_MUST_CHECK bool muster_params_rounds_join(struct muster_params_client *client,
                                                 struct muster_params_store_table *table);
/** There is another map: this server may lead other shards. */
void muster_params_rounds_map(struct muster_params_server *server);
/** A round may be complete: soon. */
void muster_params_rounds_review(struct muster_params_server *server);
/**
 * The push is for a table by round: what it brings is kept for the round of its clock.
 *
 * Errors: OUT_OF_RANGE (the round is closed), FAILED_PRECONDITION (the round before it is not),
 *         RESOURCE_EXHAUSTED.
 */
MUSTER_MUST_CHECK enum muster_rc muster_params_rounds_keep(struct muster_params_server *server,
                                                           struct muster_params_push *push,
                                                           uint64_t clock,
                                                           struct muster_error *ret_error);
/** The open round of a table by round; 0 where it is not known to be one. */
uint64_t muster_params_rounds_open_of(const struct muster_params_server *server,
                                      const struct muster_params_store_table *table);
/** Whether the source may complete so many steps: in no table by round to which it has pushed is a round before the
 * last of them open. */
bool muster_params_rounds_allow_tick_of(const struct muster_params_server *server,
                                        const struct muster_params_source *source, uint64_t clock);
/** The source pushes to the table, which may be by round, at another server: its ticks come here, and wait as if it
 * pushed here. Without memory they do not. */
void muster_params_rounds_note(struct muster_params_server *server,
                               struct muster_params_store_table *table,
                               const struct muster_incarnation *source);
/** Whether the table is by round, and the source is known to have pushed to it. */
bool muster_params_rounds_has_pushed(const struct muster_params_server *server,
                                     const struct muster_params_store_table *table,
                                     const struct muster_incarnation *source);
/** Why the round is not closed. */
void muster_params_rounds_text(const struct muster_params_server *server,
                               const struct muster_params_store_table *table,
                               char ret_text[MUSTER_PARAMS_WAIT_TEXT_BYTES]);
/** A table that may be by round, and new. False: no memory. */
MUSTER_MUST_CHECK bool muster_params_rounds_know(struct muster_params_server *server,
                                                 struct muster_params_store_table *table);
/** Whether pulls that wait for clocks must go on waiting, until a round is applied whole; then clocks.come is
 * posted. */
bool muster_params_rounds_delay_pulls(struct muster_params_server *server);
/** Whether the message must wait until a round is applied whole; then early_review is posted. */
bool muster_params_rounds_delay(struct muster_params_server *server,
                                const struct muster_frame_header *header, const uint8_t *payload);
/** Apply what is decided for the table now, in one turn. False: there is no memory. */
MUSTER_MUST_CHECK bool muster_params_rounds_finish(struct muster_params_server *server,
                                                   const struct muster_params_store_table *table);

muster_params_handle_fn muster_params_handle_round;

#endif
