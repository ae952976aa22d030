# Run by each build (cmake -P): writes OUTPUT, a header with the commit of SOURCE, "-dirty" after it
# if tracked files differ; "" if that is unknown. `git archive` puts the commit into `archived`.
cmake_minimum_required(VERSION 3.25)
set(archived "$Format:%h$")
set(commit "")
if(archived MATCHES "^[0-9a-f]+$")
  set(commit ${archived})
elseif(EXISTS ${SOURCE}/.git)
  execute_process(COMMAND git describe --always --dirty --abbrev=9 --exclude=* WORKING_DIRECTORY ${SOURCE}
    OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
set(shown "")
if(commit)
  set(shown " (${commit})")
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "// Made by cmake/commit.cmake.
#define WEFT_COMMIT \"@commit@\"
#define WEFT_COMMIT_SHOWN \"@shown@\"
" @ONLY)
