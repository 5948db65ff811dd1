/* Another program that reads a question from its standard input and writes the answer to its output. */
#ifndef MUSTER_PROTOC_GEN_SUBPROCESS_H
#define MUSTER_PROTOC_GEN_SUBPROCESS_H

#include <stddef.h>
#include <stdint.h>

struct subprocess_bytes {
    uint8_t *data; /* of the pool */
    size_t size;
};

/** Run program, found in PATH unless it has a '/', until it ends. NULL, or what went wrong; the answer
 * and the text belong to the pool. */
char *subprocess_run(const char *program, struct subprocess_bytes question,
                     struct subprocess_bytes *ret_answer);

#endif
