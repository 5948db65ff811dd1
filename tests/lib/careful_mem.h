/* Memory for tests that shows, also without sanitizers, what is written or read beyond a block. */
#ifndef MUSTER_CAREFUL_MEM_H
#define MUSTER_CAREFUL_MEM_H

#include <muster/mem.h>

/**
 * The C library's heap. A block begins with bytes that are not zero, moves whenever its size changes,
 * and is overwritten when it is freed; one whose neighbourhood was written to ends the program. With
 * the address sanitizer, which sees more, the heap as it is.
 */
struct muster_mem *careful_mem(void);

#endif
