/* Lines of JSON that workers write on MUSTER_REPORT_FD (docs/protocol.md). */
#ifndef MUSTER_RUN_REPORT_H
#define MUSTER_RUN_REPORT_H

#include "run/output/stream.h"

/** on_line of the report pipe. */
run_line_fn run_report_line;

#endif
