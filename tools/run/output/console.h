/* The progress line at the bottom of a terminal. */
#ifndef MUSTER_RUN_CONSOLE_H
#define MUSTER_RUN_CONSOLE_H

#include <stdbool.h>

struct run;

/** Take the progress line off the terminal before something else is printed; on_line_cleared draws it again. */
void run_console_clear(struct run *run);
/** Replace the progress line by text, or with NULL take it away for good. */
void run_console_draw(struct run *run, const char *text);

#endif
