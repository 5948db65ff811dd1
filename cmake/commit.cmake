# Writes OUTPUT, a source file with the commit of SOURCE, and touches it only when the commit has changed: run with
# cmake -DSOURCE=… -DOUTPUT=… -P at every build, it makes this file alone be compiled anew after a commit.
set(commit "")
find_package(Git QUIET)
if(GIT_FOUND AND EXISTS ${SOURCE}/.git)
  execute_process(
    COMMAND ${GIT_EXECUTABLE} describe --always --tags --dirty
    WORKING_DIRECTORY ${SOURCE}
    OUTPUT_VARIABLE commit
    OUTPUT_STRIP_TRAILING_WHITESPACE
    ERROR_QUIET)
endif()
if(commit STREQUAL "")
  set(commit unknown)
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "extern const char muster_commit[];\nconst char muster_commit[] = \"${commit}\";\n")
