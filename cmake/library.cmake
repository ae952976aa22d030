# The library: libweft.so and libweft.a, of the objects of all folders (weft_objects); how both are installed and found.
#  - Only what include/ declares is visible: everything else is hidden by the compiler (flags.cmake), and becomes local here.
#    So a program may have its own now_s or json_parse, and the tests compare the names with the headers.
#  - Before 1.0 a minor version may change structs: the SONAME is libweft.so.0.1, and names have the version WEFT_0.1.
#    From 1.0 on the major version alone stands there.
#  - For CMake there are weft::shared, weft::static, and weft::weft, which is the one that BUILD_SHARED_LIBS asks for; they
#    are the same in this build, below add_subdirectory and FetchContent, and after find_package(weft).
include(CMakePackageConfigHelpers)
if(PROJECT_VERSION_MAJOR)
  set(WEFT_ABI ${PROJECT_VERSION_MAJOR})
else()
  set(WEFT_ABI ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
endif()

# libweft.a holds one object, in which hidden names are local.
if(APPLE OR WIN32)   # no objcopy there
  add_library(weft_static STATIC ${weft_objects})
else()
  set(weft_one ${PROJECT_BINARY_DIR}/weft_all.o)
  add_custom_command(OUTPUT ${weft_one}
    COMMAND ${CMAKE_C_COMPILER} -r -nostdlib -o ${weft_one} ${weft_objects}
    COMMAND ${CMAKE_OBJCOPY} --localize-hidden ${weft_one}
    DEPENDS ${weft_objects} COMMAND_EXPAND_LISTS VERBATIM COMMENT "One object, in which only weft_* is visible")
  set_source_files_properties(${weft_one} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  add_library(weft_static STATIC ${weft_one})
endif()
target_link_libraries(weft_static PUBLIC ${WEFT_LIBRARIES_ALL})

add_library(weft_shared SHARED ${weft_objects})
set_target_properties(weft_shared PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${WEFT_ABI})
target_link_libraries(weft_shared PRIVATE ${WEFT_LIBRARIES_ALL} weft_flags)
if(NOT APPLE AND NOT WIN32)
  set(weft_script ${PROJECT_BINARY_DIR}/libweft.map)
  configure_file(cmake/libweft.map.in ${weft_script} @ONLY)
  target_link_options(weft_shared PRIVATE -Wl,--version-script=${weft_script})
  set_target_properties(weft_shared PROPERTIES LINK_DEPENDS ${weft_script})
  if(NOT WEFT_SANITIZE)   # a sanitizer's own names come with the program
    target_link_options(weft_shared PRIVATE -Wl,--no-undefined)
  endif()
endif()

foreach(kind static shared)
  set_target_properties(weft_${kind} PROPERTIES OUTPUT_NAME weft LINKER_LANGUAGE C EXPORT_NAME ${kind}
    ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR} LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
  target_include_directories(weft_${kind} INTERFACE
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  add_library(weft::${kind} ALIAS weft_${kind})
endforeach()
if(BUILD_SHARED_LIBS)
  add_library(weft::weft ALIAS weft_shared)
else()
  add_library(weft::weft ALIAS weft_static)
endif()

# ---- installation -----------------------------------------------------------------------------------------------------
if(WEFT_INSTALL)
  # The files that run (component weft-lib) and those to build with (weft-dev) can be installed apart.
  install(TARGETS weft_static weft_shared EXPORT weft
    LIBRARY COMPONENT weft-lib NAMELINK_COMPONENT weft-dev ARCHIVE COMPONENT weft-dev)
  install(DIRECTORY include/ TYPE INCLUDE COMPONENT weft-dev FILES_MATCHING PATTERN "*.h")
  set(config ${CMAKE_INSTALL_LIBDIR}/cmake/weft)
  install(EXPORT weft NAMESPACE weft:: FILE weft-targets.cmake DESTINATION ${config} COMPONENT weft-dev)
  configure_package_config_file(cmake/weft-config.cmake.in ${PROJECT_BINARY_DIR}/weft-config.cmake INSTALL_DESTINATION ${config})
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/weft-config-version.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/weft-config.cmake ${PROJECT_BINARY_DIR}/weft-config-version.cmake DESTINATION ${config}
    COMPONENT weft-dev)
  # The prefix may be chosen at installation (cmake --install build --prefix P), so the pkg-config file is written then.
  install(CODE "
    set(PROJECT_VERSION ${PROJECT_VERSION})
    set(PROJECT_DESCRIPTION \"${PROJECT_DESCRIPTION}\")
    set(CMAKE_INSTALL_FULL_LIBDIR \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}\")
    set(CMAKE_INSTALL_FULL_INCLUDEDIR \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_INCLUDEDIR}\")
    configure_file(\"${PROJECT_SOURCE_DIR}/cmake/weft.pc.in\" \"${PROJECT_BINARY_DIR}/weft.pc\" @ONLY)" COMPONENT weft-dev)
  install(FILES ${PROJECT_BINARY_DIR}/weft.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT weft-dev)
  # The reference of the headers, for people (component weft-doc).
  find_program(WEFT_DOXYGEN doxygen DOC "makes the reference of the C API")
  find_program(WEFT_REFERENCE_PYTHON python3)
  if(WEFT_DOXYGEN AND WEFT_REFERENCE_PYTHON AND NOT CMAKE_CROSSCOMPILING)
    file(GLOB headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/weft.h ${PROJECT_SOURCE_DIR}/include/weft/*.h)
    add_custom_command(OUTPUT ${PROJECT_BINARY_DIR}/reference/index.html
      COMMAND ${WEFT_REFERENCE_PYTHON} ${PROJECT_SOURCE_DIR}/scripts/reference.py ${PROJECT_BINARY_DIR}/reference
      DEPENDS ${headers} scripts/reference.py COMMENT "Writing the reference of the C API" VERBATIM)
    add_custom_target(weft_reference ALL DEPENDS ${PROJECT_BINARY_DIR}/reference/index.html)
    install(DIRECTORY ${PROJECT_BINARY_DIR}/reference/ DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/weft-doc/html COMPONENT weft-doc)
  endif()
endif()
