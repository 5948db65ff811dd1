/* Standard input in lines, for programs that are told when it can be read. */
#ifndef EXAMPLE_LINE_INPUT_H
#define EXAMPLE_LINE_INPUT_H

#include "line_calls.h"

struct line_input {
    char bytes[4096]; /* a longer line is asked in pieces of this size */
    size_t count;
};

/** Read once, ask with each whole line. False: the input is over, and the calls have been told. */
bool line_input_read(struct line_input *input, int fd, struct line_calls *calls);

#endif
