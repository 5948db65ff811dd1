/* Linked into programs whose undefined behaviour is a trap (cmake/warnings.cmake): it is reported
 * with its line, as an access out of bounds is, and no handler of cmocka or our own comes first.
 * A test may have options of its own. */
__attribute__((weak, visibility("default"))) const char *__asan_default_options(void);

const char *__asan_default_options(void)
{
    return "handle_sigill=2";
}
