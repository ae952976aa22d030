# Compiler flags that every target shares, as the interface target weft_flags.
#  - Warnings are errors where the tests are built, under gcc 12 and clang 14: other compilers warn of other things, and
#    a build to use Weft gives a program all the same.
#  - The program is portable: no -march, kernels are made for the machine when it runs.
#  - Floating point is as written: no contraction into fused multiply-adds, no fast-math (dequantisation is bit-exact).
option(WEFT_WERROR "Warnings are errors" OFF)
add_library(weft_flags INTERFACE)
target_compile_definitions(weft_flags INTERFACE WEFT_VERSION_STRING="${PROJECT_VERSION}")
target_include_directories(weft_flags INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
target_compile_options(weft_flags INTERFACE
  -Wall -Wextra $<$<BOOL:${WEFT_WERROR}>:-Werror> -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wpointer-arith -Wcast-qual
  -fno-strict-aliasing -ffp-contract=off -fno-common)
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g")   # without NDEBUG: checks stay in
set(CMAKE_C_FLAGS_RELEASE "-O2")
set(CMAKE_C_FLAGS_DEBUG "-O0 -g")

# Hardening, for bytes that get past the checks: addresses differ from run to run (PIE), tables of addresses are read-only once the
# program runs (RELRO with BIND_NOW), a damaged stack ends the program before it returns, copies that are too long end it, too.
# Kernels are compiled by rules of their own and have none of this; they call nothing and use hardly any stack.
include(CheckPIESupported)
check_pie_supported(LANGUAGES C)
if(NOT WIN32 AND NOT APPLE)   # whose linkers have other ways, or none
  target_compile_options(weft_flags INTERFACE -fstack-protector-strong -fstack-clash-protection)
  target_link_options(weft_flags INTERFACE -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack)
endif()
if(NOT WIN32 AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  target_compile_options(weft_flags INTERFACE -fcf-protection)
endif()
if(NOT WEFT_SANITIZE AND NOT WIN32)   # which checks more, and in its own way
  target_compile_options(weft_flags INTERFACE "$<$<NOT:$<CONFIG:Debug>>:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=2>")
endif()

# What other systems lack of POSIX: headers of ours come before theirs (src/base/windows/posix/posix.h).
if(WIN32)
  target_include_directories(weft_flags BEFORE INTERFACE ${PROJECT_SOURCE_DIR}/src/base/windows/posix)
  target_compile_options(weft_flags INTERFACE -U_WIN32_WINNT -D_WIN32_WINNT=0x0A00)
  target_compile_definitions(weft_flags INTERFACE _FILE_OFFSET_BITS=64 WIN32_LEAN_AND_MEAN NOMINMAX)
  target_link_libraries(weft_flags INTERFACE ws2_32 psapi api-ms-win-core-synch-l1-2-0 advapi32)
endif()
if(APPLE)
  target_include_directories(weft_flags BEFORE INTERFACE ${PROJECT_SOURCE_DIR}/src/base/macos/posix)
endif()
if(WIN32 OR APPLE)
  target_include_directories(weft_flags INTERFACE ${PROJECT_SOURCE_DIR}/src/base/other)
endif()

find_package(Threads REQUIRED)
target_link_libraries(weft_flags INTERFACE Threads::Threads m ${CMAKE_DL_LIBS})

if(WEFT_SANITIZE)
  if(WEFT_SANITIZE STREQUAL "thread")
    target_compile_options(weft_flags INTERFACE -fsanitize=thread)
    target_link_options(weft_flags INTERFACE -fsanitize=thread)
  elseif(WEFT_SANITIZE STREQUAL "address")
    target_compile_options(weft_flags INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=all)
    target_link_options(weft_flags INTERFACE -fsanitize=address,undefined)
  else()
    message(FATAL_ERROR "weft: WEFT_SANITIZE is address, thread or OFF, not '${WEFT_SANITIZE}'")
  endif()
  target_compile_options(weft_flags INTERFACE -fno-omit-frame-pointer)
  target_compile_definitions(weft_flags INTERFACE WEFT_SANITIZE=1)
  if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
    # gcc's warnings that follow values also follow the branches that its sanitizers add ("what if this pointer were null?").
    target_compile_options(weft_flags INTERFACE -Wno-format-truncation -Wno-stringop-overread -Wno-maybe-uninitialized)
  endif()
endif()
if(WEFT_FUZZ)
  if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "weft: WEFT_FUZZ needs clang (libFuzzer); configure with CC=clang")
  endif()
  target_link_options(weft_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
