/* `muster run`: starts workers and keeps them going when some die. */
#ifndef MUSTER_RUN_H
#define MUSTER_RUN_H

int command_run(int argc, char **argv);

#endif
