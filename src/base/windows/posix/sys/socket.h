// Sockets by Winsock.
#ifndef WEFT_WINDOWS_SOCKET_H
#define WEFT_WINDOWS_SOCKET_H
#define NOGDI
#include <winsock2.h>
#include <ws2tcpip.h>
#include "base/windows/posix/posix.h"
enum { SOCK_CLOEXEC = 0 };
enum { SHUT_RD = SD_RECEIVE, SHUT_WR = SD_SEND, SHUT_RDWR = SD_BOTH };
enum { MSG_NOSIGNAL = 0, MSG_DONTWAIT = 0, SOCK_NONBLOCK = 0x800 };
// A socket's number is a Windows handle instead of a descriptor: os_close_socket closes it. Errors are in errno.
int posix_socket(int family, int type, int protocol);
int posix_accept(int fd, struct sockaddr *a, socklen_t *n);
int posix_bind(int fd, const struct sockaddr *a, socklen_t n);
int posix_listen(int fd, int most);
int posix_connect(int fd, const struct sockaddr *a, socklen_t n);
ssize_t posix_send(int fd, const void *from, size_t n, int flags);
ssize_t posix_recvfrom(int fd, void *to, size_t n, int flags, struct sockaddr *a, socklen_t *size);
int posix_setsockopt(int fd, int level, int name, const void *at, socklen_t n);
int posix_getsockopt(int fd, int level, int name, void *at, socklen_t *n);
#define socket posix_socket
#define accept posix_accept
#define bind posix_bind
#define listen posix_listen
#define connect posix_connect
#define send posix_send
#define recv(fd, to, n, flags) posix_recvfrom(fd, to, n, flags, NULL, NULL)
#define recvfrom posix_recvfrom
#define setsockopt posix_setsockopt
#define getsockopt posix_getsockopt
int socketpair(int family, int type, int protocol, int fds[2]);
#endif
