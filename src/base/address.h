// address: what a network address is for. By the registries of special addresses of IANA (RFC 6890 and what came after
// it), and by where clouds answer machines about themselves.
#ifndef WEFT_ADDRESS_H
#define WEFT_ADDRESS_H
#include <sys/socket.h>
#include "base/base.h"

enum address_kind {
  ADDRESS_PUBLIC,            // of the Internet
  ADDRESS_PRIVATE,           // this machine, or a network of somebody's own
  ADDRESS_SPECIAL            // link-local, metadata of clouds, multicast, unspecified, reserved, of other families
};
// An IPv4 address within an IPv6 one (mapped, or of NAT64) is what the IPv4 address is.
enum address_kind address_kind_of(const struct sockaddr *a);
// "192.0.2.1" and "2001:db8::1": true, and the address with port 0.
bool address_parse(const char *text, struct sockaddr_storage *out);
bool address_same(const struct sockaddr *x, const struct sockaddr *y);           // whatever the ports
#endif
