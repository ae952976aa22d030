# Packages by CPack (scripts/package.sh deb|rpm calls it): weft (the command), libweft0.1, libweft-dev and weft-doc, of the
# components weft, weft-lib, weft-dev and weft-doc.  What is linked is required, by what dpkg-shlibdeps and rpmbuild find, and libmicrohttpd, which
# weft serve opens, by name. What else is opened at run time is recommended or suggested: LLVM, which compiles kernels that are not in the cache
# yet, libcurl, which fetches models, decoders.
set(CPACK_PACKAGE_NAME weft)
set(CPACK_PACKAGE_VENDOR "Weft")
set(WEFT_MAINTAINER "Weft maintainers <maintainers@weft.invalid>" CACHE STRING "name and address in the packages: those of whoever hands them out")
set(CPACK_PACKAGE_CONTACT "${WEFT_MAINTAINER}")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_COMPONENTS_ALL weft weft-lib weft-dev)
if(TARGET weft_reference)   # where doxygen is
  list(APPEND CPACK_COMPONENTS_ALL weft-doc)
endif()
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "large language models from GGUF files")
set(CPACK_COMPONENT_WEFT_DESCRIPTION "Runs, serves, measures and quantises language models in GGUF files. Kernels are
made for the processor when a model is first loaded, and kept.
.
Commands take llama.cpp's options; the server answers requests of OpenAI's,
Anthropic's and ollama's clients.")
set(CPACK_COMPONENT_WEFT-LIB_DESCRIPTION "The engine of weft as a shared library: models, tokenizers, samplers, grammars
and chat templates.")
set(CPACK_COMPONENT_WEFT-DEV_DESCRIPTION "Header files, the static library, and what pkg-config and CMake need to build
programs with libweft.")

set(CPACK_COMPONENT_WEFT-DOC_DESCRIPTION "The reference of libweft's functions, structs and constants, as pages for a
browser: /usr/share/doc/weft-doc/html/index.html is the first one.")

# ---- Debian ---------------------------------------------------------------------------------------------------------
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(weft_recommends "libllvm22 | libllvm21 | libllvm20 | libllvm19, libcurl4 | libcurl4t64 | libcurl3-gnutls, ca-certificates")
set(CPACK_DEBIAN_WEFT_PACKAGE_NAME weft)
set(CPACK_DEBIAN_WEFT_PACKAGE_SECTION science)
set(CPACK_DEBIAN_WEFT_PACKAGE_DEPENDS "libmicrohttpd12 (>= 0.9.75) | libmicrohttpd12t64 (>= 0.9.75)")
set(CPACK_DEBIAN_WEFT_PACKAGE_RECOMMENDS ${weft_recommends})
set(CPACK_DEBIAN_WEFT_PACKAGE_SUGGESTS "libjpeg62-turbo | libjpeg8, libpng16-16, libwebp7, libwebpdemux2, libsndfile1, libzmq5, ocl-icd-libopencl1")
set(CPACK_DEBIAN_WEFT_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/packaging/deb/postinst ${PROJECT_SOURCE_DIR}/packaging/deb/prerm
  ${PROJECT_SOURCE_DIR}/packaging/deb/postrm)
set(CPACK_DEBIAN_WEFT-LIB_PACKAGE_NAME libweft${WEFT_ABI})
set(CPACK_DEBIAN_WEFT-LIB_PACKAGE_SECTION libs)
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/packaging/shlibs CONTENT
  "libweft @WEFT_ABI@ libweft@WEFT_ABI@ (>= @PROJECT_VERSION@)\n" @ONLY)
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/packaging/triggers CONTENT "activate-noawait ldconfig\n" @ONLY)
set(CPACK_DEBIAN_WEFT-LIB_PACKAGE_CONTROL_EXTRA ${PROJECT_BINARY_DIR}/packaging/shlibs ${PROJECT_BINARY_DIR}/packaging/triggers
  /nonexistent/postinst /nonexistent/postrm)   # named, so that CPack writes none of its own, which would call ldconfig without the trigger
set(CPACK_DEBIAN_WEFT-LIB_PACKAGE_RECOMMENDS "libllvm22 | libllvm21 | libllvm20 | libllvm19")
set(CPACK_DEBIAN_WEFT-DEV_PACKAGE_NAME libweft-dev)
set(CPACK_DEBIAN_WEFT-DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_WEFT-DEV_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_WEFT-DEV_PACKAGE_DEPENDS "libweft${WEFT_ABI} (= ${PROJECT_VERSION}), libc6-dev | libc-dev, libpcre2-dev, libutf8proc-dev, libjansson-dev, nettle-dev, libsqlite3-dev")
set(CPACK_DEBIAN_WEFT-DOC_PACKAGE_NAME weft-doc)
set(CPACK_DEBIAN_WEFT-DOC_PACKAGE_SECTION doc)
set(CPACK_DEBIAN_WEFT-DOC_PACKAGE_ARCHITECTURE all)
set(CPACK_DEBIAN_WEFT-DOC_PACKAGE_SHLIBDEPS OFF)

# ---- RPM ------------------------------------------------------------------------------------------------------------
set(CPACK_RPM_COMPONENT_INSTALL ON)
set(CPACK_RPM_FILE_NAME RPM-DEFAULT)
set(CPACK_RPM_PACKAGE_LICENSE MIT)
set(CPACK_RPM_SPEC_MORE_DEFINE "%define _build_id_links none
%define _buildhost reproducible
%define use_source_date_epoch_as_buildtime 1
%define clamp_mtime_to_source_date_epoch 1")
set(CPACK_RPM_WEFT_PACKAGE_NAME weft)
set(CPACK_RPM_WEFT_PACKAGE_REQUIRES "glibc, libmicrohttpd.so.12()(64bit)
Recommends: llvm-libs, libcurl, ca-certificates")   # CPack 3.25 has no variable for them: a second line of a field that it writes
set(CPACK_RPM_WEFT-LIB_PACKAGE_NAME libweft${WEFT_ABI})
set(CPACK_RPM_WEFT-LIB_PACKAGE_REQUIRES "glibc
Recommends: llvm-libs")
set(CPACK_RPM_WEFT-DEV_PACKAGE_NAME libweft-devel)
set(CPACK_RPM_WEFT-DEV_PACKAGE_REQUIRES "libweft${WEFT_ABI} = ${PROJECT_VERSION}")
set(CPACK_RPM_WEFT-DOC_PACKAGE_NAME weft-doc)
set(CPACK_RPM_WEFT-DOC_PACKAGE_ARCHITECTURE noarch)
set(CPACK_RPM_EXCLUDE_FROM_AUTO_FILELIST_ADDITION /usr/lib/systemd /usr/lib/systemd/system /usr/share/man /usr/share/man/man1
  /usr/share/bash-completion /usr/share/bash-completion/completions /usr/share/zsh /usr/share/zsh/site-functions /usr/share/fish
  /usr/share/fish/vendor_completions.d /usr/lib/pkgconfig /usr/lib/cmake /usr/lib64/pkgconfig /usr/lib64/cmake)

# What only packages have: licences and a changelog beside each, and a man page that is compressed.
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/packaging/before_build.cmake)
include(CPack)
