/* Where launchers leave what `muster status` shows (docs/protocol.md, "Records for people"). No job has
 * an empty name, so that no member watches these keys. */
#ifndef MUSTER_TOOLS_JOB_KEYS_H
#define MUSTER_TOOLS_JOB_KEYS_H

#define JOB_KEYS_PREFIX   "/muster/"
#define JOB_STATUS_PREFIX "/muster//status/" /* JOB/NODE_RANK: a record */
#define JOB_ASK_PREFIX    "/muster//ask/"    /* JOB: somebody looks, records are wanted now */
#define JOB_KEY_BYTES     256
#define JOB_RECORD_TTL_S  10

#endif
