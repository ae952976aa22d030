# The command weft, and the server in it: both are users of the library.  Their pages go in as they are.
weft_sources(serve serve_sources)
file(GLOB serve_page CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/serve/page/*)
include(cmake/page.cmake)
add_library(weft_serve STATIC ${serve_sources})
target_include_directories(weft_serve PRIVATE ${PROJECT_BINARY_DIR}/generated)
if(WEFT_FUZZ)
  target_compile_options(weft_serve PRIVATE -fsanitize=fuzzer-no-link)
endif()
set_target_properties(weft_serve PROPERTIES ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
target_link_libraries(weft_serve PUBLIC ${weft_libraries} weft_flags ${WEFT_LIBRARIES_serve})
target_include_directories(weft_serve PRIVATE ${microhttpd_INCLUDE_DIRS})
if(WEFT_HTTP_LINKED)
  target_compile_definitions(weft_serve PRIVATE WEFT_HTTP_LINKED)
else()   # what libmicrohttpd is to find in the program: src/serve/linux/recv.c
  target_link_options(weft_serve INTERFACE -Wl,--export-dynamic-symbol=recv -Wl,--export-dynamic-symbol=gnutls_record_recv)
endif()
if(WEFT_ZMQ_INCLUDE AND WEFT_MSGPACK_INCLUDE)
  set_source_files_properties(${PROJECT_SOURCE_DIR}/src/serve/kv_events.c ${PROJECT_SOURCE_DIR}/src/serve/zmq.c PROPERTIES
    COMPILE_DEFINITIONS WEFT_KV_EVENTS)
endif()
set_source_files_properties(${PROJECT_SOURCE_DIR}/src/serve/page.c PROPERTIES
  COMPILE_DEFINITIONS "WEFT_PAGE_DIR=\"${PROJECT_SOURCE_DIR}/src/serve/page\"" OBJECT_DEPENDS "${serve_page};${page_inputs};${page_out}/page_files.h")

include(cmake/mpi.cmake)

weft_sources(app app_sources)
add_executable(weft ${app_sources})
if(WIN32)   # its manifest; the toolchain says what compiles resources (scripts/zig_root.sh)
  set(weft_resources ${PROJECT_BINARY_DIR}/weft.res)
  add_custom_command(OUTPUT ${weft_resources} DEPENDS ${PROJECT_SOURCE_DIR}/packaging/windows/weft.rc ${PROJECT_SOURCE_DIR}/packaging/windows/weft.manifest
    COMMAND ${WEFT_RC} /fo ${weft_resources} ${PROJECT_SOURCE_DIR}/packaging/windows/weft.rc VERBATIM)
  target_sources(weft PRIVATE ${weft_resources})
  target_link_options(weft PRIVATE ${weft_resources})
endif()
# app/commit.h: the commit that `weft --version` shows, looked up at each build and written if it is another one.
add_custom_target(weft_commit COMMAND ${CMAKE_COMMAND} -DSOURCE=${PROJECT_SOURCE_DIR}
  -DOUTPUT=${PROJECT_BINARY_DIR}/generated/app/commit.h -P ${PROJECT_SOURCE_DIR}/cmake/commit.cmake
  BYPRODUCTS ${PROJECT_BINARY_DIR}/generated/app/commit.h VERBATIM)
add_dependencies(weft weft_commit)
target_include_directories(weft PRIVATE ${PROJECT_BINARY_DIR}/generated)
target_link_libraries(weft PRIVATE weft_serve ${weft_libraries} weft_flags ${WEFT_LIBRARIES_app})
# The page of weft viz, and what lays its graphs out, go into the program as they are.
file(GLOB viz_files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/app/viz/*)
set(viz_definitions "WEFT_VIZ_DIR=\"${PROJECT_SOURCE_DIR}/src/app/viz\"")
if(WEFT_DAGRE)
  list(APPEND viz_definitions "WEFT_DAGRE=\"${WEFT_DAGRE}\"")
  list(APPEND viz_files ${WEFT_DAGRE})
endif()
set_source_files_properties(${PROJECT_SOURCE_DIR}/src/app/viz.c PROPERTIES COMPILE_DEFINITIONS "${viz_definitions}" OBJECT_DEPENDS "${viz_files}")
set_source_files_properties(${PROJECT_SOURCE_DIR}/src/app/uninstall.c PROPERTIES COMPILE_DEFINITIONS "WEFT_LIBDIR=\"${CMAKE_INSTALL_LIBDIR}\";WEFT_ABI=\"${WEFT_ABI}\"")
if(WEFT_INSTALL)
  install(TARGETS weft RUNTIME COMPONENT weft)
  install(FILES systemd/weft.service systemd/weft.socket DESTINATION lib/systemd/system COMPONENT weft)
  install(FILES docs/weft.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT weft)
  install(FILES docs/weft.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME weft COMPONENT weft)
  install(FILES docs/weft.zsh DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions RENAME _weft COMPONENT weft)
  install(FILES docs/weft.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT weft)
endif()
