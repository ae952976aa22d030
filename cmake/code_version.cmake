# Run by the build (cmake -P): writes OUTPUT, a header that defines NAME as a fingerprint of all sources in FOLDERS below
# SOURCE. CODE_VERSION is that of the folders that decide what machine code a graph becomes, and so the version of the
# kernel cache: a build of other sources never runs the kernels of this one. ROWS_VERSION is that of all folders that
# decide what a model computes, and is part of what sequences in files are named by. Names of sources count too; the
# order of the files does not.
cmake_minimum_required(VERSION 3.25)
separate_arguments(folders UNIX_COMMAND "${FOLDERS}")
set(all "")
foreach(folder IN LISTS folders)
  file(GLOB files RELATIVE ${SOURCE} ${SOURCE}/${folder}/*.c ${SOURCE}/${folder}/*.m ${SOURCE}/${folder}/*.h)
  list(SORT files)
  foreach(name IN LISTS files)
    file(SHA256 ${SOURCE}/${name} hash)
    string(APPEND all "${name} ${hash}\n")
  endforeach()
endforeach()
string(SHA256 version "${all}")
string(SUBSTRING ${version} 0 24 version)
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "// Made by cmake/code_version.cmake from the sources in src/: @FOLDERS@.
#define @NAME@ \"@version@\"
" @ONLY)
file(TOUCH ${OUTPUT})   # written only if it changed: the build goes by its time
