/* The driver's seat: it belongs to the thread that turns the loop, the keeper or the program. All
 * threading of the runtime is here. */
#ifndef MUSTER_RUNTIME_DRIVER_SEAT_H
#define MUSTER_RUNTIME_DRIVER_SEAT_H

#include <muster/base.h>
#include <muster/loop.h>
#include <muster/mem.h>
#include <muster/status.h>

struct muster_driver_seat;

/** The caller (the program) holds the seat at return; the keeper runs. Borrows loop. Gives. */
MUSTER_MUST_CHECK enum muster_rc muster_driver_seat_open(struct muster_mem *mem,
                                                         struct muster_loop *loop, uint64_t tick_ns,
                                                         struct muster_driver_seat **ret_seat);

/** The program holds the seat; ends the keeper. NULL is accepted. */
void muster_driver_seat_close(struct muster_driver_seat *seat);

/** Program only, alternately. Everything that the other driver did happens before take returns. */
void muster_driver_seat_take(struct muster_driver_seat *seat);
void muster_driver_seat_release(struct muster_driver_seat *seat);

/** True once per tick in which the program used the seat: it should turn the loop, since the keeper
 * does not. */
bool muster_driver_seat_is_turn_due(struct muster_driver_seat *seat);

#endif
