# One list of flags for all our code; floating point keeps its order.
add_library(muster_flags INTERFACE)
target_compile_definitions(muster_flags INTERFACE _GNU_SOURCE)
target_compile_options(muster_flags INTERFACE $<$<COMPILE_LANGUAGE:C>:-Wall -Wextra -Wpedantic -Wconversion
  -Wsign-conversion -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition -Wvla -Wundef
  -Wformat=2 -Wwrite-strings -Wpointer-arith -Wimplicit-fallthrough -Wdouble-promotion>
  # What only an assertion uses is unused in a release build.
  $<$<CONFIG:Release>:-Wno-unused-function -Wno-unused-variable -Wno-unused-but-set-variable
  -Wno-unused-const-variable -Wno-unused-parameter>
  -ffp-contract=off -fno-math-errno -fstack-protector-strong)
# The string instructions that GCC puts in place of clearing or copying a struct take longer to begin than
# the C library takes for all of it: a tenth of a small operation.
if(CMAKE_C_COMPILER_ID STREQUAL GNU AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  foreach(function memset memcpy)
    target_compile_options(muster_flags INTERFACE
      $<$<AND:$<COMPILE_LANGUAGE:C>,$<CONFIG:Release>>:-m${function}-strategy=unrolled_loop:64:noalign,libcall:-1:noalign>)
  endforeach()
endif()
# A loop that a sanitizer keeps from being vectorised is no mistake.
if(CMAKE_C_COMPILER_ID MATCHES "Clang")
  target_compile_options(muster_flags INTERFACE -Wno-pass-failed)
endif()
# Errors in the compilers that we test with; a newer compiler with a new warning still builds.
if((CMAKE_C_COMPILER_ID STREQUAL GNU AND CMAKE_C_COMPILER_VERSION MATCHES "^12\\.") OR
   (CMAKE_C_COMPILER_ID STREQUAL Clang AND CMAKE_C_COMPILER_VERSION MATCHES "^14\\."))
  target_compile_options(muster_flags INTERFACE -Werror)
endif()
target_include_directories(muster_flags INTERFACE ${CMAKE_SOURCE_DIR}/include)

if(MUSTER_SANITIZE)
  add_compile_options(-fsanitize=${MUSTER_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${MUSTER_SANITIZE})
  # Hundreds of tests are linked with all their symbols: gold takes half the time of ld.
  include(CheckLinkerFlag)
  check_linker_flag(C -fuse-ld=gold MUSTER_HAS_GOLD)
  if(MUSTER_HAS_GOLD)
    add_link_options(-fuse-ld=gold)
  endif()
  # The tables of this sanitizer hold 370,000 pointers, which the dynamic linker would move at each start of a program: a quarter of
  # the processor time of a short one.
  if(MUSTER_SANITIZE MATCHES address)
    add_link_options($<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-no-pie>)
  endif()
  if(MUSTER_SANITIZE MATCHES undefined)
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
  # GCC keeps a table for each place that is checked for undefined behaviour, and AddressSanitizer registers each of them as a
  # variable: nine tenths of all that a program registers at its start and looks through for leaks at its end. A trap has no table;
  # AddressSanitizer's report of the signal names the line. MUSTER_SANITIZE_TEXTS tells the values, too.
  if(MUSTER_SANITIZE MATCHES address AND MUSTER_SANITIZE MATCHES undefined AND CMAKE_C_COMPILER_ID STREQUAL GNU AND NOT MUSTER_SANITIZE_TEXTS)
    add_compile_options(-fsanitize-undefined-trap-on-error)
    add_link_options(-fsanitize-undefined-trap-on-error)
    add_library(muster_sanitizer_options OBJECT tests/lib/sanitizer_options.c)
    link_libraries($<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:$<TARGET_OBJECTS:muster_sanitizer_options>>)
  endif()
endif()
if(MUSTER_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
if(MUSTER_COVERAGE)
  add_compile_options(--coverage)
  add_link_options(--coverage)
endif()
