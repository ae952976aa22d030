// What takes the place of libraries in the static program (cmake/static.cmake).
//
// A static program opens no libraries: those that were there would bring a second C library.  So there is no LLVM (the
// kernels of an exported program are compiled already), no libcurl, no decoder of pictures and sound.  And it has no
// TLS: GnuTLS cannot be linked in, as one of the libraries that it needs exists only to open others.  libmicrohttpd
// asks for GnuTLS by these names; each says that it has failed, and `weft serve --ssl-key-file` that TLS did not start.
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

#define FAILS(name) __asm__(".weak gnutls_" #name "\n.set gnutls_" #name ", weft_without_tls\n");
FAILS(alpn_set_protocols)
FAILS(bye)
FAILS(certificate_allocate_credentials)
FAILS(certificate_free_credentials)
FAILS(certificate_server_set_request)
FAILS(certificate_set_dh_params)
FAILS(certificate_set_retrieve_function2)
FAILS(certificate_set_retrieve_function3)
FAILS(certificate_set_x509_key_mem)
FAILS(certificate_set_x509_key_mem2)
FAILS(certificate_set_x509_trust_mem)
FAILS(cipher_get)
FAILS(credentials_set)
FAILS(deinit)
FAILS(dh_params_deinit)
FAILS(dh_params_import_pkcs3)
FAILS(dh_params_init)
FAILS(global_deinit)
FAILS(global_init)
FAILS(handshake)
FAILS(init)
FAILS(malloc)
FAILS(priority_deinit)
FAILS(priority_init)
FAILS(priority_set)
FAILS(protocol_get_version)
FAILS(psk_allocate_server_credentials)
FAILS(psk_free_server_credentials)
FAILS(psk_set_server_credentials_function)
FAILS(record_check_pending)
FAILS(record_get_direction)
FAILS(record_recv)
FAILS(record_send)
FAILS(session_get_ptr)
FAILS(session_set_ptr)
FAILS(strerror)
FAILS(transport_set_int2)
