/* The report that a failed assertion prints besides its own text. */
#ifndef MUSTER_RUNTIME_ASSERT_H
#define MUSTER_RUNTIME_ASSERT_H

/** Writes what may explain a failed assertion to standard error, in whatever thread it failed. */
typedef void muster_assert_report_fn(void);

/** Call report when an assertion fails; NULL: nothing is called. The flight recorder sets it. */
void muster_assert_set_report(muster_assert_report_fn *report);

/** The program has made it impossible to go on, as the text says: print it as a failed assertion, and abort. Any
 * thread. */
_Noreturn void muster_assert_end(const char *text);

/** The text of the assertion that has failed, for a handler of SIGABRT; NULL: none has. */
const char *muster_assert_text(void);

#endif
