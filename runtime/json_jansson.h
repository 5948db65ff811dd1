/* JSON, for files that look for it in this folder. */
#ifndef MUSTER_RUNTIME_JSON_JANSSON_H
#define MUSTER_RUNTIME_JSON_JANSSON_H

#include <muster/json.h>

#endif
