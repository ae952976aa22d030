// address: the kind of a network address, by IANA's registries of special addresses (RFC 6890 and its successors) and
// by the metadata addresses of clouds.
#ifndef WEFT_ADDRESS_H
#define WEFT_ADDRESS_H
#include <sys/socket.h>
#include "base/base.h"

enum address_kind {
  ADDRESS_PUBLIC,            // on the Internet
  ADDRESS_PRIVATE,           // this machine, or a private network
  ADDRESS_SPECIAL            // link-local, cloud metadata, multicast, unspecified, reserved, other address families
};
// An IPv4 address within an IPv6 one (mapped, or NAT64) has the kind of the IPv4 address.
enum address_kind address_kind_of(const struct sockaddr *a);
// "192.0.2.1" or "2001:db8::1": true, and the address with port 0.
bool address_parse(const char *text, struct sockaddr_storage *out);
bool address_same(const struct sockaddr *x, const struct sockaddr *y);           // ignores ports
#endif
