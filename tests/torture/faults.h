/* A library that is loaded before libc into real programs (LD_PRELOAD): by seed, memory is refused to
 * them, and system calls fail as the kernel lets them fail. Variables say what fails:
 *
 *   FAULTS_PROGRAMS     names of the programs, joined by commas; all others are left alone
 *   FAULTS_SEED         draws which calls fail, and how; what a process does else is not drawn
 *   FAULTS_KINDS        memory, calls, or both, joined by a comma
 *   FAULTS_PER_MILLION  of the calls of one kind and one thread
 *   FAULTS_AFTER        so many of them are let pass first
 *   FAULTS_ROW          so many in a row fail together (1)
 *   FAULTS_MAX          failures per process (no bound)
 *   FAULTS_LOG          the failures of process P, each with its stack, are written to this name with .P
 *
 * A call is counted for its kind and thread. The same seed draws the same numbers for a process of the
 * same name, RANK, MUSTER_RESTART_COUNT and place among the forks of its parent. */
#ifndef MUSTER_TESTS_FAULTS_H
#define MUSTER_TESTS_FAULTS_H

#include <stdbool.h>
#include <stddef.h>

enum fault_kind { FAULT_MEMORY, FAULT_CALL, FAULT_KINDS };

/** One more call: 0: it is made; else one of `failures`. `caller` is the address that it returns to: what
 * the loader of programs and sanitizers call is never failed. */
int faults_draw(enum fault_kind kind, const char *name, const void *caller, const int *failures,
                size_t count);

/** Nothing more fails until it is false again, in this thread. */
void faults_pause(bool is_paused);

/** This process has just been made by fork(). */
void faults_on_fork(bool is_child);

#endif
