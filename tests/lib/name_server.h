/* A name server on loopback for one test case: it answers every question alike. */
#ifndef MUSTER_TEST_NAME_SERVER_H
#define MUSTER_TEST_NAME_SERVER_H

#include <muster/env.h>

/** ANSWERS: A 10.1.2.3 and 10.1.2.4, AAAA 2001:db8::7, SRV late:2382 (priority 20), light:2380 and
 * heavy:2379 (priority 10). */
enum name_server_mood { ANSWERS, SAYS_NO_SUCH_NAME, FAILS, IS_SILENT };

struct name_server {
    enum name_server_mood mood;
    unsigned query_count;
    char address[32]; /* "127.0.0.1:5353" */
    /* private */
    struct muster_fd_watch watch;
};

void name_server_open(struct name_server *server, struct muster_env *env);
void name_server_close(struct name_server *server);

#endif
