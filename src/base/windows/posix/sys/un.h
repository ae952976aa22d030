// Unix sockets: not supported yet.
#ifndef WEFT_WINDOWS_UN_H
#define WEFT_WINDOWS_UN_H
struct sockaddr_un { unsigned short sun_family; char sun_path[108]; };
#endif
