/* The directory of a run that a successor of this launcher can take over. */
#ifndef MUSTER_RUN_RESUME_H
#define MUSTER_RUN_RESUME_H

#include <stdbool.h>

struct run_resume;

/** `--resumable DIR`: make the directory and keep command and environment there. False: told why,
 * *ret_exit. */
bool run_resume_begin(struct run_resume *resume, const char *dir, int argc, char **argv,
                      int *ret_exit);
/** `--resume DIR`: lock it, go to the working directory, take the environment. Gives the arguments
 * of the first start. False: told why, *ret_exit. */
bool run_resume_recall(struct run_resume *resume, const char *dir, char ***ret_argv, int *ret_argc,
                       int *ret_exit);
void run_resume_end(struct run_resume *resume);

#endif
