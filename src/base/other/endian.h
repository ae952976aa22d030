// Orders of bytes, for systems without this header: all of them are little-endian machines.
#ifndef WEFT_OTHER_ENDIAN_H
#define WEFT_OTHER_ENDIAN_H
#define htole16(x) (x)
#define htole32(x) (x)
#define htole64(x) (x)
#define le16toh(x) (x)
#define le32toh(x) (x)
#define le64toh(x) (x)
#define htobe64(x) __builtin_bswap64(x)
#define be64toh(x) __builtin_bswap64(x)
#endif
