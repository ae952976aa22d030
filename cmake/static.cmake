# weft-static: the command as a static program, of the objects that the command is made of.  It is what `weft export` puts in
# front of a model, and runs in an empty root.  The C library is glibc's, or musl's in a build by zig cc for musl, which links
# it by itself. The objects are those of the other programs, so that nothing is compiled twice. Without the static libraries
# it is left out.
set(weft_static_libraries "")
set(weft_static_missing "")
set(weft_static_names microhttpd sqlite3 pcre2-8 utf8proc jansson nettle)
if(WEFT_SYSTEM_NAME MATCHES "^musl")
  set(weft_static_pie -static -pie)
else()
  set(weft_static_pie -static-pie)
  list(APPEND weft_static_names m pthread c)
endif()
foreach(name IN LISTS weft_static_names)
  find_library(weft_static_${name} lib${name}.a)
  mark_as_advanced(weft_static_${name})
  if(weft_static_${name})
    list(APPEND weft_static_libraries ${weft_static_${name}})
  else()
    string(APPEND weft_static_missing " lib${name}.a")
  endif()
endforeach()
if(weft_static_missing)
  message(STATUS "no static program, for want of${weft_static_missing}: weft export needs one that was made elsewhere")
elseif(NOT APPLE AND NOT WIN32 AND NOT WEFT_SANITIZE AND NOT WEFT_FUZZ)
  # What libmicrohttpd wants of GnuTLS, which differs between its versions: packaging/static.c.
  execute_process(COMMAND ${CMAKE_NM} -u ${weft_static_microhttpd} OUTPUT_VARIABLE wanted ERROR_QUIET)
  string(REGEX MATCHALL "gnutls_[a-z0-9_]+" wanted "${wanted}")
  list(REMOVE_DUPLICATES wanted)
  list(TRANSFORM wanted REPLACE "(.+)" " \\\\\n  F(\\1)")
  list(JOIN wanted "" wanted)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/gnutls_names.h @ONLY
    CONTENT "// Made by the build: names of GnuTLS that libmicrohttpd.a does not define.\n#define GNUTLS_NAMES(F)@wanted@\n")
  # mhd.c is compiled once more, for the libmicrohttpd that is linked here.
  add_executable(weft_alone ${PROJECT_SOURCE_DIR}/packaging/static.c ${PROJECT_SOURCE_DIR}/src/serve/mhd.c $<TARGET_OBJECTS:weft>
    $<FILTER:$<TARGET_OBJECTS:weft_serve>,EXCLUDE,/mhd[.]c> ${weft_objects})
  target_compile_definitions(weft_alone PRIVATE WEFT_HTTP_LINKED)
  target_include_directories(weft_alone PRIVATE ${PROJECT_BINARY_DIR}/generated ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include
    ${microhttpd_INCLUDE_DIRS})
  set_target_properties(weft_alone PROPERTIES OUTPUT_NAME weft-static)
  set_property(TARGET weft_alone PROPERTY POSITION_INDEPENDENT_CODE)   # unset: CMake's -pie would ask for a loader
  target_compile_options(weft_alone PRIVATE -fPIE)
  # The linker warns of getaddrinfo, which looks up names by libraries where it can: addresses need none.
  target_link_options(weft_alone PRIVATE ${weft_static_pie} -Wl,-s -Wl,--gc-sections -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack)
  target_link_libraries(weft_alone PRIVATE ${weft_static_libraries})
  if(WEFT_INSTALL)
    install(TARGETS weft_alone RUNTIME DESTINATION lib/weft COMPONENT weft-static)
  endif()
endif()
