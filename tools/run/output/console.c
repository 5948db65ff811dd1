/* The progress line at the bottom of a terminal. */
#include "run/output/console.h"

#include "run/output/output.h"

#include <string.h>

static const char clear_line[] = "\r\033[K";

static void line_erase(struct run_output *output)
{
    if (output->is_line_shown)
        run_sink_write(output->err, clear_line, sizeof(clear_line) - 1);
    output->is_line_shown = false;
}

void run_console_clear(struct run *run)
{
    if (run->output == NULL || !run->output->is_line_shown)
        return;
    line_erase(run->output);
    if (run->output->on_line_cleared != NULL)
        run->output->on_line_cleared(run);
}

void run_console_draw(struct run *run, const char *text)
{
    MUSTER_ASSERT(run->output != NULL);
    line_erase(run->output);
    if (text == NULL)
        return;
    run_sink_write(run->output->err, text, strlen(text));
    run->output->is_line_shown = true;
}
