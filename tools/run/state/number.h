/* Decimal numbers and stream masks in option values. */
#ifndef MUSTER_RUN_NUMBER_H
#define MUSTER_RUN_NUMBER_H

#include <stdbool.h>
#include <stdint.h>

/** Parse a decimal number up to max that is followed by `end`; *ret_rest, unless NULL, is after it. */
bool run_number_parse(const char *text, char end, uint64_t max, uint64_t *ret_value,
                      const char **ret_rest);

enum run_stream_mask { RUN_MASK_OUT = 1, RUN_MASK_ERR = 2 };
/** "3" or "0:1,2:3": the streams of this local rank. text NULL: none. False: malformed. */
bool run_mask_of(const char *text, uint32_t local_rank, unsigned *ret_mask);

#endif
