// The table of address ranges: see address.h. A range comes before the wider ranges that contain it.
#include "base/address.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

typedef struct range4 { uint8_t at[4]; int bits; enum address_kind kind; } range4;
typedef struct range6 { uint8_t at[16]; int bits; enum address_kind kind; } range6;

static const range4 ranges4[] = {
  {{0}, 8, ADDRESS_SPECIAL},
  {{10}, 8, ADDRESS_PRIVATE},
  {{100, 100, 100, 200}, 32, ADDRESS_SPECIAL},         // metadata
  {{100, 64}, 10, ADDRESS_PRIVATE},                    // carrier-grade NAT
  {{127}, 8, ADDRESS_PRIVATE},
  {{168, 63, 129, 16}, 32, ADDRESS_SPECIAL},           // metadata
  {{169, 254}, 16, ADDRESS_SPECIAL},                   // link-local; metadata
  {{172, 16}, 12, ADDRESS_PRIVATE},
  {{192, 0, 0}, 24, ADDRESS_SPECIAL},
  {{192, 0, 2}, 24, ADDRESS_SPECIAL},
  {{192, 88, 99}, 24, ADDRESS_SPECIAL},
  {{192, 168}, 16, ADDRESS_PRIVATE},
  {{198, 18}, 15, ADDRESS_SPECIAL},
  {{198, 51, 100}, 24, ADDRESS_SPECIAL},
  {{203, 0, 113}, 24, ADDRESS_SPECIAL},
  {{224}, 3, ADDRESS_SPECIAL},
};

static const range6 ranges6[] = {
  {{[15] = 1}, 128, ADDRESS_PRIVATE},
  {{0xfd, 0x00, 0x0e, 0xc2, [14] = 0x02, 0x54}, 128, ADDRESS_SPECIAL},           // metadata
  {{0xfd, 0x20, 0x00, 0xce, [14] = 0x02, 0x54}, 128, ADDRESS_SPECIAL},           // metadata
  {{0xfc}, 7, ADDRESS_PRIVATE},
  {{0x20, 0x01}, 23, ADDRESS_SPECIAL},                 // Teredo among others
  {{0x20, 0x01, 0x0d, 0xb8}, 32, ADDRESS_SPECIAL},
  {{0x20, 0x02}, 16, ADDRESS_SPECIAL},                 // 6to4: relayed to the IPv4 address inside
  {{0x26, 0x20, 0x00, 0x4f, 0x80}, 48, ADDRESS_SPECIAL},
  {{0x3f, 0xff}, 20, ADDRESS_SPECIAL},
  {{0x20}, 3, ADDRESS_PUBLIC},
};

static bool has_prefix(const uint8_t *at, const uint8_t *with, int bits) {
  int whole = bits / 8, rest = bits % 8;
  return !memcmp(at, with, (size_t)whole) && (!rest || (at[whole] ^ with[whole]) >> (8 - rest) == 0);
}

static enum address_kind kind_of_4(const uint8_t at[4]) {
  for (size_t i = 0; i < COUNT(ranges4); i++)
    if (has_prefix(at, ranges4[i].at, ranges4[i].bits)) return ranges4[i].kind;
  return ADDRESS_PUBLIC;
}

static enum address_kind kind_of_6(const uint8_t at[16]) {
  static const uint8_t mapped[16] = {[10] = 0xff, 0xff}, nat64[16] = {0x00, 0x64, 0xff, 0x9b};
  enum { PREFIX = 96 };
  if (has_prefix(at, mapped, PREFIX) || has_prefix(at, nat64, PREFIX)) return kind_of_4(at + PREFIX / 8);
  for (size_t i = 0; i < COUNT(ranges6); i++)
    if (has_prefix(at, ranges6[i].at, ranges6[i].bits)) return ranges6[i].kind;
  return ADDRESS_SPECIAL;
}

enum address_kind address_kind_of(const struct sockaddr *a) {
  if (a->sa_family == AF_INET)
    return kind_of_4((const uint8_t *)&((const struct sockaddr_in *)(const void *)a)->sin_addr);
  if (a->sa_family == AF_INET6) return kind_of_6(((const struct sockaddr_in6 *)(const void *)a)->sin6_addr.s6_addr);
  return ADDRESS_SPECIAL;
}

bool address_parse(const char *text, struct sockaddr_storage *out) {
  struct sockaddr_in *four = (void *)out;
  struct sockaddr_in6 *six = (void *)out;
  memset(out, 0, sizeof *out);
  if (inet_pton(AF_INET, text, &four->sin_addr) == 1) { out->ss_family = AF_INET; return true; }
  if (inet_pton(AF_INET6, text, &six->sin6_addr) == 1) { out->ss_family = AF_INET6; return true; }
  return false;
}

bool address_same(const struct sockaddr *x, const struct sockaddr *y) {
  if (x->sa_family != y->sa_family) return false;
  if (x->sa_family == AF_INET)
    return !memcmp(&((const struct sockaddr_in *)(const void *)x)->sin_addr,
                   &((const struct sockaddr_in *)(const void *)y)->sin_addr, 4);
  return x->sa_family == AF_INET6 && !memcmp(&((const struct sockaddr_in6 *)(const void *)x)->sin6_addr,
                                             &((const struct sockaddr_in6 *)(const void *)y)->sin6_addr, 16);
}
