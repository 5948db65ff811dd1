/* Memory of a seat gets huge pages before it is used, by a thread: the kernel's call waits until every processor has
 * put its lists of pages aside, 10 to 30 ms on a busy machine, and a server would answer nobody meanwhile. */
#ifndef MUSTER_PARAMS_SEAT_AHEAD_SYSTEM_H
#define MUSTER_PARAMS_SEAT_AHEAD_SYSTEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <muster/status.h>

struct muster_params_ahead;

/** The segment has its pages, huge ones where the kernel can make them. In the thread. */
typedef void muster_params_ahead_fn(void *data, size_t segment);

struct muster_params_ahead_options {
    uint8_t *memory; /* of segments, MUSTER_PARAMS_SEGMENT_BYTES each */
    size_t segment_count, segments_used;
    muster_params_ahead_fn *made;
    /** Whether somebody has made it already. In the thread. */
    bool (*is_made)(const void *data, size_t segment);
    void *data;
};

/**
 * Begin a thread that makes the pages of segments which come into use soon. It makes none before the first call of
 * muster_params_ahead_of or muster_params_ahead_until.
 *
 * Owns:    borrows memory and data until close. Gives *ret_ahead.
 * Errors:  RESOURCE_EXHAUSTED.
 */
MUSTER_MUST_CHECK enum muster_rc muster_params_ahead_open(
    const struct muster_params_ahead_options *options, struct muster_params_ahead **ret_ahead);
/** So many segments are used: an eighth as many more are made, from 2 to 64. */
void muster_params_ahead_of(struct muster_params_ahead *ahead, size_t segments_used);
/** All segments before this one will be used. */
void muster_params_ahead_until(struct muster_params_ahead *ahead, size_t segment);
/** Waits for what the thread is at. NULL is accepted. */
void muster_params_ahead_close(struct muster_params_ahead *ahead);
/** Make the pages of a segment, in the caller's thread. What the segment holds is kept. */
void muster_params_pages_make(uint8_t *segments, size_t count);

#endif
