# Third-party libraries, each given to the folder that uses it: WEFT_LIBRARIES_<folder>.  Folders to the right inherit.
find_package(PkgConfig REQUIRED)
pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8)     # text/: pre-tokenizer patterns
pkg_check_modules(utf8proc REQUIRED IMPORTED_TARGET libutf8proc) # text/, app/ (lines that are typed): Unicode properties and normal forms
pkg_check_modules(jansson REQUIRED IMPORTED_TARGET jansson)      # base/ and all that reads JSON
pkg_check_modules(nettle REQUIRED IMPORTED_TARGET nettle)        # base/: SHA-256
pkg_check_modules(sqlite3 REQUIRED IMPORTED_TARGET sqlite3)      # device/: the kernel cache
if(WEFT_COMMAND)
  pkg_check_modules(microhttpd REQUIRED IMPORTED_TARGET libmicrohttpd>=0.9.75)   # serve/: HTTP; opened at run time, or linked (below)
endif()

set(WEFT_LIBRARIES_base PkgConfig::jansson PkgConfig::nettle)
set(WEFT_LIBRARIES_device PkgConfig::sqlite3)
set(WEFT_LIBRARIES_text PkgConfig::pcre2 PkgConfig::utf8proc)
set(WEFT_LIBRARIES_serve "")
# src/serve/mhd.c opens libmicrohttpd when a server starts. It is linked if it is static (scripts/zig_root.sh), and on Windows and macOS, where
# its recv() is that of the program only then (src/serve/recv.h). weft-static links it in any case.
set(linked OFF)
if(WIN32 OR APPLE OR microhttpd_LINK_LIBRARIES MATCHES "libmicrohttpd[.]a")
  set(linked ON)
endif()
option(WEFT_HTTP_LINKED "Link libmicrohttpd into the command instead of opening it at run time" ${linked})
if(WEFT_HTTP_LINKED)
  list(APPEND WEFT_LIBRARIES_serve PkgConfig::microhttpd)
endif()
if(WIN32)   # which has no regex.h; what is linked is static
  target_compile_definitions(PkgConfig::pcre2 INTERFACE PCRE2_STATIC)
  target_compile_definitions(PkgConfig::utf8proc INTERFACE UTF8PROC_STATIC)
  pkg_check_modules(pcre2posix REQUIRED IMPORTED_TARGET libpcre2-posix)
  list(APPEND WEFT_LIBRARIES_serve PkgConfig::pcre2posix)
endif()
set(WEFT_LIBRARIES_app PkgConfig::utf8proc)
set(WEFT_LIBRARIES_ALL Threads::Threads m ${CMAKE_DL_LIBS} ${WEFT_LIBRARIES_device} ${WEFT_LIBRARIES_text} ${WEFT_LIBRARIES_base})

# libcurl is opened at run time when a model is fetched; only its headers are needed here.
if(WEFT_COMMAND)
  find_path(WEFT_CURL_INCLUDE curl/curl.h REQUIRED)
endif()

# libzmq is opened at run time when events of the KV cache are published; of msgpack-c only inline functions are used. Without
# their headers weft serve goes without --kv-events-config.
if(WEFT_COMMAND)
  find_path(WEFT_ZMQ_INCLUDE zmq.h)
  find_path(WEFT_MSGPACK_INCLUDE msgpack/pack.h)
  if(NOT WEFT_ZMQ_INCLUDE OR NOT WEFT_MSGPACK_INCLUDE)
    message(STATUS "no zmq.h or msgpack.h (Debian: libzmq3-dev, libmsgpack-dev): weft serve goes without --kv-events-config")
  endif()
endif()

# The decoders of pictures and sounds are opened at run time by the process that decodes (src/media/); only headers are needed here.
foreach(header jpeglib.h png.h webp/demux.h sndfile.h)
  string(MAKE_C_IDENTIFIER "WEFT_INCLUDE_${header}" found)
  find_path(${found} ${header} REQUIRED)
endforeach()

# OpenCL is used through its headers alone: the loader, libOpenCL.so.1, is opened at run time where there is one.
find_path(WEFT_OPENCL_INCLUDE CL/cl.h REQUIRED)

# Vulkan in the same way. Without its headers there is no DEV=VK.
find_path(WEFT_VULKAN_INCLUDE vulkan/vulkan.h)
if(NOT WEFT_VULKAN_INCLUDE)
  message(STATUS "no vulkan/vulkan.h (Debian: libvulkan-dev): there is no DEV=VK")
endif()

# dagre (MIT), which lays out the graphs of the page that weft viz writes; without it they stand in plain rows. It goes into the program as text.
find_file(WEFT_DAGRE dagre.min.js PATHS /usr/lib/python3/dist-packages/xstatic/pkg/dagre/data /usr/share/nodejs/dagre/dist NO_DEFAULT_PATH)
if(NOT WEFT_DAGRE)
  message(STATUS "no dagre.min.js (Debian: python3-xstatic-dagre): graphs in the page of weft viz stand in plain rows")
endif()
