// What takes the place of libraries in the static program (cmake/static.cmake).
//
// A static program opens no libraries: those that were there would bring a second C library.  So there is no LLVM (the
// kernels of an exported program are compiled already), no libcurl, no decoder of pictures and sound.  And it has no
// TLS: GnuTLS cannot be linked in, as one of the libraries that it needs exists only to open others.  libmicrohttpd
// asks for GnuTLS by name; each function says that it has failed, and `weft serve --ssl-key-file` that TLS did not start.
#include <stddef.h>

void *dlopen(const char *name, int flags);
void *dlsym(void *handle, const char *name);
int dlclose(void *handle);
char *dlerror(void);
long weft_without_tls(void);

void *dlopen(const char *name, int flags) { (void)name; (void)flags; return NULL; }
void *dlsym(void *handle, const char *name) { (void)handle; (void)name; return NULL; }
int dlclose(void *handle) { (void)handle; return 0; }
char *dlerror(void) { static char why[] = "this program is static, and opens no libraries"; return why; }

long weft_without_tls(void) { return -1250; }          // GNUTLS_E_UNIMPLEMENTED_FEATURE

// GNUTLS_NAMES(F): the names that this system's libmicrohttpd asks for, as the build finds them.
#include "gnutls_names.h"
#define FAILS(name) __asm__(".weak " #name "\n.set " #name ", weft_without_tls\n");
GNUTLS_NAMES(FAILS)
