/* Between load.c and the protocols that need more than text. */
#ifndef LOAD_H
#define LOAD_H

#include <stdint.h>
#include <stdio.h>

void load_fail(const char *what);

/* load_muster.c: links of muster's parameters (docs/protocol.md, "Parameters"). */
#define MUSTER_ROWS_FIRST ((char)6) /* the channel of its frames */

/** Open a link, and on it the table with rows of so many bytes. */
void muster_link_open(int fd, unsigned value_bytes);
/** Push each row once. */
void muster_rows_fill(int fd, unsigned key_count, unsigned value_bytes);
/** A pull of rows, which any link may send. */
void muster_pull_write(FILE *to, const unsigned *keys, unsigned count);
/** Bytes of the answer. */
size_t muster_rows_bytes(unsigned count, unsigned value_bytes);
/** Answer a sign of life that is asked for. 0: the bytes begin something else. */
size_t muster_alive_answer(int fd, const char *bytes, size_t count);

#endif
