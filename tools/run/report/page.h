/* The page for people (tools/run/report/page.html), as the build has put it in. */
#ifndef MUSTER_RUN_PAGE_H
#define MUSTER_RUN_PAGE_H

#include <stddef.h>

extern const unsigned char run_page_bytes[];
extern const size_t run_page_size;

#endif
