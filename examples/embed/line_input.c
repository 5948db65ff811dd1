/* Bytes to lines. */
#include "line_input.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* Ask with the lines that are whole, keep the rest. */
static void cut_line(struct line_input *input, struct line_calls *calls)
{
    char *line = input->bytes, *end;
    size_t left = input->count;

    while (left > 0 && (end = memchr(line, '\n', left)) != NULL) {
        line_calls_ask(calls, line, (size_t)(end - line));
        left -= (size_t)(end + 1 - line);
        line = end + 1;
    }
    if (left == sizeof(input->bytes)) {
        line_calls_ask(calls, line, left);
        left = 0;
    }
    memmove(input->bytes, line, left);
    input->count = left;
}

bool line_input_read(struct line_input *input, int fd, struct line_calls *calls)
{
    ssize_t count = read(fd, input->bytes + input->count, sizeof(input->bytes) - input->count);

    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    if (count > 0) {
        input->count += (size_t)count;
        cut_line(input, calls);
        return true;
    }
    if (input->count > 0)
        line_calls_ask(calls, input->bytes, input->count);
    line_calls_end_input(calls);
    return false;
}
